"""Peers and users that a review played: each test is an attack or a mistake that once went further than it should."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import Session
from securevfl_psi.arrays import duplicates, match, secret_order
from securevfl_psi.blinding import Gathered
from securevfl_psi.chunks import require_chunk
from securevfl_psi.dh import Receiver, Sender
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
from securevfl_psi.group import Scalar, hash_to_group
from securevfl_psi.identifiers import Identifiers, IdRules, normalise, normalise_column
from securevfl_psi.terms import PROTOCOLS, Lasting, Protocol, Role, Terms
from securevfl_psi.verify import order_digest
from securevfl_psi.wire import HEADER_BYTES, TAG_BYTES, FrameWriter, Kind

SESSION = Session(names=("a", "b"), nonce=bytes(16), rules_tag="")


def _terms(role: Role, protocol: Protocol = "dh", **more: Any) -> Terms:
    name, peer = ("bank", "shop") if role == "receiver" else ("shop", "bank")
    values: dict[str, Any] = {"min_intersection": 0, "salt": b"s" * 16}
    return Terms(name=name, peer=peer, role=role, protocol=protocol, **values | more)


class Hostile:
    """Says what it likes, in frames that are numbered and tagged as they should be."""

    def __init__(self, role: Role, target: Endpoint, rows: int, **more: Any) -> None:
        self.target, self._writer = target, FrameWriter()
        terms = _terms(role, target.terms.protocol, **more)
        self.session, _ = terms.agree((target.next_frame() or b"")[HEADER_BYTES:])
        self.say(Kind.HELLO, terms.hello(rows))
        self._writer.tag = hashlib.sha512(self.session.dst + role.encode()).digest()[:TAG_BYTES]

    def say(self, kind: Kind, payload: bytes) -> None:
        self.target.feed(self._writer.write(kind, payload))

    def heard(self, kind: Kind) -> bytes:
        """The payload of the next frame of this kind."""
        while frame := self.target.next_frame():
            if frame[5] == kind:
                return frame[HEADER_BYTES:]
        raise AssertionError(f"no {kind.name}")


def _points(count: int) -> bytes:
    return Scalar().multiply(hash_to_group([secrets.token_bytes(8) for _ in range(count)], b"x" * 45)).tobytes()


# Sets that come in crumbs


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_set_cannot_be_sent_row_by_row(protocol: Protocol) -> None:
    """Frames of one row cost the receiver half a millisecond and 450 bytes each: hours and gigabytes at 2^24."""
    bad = Hostile("sender", Endpoint(["ann"], _terms("receiver", protocol)), 1 << 24)
    kind, row = (Kind.TOKENS, bytes(16)) if protocol == "unsafe_salted_hash" else (Kind.POINTS, _points(1))
    with pytest.raises(MalformedError, match="chunk of 1 rows where 32768 are due"):
        bad.say(kind, row)


def test_answers_cannot_come_row_by_row_nor_after_the_last() -> None:
    bank = Endpoint(["ann", "bob"], _terms("receiver"))
    bad = Hostile("sender", bank, 1)
    bad.heard(Kind.POINTS)
    bad.say(Kind.TOKENS, bytes(range(32)))
    with pytest.raises(SetSizeError, match="3 rows or more; 2 were announced"):
        bad.say(Kind.TOKENS, bytes(16))
    bad = Hostile("sender", Endpoint(["ann", "bob"], _terms("receiver")), 1)
    bad.heard(Kind.POINTS)
    with pytest.raises(MalformedError, match="chunk of 1 rows where 2 are due"):
        bad.say(Kind.TOKENS, bytes(16))


@pytest.mark.parametrize("protocol", ["dh", "unsafe_salted_hash"])
def test_positions_cannot_come_one_by_one(protocol: Protocol) -> None:
    """Counting them anew with each frame took time that grew with the square of their number."""
    bad = Hostile("receiver", Endpoint([f"i{k}" for k in range(9)], _terms("sender", protocol)), 1)
    if protocol == "dh":
        bad.say(Kind.POINTS, _points(1))
    bad.say(Kind.POSITIONS, bytes(8))
    with pytest.raises(MalformedError, match="go on after a chunk of fewer than 32768"):
        bad.say(Kind.POSITIONS, (1).to_bytes(8, "little"))


def test_only_the_last_chunk_may_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 4)
    rows = np.zeros((4, 16), dtype=np.uint8)
    for done, size, count in ((0, 4, 9), (4, 4, 9), (8, 1, 9), (0, 4, 4), (0, 1, 1)):
        require_chunk(rows[:size], 16, done, count, "it")
    for done, size, count in ((0, 3, 9), (4, 1, 9), (0, 3, 4), (0, 0, 4)):
        with pytest.raises(MalformedError):
            require_chunk(rows[:size], 16, done, count, "it")
    for done, size, count in ((8, 2, 9), (9, 1, 9), (0, 1, 0)):
        with pytest.raises(SetSizeError):
            require_chunk(rows[:size], 16, done, count, "it")


def test_many_tokens_with_equal_halves_are_refused() -> None:
    """One round of matching for each of them: minutes for 2^24 salted hashes, which their sender makes up."""

    def equal_halves(count: int) -> np.ndarray:
        out = np.zeros((count, 16), dtype=np.uint8)
        out[:, 8:] = np.arange(1, count + 1, dtype="<u8").view(np.uint8).reshape(-1, 8)
        return out

    few = equal_halves(40)
    assert [found.tolist() for found in match(few[::-1], few)] == [list(range(40)), list(range(39, -1, -1))]
    assert duplicates(few) == 0
    with pytest.raises(MalformedError, match="more than 64 tokens have equal first halves"):
        match(np.zeros((1, 16), dtype=np.uint8), equal_halves(1000))


# Shapes and texts that were no error of this package


@pytest.mark.parametrize("given", [np.uint8(3), np.array(3, dtype=np.uint8), np.zeros((1, 1, 32), dtype=np.uint8), []])
def test_things_that_are_no_sets_of_points(given: Any) -> None:
    for step in (Sender(["a"], SESSION).double_chunk, Receiver(["a"], SESSION).take):
        with pytest.raises(MalformedError):
            step(given)


def test_positions_without_a_dimension() -> None:
    sender, receiver = Sender(["a"], SESSION), Receiver(["a"], SESSION)
    sender.blinded()
    with pytest.raises(PSIError, match="nothing was doubled"):
        sender.rows(np.array(0))
    sender.double(receiver.blinded())
    with pytest.raises(MalformedError, match="int64 \\(\\); int64 \\(n,\\) was expected"):
        sender.rows(np.array(0))


@pytest.mark.parametrize("more", [{"name": "\ud800"}, {"peer": "b\udfff"}, {"context": "\udc80"}])
def test_names_that_no_encoding_can_carry(more: dict[str, str]) -> None:
    with pytest.raises(PSIError, match="lone surrogate"):
        Terms(**{"name": "a", "peer": "b", "role": "sender"} | more)  # type: ignore[arg-type]
    assert Terms(name="\ud7ff", peer="\ue000", role="sender").peer == "\ue000"


def test_long_numbers_are_looked_at_once() -> None:
    """Time that grows with the square of the length: this text took minutes."""
    with pytest.raises(IdentifierError, match="200001 bytes"):
        normalise(["0" * 200_000 + "x"], IdRules(numeric=True))
    numbers = {"0": "0", "000": "0", "+0.00": "0", "0070.": "70", "+": "+", "": "", "0x": "0x", "00.1": "00.1"}
    assert {text: IdRules(numeric=True).apply(text) for text in numbers} == numbers


def test_gathered_rows_can_be_followed_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for segment in (1 << 22, 2):
        monkeypatch.setattr(Gathered, "_SEGMENT", segment)
        gathered, rows = Gathered(16, 9, "it"), np.arange(48, dtype=np.uint8).reshape(3, 16)
        for _ in range(2):
            gathered.add(rows)
            assert np.array_equal(gathered.whole(3), rows)


# What the peer hears, and what it must not find out


def test_a_refusal_reaches_a_peer_that_has_heard_nothing_yet() -> None:
    """It replaces what waits to be sent, and so takes the number of the first of those."""
    bank, shop = Endpoint(["a", "b", "c"], _terms("receiver")), Endpoint(["a"], _terms("sender", max_set_size=2))
    with pytest.raises(SetSizeError):
        shop.feed(bank.next_frame() or b"")
    with pytest.raises(PeerRefused, match="larger than it accepts"):
        bank.feed(shop.next_frame() or b"")
    assert shop.next_frame() is None


def test_a_refusal_in_the_middle_reaches_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("blinding", "chunks", "conversations.base"):
        monkeypatch.setattr(f"securevfl_psi.{module}.CHUNK", 2)
    bank, shop = Endpoint(["a", "b", "c"], _terms("receiver")), Endpoint(["a"], _terms("sender"))
    shop.feed(bank.next_frame() or b"")
    bank.feed(shop.next_frame() or b"")
    frames = [bank.next_frame() or b"", bank.next_frame() or b""]
    with pytest.raises(MalformedError):  # the first is answered, but the answer has not left yet
        shop.feed(frames[0] + frames[1][:-1] + b"\xff")
    with pytest.raises(PeerRefused, match="not what the protocol allows"):
        bank.feed(shop.next_frame() or b"")


def test_a_peer_that_refused_is_told_no_more() -> None:
    """The positions of common rows were still on their way out."""
    bank, shop = Endpoint(["ann"], _terms("receiver")), Endpoint(["ann"], _terms("sender"))
    while not bank._out or bank._out[0][0] != Kind.POSITIONS:
        for end, peer in ((bank, shop), (shop, bank)):
            if frame := end.next_frame():
                peer.feed(frame)
    with pytest.raises(PeerRefused):
        bank.feed(shop._writer.write(Kind.REFUSED, b"policy"))
    assert bank.next_frame() is None


def test_padding_does_not_stand_out_in_a_later_run() -> None:
    """With kept keys the points of rows come back; those of the padding have to come back, too."""
    mine, theirs = Lasting(), Lasting()
    seen = []
    for ids in (["ann", "bob"], ["ann", "bob"], ["ann", "bob", "cyd"]):
        bank = Endpoint(ids, _terms("receiver", "pseudonyms", lasting=mine, pad_to=20))
        bad = Hostile("sender", bank, 0, lasting=theirs)
        points = bad.heard(Kind.POINTS)
        seen.append({points[i : i + 32] for i in range(0, len(points), 32)})
    assert len(seen[0]) == 20
    assert seen[0] == seen[1]
    assert len(seen[0] & seen[2]) == 19
    fresh = Endpoint(["ann"], _terms("receiver", "pseudonyms", pad_to=20))
    assert not seen[0] & {Hostile("sender", fresh, 0, lasting=theirs).heard(Kind.POINTS)[:32]}


def test_padding_differs_between_parties_and_numbers() -> None:
    one, two = (Receiver([], SESSION, pad_to=300) for _ in range(2))
    assert len({row.tobytes() for party in (one, two) for row in party._hashed(np.arange(300))}) == 600


def test_salted_hashes_do_not_pretend_to_pad() -> None:
    """The receiver waited for rows that never came."""
    with pytest.raises(PSIError, match="does not pad"):
        _terms("sender", "unsafe_salted_hash", pad_to=5)


def test_parties_with_two_salts_do_not_find_nothing_in_common() -> None:
    bank = Endpoint(["ann"], _terms("receiver", "unsafe_salted_hash"))
    shop = Endpoint(["ann"], _terms("sender", "unsafe_salted_hash", salt=b"t" * 16))
    with pytest.raises(DisagreementError, match="another salt"):
        run_in_process(bank, shop)


def test_a_sender_of_salted_hashes_ends_with_the_first_digest() -> None:
    bank, shop = (Endpoint(["ann"], _terms(role, "unsafe_salted_hash")) for role in ("receiver", "sender"))
    run_in_process(bank, shop)
    with pytest.raises(MalformedError, match="never gets now"):
        shop.feed(bank._writer.write(Kind.DIGEST, bytes(64)))


@pytest.mark.parametrize("protocol", ["dh", "cardinality", "unsafe_salted_hash"])
def test_a_sender_that_is_told_too_few_has_no_result(protocol: Protocol) -> None:
    bank = Endpoint(["ann", "bob"], _terms("receiver", protocol))
    shop = Endpoint(["ann", "eve"], _terms("sender", protocol, min_intersection=2))
    with pytest.raises(SmallIntersectionError):
        run_in_process(bank, shop)
    with pytest.raises(PSIError, match="no result"):
        _ = shop.result


# Fuzzing with frames that fit


PAYLOADS = [b"", b"\0", bytes(8), bytes(16), bytes(32), bytes(64), b"\xff" * 8, b"\xff" * 32, b"[" * 4000, b"{}"]


def _changes(draw: Any, kind: Kind, payload: bytes) -> Iterator[tuple[Kind, bytes]]:
    """A frame left out, said twice, cut, made longer, filled with other bytes or of another kind."""
    what = draw(st.sampled_from(["drop", "twice", "cut", "grow", "other bytes", "other kind", "flip", "new"]))
    if what == "twice":
        yield from ((kind, payload), (kind, payload))
    elif what == "cut":
        yield kind, payload[: draw(st.integers(0, len(payload)))]
    elif what == "grow":
        yield kind, payload + draw(st.sampled_from([payload, *PAYLOADS]))
    elif what == "other bytes":
        yield kind, draw(st.sampled_from(PAYLOADS))
    elif what == "other kind":
        yield draw(st.sampled_from(Kind)), payload
    elif what == "flip" and payload:
        place = draw(st.integers(0, len(payload) - 1))
        yield kind, payload[:place] + bytes([payload[place] ^ draw(st.integers(1, 255))]) + payload[place + 1 :]
    elif what == "new":
        yield kind, payload
        yield draw(st.sampled_from(Kind)), draw(st.sampled_from(PAYLOADS))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PROTOCOLS), st.sampled_from(["receiver", "sender"]), st.data())
def test_whatever_a_peer_says_is_answered_or_refused(protocol: Protocol, role: Role, data: st.DataObject) -> None:
    """Frames with the right number and tag, but another content: an error of this package, or a sound result."""
    learns = data.draw(st.sampled_from(["both", "receiver"]))
    bank = Endpoint(["ann", "bob", "eve"], _terms("receiver", protocol, learns=learns))
    shop = Endpoint(["eve", "zoe"], _terms("sender", protocol, learns=learns))
    target, liar = (bank, shop) if role == "receiver" else (shop, bank)
    writer, lied = FrameWriter(), data.draw(st.sets(st.integers(0, 4), max_size=2))
    for number in range(30):
        try:
            if frame := target.next_frame():
                liar.feed(frame)
        except PSIError:
            return  # the liar's own end is confused by what its lies led to
        if not (frame := liar.next_frame()):
            continue
        said = [(Kind(frame[5]), frame[HEADER_BYTES:])]
        for kind, payload in _changes(data.draw, *said[0]) if number in lied else said:
            try:
                raw = writer.write(kind, payload)
            except MalformedError:
                continue
            try:
                target.feed(raw)
            except PSIError:
                refusal = target.next_frame()
                assert refusal is None or refusal[5] == Kind.REFUSED
                assert target.next_frame() is None
                assert not target.done
                return
            if target._talk is not None:
                other = "sender" if role == "receiver" else "receiver"
                writer.tag = hashlib.sha512(target._talk.session.dst + other.encode()).digest()[:TAG_BYTES]
    if target.done and target.result.rows is not None:
        assert set(target.result.rows.tolist()) <= set(range(3 if role == "receiver" else 2))


# What mutations of the code showed to be untested


def test_a_sender_answers_one_set_whichever_way_it_is_asked() -> None:
    points = np.frombuffer(_points(5), dtype=np.uint8).reshape(-1, 32)
    sender = Sender(["a"], SESSION)
    sender.double(points[:2])
    with pytest.raises(PSIError, match="one session serves one intersection"):
        sender.double_chunk(points[2:])
    sender = Sender(["a"], SESSION, max_set_size=4)
    sender.blinded()
    sender.double_chunk(points[:2])
    sender.double_chunk(points[2:4])
    with pytest.raises(SetSizeError, match="5 points or more; at most 4"):
        sender.double_chunk(points[4:])
    sender = Sender(["a"], SESSION)
    sender.blinded()
    sender.double_chunk(points[:2])
    sender.rows(np.array([0]))
    with pytest.raises(PSIError, match="one session serves one intersection"):
        sender.double_chunk(points[2:])


def test_a_receiver_compares_once_and_not_before_it_sent() -> None:
    points = np.frombuffer(_points(3), dtype=np.uint8).reshape(-1, 32)
    for compare in ("finish", "cardinality"):
        with pytest.raises(PSIError, match="blinded\\(\\), which was not called"):
            getattr(Receiver(["a"], SESSION), compare)()
        empty = Receiver([], SESSION)
        empty.take(points)
        with pytest.raises(SetSizeError, match="3 points; 4 were announced"):
            getattr(empty, compare)(4)
        with pytest.raises(PSIError, match="out of order or twice"):
            getattr(empty, compare)(3)
    assert len(list(empty.chunks())) == 0
    with pytest.raises(PSIError, match="chunks was called out of order or twice"):
        next(empty.chunks())


def test_padding_is_nobodys_row() -> None:
    receiver, sender = Receiver(["a"], SESSION, pad_to=4), Sender(["a"], SESSION, pad_to=4)
    receiver._filler = sender._filler  # so that the padding is common, which takes a chance in 2^40
    matches = receiver.intersect(sender.blinded(), sender.double(receiver.blinded()))
    assert matches.receiver_rows.tolist() == [0]
    assert sender._order[matches.sender_positions].tolist() == [0]
    for number in (1, 3):
        other = Sender(["a"], SESSION, pad_to=4)
        other.blinded()
        other.double(Receiver(["b"], SESSION).blinded())
        with pytest.raises(MalformedError, match="only fills the set up"):
            other.rows(np.flatnonzero(other._order == number))
    bank, shop = (Endpoint(["ann"], _terms(role, "pseudonyms", pad_to=9)) for role in ("receiver", "sender"))
    run_in_process(bank, shop)
    for end in (bank, shop):
        assert end.result.pseudonyms is not None
        assert end.result.pseudonyms.own.shape == (1, 16)


def test_matching_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.arrays._PART", 4)
    rows = np.random.default_rng(0).integers(0, 256, (30, 16), dtype=np.uint8)
    found, places = match(rows, rows[::-2])
    assert found.tolist() == list(range(1, 30, 2))
    assert np.array_equal(rows[found], rows[::-2][places])


def test_equal_keys_of_an_order_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [bytes(24), np.array([2, 9, 1], dtype=np.uint64).tobytes()]
    monkeypatch.setattr(secrets, "token_bytes", lambda count: drawn.pop(0))
    assert secret_order(3).tolist() == [2, 0, 1]


def test_columns_in_lower_case_and_their_doubles() -> None:
    text = "".join(map(chr, range(33, 127)))
    assert list(normalise_column([text], IdRules(casefold=True))) == [text.casefold()]
    assert Identifiers.of_texts(["a", "b", "a", "b", "a", "a\0"]).doubled() == [(0, 2), (1, 3), (0, 4)]


def test_positions_are_sent_in_the_order_of_the_senders_secret() -> None:
    """In any other they would show how the receiver sorts its table."""
    ids = [f"i{k}" for k in range(40)]
    bank, shop = Endpoint(ids, _terms("receiver")), Endpoint(ids, _terms("sender"))
    while (frame := bank.next_frame() or b"")[5:6] != bytes([Kind.POSITIONS]):
        if frame:
            shop.feed(frame)
        if back := shop.next_frame():
            bank.feed(back)
    assert np.array_equal(np.frombuffer(frame[HEADER_BYTES:], dtype="<i8"), np.arange(40))
    keys = bank.next_frame() or b""
    key, digest = keys[HEADER_BYTES : HEADER_BYTES + 32], keys[HEADER_BYTES + 32 :]
    assert len(set(key)) > 8
    assert bank._talk is not None
    assert digest == order_digest(ids, key, bank._talk.session.dst.hex() + " receiver", bank._talk._rows)
    forged = shop._writer.write(Kind.DIGEST, bytes(32))
    with pytest.raises(DisagreementError, match="same common rows"):
        bank.feed(forged)


def test_more_positions_than_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("blinding", "chunks", "conversations.base"):
        monkeypatch.setattr(f"securevfl_psi.{module}.CHUNK", 2)
    bad = Hostile("receiver", Endpoint(["a", "b", "c"], _terms("sender")), 1)
    bad.say(Kind.POINTS, _points(1))
    bad.say(Kind.POSITIONS, bytes(16))
    with pytest.raises(SetSizeError, match="more positions than the 3 rows"):
        bad.say(Kind.POSITIONS, bytes(16))


def test_a_point_cannot_be_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent once, twice, four times, points would show by the count which of them are common."""
    for module in ("blinding", "chunks", "conversations.base"):
        monkeypatch.setattr(f"securevfl_psi.{module}.CHUNK", 2)
    bad = Hostile("receiver", Endpoint(["a"], _terms("sender", "cardinality")), 3)
    points = _points(2)
    bad.say(Kind.POINTS, points)
    with pytest.raises(MalformedError, match="come twice"):
        bad.say(Kind.POINTS, points[32:])


