"""One of two parties that compute on shares: its link, its source of random numbers, and what it lets be opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.replicated import Opening
from securevfl_crypto.replicated.opening import Openings
from securevfl_crypto.two.correlations import Correlations
from securevfl_crypto.two.transfers import Transfers
from securevfl_crypto.two.wire import Expected, TwoWire, swap

from securevfl.party_context import PartyContext

__all__ = ["CountedWire", "TwoParty", "count_openings"]


def count_openings(
    *, validations: int, rows: int, width: int, asked: int, trains: bool, judged: bool, metrics: int
) -> dict[str, Opening]:
    """What two parties let be opened in a job.

    Args:
        validations: sets of metrics that are left; 0 where none is opened.
        rows: that are tested or predicted.
        width: numbers that a row's answer has.
        asked: times that answers are opened.
        trains: whether a model is trained.
        judged: whether it has to prove useful.
        metrics: numbers of a set; 1 where only one bit of it is opened.
    """
    return {
        "range": Opening(validations + 1, (0, 1), 1),
        "useful": Opening(int(trains and judged), (0, 1), 1),
        "metrics": Opening(validations, (0,), metrics, each=1),
        "predictions": Opening(asked, (0,), None, total=rows * width),
    }


class CountedWire:
    """A link that counts what this party sends.

    Args:
        wire: the link.

    Attributes:
        octets: bytes of arrays that were sent.
    """

    def __init__(self, wire: TwoWire) -> None:
        self.me = wire.me
        self._wire = wire
        self.octets = 0

    async def send(self, label: str, arrays: Sequence[np.ndarray]) -> None:
        """See `TwoWire.send`."""
        self.octets += sum(array.nbytes for array in arrays)
        await self._wire.send(label, arrays)

    async def receive(self, label: str, expect: Expected) -> list[np.ndarray]:
        """See `TwoWire.receive`."""
        return await self._wire.receive(label, expect)


@dataclass
class TwoParty:
    """One of the two.

    Attributes:
        site: its place.
        computing: names of both, the active party first.
        wire: between them.
        source: of random numbers.
        declared: what may be opened → how often, to whom, how many values.
        compares: whether of the metrics of an epoch only one bit is opened: whether they are the best so far.
    """

    site: PartyContext
    computing: tuple[str, ...]
    wire: CountedWire
    source: Correlations
    declared: Mapping[str, Opening]
    compares: bool = False
    _openings: Openings = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._openings = Openings(self.declared)

    @property
    def is_active(self) -> bool:
        """Whether it has the labels."""
        return self.wire.me == 0

    @property
    def transfers(self) -> Transfers:
        """Oblivious transfers from its source."""
        return self.source.transfers

    def begin_stage(self, names: Sequence[str]) -> None:
        """Allow the openings of an epoch; see `Openings.begin_stage`."""
        self._openings.begin_stage(names)

    async def open_words(
        self, name: str, words: np.ndarray, shifts: Sequence[int], sizes: Sequence[int]
    ) -> np.ndarray | None:
        """Open values to the active party, each without its lowest bits, and no more bits than it needs: an active
        party that deviates can make a value anything of rows, so what is opened says how much it can read.

        The passive party drops them from its summand, which is uniform for the active one: what is learned is the value
        rounded up or down by chance, without bias.

        Args:
            name: of the opening.
            words: this party's summands, uint64 (n, values).
            shifts: how many bits of each value are dropped.
            sizes: how many bits of the rest are sent of each, with one for the sign and one for the rounding.

        Returns:
            At the active party, int64 (n, values) in units of the last bit that is kept; None at the other.

        Raises:
            UndeclaredOpening: more than was declared.
        """
        self._openings.count_opening(name, words, (0,))  # type: ignore[arg-type]
        down, bits = np.array(shifts, dtype=np.uint64), np.array(sizes, dtype=np.uint64)
        mask = (np.uint64(1) << bits) - np.uint64(1)
        kept = (words >> down) & mask
        if not self.is_active:
            await self.wire.send(f"open {name}", [kept])
            return None
        (theirs,) = await self.wire.receive(f"open {name}", [(np.uint64, words.shape)])
        sign = np.uint64(1) << (bits - np.uint64(1))
        total = (((kept + theirs) & mask) ^ sign) - sign
        return np.asarray(total.view(np.int64) + (down > 0).astype(np.int64))

    async def open_bit(self, name: str, bit: np.ndarray) -> bool:
        """Open one shared bit, uint8 (), to both."""
        self._openings.count_opening(name, bit, (0, 1))  # type: ignore[arg-type]
        mine = np.asarray(bit, np.uint8).reshape(1)
        (theirs,) = await swap(self.wire, f"open {name}", [mine])
        return bool((mine[0] ^ theirs[0]) & 1)
