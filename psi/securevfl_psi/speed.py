"""What parties tell of their machines' speed, for `auto`.

`auto` chooses between two protocols whose costs differ by machine: without AVX-512 a scalar product takes four times as
long, a row of `ot` hardly longer. So each party tells the peer four times, each rounded to a quarter power of two, and
its cores. Both compute the choice from the same figures. `securevfl_psi_cli.calibration` measures them.

The figures contain no secret, but they show what class of CPU a party has. `UNTOLD` is what a party sends that does not
tell. A party that lies moves the choice between two protocols that both accepted.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, fields

from securevfl_psi.errors import MalformedError

__all__ = ["UNTOLD", "Speed", "picoseconds"]

_MOST_CORES = 256
_MOST_STEP = 93  # 10 ms


@dataclass(frozen=True)
class Speed:
    """What a party tells of its machine. A time is q, a whole number, for 2^(q/4) nanoseconds.

    Attributes:
        product: a scalar product of `dh`, with its hashing and checks, on one core.
        encode: an identifier at the client of `ot`.
        look_up: an identifier at the server of `ot`.
        transfers: this party's half of the base transfers of `ot`, divided by their number, 512.
        cores: that `dh` may use, 1 to 256.
    """

    product: int
    encode: int
    look_up: int
    transfers: int
    cores: int

    @classmethod
    def from_seconds(cls, product: float, encode: float, look_up: float, transfers: float, cores: int) -> Speed:
        """Round seconds to quarter powers of two."""
        return cls(
            _round_seconds(product),
            _round_seconds(encode),
            _round_seconds(look_up),
            _round_seconds(transfers),
            max(1, min(_MOST_CORES, cores)),
        )

    def to_json(self) -> list[int]:
        """As a list, in the order of the attributes."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, value: object, whose: str) -> Speed:
        """Check and decode what a peer's `to_json` returned.

        Raises:
            MalformedError: not five whole numbers in their ranges.
        """
        if not (
            isinstance(value, list)
            and len(value) == len(fields(cls))
            and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
            and all(0 <= one <= _MOST_STEP for one in value[:-1])
            and 1 <= value[-1] <= _MOST_CORES
        ):
            raise MalformedError(
                f"{whose} tells {str(value)[:60]!r} of its machine; expected four whole numbers from 0 to {_MOST_STEP} "
                f"and its cores, 1 to {_MOST_CORES}"
            )
        return cls(*value)

    def format_lines(self) -> list[tuple[str, str]]:
        """Format the figures for a person: pairs of a name and a time."""
        times = [f"{picoseconds(step) / 1e6:.3g} µs" for step in self.to_json()[:-1]]
        names = ("dh, a product", "ot, encode", "ot, look up", "ot, a transfer")
        return [*zip(names, times, strict=True), ("cores", str(self.cores))]

    def take_least(self, other: Speed) -> Speed:
        """Take the least time of each kind, and this one's cores."""
        return Speed(
            min(self.product, other.product),
            min(self.encode, other.encode),
            min(self.look_up, other.look_up),
            min(self.transfers, other.transfers),
            self.cores,
        )


UNTOLD = Speed(product=51, encode=44, look_up=41, transfers=69, cores=1)
"""One core with AVX-512 IFMA: what a party tells that does not tell its speed."""


def picoseconds(step: int) -> int:
    """The time 2^(step/4) ns in picoseconds, the same integer on every machine."""
    return 1000 * math.isqrt(math.isqrt(1 << (step + 80))) >> 20


def _round_seconds(seconds: float) -> int:
    return max(0, min(_MOST_STEP, round(4 * math.log2(max(seconds * 1e9, 1.0)))))
