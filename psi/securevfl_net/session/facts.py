"""Find the fields in which two agreements differ, from a few bytes in a hello.

Each field of a party's agreement has a name and a digest of its value. A hello carries six bytes for each: three of the
name's SHA-256, and three of a keyed hash of the digest, with the connection's random id as key. A receiver with another
agreement finds by them which of its own fields differ, and lists these in its refusal. No value crosses. A peer can
check a guess of a value, as with any digest; only peers whose certificate this party's own agreement names ever get a
hello.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

__all__ = ["MOST", "differing_fields", "encode_facts"]

_NAME = _VALUE = 3
MOST = 200 * (_NAME + _VALUE)
"""Bytes of facts; the fields after these are not compared."""


def encode_facts(fields: Mapping[str, bytes], salt: bytes) -> bytes:
    """Encode the fields for a hello.

    Args:
        fields: name → digest of its value.
        salt: the connection's id.
    """
    return b"".join(_hash_name(name) + _hash_value(digest, salt) for name, digest in fields.items())[:MOST]


def differing_fields(fields: Mapping[str, bytes], theirs: bytes, salt: bytes) -> list[str]:
    """The names of own fields that differ from the peer's or that it lacks; and how many it has that this end has not.
    Of a peer that has more fields than fit into its facts, those that it could not name are taken to be the same.

    Args:
        fields: this end's.
        theirs: the peer's facts; nothing of them is believed but that they differ.
        salt: the connection's id.
    """
    size = _NAME + _VALUE
    pairs = {theirs[at : at + _NAME]: theirs[at + _NAME : at + size] for at in range(0, len(theirs), size)}
    whole = len(theirs) < MOST
    found = [
        name
        for name, digest in fields.items()
        if (whole or _hash_name(name) in pairs) and pairs.pop(_hash_name(name), b"") != _hash_value(digest, salt)
    ]
    return found + ([f"{len(pairs)} that only the peer has"] if pairs else [])


def _hash_name(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:_NAME]


def _hash_value(digest: bytes, salt: bytes) -> bytes:
    return hmac.digest(salt, digest, "sha256")[:_VALUE]
