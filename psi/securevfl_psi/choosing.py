"""`auto`: choose the faster of `dh` and `ot` from the set sizes that both parties announced and the link's speed.

The model assumes one core per party; its constants were measured on one machine (``benchmarks/psi_two_processes.py``
at 2^20 a side). It leaves out the kernels that a fresh process compiles first: 0.6 s for `dh`, 0.3 s for `ot` there.
From about ten thousand identifiers, `ot` computes less. On a slow link `dh` catches up, because its points move in both
directions at once while others are computed: at equal sizes 48 bytes an identifier in one direction and 40 in the
other, where `ot` moves 91 in one and then up to 11 in the other. ``benchmarks/psi_links.py`` measured both over lines
from 10 Mbit/s up. Both ends compute the choice from the same numbers, so they choose alike.

`auto` weighs time alone. The two protocols differ slightly in what a deviating party can do, see `docs/psi.md`; name
one of them if that matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securevfl_psi.oblivious import row_count, token_bytes

__all__ = ["Choice", "choose_protocol"]

_PRODUCT = 7e-6  # seconds for a scalar product with its hashing and checks
_START = 0.2  # seconds for the base transfers and their round trips
_ENCODED, _LOOKED_UP = 2e-6, 1.3e-6  # seconds for an identifier of the client, and of the server


@dataclass(frozen=True)
class Choice:
    """The protocol of a run and the reason for it.

    Attributes:
        protocol: one of the two, or the protocol that the terms named.
        why: the reason in one sentence, with the estimates.
    """

    protocol: Literal["dh", "ot", "unbalanced", "unsafe_salted_hash"]
    why: str


def choose_protocol(client: int, server: int, link: float | None = None) -> Choice:
    """Choose the protocol with the lower estimated time.

    Args:
        client: size of the set of the party that asks.
        server: size of the other party's set.
        link: megabits a second between them, each way; None if the link is not the bottleneck.
    """
    sizes = f"{client:,} identifiers ask {server:,}"
    seconds = {
        "dh": _PRODUCT * max(2 * client, client + server),
        "ot": _START + _ENCODED * client + _LOOKED_UP * server,
    }
    proofs = 8 * min(client, server)  # 16 bytes a common row, assuming that half of the smaller set is common
    points, answer = 32 * client, 32 * client + 16 * server
    rows, tokens = 64 * row_count(client) + 16e3, token_bytes(client, server) * server
    megabytes = {"dh": (points + answer + proofs) / 1e6, "ot": (rows + tokens + proofs) / 1e6}
    over = ""
    if link is not None:
        over = f" over {link:g} Mbit/s"
        rate = link * 1e6 / 8  # bytes a second
        # `dh` computes while bytes move, so the slower of the two counts; the phases of `ot` follow each other.
        seconds["dh"] = max(seconds["dh"], answer / rate) + proofs / rate
        seconds["ot"] += (rows + tokens + proofs) / rate
    chosen: Literal["dh", "ot"] = "ot" if seconds["ot"] < seconds["dh"] else "dh"
    estimates = ", ".join(f"{name} about {seconds[name]:.1f} s and {megabytes[name]:.1f} MB" for name in ("dh", "ot"))
    return Choice(chosen, f"{sizes}{over}: {estimates}")
