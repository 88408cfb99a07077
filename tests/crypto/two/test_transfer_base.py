"""Base transfers: points of Edwards25519, and pairs of keys of which the chooser gets one."""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from securevfl_crypto import MalformedError
from securevfl_crypto.transfer import BaseChooser, BaseGiver, edwards
from securevfl_crypto.transfer.base import MOST_TRANSFERS

DOMAIN, TAG = b"tests", b"tag"


# Points


@pytest.mark.parametrize(
    ("secret", "public"),
    [  # RFC 8032, section 7.1, tests 1 to 3
        ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
        ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"),
        ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"),
    ],
)  # fmt: skip
def test_points_of_the_rfc(secret: str, public: str) -> None:
    """Decoded, added up from the base point by the scalar's bits, encoded again."""
    base = edwards.decompress((4 * pow(5, -1, 2**255 - 19) % (2**255 - 19)).to_bytes(32, "little"), "it")
    number = int.from_bytes(hashlib.sha512(bytes.fromhex(secret)).digest()[:32], "little")
    number = number & (2**254 - 8) | 2**254
    point = None
    for bit in bin(number)[2:]:
        point = point + point if point else None
        if bit == "1":
            point = point + base if point else base
    assert point is not None
    assert edwards.compress([point, -point])[:32].hex() == public
    assert edwards.compress([edwards.decompress(bytes.fromhex(public), "it")]).hex() == public
    assert edwards.in_subgroup(point)


def test_coordinates_are_those_of_x25519() -> None:
    """The base point's u is 9; and OpenSSL agrees on the products of scalars with it."""
    for _ in range(20):
        signing = Ed25519PrivateKey.generate()
        scalar = hashlib.sha512(signing.private_bytes_raw()).digest()[:32]
        point = edwards.decompress(signing.public_key().public_bytes_raw(), "it")
        right = X25519PrivateKey.from_private_bytes(scalar).public_key().public_bytes_raw()
        assert edwards.to_montgomery([point, -point]) == [right, right]


P = 2**255 - 19
ORDER_8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"  # a point of order 8, as is well known


@pytest.mark.parametrize(
    "encoded",
    [*(number.to_bytes(32, "little") for number in (P, 2, 1 | 1 << 255)), b"\xff" * 32, bytes(31)],
)
def test_bytes_that_are_no_point(encoded: bytes) -> None:
    with pytest.raises(MalformedError, match="encode no point"):
        edwards.decompress(encoded, "it")


# Transfers


def _giver(count: int, tag: bytes = TAG, domain: bytes = DOMAIN) -> BaseGiver:
    return BaseGiver(tag, count, domain=domain)


@pytest.mark.parametrize("count", [1, 7, 128])
def test_a_chooser_gets_the_keys_that_it_chose(count: int) -> None:
    choices = np.frombuffer(secrets.token_bytes(count), dtype=np.uint8) & 1
    giver = _giver(count)
    chooser = BaseChooser(TAG, choices, giver.message, domain=DOMAIN)
    pairs = giver.derive_keys(chooser.answer)
    assert chooser.keys == [pairs[choice][i] for i, choice in enumerate(choices.tolist())]
    assert not set(chooser.keys) & {pairs[1 - choice][i] for i, choice in enumerate(choices.tolist())}
    assert len({*pairs[0], *pairs[1]}) == 2 * count


@pytest.mark.parametrize(("tag", "domain"), [(b"another", DOMAIN), (TAG, b"another")])
def test_keys_depend_on_the_session_and_on_what_they_are_for(tag: bytes, domain: bytes) -> None:
    giver, other = _giver(3), _giver(3, tag, domain)
    answer = BaseChooser(TAG, np.array([0, 1, 0], np.uint8), giver.message, domain=DOMAIN).answer
    other._secret, other.message = giver._secret, giver.message
    right = {key for keys in giver.derive_keys(answer) for key in keys}
    assert len(right) == 6
    assert not right & {key for keys in other.derive_keys(answer) for key in keys}


@pytest.mark.parametrize("order", [1, 2, 4, 8, "mixed"])
def test_messages_with_a_component_of_small_order_are_refused(order: int | str) -> None:
    torsion = edwards.decompress(bytes.fromhex(ORDER_8), "it")
    point = torsion
    for _ in range({8: 0, 4: 1, 2: 2, 1: 3, "mixed": 0}[order]):
        point = point + point
    if order == "mixed":
        point = point + edwards.decompress(_giver(1).message, "it")
    with pytest.raises(MalformedError, match="small order"):
        BaseChooser(TAG, np.zeros(2, np.uint8), edwards.compress([point]), domain=DOMAIN)


def test_answers_that_are_none_are_refused() -> None:
    giver = _giver(4)
    answer = BaseChooser(TAG, np.ones(4, np.uint8), giver.message, domain=DOMAIN).answer
    neutral, torsion = (1).to_bytes(32, "little"), bytes.fromhex(ORDER_8)
    for bad in (neutral, torsion, giver.message):  # the last one's difference to the message is neutral
        with pytest.raises(MalformedError, match="small order"):
            giver.derive_keys(answer[:-32] + bad)
    with pytest.raises(MalformedError, match="127 bytes; 128"):
        giver.derive_keys(answer[:-1])
    with pytest.raises(MalformedError, match="no point"):
        giver.derive_keys(b"\xff" * 32 + answer[32:])


@pytest.mark.parametrize("count", [0, -1, MOST_TRANSFERS + 1])
def test_numbers_of_transfers_have_bounds(count: int) -> None:
    with pytest.raises(MalformedError, match="base transfers"):
        _giver(count)


def test_an_answer_hides_the_choices() -> None:
    """Its points are uniform for choices of all zeros and of all ones: no octet place but the top bits is constant."""
    giver = _giver(64)
    for choice in (0, 1):
        answer = BaseChooser(TAG, np.full(64, choice, np.uint8), giver.message, domain=DOMAIN).answer
        octets = np.frombuffer(answer, dtype=np.uint8).reshape(64, 32)
        assert (np.ptp(octets.astype(int), axis=0) > 64).all()
        assert len(np.unique(octets, axis=0)) == 64
        assert all(edwards.in_subgroup(edwards.decompress(row.tobytes(), "it")) for row in octets[:4])
