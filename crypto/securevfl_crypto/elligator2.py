"""Hashing to Curve25519 (RFC 9380) in big integers, one item after another.

This is the reference for the compiled kernels, and the path of machines that cannot run them. It is not constant-time:
a party hashes its own identifiers on its own machine. `engine` and `securevfl_psi` use it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import gmpy2
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError

__all__ = ["J", "P", "Point", "double_point", "expand_message_xmd", "is_on_curve", "map_to_curve", "sums_of_maps"]

P = mpz(2) ** 255 - 19
J = mpz(486662)
_SQRT_EXPONENT = (P + 3) // 8
_SQRT_MINUS_ONE = gmpy2.powmod(2, (P - 1) // 4, P)
_ROOT_OF_TWO = gmpy2.powmod(2, _SQRT_EXPONENT, P)  # 2 is no square; together with that of another it becomes one
_BLOCK, _DIGEST = 128, 64
_CHUNK = 1 << 12  # messages that share an inversion

Point = tuple[mpz, mpz]


def expand_message_xmd(message: bytes, dst: bytes, length: int) -> bytes:
    """``expand_message_xmd`` of RFC 9380, section 5.3.1, with SHA-512: `length` uniform bytes.

    Raises:
        MalformedError: the domain separation tag is empty or longer than 255 bytes, or `length` is above 16,320.
    """
    blocks = -(-length // _DIGEST)
    if not 1 <= len(dst) <= 255 or blocks > 255:
        raise MalformedError(
            f"a tag of {len(dst)} bytes (1 to 255) and {length} bytes of output (at most {255 * _DIGEST})"
        )
    suffix = dst + bytes([len(dst)])
    first = hashlib.sha512(bytes(_BLOCK) + message + length.to_bytes(2, "big") + b"\0" + suffix).digest()
    last = hashlib.sha512(first + b"\x01" + suffix).digest()
    out = [last]
    for i in range(2, blocks + 1):
        mixed = (int.from_bytes(first, "big") ^ int.from_bytes(last, "big")).to_bytes(_DIGEST, "big")
        last = hashlib.sha512(mixed + bytes([i]) + suffix).digest()
        out.append(last)
    return b"".join(out)[:length]


def _invert_elements(values: Sequence[mpz]) -> list[mpz]:
    """Inverses of non-zero elements, with one inversion (Montgomery's trick)."""
    prefix = [mpz(1)]
    for value in values:
        prefix.append(prefix[-1] * value % P)
    inverse = gmpy2.invert(prefix[-1], P)
    out = [mpz(0)] * len(values)
    for i in range(len(values) - 1, -1, -1):
        out[i] = inverse * prefix[i] % P
        inverse = inverse * values[i] % P
    return out


def map_to_curve(elements: Sequence[mpz]) -> list[Point]:
    """Elligator 2 (RFC 9380, section 6.7.1, Z = 2) for each element: points (x, y) on ``y² = x³ + J x² + x``.

    The denominator 1 + 2u² is never zero: −1/2 is no square modulo p.
    """
    inverses = _invert_elements([1 + 2 * u * u for u in elements])
    points = []
    for u, inverse in zip(elements, inverses, strict=True):
        x = -J * inverse % P
        gx = x * (x * (x + J) + 1) % P
        y = gmpy2.powmod(gx, _SQRT_EXPONENT, P)
        square = y * y % P
        if square == gx or square == P - gx:
            y = y if square == gx else y * _SQRT_MINUS_ONE % P
            sign = 1
        else:
            # gx is no square, so g(x2) = 2 u² gx is one, at x2 = −x − J, and its root is u √(2 gx).
            x = (-x - J) % P
            y = y * _ROOT_OF_TWO % P
            if y * y % P != 2 * gx % P:
                y = y * _SQRT_MINUS_ONE % P
            y = y * u % P
            sign = 0
        points.append((x, y if y % 2 == sign else -y % P))
    return points


def double_point(point: Point) -> Point:
    """The point 2·P, affine.

    Raises:
        MalformedError: P has order two.
    """
    x, y = point
    if y == 0:
        raise MalformedError(
            "the point at infinity came out of a hash; this happens with probability 2^-250: hash again"
        )
    slope = (3 * x * x + 2 * J * x + 1) * gmpy2.invert(2 * y, P) % P
    u = (slope * slope - J - 2 * x) % P
    return u, (slope * (x - u) - y) % P


def _add_many(pairs: Sequence[tuple[Point, Point]]) -> list[Point]:
    """Sums of pairs of points, affine; one inversion for all."""
    equal = [a[0] == b[0] for a, b in pairs]
    inverses = _invert_elements([mpz(1) if same else b[0] - a[0] for (a, b), same in zip(pairs, equal, strict=True)])
    sums = []
    for ((x0, y0), (x1, y1)), same, inverse in zip(pairs, equal, inverses, strict=True):
        if same:
            sums.append(double_point((x0, (y0 + y1) * gmpy2.invert(2, P) % P)))  # y1 = y0, or y = 0 where they cancel
            continue
        slope = (y1 - y0) * inverse % P
        u = (slope * slope - J - x0 - x1) % P
        sums.append((u, (slope * (x0 - u) - y0) % P))
    return sums


def sums_of_maps(numbers: Sequence[int]) -> list[Point]:
    """For each pair of consecutive numbers, taken modulo p, the sum of the points that they map to."""
    out: list[Point] = []
    for start in range(0, len(numbers), 2 * _CHUNK):
        points = map_to_curve([mpz(number) % P for number in numbers[start : start + 2 * _CHUNK]])
        out += _add_many(list(zip(points[::2], points[1::2], strict=True)))
    return out


def is_on_curve(u: mpz | int) -> bool:
    """Whether a point of the curve, not of its twist, has the coordinate u: ``u³ + J u² + u`` is a square."""
    value = mpz(u) * (mpz(u) * (mpz(u) + J) + 1) % P
    return bool(value == 0 or gmpy2.legendre(value, P) == 1)
