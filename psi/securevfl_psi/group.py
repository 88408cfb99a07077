"""The protocols' group: Curve25519 by u-coordinates, with hashing to it, secret scalars and tokens.

Functions take and return byte arrays with one row per identifier, so that the batch engine processes many at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import gmpy2
import numpy as np
from securevfl_crypto.engine import Engine, choose_engine
from securevfl_crypto.transfer.edwards import ORDER

from securevfl_psi.errors import MalformedError, PSIError
from securevfl_psi.hash_to_curve import CHUNK, hash_many_to_u
from securevfl_psi.identifiers import Identifiers

__all__ = ["CHUNK", "ORDER", "POINT_BYTES", "TOKEN_BYTES", "Scalar", "hash_points", "hash_to_group"]

POINT_BYTES = 32
TOKEN_BYTES = 16
"""Length of a token: two of 2^40 collide with probability 2^-48."""


class Scalar:
    """A secret multiplier: 32 bytes, clamped as in RFC 7748, section 5.

    Args:
        secret: an earlier secret to reuse; by default drawn from the operating system such that `divide` is possible.
        by: the engine; by default the fastest.

    Raises:
        PSIError: the secret is not 32 bytes.
    """

    def __init__(self, secret: bytes | None = None, by: Engine | None = None) -> None:
        if secret is not None and (not isinstance(secret, bytes) or len(secret) != POINT_BYTES):
            raise PSIError(f"a secret scalar is {POINT_BYTES} bytes; {type(secret).__name__} was given")
        self._engine = by or choose_engine()
        if secret is not None:
            self._secret = secret
            return
        self._secret = secrets.token_bytes(POINT_BYTES)
        # About two draws: half of all clamped scalars have a clamped inverse, which `divide` needs.
        while _invert_scalar(self._secret) is None:
            self._secret = secrets.token_bytes(POINT_BYTES)

    def to_bytes(self) -> bytes:
        """The secret. Store it as carefully as any key: with it, any identifier can be tested."""
        return self._secret

    def multiply(self, points: np.ndarray, what: str = "the set") -> np.ndarray:
        """k·P for each row.

        Args:
            points: u-coordinates, uint8 (n, 32).
            what: how error messages name the points.

        Raises:
            MalformedError: wrong type or shape, or a point of small order (the product is zero; RFC 7748, 6.1).
        """
        return self._multiply_points(self._secret, points, what)

    def divide(self, points: np.ndarray, what: str = "the set") -> np.ndarray:
        """k⁻¹·P for each row: undoes `multiply` on points of the subgroup of prime order.

        Raises:
            PSIError: the caller gave a secret whose inverse is not a clamped scalar. Drawn secrets always have one.
            MalformedError: as for `multiply`.
        """
        inverse = _invert_scalar(self._secret)
        if inverse is None:
            raise PSIError("this scalar has no inverse among clamped scalars; draw another: Scalar()")
        return self._multiply_points(inverse, points, what)

    def _multiply_points(self, secret: bytes, points: np.ndarray, what: str) -> np.ndarray:
        if not isinstance(points, np.ndarray) or points.dtype != np.uint8 or points.shape[1:] != (POINT_BYTES,):
            raise MalformedError(f"{what} is not an array of points, uint8 (n, {POINT_BYTES})")
        product = self._engine.x25519(secret, points)
        # Clamping kills small-order components, so a small-order point multiplies to zero: RFC 7748, 6.1, checks that.
        if not product.view("<u8").any(axis=1).all():
            raise MalformedError(f"{what} contains a point of small order; the peer does not follow the protocol")
        return product


def _invert_scalar(secret: bytes) -> bytes | None:
    """Return the clamped scalar that inverts `secret` modulo the group's order, or None if no clamped scalar does.

    Clamped scalars are the multiples of 8 from 2^254 to 2^255: about half of all residues have one.
    """
    clamped = int.from_bytes(secret, "little") & ~7 & (1 << 255) - 1 | 1 << 254
    inverse = int(gmpy2.powmod_sec(clamped, ORDER - 2, ORDER))  # by Fermat, in GMP's constant-time routine
    times = -inverse * pow(ORDER, -1, 8) % 8  # inverse + times · ORDER ≡ 0 mod 8
    candidate = inverse + times * ORDER
    return candidate.to_bytes(POINT_BYTES, "little") if candidate >> 254 == 1 else None


def hash_to_group(
    messages: Identifiers | Sequence[bytes], dst: bytes, rows: np.ndarray | None = None, by: Engine | None = None
) -> np.ndarray:
    """Hash each message to a point, modelled as a random oracle (`hash_many_to_u`): uint8 (n, 32)."""
    return hash_many_to_u(messages, dst, rows, by)


def hash_points(points: np.ndarray, dst: bytes, length: int = TOKEN_BYTES, by: Engine | None = None) -> np.ndarray:
    """Hash each point with SHA-512 of point and `dst`, truncated: uint8 (n, length)."""
    suffix = np.broadcast_to(np.frombuffer(dst, dtype=np.uint8), (len(points), len(dst)))
    digests = (by or choose_engine()).sha512(np.concatenate([points, suffix], axis=1))
    return np.ascontiguousarray(digests[:, :length])
