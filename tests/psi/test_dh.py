"""Two-party DH-PSI: exact on every shape of sets, bound to its session, and closed to hostile bytes."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import MalformedError, PSIError, Receiver, Sender, Session, SetSizeError

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
    receiver, sender = Receiver(["ann"], one), Sender(["ann"], other)
    assert len(receiver.intersect(sender.blinded(), sender.double(receiver.blinded())).receiver_rows) == 0
    with pytest.raises(PSIError, match="at least 16"):
        _session(b"short")


def _point(value: int) -> np.ndarray:
    return np.frombuffer(value.to_bytes(32, "little"), dtype=np.uint8)


# The points of small order of Curve25519 and its twist, canonical ones: RFC 7748, section 6.1 refers to
# Bernstein's list at https://cr.yp.to/ecdh.html#validate.
SMALL_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
]


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


@pytest.mark.parametrize("value", [P, P + 1, 2**255 - 1, 2**255, 2**256 - 1])
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
    ],
    ids=["truncated", "type", "flat", "doubled"],
)
def test_malformed_sets_are_refused(damage: Callable[[np.ndarray], np.ndarray]) -> None:
    bad = damage(Receiver(["a", "b"], _session()).blinded())
    with pytest.raises(MalformedError):
        Sender(["x"], _session()).double(bad)


def test_sets_larger_than_allowed_or_announced_are_refused() -> None:
    blinded = Receiver(["a", "b", "c"], _session()).blinded()
    with pytest.raises(SetSizeError, match="at most 2"):
        Sender(["x"], _session(), max_set_size=2).double(blinded)
    with pytest.raises(SetSizeError, match="4 were announced"):
        Sender(["x"], _session()).double(blinded, count=4)
    with pytest.raises(SetSizeError):
        Receiver(["a", "b", "c"], _session(), max_set_size=2)


def test_a_step_cannot_be_taken_twice_or_out_of_order() -> None:
    session = _session()
    receiver, sender = Receiver(["a"], session), Sender(["a"], session)
    with pytest.raises(PSIError, match="out of order"):
        sender.rows(np.array([0]))
    doubled = sender.double(receiver.blinded())
    with pytest.raises(PSIError, match="twice"):
        sender.double(receiver.blinded())  # a second set would be an oracle for more guesses
    receiver.intersect(sender.blinded(), doubled)
    with pytest.raises(PSIError, match="twice"):
        receiver.intersect(sender.blinded(), doubled)


@pytest.mark.parametrize(
    "positions", [np.array([2]), np.array([-1]), np.array([0, 0]), np.array([0.0]), np.array([[0]])]
)
def test_positions_that_do_not_exist_are_refused(positions: np.ndarray) -> None:
    session = _session()
    receiver, sender = Receiver(["a"], session), Sender(["a", "b"], session)
    sender.double(receiver.blinded())
    with pytest.raises(MalformedError):
        sender.rows(positions)


def test_tokens_that_come_twice_or_too_few_are_refused() -> None:
    session = _session()
    receiver, sender = Receiver(["a", "b"], session), Sender(["c"], session)
    doubled = sender.double(receiver.blinded())
    for bad in (np.repeat(doubled[:1], 2, axis=0), doubled[:1], doubled[:, :15], doubled.astype(np.int32)):
        with pytest.raises(MalformedError):
            Receiver(["a", "b"], session).intersect(sender.blinded(), bad)


def test_the_curve_is_the_one_of_rfc_7748() -> None:
    """RFC 7748, section 5.2, first vector of X25519."""
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    expected = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    key = X25519PrivateKey.from_private_bytes(scalar)
    assert key.exchange(X25519PublicKey.from_public_bytes(point)).hex() == expected
