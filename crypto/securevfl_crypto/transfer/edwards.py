"""Points of Ed25519 for a few hundred additions: encodings, sums, and the map to X25519's coordinate.

RFC 8032, sections 5.1.2 to 5.1.4; the map is that of RFC 7748, section 4.1: u = (1 + y) / (1 − y), which drops the sign
of x as X25519 does. gmpy2's integers are not constant-time. That is safe here: all inputs are public, or both possible
sums are computed whatever the choice is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gmpy2
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError

__all__ = ["ORDER", "POINT_BYTES", "EdwardsPoint", "compress", "decompress", "in_subgroup", "to_montgomery"]

POINT_BYTES = 32
ORDER = 2**252 + 27742317777372353535851937790883648493
"""Order of the prime-order subgroup (RFC 7748, section 4.1)."""
P = mpz(2) ** 255 - 19
D = -121665 * gmpy2.invert(121666, P) % P
_ROOT_OF_MINUS_ONE = gmpy2.powmod(2, (P - 1) // 4, P)


@dataclass(frozen=True)
class EdwardsPoint:
    """A point in extended homogeneous coordinates: x = X/Z, y = Y/Z, xy = T/Z (RFC 8032, section 5.1.4)."""

    x: mpz
    y: mpz
    z: mpz
    t: mpz

    def __add__(self, other: EdwardsPoint) -> EdwardsPoint:
        # RFC 8032, section 5.1.4; the formulas are complete, so doubling and the neutral element need no branch.
        a = (self.y - self.x) * (other.y - other.x)
        b = (self.y + self.x) * (other.y + other.x)
        c = 2 * self.t * other.t % P * D
        d = 2 * self.z * other.z
        e, f, g, h = b - a, d - c, d + c, b + a
        return EdwardsPoint(e * f % P, g * h % P, f * g % P, e * h % P)

    def __neg__(self) -> EdwardsPoint:
        return EdwardsPoint(-self.x % P, self.y, self.z, -self.t % P)


_NEUTRAL = EdwardsPoint(mpz(0), mpz(1), mpz(1), mpz(0))


def decompress(encoded: bytes, what: str) -> EdwardsPoint:
    """Decode a point from 32 bytes (RFC 8032, section 5.1.3).

    Raises:
        MalformedError: the bytes encode no point of the curve.
    """
    number = mpz(int.from_bytes(encoded, "little"))
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if len(encoded) != POINT_BYTES or y >= P:
        raise MalformedError(f"{what} contains {len(encoded)} bytes that encode no point: y is not below 2^255 - 19")
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    cube = v * v * v % P
    x = u * cube * gmpy2.powmod(u * cube * cube * v, (P - 5) // 8, P) % P
    if v * x * x % P == -u % P:
        x = x * _ROOT_OF_MINUS_ONE % P
    if v * x * x % P != u or (x == 0 and sign):
        raise MalformedError(f"{what} contains 32 bytes that encode no point of the curve")
    if x & 1 != sign:
        x = P - x
    return EdwardsPoint(x, y, mpz(1), x * y % P)


def in_subgroup(point: EdwardsPoint) -> bool:
    """Return True if the point lies in the prime-order subgroup and is not the neutral element."""
    product = _NEUTRAL
    for bit in bin(ORDER)[2:]:
        product = product + product
        if bit == "1":
            product = product + point
    neutral = product.x % P == 0 and (product.y - product.z) % P == 0
    return bool(neutral and point.x % P != 0)


def _invert_all(numbers: Sequence[mpz]) -> list[mpz]:
    """Invert all numbers with one inversion (Montgomery's trick); zero gives zero."""
    products, product = [], mpz(1)
    for number in numbers:
        products.append(product)
        product = product * (number or 1) % P
    inverse = gmpy2.invert(product, P)
    found = []
    for number, before in zip(reversed(numbers), reversed(products), strict=True):
        found.append(inverse * before % P if number else mpz(0))
        inverse = inverse * (number or 1) % P
    return found[::-1]


def compress(points: Sequence[EdwardsPoint]) -> bytes:
    """Encode points, 32 bytes each (RFC 8032, section 5.1.2)."""
    out = bytearray()
    for point, inverse in zip(points, _invert_all([point.z for point in points]), strict=True):
        x, y = point.x * inverse % P, point.y * inverse % P
        out += int(y | (x & 1) << 255).to_bytes(POINT_BYTES, "little")
    return bytes(out)


def to_montgomery(points: Sequence[EdwardsPoint]) -> list[bytes]:
    """Map points to X25519's u-coordinates; the neutral element maps to 0, which `_multiply_point` refuses."""
    inverses = _invert_all([(point.z - point.y) % P for point in points])
    return [
        int((point.z + point.y) * inverse % P).to_bytes(POINT_BYTES, "little")
        for point, inverse in zip(points, inverses, strict=True)
    ]