@pytest.mark.parametrize("protocol", ["dh", "cardinality"])
def test_a_sender_is_told_once_and_after_all_points(protocol: Protocol) -> None:
    last = (Kind.DIGEST, bytes(64)) if protocol == "dh" else (Kind.COUNT, bytes(8))
    bad = Hostile("receiver", Endpoint(["a", "b"], _terms("sender", protocol)), 1)
    with pytest.raises(MalformedError, match="never gets now"):
        bad.say(*last)
    bank, shop = (Endpoint(["a", "b"], _terms(role, protocol)) for role in ("receiver", "sender"))
    run_in_process(bank, shop)
    with pytest.raises(MalformedError, match="never gets now"):
        shop.feed(bank._writer.write(*last))


@pytest.mark.parametrize(("ids", "rows", "count"), [(["a"], 2, 2), (["a", "b"], 1, 2), (["a"], 1, 1 << 40)])
def test_counts_that_cannot_be(ids: list[str], rows: int, count: int) -> None:
    bad = Hostile("receiver", Endpoint(ids, _terms("sender", "cardinality")), rows)
    bad.say(Kind.POINTS, _points(rows))
    with pytest.raises(MalformedError, match=f"{count} common identifiers among {len(ids)} and {rows}"):
        bad.say(Kind.COUNT, count.to_bytes(8, "big"))


