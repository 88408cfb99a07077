"""Parties' sites in one process, linked by memory, for checks and tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from securevfl.party_context import PartyContext, PartySecret
from securevfl.privacy import Clock, Ledger, Link, Policy
from securevfl.transport import (
    ACTIVE,
    PASSIVE,
    WINDOW,
    Exchange,
    Exchanges,
    MemoryChannel,
    PartyRole,
    memory_pair,
)

__all__ = ["sites"]


def sites(
    *,
    passive: Sequence[str] = ("p1", "p2"),
    active: str = "a",
    policy: Policy | None = None,
    declared: Iterable[Exchange] | None = None,
    window: int = WINDOW,
    seed: int = 1,
) -> dict[str, PartyContext]:
    """A site for each party, every two of them linked.

    Args:
        passive: names of the passive parties.
        active: name of the active party.
        policy: of all parties; the default policy unless given.
        declared: messages that links let through; all where it is None.
        window: bytes on their way in each direction of each link; 1 lets one message through at a time.
        seed: of the job. The parties' secrets are 100, 101, …, in the order active, passive.
    """
    names = [active, *passive]
    ends: dict[tuple[str, str], MemoryChannel] = {}
    for one, other in itertools.combinations(names, 2):
        ends[one, other], ends[other, one] = memory_pair(window)
    every = None if declared is None else Exchanges(declared)
    role: dict[str, PartyRole] = {name: ACTIVE if name == active else PASSIVE for name in names}
    made = {}
    for number, name in enumerate(names):
        own, ledger, clock = policy or Policy(), Ledger(name, run="r", job="j"), Clock()
        links = {
            peer: Link(
                name,
                peer,
                ends[name, peer],
                ledger,
                own,
                clock,
                sends=None if every is None else every.between(role[name], role[peer]),
                takes=None if every is None else every.between(role[peer], role[name]),
            )
            for peer in names
            if peer != name
        }
        made[name] = PartyContext(
            name=name,
            active=active,
            passive=tuple(passive),
            links=links,
            ledger=ledger,
            policy=own,
            clock=clock,
            job="j",
            seed=seed,
            secret=PartySecret(100 + number),
        )
    return made
