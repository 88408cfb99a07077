"""A candidate of ``algorithm="auto"`` whose training diverges: every party of the job leaves it out before the next one
begins.

A party that notices it sends its outcome of the candidate over every link at once, where its peers expect another
message. Then each party reads every link up to that peer's outcome, and drops what was on its way. So all of them know
the same outcome, and no link still has a message of this candidate when the next one begins. An attempt that resumes
begins with the names of the candidates that diverged before it: none of them is trained again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from securevfl.errors import ProtocolError, RangeError
from securevfl.privacy import Link, gather
from securevfl.privacy.outcomes import BEFORE, NumbersNotFinite
from securevfl.transport import Kind

__all__ = ["DIVERGENCE", "agree_diverged", "explain_all_diverged", "settle_candidate"]

DIVERGENCE = (RangeError, NumbersNotFinite)
"""Errors of a training that diverged."""

_EARLIER = "its training diverged in an earlier attempt, as {} recorded"
_PEER = "its training diverged, as {} noticed"


async def agree_diverged(known: Collection[str], named: Collection[str], links: Sequence[Link]) -> dict[str, str]:
    """Name → why, of each candidate that diverged in an earlier attempt as a peer knows; without those known here.

    Args:
        known: candidates of which this party recorded that they diverged.
        named: all candidates of the job.
        links: to the others that train.

    Raises:
        ProtocolError: a peer names something else.
    """
    found: dict[str, str] = {}
    mine = ",".join(name for name in named if name in known)

    async def exchange_names(link: Link) -> None:
        sending = link.send(Kind.CONTROL, BEFORE, meta={"names": mine})
        told = (await link.exchange(sending, link.receive(Kind.CONTROL, BEFORE))).meta.get("names")
        names = told.split(",") if isinstance(told, str) and told else []
        if not isinstance(told, str) or not set(names) <= set(named):
            raise ProtocolError(
                f"{link.peer!r} says that {told!r:.60} diverged, and the agreement names {', '.join(named)}",
                party=link.peer,
            )
        found.update((name, _EARLIER.format(repr(link.peer))) for name in names if name not in known)

    await gather(*map(exchange_names, links))
    return found


async def settle_candidate(name: str, why: str, links: Sequence[Link]) -> str:
    """End a candidate's training together with all others: why it diverged, at whichever party; empty if it did not.

    Args:
        name: of the candidate.
        why: it diverged here; empty if it did not, or if a peer said so.
        links: to the others that train.

    Raises:
        ProtocolError: a peer ends another candidate, or sent messages that nobody read.
    """
    diverged: list[str] = []

    async def settle(link: Link) -> None:
        if await link.settle_part(name, diverged=bool(why)):
            diverged.append(link.peer)

    await gather(*map(settle, links))
    first = min(diverged, default="")
    return why or (_PEER.format(repr(first)) if first else "")


def explain_all_diverged(left_out: dict[str, str]) -> RangeError:
    """The error of a job of which every candidate diverged, with the reason of each."""
    reasons = "".join(f"\n  {name}: {why}" for name, why in left_out.items())
    return RangeError(f"algorithm is 'auto', and the training of every candidate diverged:{reasons}")
