"""Two parties with different agreements learn at both ends which fields differ, and no value."""

from __future__ import annotations

import hashlib
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securevfl_net.incarnation import Incarnation
from securevfl_net.session import Refused, SessionEnd
from securevfl_net.session.facts import MOST, differing_fields, encode_facts

from .ends import Pair

FIELDS = {"id": "1", "job.epochs": "10", "job.seed": "0", "party.bank.table.numbers": '["age"]'}
digests = st.dictionaries(st.text(max_size=20), st.binary(min_size=32, max_size=32), max_size=20)


def _digests(fields: dict[str, str]) -> dict[str, bytes]:
    return {name: hashlib.sha256(f"{name}={value}".encode()).digest() for name, value in fields.items()}


def _words(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """What both ends are told."""
    ends = [
        SessionEnd(
            me,
            peer,
            agreement=hashlib.sha256(str(fields).encode()).digest(),
            own=Incarnation(1, secrets.token_bytes(16)),
            fields=_digests(fields),
        )
        for me, peer, fields in (("bank", "shop", one), ("shop", "bank", other))
    ]
    Pair((ends[0], ends[1])).meet()
    told = [event for end in ends for event in end.take_events()]
    assert [event.code for event in told if isinstance(event, Refused)] == ["other-agreement"] * 2
    assert not any(end.is_up for end in ends)
    return [event.words for event in told if isinstance(event, Refused)]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": "2", "job.epochs": "12"}, "they differ in job.epochs"),
        ({"id": "2", "party.bank.table.numbers": "[]", "job.seed": "7"}, "in job.seed, party.bank.table.numbers"),
        ({"id": "2"}, "they differ in id alone"),
        ({"id": "2", "serving.asks": "bank"}, "they differ in serving.asks"),
    ],
)
def test_both_ends_are_told_the_fields(changes: dict[str, str], named: str) -> None:
    for words in _words(FIELDS, FIELDS | changes):
        assert words.endswith(named)
    for words in _words(FIELDS | changes, FIELDS):
        assert named in words or "1 that only the peer has" in words


def test_many_fields_are_counted() -> None:
    many = {f"a.rather.long.field.number.{i}": str(i) for i in range(400)}
    for words in _words(FIELDS | many, FIELDS | dict.fromkeys(many, "other")):
        assert "and 190 more" in words
        assert len(words.encode()) <= 400


def test_no_value_crosses_and_no_two_connections_say_the_same() -> None:
    fields = _digests({"job.epochs": "10"})
    said = {encode_facts(fields, secrets.token_bytes(16)) for _ in range(50)}
    assert len(said) == 50
    assert all(len(one) == 6 for one in said)


@given(digests, digests, st.binary(min_size=16, max_size=16))
def test_exactly_what_differs_is_named(mine: dict[str, bytes], theirs: dict[str, bytes], salt: bytes) -> None:
    found = differing_fields(mine, encode_facts(theirs, salt), salt)
    assert found[: len(mine)][: sum(name in found for name in mine)] == [
        name for name in mine if theirs.get(name) != mine[name]
    ]
    assert differing_fields(mine, encode_facts(mine, salt), salt) == []


@given(st.binary(max_size=2 * MOST), st.binary(min_size=16, max_size=16))
def test_whatever_a_peer_sends_is_compared(theirs: bytes, salt: bytes) -> None:
    found = differing_fields(_digests(FIELDS), theirs, salt)
    assert len(found) <= len(FIELDS) + 1
    assert all(name in FIELDS or name.endswith("that only the peer has") for name in found)
