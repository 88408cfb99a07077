"""`auto`: choose the faster of `dh` and `ot` from both sizes, the speed of both machines (see `speed`), and the
link's.

In `dh` both parties multiply points at the same time, on all their cores, while bytes move; so the slowest of the three
counts. In `ot` one waits for the other: base transfers, the client's encoding, its rows, the server's look-ups and its
tokens follow each other, on one core each. On a slow link `dh` catches up: at equal sizes it moves 48 bytes an
identifier in one direction and 40 in the other, where `ot` moves 91 in one and then up to 11 in the other.
``benchmarks/psi_links.py`` measured both over lines from 10 Mbit/s up. Both ends compute the choice in whole numbers
from the same figures, so they choose alike.

Two figures are not measured: 50 ms for the round trips of the base transfers, and half of the smaller set in common.

`auto` weighs time alone. The two protocols differ slightly in what a deviating party can do, see `docs/psi.md`; name
one of them if that matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securevfl_psi.oblivious import row_count, token_bytes
from securevfl_psi.speed import Speed, picoseconds

__all__ = ["Choice", "choose_protocol"]

_TRANSFERS = 512
_ROUND_TRIPS = 50_000_000_000  # picoseconds for the round trips of `ot`'s base transfers
_SECOND = 1_000_000_000_000


@dataclass(frozen=True)
class Choice:
    """The protocol of a run and the reason for it.

    Attributes:
        protocol: one of the two, or the protocol that the terms named.
        why: the reason in one sentence, with the estimates.
    """

    protocol: Literal["dh", "ot", "unbalanced", "unsafe_salted_hash"]
    why: str


def choose_protocol(client: int, server: int, link: float | None = None, *, speeds: tuple[Speed, Speed]) -> Choice:
    """Choose the protocol with the lower estimated time.

    Args:
        client: size of the set of the party that asks.
        server: size of the other party's set.
        link: megabits a second between them, each way; None if the link is not the bottleneck.
        speeds: what the client and the server told of their machines.
    """
    one, other = speeds
    products = (
        picoseconds(one.product) * 2 * client // one.cores,
        picoseconds(other.product) * (client + server) // other.cores,
    )
    times = {
        "dh": max(products),
        "ot": _ROUND_TRIPS
        + (picoseconds(one.transfers) + picoseconds(other.transfers)) * _TRANSFERS
        + picoseconds(one.encode) * client
        + picoseconds(other.look_up) * server,
    }
    proofs = 8 * min(client, server)  # 16 bytes a common row, assuming that half of the smaller set is common
    points, answer = 32 * client, 32 * client + 16 * server
    rows, tokens = 64 * row_count(client) + 16_000, token_bytes(client, server) * server
    moved = {"dh": points + answer + proofs, "ot": rows + tokens + proofs}
    over = ""
    if link is not None:
        over = f" over {link:g} Mbit/s"
        rate = max(1, round(min(link, 1e9) * 125_000))  # bytes a second
        times["dh"] = max(times["dh"], _SECOND * answer // rate) + _SECOND * proofs // rate
        times["ot"] += _SECOND * (rows + tokens + proofs) // rate
    chosen: Literal["dh", "ot"] = "ot" if times["ot"] < times["dh"] else "dh"
    estimates = ", ".join(
        f"{name} about {times[name] / _SECOND:.1f} s and {moved[name] / 1e6:.1f} MB" for name in ("dh", "ot")
    )
    return Choice(chosen, f"{client:,} identifiers ask {server:,}{over}: {estimates}")
