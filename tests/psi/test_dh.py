"""Two-party DH-PSI: exact on every shape of sets, bound to its session, and closed to hostile bytes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import (
    DHClient,
    DHServer,
    IdentifierError,
    MalformedError,
    PSIError,
    RowsDifferError,
    Session,
    SetSizeError,
    hash_many_to_u,
    intersect_in_process,
)
from securevfl_psi.blinding import RowBuffer
from support.small_order import SMALL_ORDER

P = 2**255 - 19


def _session(nonce: bytes | None = None, rules: str = "v1") -> Session:
    return Session(names=("bank", "shop"), nonce=nonce or secrets.token_bytes(16), rules_tag=rules)


def _compare(client: DHClient, server: DHServer) -> np.ndarray:
    """Both run to the point where the client knows its rows."""
    for points in client.blind_set():
        server.take_chunk(points)
        client.take_answers(server.answer_chunk())
    for tokens in server.token_chunks():
        client.take_tokens(tokens)
    return client.find_common_rows(server.size)


def _intersect(mine: list[str], theirs: list[str]) -> tuple[list[int], list[int]]:
    session = _session()
    client, server = DHClient(mine, session), DHServer(theirs, session)
    rows = _compare(client, server)
    found = server.find_proven_rows(client.outputs.prove_rows(rows))
    client.outputs.require_receipt([rows], server.outputs.make_receipt([found]))
    return rows.tolist(), found.tolist()


def _points(ids: list[str], session: Session | None = None) -> np.ndarray:
    """What a client sends."""
    return np.concatenate(list(DHClient(ids, session or _session()).blind_set()))


ids = st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=12)


@settings(max_examples=60, deadline=None)
@given(ids, ids, st.data())
def test_the_intersection_is_exact_and_its_rows_are_right(a: list[str], b: list[str], data: st.DataObject) -> None:
    shared = data.draw(st.lists(st.sampled_from(a), unique=True)) if a else []
    theirs = data.draw(st.permutations(list(dict.fromkeys(b + shared))))
    mine_rows, their_rows = _intersect(a, theirs)
    assert [a[row] for row in mine_rows] == [theirs[row] for row in their_rows]
    assert {a[row] for row in mine_rows} == set(a) & set(theirs)
    assert mine_rows == sorted(mine_rows)


@pytest.mark.parametrize(
    ("a", "b"),
    [([], []), (["x"], []), ([], ["x"]), (["x"], ["x"]), (["x"], ["y"]), (["é", "日本", "🎈"], ["🎈", "e", "é"])],
)
def test_small_and_strange_sets(a: list[str], b: list[str]) -> None:
    rows, _ = _intersect(a, b)
    assert {a[row] for row in rows} == set(a) & set(b)


def test_sets_are_sent_in_a_secret_order() -> None:
    names = [f"{i:03d}" for i in range(200)]
    session = _session()
    client, server = DHClient(names, session), DHServer(names, session)
    sent = []
    for points in client.blind_set():
        server.take_chunk(points)
        client.take_answers(server.answer_chunk())
    for tokens in server.token_chunks():
        sent.append(tokens)
        client.take_tokens(tokens)
    place = {token.tobytes(): number for number, token in enumerate(np.concatenate(sent))}
    positions = [place[token.tobytes()] for token in server.outputs.cut_tokens()]
    for order in (positions, client._order):
        assert sorted(order) == list(range(200))
        assert np.abs(np.corrcoef(order, np.arange(200))[0, 1]) < 0.35


def test_two_sessions_cannot_be_joined() -> None:
    def points(session: Session) -> set[bytes]:
        return {row.tobytes() for row in _points(["ann", "bob"], session)}

    nonce = secrets.token_bytes(16)
    assert not points(_session(nonce)) & points(_session(nonce))  # fresh scalars
    one, other = _session(nonce), _session()
    assert one.dst != other.dst
    assert one.dst != _session(nonce, "v2").dst
    assert one.dst != Session(names=("shop", "bank"), nonce=nonce, rules_tag="v1").dst
    assert (hash_many_to_u([b"ann"], one.dst) != hash_many_to_u([b"ann"], other.dst)).any()  # even under one scalar
    assert len(_compare(DHClient(["ann"], one), DHServer(["ann"], other))) == 0
    with pytest.raises(PSIError, match="at least 16"):
        _session(b"short")


def test_a_sessions_tag_depends_on_every_parameter() -> None:
    """On the protocol and the version too, and on where one name ends and the next begins."""
    usual = Session(names=("bank", "shop"), nonce=bytes(16), rules_tag="v1")
    others = [
        replace(usual, names=("shop", "bank")),
        replace(usual, names=("banks", "hop")),
        replace(usual, nonce=bytes(17)),
        replace(usual, rules_tag="v2"),
        replace(usual, version="v9"),
        replace(usual, protocol="ot"),
    ]
    assert len({one.dst for one in (usual, *others)}) == 7
    assert replace(usual, why="asked for").dst == usual.dst


def _point(value: int) -> np.ndarray:
    return np.frombuffer(value.to_bytes(32, "little"), dtype=np.uint8)


def _refused(bad: np.ndarray, match: str) -> None:
    """By a server as a client's points, and by a client as answers to its own."""
    with pytest.raises(MalformedError, match=match):
        DHServer(["x"], _session()).take_chunk(bad)
    client = DHClient(["a", "b", "c"], _session())
    list(client.blind_set())
    with pytest.raises(MalformedError, match=match):
        client.take_answers(bad)


