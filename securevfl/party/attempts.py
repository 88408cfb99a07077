"""Attempts at one run, compared: parties that keep journals tell each other, with their consent, how many attempts
each knows of.

Each journal counts what its own party released. A party whose files were lost counts from nothing again, and its ε
would be too small. Its peers' journals show that: once all have consented, each party writes the attempt's number down,
says so, and waits for the others, before anything of the run is sent. So where one has *begun* an attempt, every other
had *agreed* to it. A party that does not know of an attempt that a peer began has lost lines. One that was killed in
between has lost nothing, and the numbers meet again at the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping

from securevfl.errors import InputError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import fan_out, lost_attempts
from securevfl.transport import Kind, Scalar

__all__ = ["agree_attempt", "told"]

_NUMBERS = ("agreed", "begun", "start")


def told(site: PartyContext) -> dict[str, Scalar]:
    """What a party that keeps its journal in a file says of it; empty for others."""
    journal = site.keeper.journal
    if journal.path is None:
        return {}
    return {"agreed": journal.agreed, "begun": journal.attempt, "start": site.keeper.start or 0}


async def agree_attempt(site: PartyContext, step: str, said: Mapping[str, Mapping[str, Scalar]]) -> None:
    """Compare this party's journal with its peers', and agree on the number of the attempt that begins.

    Args:
        site: the party's place.
        step: of the messages that say that the number is written down.
        said: peer → what it said with its consent; peers that keep no journal in a file are passed over.

    Raises:
        InputError: one of them, or this party, does not know of an attempt that another began; or they go on from
            different epochs.
        ProtocolError: a peer says what no journal can hold.
    """
    mine = told(site)
    peers = {name: meta for name, meta in said.items() if "begun" in meta}
    if not mine or not peers:
        return
    every = {site.name: _numbers(site.name, mine)}
    every |= {name: _numbers(name, meta) for name, meta in peers.items()}
    lost = lost_attempts({name: (agreed, begun) for name, (agreed, begun, _) in every.items()})
    if lost:
        raise InputError(lost)
    starts = {name: start for name, (_, _, start) in sorted(every.items())}
    if len(set(starts.values())) > 1:
        raise InputError(
            "the parties would go on from different epochs ("
            + ", ".join(f"{name}: {start}" for name, start in starts.items())
            + "): bring the missing checkpoints back, or begin anew in another folder at all parties"
        )
    attempt = max(agreed for agreed, _, _ in every.values()) + 1
    site.keeper.journal.agree(attempt)
    meta: dict[str, Scalar] = {"job": site.job, "attempt": attempt}
    links = [site.links[name] for name in sorted(peers)]
    await fan_out(links, lambda link: link.send(Kind.CONTROL, step, meta=meta))
    for link in links:
        found = (await link.receive(Kind.CONTROL, step)).meta.get("attempt")
        if found != attempt:
            raise ProtocolError(f"{link.peer!r} counts attempt {found!r:.20}, {site.name!r} attempt {attempt}")


def _numbers(name: str, meta: Mapping[str, Scalar]) -> tuple[int, int, int]:
    found = [meta.get(what) for what in _NUMBERS]
    agreed, begun, start = (n if type(n) is int and 0 <= n < 1 << 31 else -1 for n in found)
    if min(agreed, begun, start) < 0 or begun > agreed:
        raise ProtocolError(f"{name!r} says of its journal {found!r:.80}, which no journal holds")
    return agreed, begun, start
