"""The end of a run: each party sends every peer its signed ledger head and stores theirs in its closing line."""

from __future__ import annotations

from securevfl.party.running_numbers import hold_running, running_fields
from securevfl.party_context import PartyContext
from securevfl.privacy import fan_out
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole

__all__ = ["EXCHANGES", "exchange_ledger_heads"]

_HEAD = "ledger/head"
_ROLES: tuple[PartyRole, ...] = (ACTIVE, PASSIVE, COORDINATOR)
EXCHANGES = tuple(
    Exchange(_HEAD, Kind.CONTROL, sender, receiver, "signed head of the ledger")
    for sender in _ROLES
    for receiver in _ROLES
)
"""Between any two parties, as a run ends well."""


async def exchange_ledger_heads(site: PartyContext) -> None:
    """Send this party's signed ledger head to all peers that it has met, and receive theirs; with the running number of
    its result book, where it keeps one.

    Raises:
        ProtocolError: a peer's head is not signed with the key that it introduced itself with.
    """
    met = [link for link in site.other_links if link.peer in site.ledger.peers]
    word = site.ledger.sign_head() | running_fields(site, held=False)
    await fan_out(met, lambda link: link.send(Kind.CONTROL, _HEAD, meta=word))
    for link in met:
        said = (await link.receive(Kind.CONTROL, _HEAD)).meta
        site.ledger.take_head(link.peer, said)
        hold_running(site, {link.peer: said})
