"""Base oblivious transfers: one party gets pairs of keys, the other party one chosen key of each pair.

Chou and Orlandi (LATINCRYPT 2015), on Curve25519:

Giver, secret a                     Chooser, choices s_i, secrets r_i
A = a·G                     →       refuses an A outside of the subgroup of prime order
                            ←       B_i = r_i·G + s_i·A
K_i0 = H(i, 0, a·B_i)               K_is = H(i, s_i, r_i·A)
K_i1 = H(i, 1, a·(B_i − A))

H is SHA-512 over the domain, the session's tag, both messages, i, the choice and the point's u-coordinate. So the keys
of two sessions, positions or choices are independent, and any change to a message changes all keys.

If A had a component of small order, B_i would show whether A was added, so the chooser refuses an A outside the
prime-order subgroup. Clamped scalars remove components of small order from B_i; a zero product is refused.

Under the computational Diffie–Hellman assumption in the random oracle model, a chooser learns at most one key of each
pair, and the giver learns nothing about the choices, as B_i is uniform. The proof covers parties that follow the
protocol, and single games against others; it does not show universally composable security, which would require that
the chooser's choices can be extracted before it queries the oracle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from securevfl_crypto.engine import choose_engine
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.transfer.edwards import POINT_BYTES, compress, decompress, in_subgroup, to_montgomery

__all__ = ["KEY_BYTES", "MOST_TRANSFERS", "POINT_BYTES", "BaseChooser", "BaseGiver", "HashedKeys"]

KEY_BYTES = 16
MOST_TRANSFERS = 1 << 16


def _draw_secret() -> tuple[bytes, bytes]:
    """Draw a scalar that X25519 clamps, and its product with the base point on Ed25519's curve, 32 bytes each."""
    signing = Ed25519PrivateKey.generate()
    scalar = hashlib.sha512(signing.private_bytes_raw()).digest()[:32]  # RFC 8032, section 5.1.5
    return scalar, signing.public_key().public_bytes_raw()


def _multiply_points(secret: bytes, points: Sequence[bytes], what: str) -> list[bytes]:
    """Multiply many points by one scalar, on the kernels of X25519.

    Raises:
        MalformedError: a product is zero: the point has small order.
    """
    rows = np.frombuffer(b"".join(points), dtype=np.uint8).reshape(-1, POINT_BYTES)
    products = choose_engine().x25519(secret, rows)
    if not products.any(axis=1).all():
        raise MalformedError(f"{what} contains a point of small order; the peer does not follow the protocol")
    return [row.tobytes() for row in products]


def _multiply_point(secret: bytes, u: X25519PublicKey, what: str) -> bytes:
    try:
        return X25519PrivateKey.from_private_bytes(secret).exchange(u)
    except (ValueError, InvalidKey):
        raise MalformedError(f"{what} contains a point of small order; the peer does not follow the protocol") from None


class HashedKeys:
    """H, with the domain, the tag and both messages of one run hashed in advance."""

    def __init__(self, domain: bytes, tag: bytes, first: bytes, second: bytes) -> None:
        self._hash = hashlib.sha512(domain + tag + first + second)

    def derive_key(self, number: int, choice: int, u: bytes) -> bytes:
        """The key of one transfer and choice, 16 bytes."""
        digest = self._hash.copy()
        digest.update(number.to_bytes(4, "big") + bytes([choice]) + u)
        return digest.digest()[:KEY_BYTES]


class BaseGiver:
    """The party that gets both keys of each pair.

    Args:
        tag: the session's tag. Tags of one domain have one length, or none is the beginning of another.
        count: number of transfers, 1 to 65,536.
        domain: which protocol the keys are for; both parties have the same.

    Attributes:
        message: the message for the chooser, 32 bytes.

    Raises:
        MalformedError: the count is out of range.
    """

    def __init__(self, tag: bytes, count: int, *, domain: bytes) -> None:
        self._tag, self._domain = tag, domain
        self._count = _check_count(count)
        self._secret, self.message = _draw_secret()

    def derive_keys(self, answer: bytes) -> tuple[list[bytes], list[bytes]]:
        """Compute the keys of choice 0 and of choice 1, `count` of 16 bytes each.

        Args:
            answer: the chooser's answer, 32 bytes a transfer.

        Raises:
            MalformedError: a wrong length, bytes that encode no point, or a point of small order.
        """
        what = "the answer to the base transfers"
        size = self._count * POINT_BYTES
        if len(answer) != size:
            raise MalformedError(f"{what} has {len(answer)} bytes; {size} were expected")
        hidden = [decompress(answer[i : i + POINT_BYTES], what) for i in range(0, size, POINT_BYTES)]
        minus = -decompress(self.message, what)
        keys = HashedKeys(self._domain, self._tag, self.message, answer)
        both = to_montgomery([*hidden, *(point + minus for point in hidden)])
        products = _multiply_points(self._secret, both, what)
        first, second = (
            [keys.derive_key(number, choice, u) for number, u in enumerate(part)]
            for choice, part in enumerate((products[: self._count], products[self._count :]))
        )
        return first, second


class BaseChooser:
    """The party that gets one key of each pair.

    Args:
        tag: the session's tag.
        choices: 0 or 1, uint8, one for each transfer.
        message: the giver's message, 32 bytes.
        domain: which protocol the keys are for.

    Attributes:
        answer: the message for the giver, 32 bytes a transfer.
        keys: the chosen keys, 16 bytes each.

    Raises:
        MalformedError: the message encodes no point, or a point outside the prime-order subgroup.
    """

    def __init__(self, tag: bytes, choices: np.ndarray, message: bytes, *, domain: bytes) -> None:
        what = "the first message of the base transfers"
        count = _check_count(len(choices))
        point = decompress(message, what)
        if not in_subgroup(point):
            raise MalformedError(f"{what} contains a point of small order, or with a component of small order")
        u = X25519PublicKey.from_public_bytes(to_montgomery([point])[0])
        secrets = [_draw_secret() for _ in range(count)]
        without = b"".join(public for _, public in secrets)
        # Both candidates are computed for every transfer, so time does not depend on the choices.
        with_it = compress([decompress(public, what) + point for _, public in secrets])
        rows = [np.frombuffer(data, dtype=np.uint8).reshape(-1, POINT_BYTES) for data in (without, with_it)]
        mask = (np.uint8(0) - choices.astype(np.uint8))[:, None]  # chosen without a branch
        self.answer = (rows[0] ^ ((rows[0] ^ rows[1]) & mask)).tobytes()
        keys = HashedKeys(domain, tag, message, self.answer)
        products = [_multiply_point(secret, u, what) for secret, _ in secrets]
        self.keys = [
            keys.derive_key(number, choice, product)
            for number, (choice, product) in enumerate(zip(choices.tolist(), products, strict=True))
        ]


def _check_count(count: int) -> int:
    if not 1 <= count <= MOST_TRANSFERS:
        raise MalformedError(f"{count} base transfers; 1 to {MOST_TRANSFERS} are possible")
    return count