def test_a_digest_of_another_length() -> None:
    for size in (0, 63, 32):
        bad = Hostile("receiver", Endpoint([], _terms("sender")), 0)
        with pytest.raises(MalformedError, match="64 were expected"):
            bad.say(Kind.DIGEST, bytes(size))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_receiver_that_finds_too_few_tells_nobody(protocol: Protocol) -> None:
    bank = Endpoint(["ann", "bob"], _terms("receiver", protocol, min_intersection=2))
    shop = Endpoint(["ann", "eve"], _terms("sender", protocol))
    with pytest.raises(SmallIntersectionError, match="1 common identifiers; at least 2"):
        run_in_process(bank, shop)
    for end in (bank, shop):
        with pytest.raises(PSIError, match="no result"):
            _ = end.result
    exactly = Endpoint(["ann", "bob"], _terms("receiver", protocol, min_intersection=1))
    run_in_process(exactly, Endpoint(["ann", "eve"], _terms("sender", protocol)))
    assert exactly.result.count == 1


def test_a_sender_of_an_intersection_gets_no_tokens() -> None:
    bad = Hostile("receiver", Endpoint(["a"], _terms("sender")), 1)
    with pytest.raises(MalformedError, match="never gets now"):
        bad.say(Kind.TOKENS, bytes(16))


