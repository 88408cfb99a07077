"""List the fields in which two proposals differ.

Between files, the list has both values. Between a party and a peer with another proposal it has none: each field has a
digest, from which `securevfl_net.session.facts` makes the few bytes that a hello carries. A peer learns from them which
fields differ. Since it can also check a guess of a value, they go only to peers whose certificate this party's own
agreement names, which were meant to see the whole proposal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from securevfl.agreement.proposal import Proposal

__all__ = ["field_digests", "fields_of", "find_differences", "flatten_fields"]


def fields_of(proposal: Proposal) -> dict[str, str]:
    """Field → value in words, of all fields: ``{"job.epochs": "10", "party.bank.table.numbers": …}``."""
    tree = proposal.to_tree()
    tree["party"] = {
        card["name"]: {key: value for key, value in card.items() if key != "name"} for card in tree["party"]
    }
    return dict(flatten_fields(tree))


def flatten_fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and value, as text, of everything that is not a section."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten_fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield path, json.dumps(value, ensure_ascii=False)
    else:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)


def find_differences(mine: Proposal, theirs: Proposal, *, me: str = "this one", peer: str = "the other") -> list[str]:
    """One sentence for each field that differs: ``"job.epochs: bank has 10, shop has 12"``; empty for equal proposals.

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


def field_digests(proposal: Proposal) -> dict[str, bytes]:
    """Field → SHA-256 of its name and value."""
    return {path: hashlib.sha256(f"{path}\0{value}".encode()).digest() for path, value in fields_of(proposal).items()}