@pytest.mark.parametrize("value", SMALL_ORDER)
def test_points_of_small_order_are_refused(value: int) -> None:
    bad = _points(["a", "b"])
    bad[1] = _point(value)
    _refused(bad, "small order")


@pytest.mark.parametrize(
    "value",
    [P, P + 1, 2**255 - 1, 2**255, 2**255 + 9, 2 * P - 1, 2 * P, 2 * P + 1, 2**256 - 1]
    + [P + value for value in SMALL_ORDER],
)
def test_coordinates_that_are_not_canonical_are_refused(value: int) -> None:
    bad = _points(["a", "b"])
    bad[0] = _point(value)
    _refused(bad, "not below 2")


@pytest.mark.parametrize(
    "damage",
    [
        lambda a: a[:, :31],
        lambda a: a.astype(np.int64),
        lambda a: a.ravel(),
        lambda a: np.concatenate([a, a[:1]]),
        lambda a: a.view(np.int8),
        lambda a: a.reshape(1, 2, 32),
        lambda a: a.tobytes(),
        lambda a: np.uint8(3),
        lambda a: np.array(3, dtype=np.uint8),
        lambda a: [],
    ],
    ids=["truncated", "type", "flat", "doubled", "signed", "deep", "bytes", "number", "no dimension", "list"],
)
def test_malformed_sets_are_refused(damage: Callable[[np.ndarray], np.ndarray]) -> None:
    _refused(damage(_points(["a", "b"])), "set")


def test_arrays_that_are_not_contiguous_are_read_right() -> None:
    session = _session()
    client, server = DHClient(["a", "b", "c"], session), DHServer(["c", "a"], session)
    wide = np.zeros((3, 64), dtype=np.uint8)
    wide[:, ::2] = next(client.blind_set())
    server.take_chunk(wide[:, ::2])
    client.take_answers(np.asfortranarray(server.answer_chunk()))
    client.take_tokens(np.asfortranarray(next(server.token_chunks())))
    rows = client.find_common_rows()
    assert rows.tolist() == [0, 2]
    assert server.find_proven_rows(np.asfortranarray(client.outputs.prove_rows(rows))).tolist() == [1, 0]