def test_salted_hashes_of_two_sessions_cannot_be_joined() -> None:
    said = set()
    for _ in range(2):
        bad = Hostile("receiver", Endpoint(["a"], _terms("sender", "unsafe_salted_hash")), 1)
        said.add(bad.heard(Kind.TOKENS))
    assert len(said) == 2


def test_everything_that_was_agreed_on_goes_into_the_session() -> None:
    tags = set()
    nonces = [bytes([number]) * 16 for number in range(4)]
    cases: list[dict[str, Any]] = [
        {},
        {"context": "x"},
        {"protocol": "cardinality"},
        {"rules": IdRules(casefold=True)},
        {"nonces": nonces[1:3]},
        {"nonces": nonces[::2]},
    ]
    for more in cases:
        own, other = more.pop("nonces", nonces[:2])
        bank, shop = _terms("receiver", nonce=own, **more), _terms("sender", nonce=other, **more)
        session, _ = bank.agree(shop.hello(1))
        assert session.dst == shop.agree(bank.hello(1))[0].dst
        tags.add(session.dst)
        with pytest.raises(MalformedError, match="repeats this party's nonce"):
            bank.agree(_terms("sender", nonce=own, **more).hello(1))
    assert len(tags) == len(cases)


def test_only_a_hello_is_a_hello() -> None:
    bank = Endpoint(["a"], _terms("receiver"))
    with pytest.raises(MalformedError, match="a POINTS came before the hello"):
        bank.feed(FrameWriter().write(Kind.POINTS, _terms("sender").hello(1)))


