"""A comparison that cannot be searched off line: equal things pass, others do not, and one run tests one guess."""

from __future__ import annotations

import hashlib
import hmac
import secrets

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from securevfl_psi.cpace import CONFIRMATION_BYTES, SHARE_BYTES, Comparison
from securevfl_psi.errors import MalformedError, PSIError, RowsDifferError
from securevfl_psi.group import hash_to_group
from securevfl_psi.verify import list_digest
from support.small_order import SMALL_ORDER

TAG = bytes(range(32))


def _run(one: Comparison, other: Comparison) -> None:
    first, second = one.make_confirmation(other.share), other.make_confirmation(one.share)
    one.require_equal(second)
    other.require_equal(first)


def _pair(mine: bytes, theirs: bytes, tag: bytes = TAG) -> tuple[Comparison, Comparison]:
    return Comparison(mine, "bank", "shop", tag), Comparison(theirs, "shop", "bank", tag)


def test_equal_lists_are_accepted_by_both() -> None:
    for ids in (["ann", "bob"], [], ["é"] * 3):
        _run(*_pair(list_digest(ids), list_digest(ids)))


@pytest.mark.parametrize("other", [["bob", "ann"], ["ann"], ["ann", "bo"], ["an", "nbob"], ["ann", "bob", "eve"]])
def test_different_lists_are_refused_by_both(other: list[str]) -> None:
    one, two = _pair(list_digest(["ann", "bob"]), list_digest(other))
    tags = one.make_confirmation(two.share), two.make_confirmation(one.share)
    for end, tag in ((one, tags[1]), (two, tags[0])):
        with pytest.raises(RowsDifferError, match="same common rows in the same order"):
            end.require_equal(tag)


def test_names_and_session_count() -> None:
    same = list_digest(["ann"])
    for one, two in (
        (Comparison(same, "bank", "shop", TAG), Comparison(same, "shop", "bank", TAG[::-1])),
        (Comparison(same, "bank", "shop", TAG), Comparison(same, "shop", "mall", TAG)),
        (Comparison(same, "bank", "shop", TAG), Comparison(same, "bank", "shop", TAG)),
    ):
        first = two.make_confirmation(one.share)
        one.make_confirmation(two.share)
        with pytest.raises(RowsDifferError):
            one.require_equal(first)
    with pytest.raises(PSIError, match="different names"):
        Comparison(same, "bank", "bank", TAG)


def test_a_listener_with_the_right_list_cannot_confirm_it() -> None:
    """Shares and confirmations are all that crosses. Without a or b, the right list gives no key."""
    same = list_digest(["ann", "bob"])
    one, two = _pair(same, same)
    tags = {one.make_confirmation(two.share), two.make_confirmation(one.share)}
    listener, _ = _pair(same, same)
    assert not {listener.make_confirmation(two.share)} & tags
    assert not {Comparison(same, "bank", "shop", TAG).make_confirmation(one.share)} & tags


def test_a_peer_tests_the_list_that_it_entered_and_no_other() -> None:
    """Off line, with all that it has: its scalar, both shares, the confirmation, and every list that there could be."""
    candidates = [f"n{number}" for number in range(200)]
    truth = "n17"
    one = Comparison(list_digest([truth]), "bank", "shop", TAG)
    peer = Comparison(list_digest(["n5"]), "shop", "bank", TAG)
    tag = one.make_confirmation(peer.share)
    cracked = []
    for guess in candidates:
        retry = Comparison(list_digest([guess]), "shop", "bank", TAG)
        retry._scalar = peer._scalar  # it may use its secret, and any generator, as often as it likes
        retry._own = np.frombuffer(peer.share, dtype=np.uint8).reshape(1, -1)
        retry.make_confirmation(one.share)
        try:
            retry.require_equal(tag)
        except RowsDifferError:
            continue
        cracked.append(guess)
    assert cracked == []
    honest = Comparison(list_digest([truth]), "shop", "bank", TAG)
    again = Comparison(list_digest([truth]), "bank", "shop", TAG)
    _run(again, honest)  # the one list that it may try on line


def test_shares_are_fresh_and_independent_of_what_is_compared() -> None:
    same = list_digest(["ann"])
    assert len({Comparison(same, "bank", "shop", TAG).share for _ in range(5)}) == 5


@pytest.mark.parametrize("value", [*SMALL_ORDER, 2**255 - 19, 2**255 + 9])
def test_points_that_nobody_makes_are_refused(value: int) -> None:
    one, _ = _pair(b"x", b"x")
    with pytest.raises(MalformedError):
        one.make_confirmation(value.to_bytes(32, "little"))


def test_a_share_may_not_come_back_nor_twice() -> None:
    one, two = _pair(b"x", b"x")
    with pytest.raises(PSIError, match="out of order"):
        one.require_equal(bytes(CONFIRMATION_BYTES))
    for bad in (one.share, b"", two.share + b"x"):
        with pytest.raises(MalformedError, match="this party's own"):
            one.make_confirmation(bad)
    one.make_confirmation(two.share)
    with pytest.raises(PSIError, match="one guess"):
        one.make_confirmation(two.share)


def test_the_transcript_is_the_one_that_is_written_down() -> None:
    """Computed once more from the definition, with OpenSSL's X25519."""

    def framed(*parts: bytes) -> bytes:
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    secret, domain = secrets.token_bytes(64), b"securevfl-psi CPace X25519 v1"
    one, two = _pair(secret, secret)
    generator = hashlib.sha512(framed(domain, secret, b"bank", b"shop", TAG)).digest()
    point = hash_to_group([generator], b"securevfl-psi compare H1").tobytes()

    def x25519(scalar: bytes, u: bytes) -> bytes:
        return X25519PrivateKey.from_private_bytes(scalar).exchange(X25519PublicKey.from_public_bytes(u))

    a, b = one._scalar.to_bytes(), two._scalar.to_bytes()
    assert (one.share, two.share) == (x25519(a, point), x25519(b, point))
    assert len(one.share) == SHARE_BYTES
    key = hashlib.sha512(
        framed(domain + b" ISK", TAG, x25519(a, two.share)) + framed(b"bank", one.share, b"shop", two.share)
    ).digest()
    mac = hashlib.sha512(framed(domain + b" MAC", key)).digest()
    assert one.make_confirmation(two.share) == hmac.digest(mac, framed(one.share, b"bank"), "sha512")
    assert two.make_confirmation(one.share) == hmac.digest(mac, framed(two.share, b"shop"), "sha512")