def test_sets_larger_than_allowed_or_announced_are_refused() -> None:
    points = _points(["a", "b", "c"])
    small = DHServer(["x"], _session(), max_set_size=2)
    with pytest.raises(SetSizeError, match="3 points or more; at most 2"):
        small.take_chunk(points)
    client = DHClient(["a"], _session(), max_set_size=2)
    client.take_tokens(np.zeros((2, 16), dtype=np.uint8))
    with pytest.raises(SetSizeError, match="at most 2"):
        client.take_tokens(np.ones((1, 16), dtype=np.uint8))
    client = DHClient(["a"], _session())
    list(client.blind_set())
    with pytest.raises(SetSizeError, match="3 points; 1 were sent"):
        client.take_answers(points)
    with pytest.raises(SetSizeError, match="0 points; 1 were sent"):
        client.find_common_rows()
    client = DHClient([], _session())
    client.take_tokens(np.zeros((1, 16), dtype=np.uint8))
    with pytest.raises(SetSizeError, match="1 points; 2 were announced"):
        client.find_common_rows(2)
    for kind in (DHClient, DHServer):
        with pytest.raises(SetSizeError, match="3 identifiers; at most 2"):
            kind(["a", "b", "c"], _session(), max_set_size=2)


def test_a_step_cannot_be_taken_twice_or_out_of_order() -> None:
    session = _session()
    client, server = DHClient(["a"], session), DHServer(["a"], session)
    with pytest.raises(PSIError, match=r"answers blind_set\(\), so call that first"):
        client.take_answers(_points(["a"]))
    with pytest.raises(PSIError, match=r"answers blind_set\(\), so call that first"):
        client.find_common_rows()
    with pytest.raises(PSIError, match="no chunk of the client's set waits"):
        server.answer_chunk()
    with pytest.raises(PSIError, match="0 of 1 are known"):
        server.find_proven_rows(np.zeros((1, 16), dtype=np.uint8))
    rows = _compare(client, server)
    proofs = client.outputs.prove_rows(rows)
    for again in (client.find_common_rows, lambda: next(client.blind_set()), lambda: next(server.token_chunks())):
        with pytest.raises(PSIError, match="twice"):
            again()
    assert server.find_proven_rows(proofs).tolist() == [0]
    with pytest.raises(PSIError, match="twice"):
        server.find_proven_rows(proofs)  # a second list would be an oracle for more guesses


def test_a_set_replayed_in_another_session_matches_nothing() -> None:
    old = DHServer(["a", "b"], _session())
    replayed = np.concatenate(list(old.token_chunks()))
    session = _session()
    client, server = DHClient(["a", "b"], session), DHServer(["a", "b"], session)
    for points in client.blind_set():
        server.take_chunk(points)
        client.take_answers(server.answer_chunk())
    client.take_tokens(replayed)
    assert client.find_common_rows().tolist() == []


@pytest.mark.parametrize("version", ["", "v 2", "v-1", "é", "v" * 17])
def test_versions_of_another_form_are_refused(version: str) -> None:
    with pytest.raises(PSIError, match="protocol version"):
        Session(names=("bank", "shop"), nonce=bytes(16), rules_tag="v1", version=version)


def test_nonces_that_are_no_bytes_are_refused() -> None:
    with pytest.raises(PSIError, match="str"):
        _session("n" * 16)  # type: ignore[arg-type]


def test_parties_with_other_versions_have_nothing_in_common() -> None:
    def session(version: str) -> Session:
        return Session(names=("bank", "shop"), nonce=bytes(16), rules_tag="v1", version=version)

    assert session("v1").dst.startswith(b"securevfl-psi")
    assert len(_compare(DHClient(["ann"], session("v1")), DHServer(["ann"], session("v2")))) == 0


@pytest.mark.parametrize(
    ("ids", "match"), [(["a", "a"], "doubled"), (["a", "\ud800"], "row 1.*lone surrogate"), ([1, 2], "is a int")]
)
def test_identifiers_that_were_not_normalised_are_refused(ids: list[str], match: str) -> None:
    with pytest.raises(IdentifierError, match=match):
        DHClient(ids, _session())


def test_both_ends_in_one_process() -> None:
    mine, theirs = intersect_in_process([" ann", "bob", "eve"], ["eve", "zoe", "ann "])
    assert (mine.tolist(), theirs.tolist()) == ([0, 2], [2, 0])
    mine, theirs = intersect_in_process([3, 1, 2], [2, 3])
    assert (mine.tolist(), theirs.tolist()) == ([0, 2], [1, 0])