def test_an_end_is_done_when_all_was_said_and_nothing_refused() -> None:
    bank, shop = Endpoint(["a"], _terms("receiver")), Endpoint(["a"], _terms("sender"))
    while shop._talk is None or shop._talk.result is None:
        for end, peer in ((bank, shop), (shop, bank)):
            if (end is bank or shop._talk is None or shop._talk.result is None) and (frame := end.next_frame()):
                peer.feed(frame)
    assert not shop.done  # its answer has not left
    bank.feed(shop.next_frame() or b"")
    assert shop.done
    assert bank.done
    with pytest.raises(PeerRefused):
        bank.feed(shop._writer.write(Kind.REFUSED, b"error"))
    assert not bank.done
    with pytest.raises(PSIError, match="no result"):
        _ = bank.result


def test_a_payload_one_byte_too_long_is_refused_by_its_header() -> None:
    frame = FrameWriter().write(Kind.HELLO, bytes(4096))
    with pytest.raises(MalformedError, match="4097 bytes is announced; at most 4096"):
        Endpoint(["a"], _terms("receiver")).feed(frame[:12] + (4097).to_bytes(4, "big") + frame[16:HEADER_BYTES])


def test_a_sender_cannot_confirm_by_repeating_what_it_heard() -> None:
    bank = Endpoint(["ann"], _terms("receiver"))
    shop = Endpoint(["ann"], _terms("sender"))
    frame = b""
    while not frame or frame[5] != Kind.DIGEST:
        for source, target in ((bank, shop), (shop, bank)):
            frame = source.next_frame() or b""
            if frame and frame[5] == Kind.DIGEST:
                break
            if frame:
                target.feed(frame)
    shop.feed(frame)
    answer = shop.next_frame() or b""
    echo = answer[:HEADER_BYTES] + frame[HEADER_BYTES + 32 :]
    with pytest.raises(DisagreementError, match="same common rows"):
        bank.feed(echo)
