"""Running numbers of result books: each passive party's peers hold them, and notice an older copy of its book.

A passive party sends, signed, how many numbers it has ever answered the active party's organisation, in its consent and
again as a run ends. All parties keep the highest one, and send it back with their next consent. A party whose own book
shows a lower number than it signed before refuses, and so do its peers: an older copy of the book was put in its
place, and would answer rows again. Numbers that a peer counts after the last time that it spoke are not covered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from securevfl.errors import AuditError, InputError, ProtocolError
from securevfl.ledger import PublicSigningKey
from securevfl.party_context import PartyContext
from securevfl.privacy import HeldNumber
from securevfl.transport import PASSIVE, Scalar

__all__ = ["compare_running", "hold_running", "running_fields"]

_SIGNED = "securevfl running number v1"
_LARGEST = 1 << 62


def running_fields(site: PartyContext, *, held: bool = True) -> dict[str, Scalar]:
    """The running numbers that this party sends: of its own book, for each active party, and what it holds of others'.

    Args:
        site: the party's context.
        held: whether to send what it holds, too.
    """
    keys, found = site.ledger.pins, dict[str, Scalar]()
    if site.held.path is None:
        return found
    for owner in site.label_owners:
        if site.role == PASSIVE and owner in keys and site.results.path is not None:
            number = site.results.running(site.organisation_of(owner))
            found[f"running {owner}"] = number
            found[f"signed {owner}"] = site.ledger.sign_for_peers(_SIGNED, _signed_part(site.name, keys[owner], number))
        for name in site.passive if held else ():
            if name != site.name and name in keys and owner in keys:
                mine = site.held.find(keys[name], keys[owner])
                if mine is not None:
                    found[f"held {name} {owner}"] = mine.number
                    found[f"holds {name} {owner}"] = mine.signature
    return found


def compare_running(site: PartyContext, said: Mapping[str, Mapping[str, Scalar]]) -> None:
    """Compare the running numbers in the parties' consents with what they hold, and hold the new ones.

    Args:
        site: the party's context.
        said: peer → the fields of its consent message.

    Raises:
        InputError: this party's book, or a peer's, is an older copy.
        ProtocolError: a peer sent what is no running number, or not signed by whose it is.
    """
    if site.held.path is None:
        return
    if site.role == PASSIVE:
        _check_own_book(site, said)
    hold_running(site, said)


def hold_running(site: PartyContext, said: Mapping[str, Mapping[str, Scalar]]) -> None:
    """Hold the running numbers that peers sent.

    Args:
        site: the party's context.
        said: peer → the fields of its message.

    Raises:
        InputError: a peer's book is an older copy.
        ProtocolError: see `compare_running`.
    """
    keys = site.ledger.pins
    for name, meta in sorted(said.items()):
        for owner in site.label_owners:
            if f"running {owner}" not in meta or name not in keys or owner not in keys or site.held.path is None:
                continue
            found = _read_number(name, name, keys[name], keys[owner], meta, ("running", "signed"), owner)
            mine = site.held.find(keys[name], keys[owner])
            if mine is not None and found.number < mine.number:
                raise InputError(_describe_older(name, owner, found.number, mine.number, site.name))
            site.held.hold(keys[name], keys[owner], found)


def _check_own_book(site: PartyContext, said: Mapping[str, Mapping[str, Scalar]]) -> None:
    keys = site.ledger.pins
    for owner in site.label_owners:
        mine, what = site.results.running(site.organisation_of(owner)), f"{site.name} {owner}"
        for name, meta in sorted(said.items()):
            if f"held {what}" not in meta or owner not in keys or site.name not in keys:
                continue
            found = _read_number(name, site.name, keys[site.name], keys[owner], meta, ("held", "holds"), what)
            if mine < found.number:
                raise InputError(_describe_older(site.name, owner, mine, found.number, name))


def _read_number(
    sender: str, party: str, key: str, asker: str, meta: Mapping[str, Scalar], fields: tuple[str, str], what: str
) -> HeldNumber:
    """A number in a message of `sender`, which `party` signed."""
    number, signature = (meta.get(f"{field} {what}") for field in fields)
    if type(number) is not int or not 0 <= number < _LARGEST or not isinstance(signature, str):
        raise ProtocolError(f"{sender!r} sent no running number of {party!r}'s result book: {number!r:.40}")
    try:
        PublicSigningKey.from_hex(key).verify(_SIGNED, _signed_part(party, asker, number), signature)
    except AuditError as error:
        raise ProtocolError(
            f"{sender!r} sent a running number of {party!r}'s result book that {party!r} did not sign: {error}"
        ) from None
    return HeldNumber(number=number, signature=signature)


def _signed_part(party: str, asker: str, number: int) -> bytes:
    return json.dumps([party, asker, number]).encode()


def _describe_older(party: str, owner: str, shows: int, held: int, holder: str) -> str:
    return (
        f"{party!r}'s result book is older than what {holder!r} saw of it: it has counted {shows:,} numbers for "
        f"{owner!r}, and {party!r} signed {held:,} before. With an older copy it would answer rows again that it has "
        f"answered: {party!r} has to put its newest book back in its place. If that is lost, nobody knows what was "
        f"answered; {party!r} can only begin again under a new signing key and a new agreement, as its officer decides"
    )
