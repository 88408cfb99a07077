"""Two-party protocols over bytes: one contract for all of them, awkward sets, and peers that do not keep to it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.engine import available_paths, choose_engine
from securevfl_psi import conversations
from securevfl_psi.endpoint import Endpoint, run_in_process
from securevfl_psi.errors import (
    DisagreementError,
    IdentifierError,
    MalformedError,
    PeerRefused,
    PSIError,
    SetSizeError,
    SmallIntersectionError,
)
from securevfl_psi.group import hash_points
from securevfl_psi.identifiers import IdRules
from securevfl_psi.terms import PROTOCOLS, LastingKey, Learns, Protocol
from securevfl_psi.wire import HEADER_BYTES, Kind
from support.psi_ends import BANK, SHOP, ends, terms, until

TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=6)  # assigned in this Python's Unicode


def _check(bank: Endpoint, shop: Endpoint, mine: list[str], theirs: list[str], learns: Learns) -> None:
    """What each party may know, and that it is right."""
    common = set(mine) & set(theirs)
    protocol = bank.terms.protocol
    assert bank.result.count == len(common)
    assert (bank.result.peer_size, shop.result.peer_size) >= (len(theirs), 0)
    both = learns == "both" and protocol != "pseudonyms"
    assert shop.result.count == (len(common) if both else None)
    if protocol == "cardinality":
        assert bank.result.rows is None
        assert shop.result.rows is None
        return
    assert bank.result.rows is not None
    assert {mine[row] for row in bank.result.rows.tolist()} == common
    if both:
        assert shop.result.rows is not None
        assert bank.result.verified
        assert shop.result.verified
        assert [mine[i] for i in bank.result.rows.tolist()] == [theirs[j] for j in shop.result.rows.tolist()]
    else:
        assert shop.result.rows is None
        assert bank.result.verified == (protocol != "pseudonyms")  # a token proves the sender's row, to whoever has it
        assert not shop.result.verified


@pytest.mark.parametrize("learns", ["both", "receiver"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [(BANK, SHOP), (BANK, BANK), (BANK, []), ([], SHOP), ([], []), (["a"], ["b"]), (["a"], ["a"])],
    ids=["some", "all", "none there", "none here", "none", "one apart", "one"],
)
def test_every_protocol_gives_what_it_says(
    protocol: Protocol, learns: Learns, mine: list[str], theirs: list[str]
) -> None:
    bank, shop = ends(mine, theirs, protocol, learns=learns)
    run_in_process(bank, shop)
    _check(bank, shop, mine, theirs, learns)


@settings(max_examples=25, deadline=None)
@given(st.sets(TEXTS, max_size=12), st.sets(TEXTS, max_size=12), st.sampled_from(PROTOCOLS))
def test_any_texts(mine: set[str], theirs: set[str], protocol: Protocol) -> None:
    rules = IdRules()

    def usable(texts: set[str]) -> list[str]:
        normal = {rules.apply(text): text for text in texts}
        return [text for key, text in sorted(normal.items()) if key]

    bank_ids, shop_ids = usable(mine), usable(theirs)
    bank, shop = ends(bank_ids, shop_ids, protocol)
    run_in_process(bank, shop)
    common = {rules.apply(text) for text in bank_ids} & {rules.apply(text) for text in shop_ids}
    assert bank.result.count == len(common)


@pytest.mark.parametrize("size", [2**k + d for k in (3, 9) for d in (-1, 0, 1)])
def test_sizes_around_powers_of_two(size: int) -> None:
    mine, theirs = [f"c{i}" for i in range(size)], [f"c{i}" for i in range(size // 2, size + 3)]
    bank, shop = ends(mine, theirs)
    run_in_process(bank, shop)
    _check(bank, shop, mine, theirs, "both")


def test_sets_of_more_than_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 8)
    mine, theirs = [f"c{i}" for i in range(61)], [f"c{i}" for i in range(20, 90)]
    for protocol in PROTOCOLS:
        bank, shop = ends(mine, theirs, protocol)
        run_in_process(bank, shop)
        _check(bank, shop, mine, theirs, "both")


def test_parties_on_different_code_paths_find_the_same() -> None:
    paths = available_paths()
    for mine, theirs in zip(paths, paths[1:] + paths[:1], strict=True):
        bank = Endpoint(BANK, terms("receiver"), by=choose_engine(mine))
        shop = Endpoint(SHOP, terms("sender"), by=choose_engine(theirs))
        run_in_process(bank, shop)
        _check(bank, shop, BANK, SHOP, "both")


@pytest.mark.parametrize("protocol", ["dh", "ot", "cardinality", "pseudonyms"])
def test_padding_hides_sizes_and_changes_nothing(protocol: Protocol) -> None:
    bank = Endpoint(BANK, terms("receiver", protocol, pad_to=50))
    shop = Endpoint(SHOP, terms("sender", protocol, pad_to=40))
    run_in_process(bank, shop)
    assert (bank.result.peer_size, shop.result.peer_size) == (40, 50)
    assert bank.result.count == 2


def test_pseudonyms_are_equal_where_identifiers_are_and_nowhere_else() -> None:
    bank, shop = ends(BANK, SHOP, "pseudonyms")
    run_in_process(bank, shop)
    mine, theirs = bank.result.pseudonyms, shop.result.pseudonyms
    assert mine is not None
    assert theirs is not None
    for i, one in enumerate(BANK):
        for j, other in enumerate(SHOP):
            assert bool((mine.own[i] == theirs.own[j]).all()) == (one == other)
    assert sorted(row.tobytes() for row in mine.peer) == sorted(row.tobytes() for row in theirs.own)
    assert len(theirs.peer) == 0
    again = ends(BANK, SHOP, "pseudonyms")
    run_in_process(*again)
    fresh = again[0].result.pseudonyms
    assert fresh is not None
    assert not {row.tobytes() for row in mine.own} & {row.tobytes() for row in fresh.own}


def test_pseudonyms_last_as_long_as_both_parties_keep_their_keys() -> None:
    kept = {side: LastingKey.from_bytes(LastingKey().to_bytes()) for side in ("receiver", "sender")}

    def pseudonyms(shop_ids: list[str], **changed: LastingKey) -> dict[str, bytes]:
        keys = kept | changed
        bank = Endpoint(BANK, terms("receiver", "pseudonyms", lasting=keys["receiver"]))
        shop = Endpoint(shop_ids, terms("sender", "pseudonyms", lasting=keys["sender"]))
        run_in_process(bank, shop)
        found = shop.result.pseudonyms
        assert found is not None
        return {name: token.tobytes() for name, token in zip(shop_ids, found.own, strict=True)}

    one, two = pseudonyms(SHOP), pseudonyms([*SHOP[::-1], "new"])
    assert two.items() >= one.items()
    assert not set(pseudonyms(SHOP, sender=LastingKey()).values()) & set(one.values())
    with pytest.raises(PSIError, match="'dh' draws fresh ones"):
        terms("receiver", lasting=kept["receiver"])
    for data in (
        b"",
        LastingKey().to_bytes()[:-1],
        LastingKey().to_bytes() + b"x",
        b"x" * len(LastingKey().to_bytes()),
    ):
        with pytest.raises(MalformedError, match="lasting"):
            LastingKey.from_bytes(data)
    assert kept["sender"].secret.hex() not in repr(kept["sender"])
    with pytest.raises(PSIError, match="31 and 16"):
        LastingKey(secret=bytes(31))


def test_cardinality_answers_in_a_secret_order() -> None:
    """If the sender kept the order, the receiver could find its rows."""
    names = [f"c{i}" for i in range(64)]
    orders = set()
    for _ in range(2):
        bank, shop = ends(names, names[:32], "cardinality")
        points = until(bank, shop, Kind.POINTS)
        shop.feed(points)
        answers = _rows(until(shop, bank, Kind.TOKENS), 16)
        place = {token.tobytes(): i for i, token in enumerate(answers)}
        sender = shop._talk._party  # type: ignore[union-attr]
        right = hash_points(sender._key.multiply(_rows(points, 32)), sender._session.dst)
        orders.add(tuple(place[token.tobytes()] for token in right))
    assert len(orders) == 2
    assert tuple(range(64)) not in orders


def _rows(frame: bytes, width: int) -> np.ndarray:
    return np.frombuffer(frame[HEADER_BYTES:], dtype=np.uint8).reshape(-1, width)


# Terms


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"protocol": "cardinality"}, "protocol 'cardinality'"),
        ({"rules": IdRules(casefold=True)}, "rules"),
        ({"learns": "receiver"}, "learns 'receiver'"),
        ({"context": "another job"}, "context 'another job'"),
        ({"name": "mallory"}, "name 'mallory'"),
        ({"role": "receiver"}, "role 'receiver'"),
    ],
)
def test_parties_under_other_terms_are_refused(other: dict[str, Any], key: str) -> None:
    bank = Endpoint(BANK, terms("receiver"))
    shop = Endpoint(SHOP, terms("sender", **other))
    with pytest.raises(DisagreementError, match=key):
        run_in_process(shop, bank)
    with pytest.raises(PSIError, match="no result"):
        _ = bank.result


def test_the_refused_peer_is_told_why_and_nothing_else() -> None:
    bank = Endpoint(BANK, terms("receiver", min_intersection=3))
    shop = Endpoint(SHOP, terms("sender"))
    with pytest.raises(SmallIntersectionError, match="2 common identifiers; the policy demands at least 3"):
        run_in_process(bank, shop)
    with pytest.raises(PSIError, match="has failed"):
        shop.feed(b"")
    bank, shop = Endpoint(BANK, terms("receiver", min_intersection=3)), Endpoint(SHOP, terms("sender"))
    answers = until(shop, bank, Kind.ANSWERS)
    with pytest.raises(SmallIntersectionError):
        bank.feed(answers)
    refusal = bank.next_frame() or b""
    assert refusal[HEADER_BYTES:] == b"policy"
    with pytest.raises(PeerRefused, match="its policy does not allow"):
        shop.feed(refusal)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rows": -1}, "-1"),
        ({"rows": True}, "True"),
        ({"rows": "3"}, "3"),
        ({"nonce": "00"}, "not 16 bytes"),
        ({"nonce": 5}, "not 16 bytes"),
        ({"nonce": None}, "not 16 bytes"),
    ],
)
def test_hostile_hellos(change: dict[str, object], match: str) -> None:
    hello = json.loads(terms("sender").encode_hello(3)) | change
    with pytest.raises(MalformedError, match=match):
        terms("receiver").accept_hello(json.dumps(hello).encode())
    for data in (b"", b"[]", b"{", b"\xff", b"[" * 4000):
        with pytest.raises(MalformedError, match="JSON"):
            terms("receiver").accept_hello(data)


def test_a_set_larger_than_accepted_is_refused_before_it_comes() -> None:
    bank = Endpoint(BANK, terms("receiver", max_set_size=3))
    shop = Endpoint(SHOP, terms("sender"))
    with pytest.raises(SetSizeError, match="4 rows; at most 3"):
        run_in_process(bank, shop)
    with pytest.raises(SetSizeError, match="raise"):
        Endpoint(SHOP, terms("sender", max_set_size=3))
    with pytest.raises(SetSizeError, match="raise"):
        Endpoint(SHOP, terms("sender", pad_to=3))


def test_own_identifiers_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(IdentifierError, match="'ann' in rows 0 and 1"):
        Endpoint(["ann", " ann"], terms("receiver"))


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"role": "both"}, "role 'both'"),
        ({"protocol": "magic"}, "magic"),
        ({"learns": "nobody"}, "nobody"),
        ({"name": ""}, "1 to 64"),
        ({"name": "shop"}, "different names"),
        ({"context": "x" * 65}, "65 characters"),
        ({"nonce": b"short"}, "nonce of 5"),
        ({"protocol": "unsafe_salted_hash", "salt": b"salt"}, "salt of 4 bytes"),
    ],
)
def test_terms_of_another_form_are_refused(values: dict[str, Any], match: str) -> None:
    with pytest.raises(PSIError, match=match):
        terms("receiver", **values)


def test_every_conversation_is_covered() -> None:
    assert set(conversations.CONVERSATIONS) == set(PROTOCOLS)
