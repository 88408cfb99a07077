"""Two-party DH-PSI: exact on every shape of sets, bound to its session, and closed to hostile bytes."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import (
    IdentifierError,
    MalformedError,
    PSIError,
    Receiver,
    Sender,
    Session,
    SetSizeError,
    hash_many_to_u,
    intersect_in_process,
)
from securevfl_psi.blinding import Gathered

P = 2**255 - 19


def _session(nonce: bytes | None = None, rules: str = "v1") -> Session:
    return Session(names=("bank", "shop"), nonce=nonce or secrets.token_bytes(16), rules_tag=rules)


def _intersect(mine: list[str], theirs: list[str]) -> tuple[list[int], list[int]]:
    session = _session()
    receiver, sender = Receiver(mine, session), Sender(theirs, session)
    matches = receiver.intersect(sender.blinded(), sender.double(receiver.blinded()))
    return matches.receiver_rows.tolist(), sender.rows(matches.sender_positions).tolist()


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
    receiver, sender = Receiver(names, session), Sender(names, session)
    positions = receiver.intersect(sender.blinded(), sender.double(receiver.blinded())).sender_positions
    assert sorted(positions.tolist()) == list(range(200))
    assert np.abs(np.corrcoef(positions, np.arange(200))[0, 1]) < 0.35


def test_two_sessions_cannot_be_joined() -> None:
    def blinded(session: Session) -> set[bytes]:
        return {row.tobytes() for row in Sender(["ann", "bob"], session).blinded()}

    nonce = secrets.token_bytes(16)
    assert not blinded(_session(nonce)) & blinded(_session(nonce))  # fresh scalars
    one, other = _session(nonce), _session()
    assert one.dst != other.dst
    assert one.dst != _session(nonce, "v2").dst
    assert one.dst != Session(names=("shop", "bank"), nonce=nonce, rules_tag="v1").dst
    assert (hash_many_to_u([b"ann"], one.dst) != hash_many_to_u([b"ann"], other.dst)).any()  # even under one scalar
    receiver, sender = Receiver(["ann"], one), Sender(["ann"], other)
    assert len(receiver.intersect(sender.blinded(), sender.double(receiver.blinded())).receiver_rows) == 0
    with pytest.raises(PSIError, match="at least 16"):
        _session(b"short")


def _point(value: int) -> np.ndarray:
    return np.frombuffer(value.to_bytes(32, "little"), dtype=np.uint8)


# The canonical coordinates of all points of small order of Curve25519 and its twist, with their orders: Bernstein's
# list at https://cr.yp.to/ecdh.html#validate, and the test below. 0 is on both; -1 is of order 4, on the twist only.
SMALL_ORDER = {
    0: 2,
    1: 4,
    325606250916557431795983626356110631294008115727848805560023387167927233504: 8,
    39382357235489614581723060781553021112529911719440698176882885853963445705823: 8,
    P - 1: 4,
}


@pytest.mark.parametrize(("value", "order"), SMALL_ORDER.items())
def test_the_points_of_small_order_have_small_order(value: int, order: int) -> None:
    """Doubling by coordinates only, ``(x² − 1)² / 4x(x² + Jx + 1)``: the same on the curve and on its twist."""
    steps = 1
    while (below := 4 * value * (value * value + 486662 * value + 1) % P) != 0:
        value = (value * value - 1) ** 2 * pow(below, -1, P) % P
        steps += 1
    assert 2**steps == order


@pytest.mark.parametrize("value", SMALL_ORDER)
def test_points_of_small_order_are_refused(value: int) -> None:
    good = Receiver(["a", "b"], _session()).blinded()
    bad = good.copy()
    bad[1] = _point(value)
    with pytest.raises(MalformedError, match="small order"):
        Sender(["x"], _session()).double(bad)
    session = _session()
    receiver, sender = Receiver(["a"], session), Sender(["b"], session)
    doubled = sender.double(receiver.blinded())
    with pytest.raises(MalformedError, match="small order"):
        receiver.intersect(bad, doubled)


@pytest.mark.parametrize(
    "value",
    [P, P + 1, 2**255 - 1, 2**255, 2**255 + 9, 2 * P - 1, 2 * P, 2 * P + 1, 2**256 - 1]
    + [P + value for value in SMALL_ORDER],
)
def test_coordinates_that_are_not_canonical_are_refused(value: int) -> None:
    bad = Receiver(["a", "b"], _session()).blinded().copy()
    bad[0] = _point(value)
    with pytest.raises(MalformedError, match="not below 2"):
        Sender(["x"], _session()).double(bad)


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
    ],
    ids=["truncated", "type", "flat", "doubled", "signed", "deep", "bytes"],
)
def test_malformed_sets_are_refused(damage: Callable[[np.ndarray], np.ndarray]) -> None:
    bad = damage(Receiver(["a", "b"], _session()).blinded())
    with pytest.raises(MalformedError):
        Sender(["x"], _session()).double(bad)
    session = _session()
    receiver, sender = Receiver(["x"], session), Sender(["y"], session)
    doubled = sender.double(receiver.blinded())
    with pytest.raises(MalformedError):
        receiver.intersect(bad, doubled)


def test_arrays_that_are_not_contiguous_are_read_right() -> None:
    session = _session()
    receiver, sender = Receiver(["a", "b", "c"], session), Sender(["c", "a"], session)
    wide = np.zeros((3, 64), dtype=np.uint8)
    wide[:, ::2] = receiver.blinded()
    matches = receiver.intersect(np.asfortranarray(sender.blinded()), sender.double(wide[:, ::2]))
    assert matches.receiver_rows.tolist() == [0, 2]
    assert sender.rows(matches.sender_positions).tolist() == [1, 0]


def test_points_that_differ_by_a_point_of_small_order_are_refused() -> None:
    """Q and Q + (0, 0), whose coordinate is 1/x: different points with one dual."""
    session = _session()
    receiver, sender = Receiver(["a"], session), Sender(["b"], session)
    x = int.from_bytes(receiver.blinded()[0].tobytes(), "little")
    both = np.stack([receiver.blinded()[0], _point(pow(x, -1, P))])
    with pytest.raises(MalformedError, match="tokens of the receiver's"):
        sender.double(both)


def test_sets_larger_than_allowed_or_announced_are_refused() -> None:
    blinded = Receiver(["a", "b", "c"], _session()).blinded()
    with pytest.raises(SetSizeError, match="at most 2"):
        Sender(["x"], _session(), max_set_size=2).double(blinded)
    with pytest.raises(SetSizeError, match="4 were announced"):
        Sender(["x"], _session()).double(blinded, count=4)
    session = _session()
    receiver, sender = Receiver(["a"], session, max_set_size=2), Sender(["x"], session)
    doubled = sender.double(receiver.blinded())
    with pytest.raises(SetSizeError, match="at most 2"):
        receiver.intersect(blinded, doubled)
    receiver = Receiver(["a"], session)
    receiver.blinded()
    with pytest.raises(SetSizeError, match="2 were announced"):
        receiver.intersect(blinded, doubled, count=2)
    with pytest.raises(SetSizeError):
        Receiver(["a", "b", "c"], _session(), max_set_size=2)


def test_a_step_cannot_be_taken_twice_or_out_of_order() -> None:
    session = _session()
    receiver, sender = Receiver(["a"], session), Sender(["a"], session)
    with pytest.raises(PSIError, match=r"blinded\(\), which was not called"):
        receiver.intersect(np.zeros((1, 32), np.uint8), np.zeros((1, 16), np.uint8))
    with pytest.raises(PSIError, match=r"blinded\(\), which was not called"):
        sender.rows(np.array([0]))
    sender.blinded()
    with pytest.raises(PSIError, match="out of order"):
        sender.rows(np.array([0]))
    doubled = sender.double(receiver.blinded())
    with pytest.raises(PSIError, match="twice"):
        sender.double(receiver.blinded())  # a second set would be an oracle for more guesses
    receiver.intersect(sender.blinded(), doubled)
    with pytest.raises(PSIError, match="twice"):
        receiver.intersect(sender.blinded(), doubled)
    assert sender.rows(np.array([0])).tolist() == [0]
    with pytest.raises(PSIError, match="twice"):
        sender.rows(np.array([0]))


def test_a_malformed_message_ends_the_session() -> None:
    """No second try: otherwise a peer could search for what is accepted."""
    session = _session()
    receiver, sender = Receiver(["a"], session), Sender(["a"], session)
    with pytest.raises(MalformedError):
        sender.double(receiver.blinded()[:, :31])
    with pytest.raises(PSIError, match="twice"):
        sender.double(receiver.blinded())


def test_a_set_is_blinded_once() -> None:
    receiver = Receiver(["a", "b"], _session())
    assert receiver.blinded() is receiver.blinded()
    assert not receiver.blinded().flags.writeable


def test_a_set_replayed_in_another_session_matches_nothing() -> None:
    old, new = _session(), _session()
    replayed = Sender(["a", "b"], old).blinded()
    receiver, sender = Receiver(["a", "b"], new), Sender(["a", "b"], new)
    matches = receiver.intersect(replayed, sender.double(receiver.blinded()))
    assert matches.receiver_rows.tolist() == matches.sender_positions.tolist() == []


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
    receiver, sender = Receiver(["ann"], session("v1")), Sender(["ann"], session("v2"))
    assert len(receiver.intersect(sender.blinded(), sender.double(receiver.blinded())).receiver_rows) == 0


@pytest.mark.parametrize(
    ("ids", "match"), [(["a", "a"], "doubled"), (["a", "\ud800"], "row 1.*lone surrogate"), ([1, 2], "is a int")]
)
def test_identifiers_that_were_not_normalised_are_refused(ids: list[str], match: str) -> None:
    with pytest.raises(IdentifierError, match=match):
        Receiver(ids, _session())


def test_both_roles_in_one_process() -> None:
    mine, theirs = intersect_in_process([" ann", "bob", "eve"], ["eve", "zoe", "ann "])
    assert (mine.tolist(), theirs.tolist()) == ([0, 2], [2, 0])
    mine, theirs = intersect_in_process([3, 1, 2], [2, 3])
    assert (mine.tolist(), theirs.tolist()) == ([0, 2], [1, 0])


@pytest.mark.parametrize(
    "positions", [np.array([2]), np.array([-1]), np.array([0, 0]), np.array([0.0]), np.array([[0]]), [0]]
)
def test_positions_that_do_not_exist_are_refused(positions: np.ndarray) -> None:
    session = _session()
    receiver, sender = Receiver(["a"], session), Sender(["a", "b"], session)
    sender.blinded()
    sender.double(receiver.blinded())
    with pytest.raises(MalformedError):
        sender.rows(positions)


def test_tokens_that_come_twice_or_too_few_are_refused() -> None:
    session = _session()
    receiver, sender = Receiver(["a", "b"], session), Sender(["c"], session)
    doubled = sender.double(receiver.blinded())
    for bad, match in (
        (np.repeat(doubled[:1], 2, axis=0), "tokens of the doubled set come twice"),
        (doubled[:1], "1 tokens; 2 points were sent"),
        (doubled[:, :15], r"\(2, 15\)"),
        (doubled.astype(np.int32), "int32"),
    ):
        receiver = Receiver(["a", "b"], session)
        receiver.blinded()
        with pytest.raises(MalformedError, match=match):
            receiver.intersect(sender.blinded(), bad)


def _x25519(scalar: bytes, point: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(scalar).exchange(X25519PublicKey.from_public_bytes(point))


@pytest.mark.parametrize(
    ("scalar", "point", "expected"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
        # section 6.1: Alice's secret with Bob's public key, then the other way round
        (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
        (
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
    ],
)
def test_vectors_of_rfc_7748(scalar: str, point: str, expected: str) -> None:
    """RFC 7748, sections 5.2 and 6.1."""
    assert _x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == expected


def test_iterated_vector_of_rfc_7748() -> None:
    """RFC 7748, section 5.2: after one and after 1,000 iterations."""
    scalar = point = bytes([9]) + bytes(31)
    scalar, point = _x25519(scalar, point), scalar
    assert scalar.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    for _ in range(999):
        scalar, point = _x25519(scalar, point), scalar
    assert scalar.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


def test_sets_of_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.blinding.Gathered._SEGMENT", 8)
    for size in (1, 7, 8, 9, 16, 61):
        gathered = Gathered(16, 61, "the set")
        rows = np.frombuffer(secrets.token_bytes(16 * size), dtype=np.uint8).reshape(size, 16)
        for part in np.array_split(rows, 5):
            gathered.add(part)
        assert (gathered.whole(size) == rows).all()
    with pytest.raises(SetSizeError, match="62 points or more; at most 61"):
        Gathered(16, 61, "the set").add(np.zeros((62, 16), dtype=np.uint8))
    names = [f"{i}" for i in range(61)]
    receiver, sender = Receiver(names, session := _session()), Sender(names[10:], session)
    matches = receiver.intersect(sender.blinded(), sender.double(receiver.blinded()))
    assert matches.receiver_rows.tolist() == list(range(10, 61))