def test_tokens_that_come_twice_or_in_another_form_are_refused() -> None:
    def client() -> DHClient:
        one = DHClient(["a"], session := _session())
        server = DHServer(["a"], session)
        for points in one.blind_set():
            server.take_chunk(points)
            one.take_answers(server.answer_chunk())
        return one

    tokens = np.arange(32, dtype=np.uint8).reshape(2, 16)
    for bad, match in ((tokens[:, :15], r"\(2, 15\)"), (tokens.astype(np.int32), "int32")):
        with pytest.raises(MalformedError, match=match):
            client().take_tokens(bad)
    twice = client()
    twice.take_tokens(np.repeat(tokens[:1], 2, axis=0))
    with pytest.raises(MalformedError, match="tokens of the server's set appear twice"):
        twice.find_common_rows()


def test_proofs_that_prove_nothing_are_refused() -> None:
    for change, match in (
        (lambda p: p ^ np.uint8(1), "2 of 2 proofs belong to no row"),
        (np.zeros_like, "a proof appears twice"),
        (lambda p: np.concatenate([p, p[:1]]), "a proof appears twice"),
        (lambda p: np.concatenate([p, np.zeros((1, 16), dtype=np.uint8)]), "1 of 3 proofs"),
    ):
        session = _session()
        client, server = DHClient(["a", "b"], session), DHServer(["b", "a", "c"], session)
        rows = _compare(client, server)
        proofs = client.outputs.prove_rows(rows)
        with pytest.raises(MalformedError, match=match):
            server.find_proven_rows(change(proofs))


def _other_receipt(session: Session) -> bytes:
    """Of the same rows under another key."""
    server = DHServer(["c", "b", "a"], session)
    list(server.token_chunks())
    return server.outputs.make_receipt([np.array([2, 1, 0])])


def test_receipts_are_of_these_rows_in_this_order() -> None:
    session = _session()
    client, server = DHClient(["a", "b", "c"], session), DHServer(["c", "b", "a"], session)
    rows = _compare(client, server)
    found = server.find_proven_rows(client.outputs.prove_rows(rows))
    receipt = server.outputs.make_receipt([found])
    client.outputs.require_receipt([rows], receipt)
    for other in (
        server.outputs.make_receipt([found[::-1]]),
        server.outputs.make_receipt([found[:2]]),
        server.outputs.make_receipt([found[:2], found[2:]]),
        _other_receipt(session),
        receipt[:-1] + bytes([receipt[-1] ^ 1]),
        b"",
    ):
        with pytest.raises(RowsDifferError, match="same common rows in the same order"):
            client.outputs.require_receipt([rows], other)


def test_padding_is_nobodys_row() -> None:
    session = _session()
    client, server = DHClient(["a"], session, pad_to=4), DHServer(["a"], session, pad_to=4)
    rows = _compare(client, server)
    assert rows.tolist() == [0]
    assert server.find_proven_rows(client.outputs.prove_rows(rows)).tolist() == [0]
    one, two = (DHClient([], _session(), pad_to=300) for _ in range(2))
    assert len({row.tobytes() for party in (one, two) for row in party._hash_rows(np.arange(300))}) == 600


def test_sets_of_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.blinding.RowBuffer._SEGMENT", 8)
    for size in (1, 7, 8, 9, 16, 61):
        gathered = RowBuffer(16, 61, "the set")
        rows = np.frombuffer(secrets.token_bytes(16 * size), dtype=np.uint8).reshape(size, 16)
        for part in np.array_split(rows, 5):
            gathered.add_rows(part)
        assert (gathered.take_all(size) == rows).all()
    with pytest.raises(SetSizeError, match="62 points or more; at most 61"):
        RowBuffer(16, 61, "the set").add_rows(np.zeros((62, 16), dtype=np.uint8))
    names = [f"{i}" for i in range(61)]
    assert _intersect(names, names[10:])[0] == list(range(10, 61))
    for segment in (1 << 22, 2):
        monkeypatch.setattr("securevfl_psi.blinding.RowBuffer._SEGMENT", segment)
        gathered, rows = RowBuffer(16, 9, "it"), np.arange(48, dtype=np.uint8).reshape(3, 16)
        for _ in range(2):  # gathered rows can be followed by others
            gathered.add_rows(rows)
            assert np.array_equal(gathered.take_all(3), rows)
