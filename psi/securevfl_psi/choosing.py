"""`auto`: which of `dh` and `ot` finds the common rows sooner, by the sizes that both announced and the link.

A model of one core a party, with constants of one machine (``benchmarks/psi_two_processes.py`` at 2^20 a side): both
parties compute at the same time, and bytes move after that. What a fresh process compiles first is not in it: 0.6 s for
`dh`, 0.3 s for `ot` on that machine. By it `ot` computes less from some ten thousand identifiers on. On a slow link
`dh` catches up: at equal sizes it moves 80 bytes for an identifier, and `ot` about 93. Both ends compute it from the
same numbers, so they choose alike.

`auto` weighs time alone. What a party can do that deviates differs a little, see `docs/psi.md`: whoever wants one of
the two names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securevfl_psi.oblivious import row_count, token_bytes

__all__ = ["Choice", "choose"]

_PRODUCT = 7e-6  # seconds of a scalar product, with what belongs to it
_START = 0.2  # of the base transfers and their round trips
_ENCODED, _LOOKED_UP = 2e-6, 1.3e-6  # for an identifier of the client, and of the server


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        protocol: one of the two; or what was named, where nothing was to choose.
        why: in a sentence, with the estimates.
    """

    protocol: Literal["dh", "ot", "unbalanced", "unsafe_salted_hash"]
    why: str


def choose(client: int, server: int, link: float | None = None) -> Choice:
    """The faster one.

    Args:
        client: size of the set of the party that asks.
        server: of the other one.
        link: megabits a second between them; None where it is not what limits.
    """
    sizes = f"{client:,} identifiers ask {server:,}"
    seconds = {
        "dh": _PRODUCT * max(2 * client, client + server),
        "ot": _START + _ENCODED * client + _LOOKED_UP * server,
    }
    megabytes = {
        "dh": (64 * client + 16 * server) / 1e6,
        "ot": (64 * row_count(client) + token_bytes(client, server) * server) / 1e6 + 0.016,
    }
    over = ""
    if link is not None:
        over = f" over {link:g} Mbit/s"
        seconds = {name: value + 8 * megabytes[name] / link for name, value in seconds.items()}
    chosen: Literal["dh", "ot"] = "ot" if seconds["ot"] < seconds["dh"] else "dh"
    estimates = ", ".join(f"{name} about {seconds[name]:.1f} s and {megabytes[name]:.1f} MB" for name in ("dh", "ot"))
    return Choice(chosen, f"{sizes}{over}: {estimates}")
