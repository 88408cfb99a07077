"""Base oblivious transfers: 512 pairs of keys at one party, of which the other one has chosen one each.

Chou and Orlandi (LATINCRYPT 2015), on Curve25519:

Giver, secret a                     Chooser, choices s_i, secrets r_i
A = a·G                     →       refuses an A outside of the subgroup of prime order
                            ←       B_i = r_i·G + s_i·A
K_i0 = H(i, 0, a·B_i)               K_is = H(i, s_i, r_i·A)
K_i1 = H(i, 1, a·(B_i − A))

H is SHA-512 over the session's tag, both messages, i, the choice and the point's u-coordinate, so keys of two sessions,
places or choices are independent, and a message that is changed changes all keys.

An A with a component of small order would show in B_i whether it was added: A is refused unless its order is the
subgroup's. Scalars are clamped, so components of small order in B_i vanish; a product that is zero is refused.

Under the computational Diffie–Hellman assumption in the random oracle model a chooser has at most one key of each pair,
and the giver learns nothing of the choices, as B_i is uniform. That is proved for parties that follow the protocol, and
game by game against others; it is not a proof of universally composable security (which would need the chooser's
choices to be extractable before it asks the oracle).
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from securevfl_psi.errors import MalformedError
from securevfl_psi.oblivious.edwards import POINT_BYTES, compressed, decompressed, in_subgroup, montgomery

__all__ = ["KEY_BYTES", "TRANSFERS", "Chooser", "Giver"]

TRANSFERS = 512
KEY_BYTES = 16
_MESSAGE = TRANSFERS * POINT_BYTES


def _secret() -> tuple[X25519PrivateKey, bytes]:
    """A fresh scalar, clamped, for X25519; and its product with the base point on Ed25519's curve, 32 bytes."""
    signing = Ed25519PrivateKey.generate()
    scalar = hashlib.sha512(signing.private_bytes_raw()).digest()[:32]  # RFC 8032, section 5.1.5; X25519 clamps it
    return X25519PrivateKey.from_private_bytes(scalar), signing.public_key().public_bytes_raw()


def _product(secret: X25519PrivateKey, u: bytes, what: str) -> bytes:
    try:
        return secret.exchange(X25519PublicKey.from_public_bytes(u))
    except (ValueError, InvalidKey):
        raise MalformedError(f"{what} holds a point of small order; the peer does not follow the protocol") from None


class _Keys:
    """H of one run of both messages."""

    def __init__(self, tag: bytes, first: bytes, second: bytes) -> None:
        self._hash = hashlib.sha512(b"securevfl-psi base transfer" + tag + first + second)

    def key(self, number: int, choice: int, u: bytes) -> bytes:
        digest = self._hash.copy()
        digest.update(number.to_bytes(4, "big") + bytes([choice]) + u)
        return digest.digest()[:KEY_BYTES]


class Giver:
    """The party that gets all keys.

    Args:
        tag: the session's.
    """

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._secret, self.message = _secret()

    def keys(self, answer: bytes) -> tuple[list[bytes], list[bytes]]:
        """Those of choice 0 and of choice 1, 512 of 16 bytes each.

        Args:
            answer: the chooser's, 16 KiB.

        Raises:
            MalformedError: another length, bytes that are no point, or a point of small order.
        """
        what = "the answer to the base transfers"
        if len(answer) != _MESSAGE:
            raise MalformedError(f"{what} has {len(answer)} bytes; {_MESSAGE} were expected")
        hidden = [decompressed(answer[i : i + POINT_BYTES], what) for i in range(0, _MESSAGE, POINT_BYTES)]
        minus = -decompressed(self.message, what)
        keys = _Keys(self._tag, self.message, answer)
        out = []
        for choice, points in enumerate((hidden, [point + minus for point in hidden])):
            products = [_product(self._secret, u, what) for u in montgomery(points)]
            out.append([keys.key(number, choice, u) for number, u in enumerate(products)])
        return out[0], out[1]


class Chooser:
    """The party that gets one key of each pair.

    Args:
        tag: the session's.
        choices: 0 or 1, uint8 (512,).
        message: the giver's, 32 bytes.

    Attributes:
        answer: what the giver is sent, 16 KiB.
        keys: the chosen ones, 512 of 16 bytes.

    Raises:
        MalformedError: a message that is no point, or one outside of the subgroup of prime order.
    """

    def __init__(self, tag: bytes, choices: np.ndarray, message: bytes) -> None:
        what = "the first message of the base transfers"
        point = decompressed(message, what)
        if not in_subgroup(point):
            raise MalformedError(f"{what} holds a point of small order, or with a component of one")
        (u,) = montgomery([point])
        secrets = [_secret() for _ in range(TRANSFERS)]
        without = b"".join(public for _, public in secrets)
        with_it = compressed([decompressed(public, what) + point for _, public in secrets])
        rows = [np.frombuffer(data, dtype=np.uint8).reshape(-1, POINT_BYTES) for data in (without, with_it)]
        mask = (np.uint8(0) - choices.astype(np.uint8))[:, None]  # chosen without a branch
        self.answer = (rows[0] ^ ((rows[0] ^ rows[1]) & mask)).tobytes()
        keys = _Keys(tag, message, self.answer)
        products = [_product(secret, u, what) for secret, _ in secrets]
        self.keys = [
            keys.key(number, choice, product)
            for number, (choice, product) in enumerate(zip(choices.tolist(), products, strict=True))
        ]
