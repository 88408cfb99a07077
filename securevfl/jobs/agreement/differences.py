"""What two parties' proposals differ in, by field, on both sides.

A peer whose certificate is known, but whose agreement is another one, learns which *fields* differ, never a value: both
sides send a short hash of each field, keyed with the digests of both proposals. Whoever holds neither proposal cannot
check a guess of a value against such a hash; whoever holds both knows the values anyway. A peer that holds one of them,
as a peer does, can guess a value of few possibilities, say the number of epochs: of a proposal that its own party was
asked to sign or is about to be, which is meant for its eyes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from typing import Any

from securevfl.jobs.agreement.proposal import Proposal

__all__ = ["differences", "field_digests", "fields_of", "leaves", "named_differences"]

_BYTES = 8
_MOST = 512


def fields_of(proposal: Proposal) -> dict[str, str]:
    """Field → value in words, of all fields: ``{"job.epochs": "10", "party.bank.table.numbers": …}``."""
    tree = proposal.tree()
    tree["party"] = {
        card["name"]: {key: value for key, value in card.items() if key != "name"} for card in tree["party"]
    }
    return dict(leaves(tree))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and value, as a text, of all that is no section."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield path, json.dumps(value, ensure_ascii=False)
    else:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)


def differences(mine: Proposal, theirs: Proposal, *, me: str = "this one", peer: str = "the other") -> list[str]:
    """What differs, one sentence a field: ``"job.epochs: bank has 10, shop has 12"``; empty for the same proposal.

    Args:
        mine: one proposal.
        theirs: another.
        me: who has the first.
        peer: who has the second.
    """
    one, other = fields_of(mine), fields_of(theirs)
    found = [
        f"{path}: {me} has {one.get(path, 'nothing')[:80]}, {peer} has {other.get(path, 'nothing')[:80]}"
        for path in dict.fromkeys([*one, *other])
        if one.get(path) != other.get(path)
    ]
    return found if found or mine.digest == theirs.digest else ["the same words in other bytes"]


def field_digests(proposal: Proposal, peer_digest: str) -> dict[str, str]:
    """Field → short hash of its value, to send to a peer that has another proposal.

    Args:
        proposal: this party's.
        peer_digest: `Proposal.digest` of the peer's, as its hello gave it.
    """
    key = "".join(sorted((proposal.digest, peer_digest))).encode()
    return {
        path: hmac.digest(key, path.encode() + b"\0" + value.encode(), hashlib.sha256)[:_BYTES].hex()
        for path, value in list(fields_of(proposal).items())[:_MOST]
    }


def named_differences(proposal: Proposal, peer_digest: str, theirs: Mapping[str, str], peer: str) -> list[str]:
    """Which fields differ, in words, from what the peer sent; this party's own values, never the peer's.

    Args:
        proposal: this party's.
        peer_digest: of the peer's.
        theirs: as `field_digests` at the peer made them; nothing of it is believed but that it differs.
        peer: its name.
    """
    own, mine = fields_of(proposal), field_digests(proposal, peer_digest)
    found = [
        f"{path}: {value[:80]} here, {'other' if path in theirs else 'nothing'} at {peer}"
        for path, value in own.items()
        if mine.get(path) != theirs.get(path)
    ]
    more = sum(1 for path in theirs if path not in own)
    return found + ([f"{more} field{'s' * (more != 1)} that only {peer} has"] if more else [])
