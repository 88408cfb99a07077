"""Contexts of parties in one process, linked by memory, for checks and tests of a cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from securevfl.party_context import PartyContext, PartySecret
from securevfl.privacy import Clock, Ledger, Policy
from securevfl.run.context_building import build_links
from securevfl.run.roster import Roster
from securevfl.transport import WINDOW, Channel, Exchange, Exchanges, memory_pair

__all__ = ["link_in_memory"]


def link_in_memory(
    *,
    passive: Sequence[str] = ("p1", "p2"),
    active: str = "a",
    coordinator: str = "",
    policy: Policy | None = None,
    declared: Iterable[Exchange] | None = None,
    window: int = WINDOW,
    seed: int = 1,
) -> dict[str, PartyContext]:
    """Build a context for each party, every two of them linked.

    Args:
        passive: names of the passive parties.
        active: name of the active party.
        coordinator: name of the party without data; empty for none.
        policy: of all parties; the default policy unless given.
        declared: messages that links pass; None to pass all.
        window: bytes on their way in each direction of each link; 1 lets one message through at a time.
        seed: of the job. The parties' secrets are 100, 101, …, in the order active, passive.
    """
    roster, own = Roster(owners=(active,), passive=tuple(passive), coordinator=coordinator), policy or Policy()
    names = [active, *passive, *([coordinator] if coordinator else [])]
    channels: dict[str, dict[str, Channel]] = {name: {} for name in names}
    for one, other in itertools.combinations(names, 2):
        channels[one][other], channels[other][one] = memory_pair(window)
    messages = None if declared is None else Exchanges(declared)
    made = {}
    for number, name in enumerate(names):
        ledger, clock = Ledger(name, run="r", job="j", role=roster.role_of(name)), Clock()
        made[name] = PartyContext(
            name=name,
            active=active,
            passive=roster.passive,
            coordinator=coordinator,
            links=build_links(roster, name, channels[name], messages, ledger=ledger, policy=own, clock=clock),
            ledger=ledger,
            policy=own,
            clock=clock,
            job="j",
            seed=seed,
            secret=PartySecret(100 + number),
            simulated=True,
        )
    return made
