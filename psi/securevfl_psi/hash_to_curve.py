"""Hashing to Curve25519 as a random oracle: the suite ``curve25519_XMD:SHA-512_ELL2_RO_`` of RFC 9380, section 8.5.

Two field elements are hashed from the message (section 5), each mapped to the curve by Elligator 2 (section 6.7.1),
and the two points are added. All points are on the curve itself, never on its twist: reading a digest as a
coordinate, as some implementations do, puts half of the items on the twist, and that bit survives blinding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz
from securevfl_crypto.elligator2 import (
    P,
    Point,
    double_point,
    expand_message_xmd,
    is_on_curve,
    map_to_curve,
    sums_of_maps,
)
from securevfl_crypto.engine import Engine, choose_engine

from securevfl_psi.errors import PSIError
from securevfl_psi.identifiers import Identifiers

__all__ = [
    "CHUNK",
    "P",
    "expand_message_xmd",
    "hash_many_to_u",
    "hash_to_curve",
    "hash_to_field",
    "is_on_curve",
    "map_to_curve",
]

CHUNK = 1 << 15
"""Points that are computed, sent and checked at a time: a megabyte."""
_FIELD_BYTES = 48  # L = ⌈(255 + 128) / 8⌉ of RFC 9380, section 5.1: the bias modulo 2^255 − 19 is at most 2^-128


def hash_to_field(message: bytes, dst: bytes) -> tuple[mpz, mpz]:
    """Hash a message to two elements of GF(2^255 − 19) (RFC 9380, section 5.2, count = 2)."""
    data = expand_message_xmd(message, dst, 2 * _FIELD_BYTES)
    return mpz(int.from_bytes(data[:_FIELD_BYTES], "big")) % P, mpz(int.from_bytes(data[_FIELD_BYTES:], "big")) % P


def hash_to_curve(message: bytes, dst: bytes) -> Point:
    """Hash a message to the point (x, y) of the full suite, cofactor cleared (RFC 9380, section 3), as big integers."""
    point = sums_of_maps([int(u) for u in hash_to_field(message, dst)])[0]
    for _ in range(3):  # times 8, the cofactor
        point = double_point(point)
    return point


def hash_many_to_u(
    messages: Identifiers | Sequence[bytes], dst: bytes, rows: np.ndarray | None = None, by: Engine | None = None
) -> np.ndarray:
    """Hash each message to the u-coordinate of the suite's point *before* its cofactor is cleared.

    Enough for X25519: a clamped scalar k is a multiple of 8 (RFC 7748, section 5: its three lowest bits are cleared),
    so k/8 is a whole number, and multiplication by whole numbers composes: ``k Q = (k/8) (8 Q)`` with Q = Q0 + Q1.
    That is a multiple of the point that the suite defines, 8 Q, and no component of small order is left.

    Args:
        messages: identifiers, or bytes.
        dst: domain separation tag, 1 to 255 bytes; up to 45 are hashed fastest.
        rows: which messages, in which order, int64 (n,); by default all.
        by: the engine; by default the fastest.

    Returns:
        Little-endian, uint8 (n, 32).
    """
    column = messages if isinstance(messages, Identifiers) else Identifiers.of_bytes(messages)
    wanted = np.arange(len(column)) if rows is None else rows
    compute = by or choose_engine()
    out = np.empty((len(wanted), 32), dtype=np.uint8)
    for start in range(0, len(wanted), CHUNK):
        for places, matrix in column.iter_matrices(wanted[start : start + CHUNK]):
            out[start + places] = compute.hash_to_u(matrix, dst)
    if len(out) and not out.view("<u8").reshape(-1, 4).any(axis=1).all():
        raise PSIError("a hash gave the point at infinity, an event of probability 2^-250: start a new session")
    return out
