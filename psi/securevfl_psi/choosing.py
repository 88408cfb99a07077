"""`auto`: which of `dh` and `ot` finds the common rows sooner, by the sizes that both announced and the link.

A model of one core a party, with constants of one machine (``benchmarks/psi_two_processes.py`` at 2^20 a side). What a
fresh process compiles first is not in it: 0.6 s for `dh`, 0.3 s for `ot` on that machine. By it `ot` computes less from
some ten thousand identifiers on. On a slow link `dh` catches up, as its points move in both directions at once and
while others are computed: at equal sizes 48 bytes for an identifier in one direction and 40 in the other, where `ot`
moves 91 in one and up to 11 in the other, one after the other. ``benchmarks/psi_links.py`` measured both over lines
from 10 Mbit/s up. Both ends compute it from the same numbers, so they choose alike.

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
        link: megabits a second between them, each way; None where it is not what limits.
    """
    sizes = f"{client:,} identifiers ask {server:,}"
    seconds = {
        "dh": _PRODUCT * max(2 * client, client + server),
        "ot": _START + _ENCODED * client + _LOOKED_UP * server,
    }
    told = 8 * min(client, server)  # which rows are common: 16 bytes for each, as if half of the smaller set were
    points, answer = 32 * client, 32 * client + 16 * server
    rows, tokens = 64 * row_count(client) + 16e3, token_bytes(client, server) * server
    megabytes = {"dh": (points + answer + told) / 1e6, "ot": (rows + tokens + told) / 1e6}
    over = ""
    if link is not None:
        over = f" over {link:g} Mbit/s"
        second = link * 1e6 / 8  # its bytes
        seconds["dh"] = max(seconds["dh"], answer / second) + told / second
        seconds["ot"] += (rows + tokens + told) / second
    chosen: Literal["dh", "ot"] = "ot" if seconds["ot"] < seconds["dh"] else "dh"
    estimates = ", ".join(f"{name} about {seconds[name]:.1f} s and {megabytes[name]:.1f} MB" for name in ("dh", "ot"))
    return Choice(chosen, f"{sizes}{over}: {estimates}")
