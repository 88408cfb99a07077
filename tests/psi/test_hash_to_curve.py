"""The hash to Curve25519 against the vectors of RFC 9380, and properties that a known peer lacks."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto import elligator2
from securevfl_crypto.elligator2 import (
    J,
    P,
    double_point,
    expand_message_xmd,
    is_on_curve,
    map_to_curve,
    sums_of_maps,
)
from securevfl_crypto.engine import Engine, choose_engine
from securevfl_crypto.errors import MalformedError
from securevfl_psi import PSIError, hash_many_to_u, hash_to_curve
from securevfl_psi.hash_to_curve import hash_to_field
from securevfl_psi.identifiers import Identifiers
from vectors.known_answers import EXPANDER, EXPANDER_DST
from vectors.known_answers import RANDOM_ORACLE as VECTORS
from vectors.known_answers import RANDOM_ORACLE_DST as DST


def _hex(value: object) -> str:
    return f"{int(value):064x}"  # type: ignore[call-overload]


@pytest.mark.parametrize("vector", VECTORS, ids=["empty", "abc", "short", "q128", "a512"])
def test_vectors_of_rfc_9380(vector: tuple[bytes, str, str, str, str, str, str, str, str]) -> None:
    message, px, py, u0, u1, q0x, q0y, q1x, q1y = vector
    elements = hash_to_field(message, DST)
    assert tuple(map(_hex, elements)) == (u0, u1)
    (ax, ay), (bx, by) = map_to_curve(elements)
    assert tuple(map(_hex, (ax, ay, bx, by))) == (q0x, q0y, q1x, q1y)
    assert tuple(map(_hex, hash_to_curve(message, DST))) == (px, py)


@pytest.mark.parametrize(("message", "length", "expected"), EXPANDER)
def test_expander_vectors_of_rfc_9380(message: bytes, length: int, expected: str) -> None:
    assert expand_message_xmd(message, EXPANDER_DST, length).hex() == expected


@pytest.mark.parametrize(("dst", "length"), [(b"", 32), (b"x" * 256, 32), (b"x", 64 * 256)])
def test_the_expander_keeps_its_limits(dst: bytes, length: int) -> None:
    with pytest.raises(MalformedError):
        expand_message_xmd(b"", dst, length)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_many_at_once_equal_one_by_one_up_to_the_cofactor(messages: list[bytes]) -> None:
    """X25519 of Q equals X25519 of the suite's own point 8Q with the scalar divided by 8 (mod the group's order)."""
    order = 2**252 + 27742317777372353535851937790883648493
    clamped = bytearray(secrets.token_bytes(32))
    clamped[0] &= 248
    clamped[31] = clamped[31] & 127 | 64
    k = int.from_bytes(clamped, "little")
    key = X25519PrivateKey.from_private_bytes(bytes(clamped))
    for message, u in zip(messages, hash_many_to_u(messages, DST), strict=True):
        fast = key.exchange(X25519PublicKey.from_public_bytes(u.tobytes()))
        x, y = hash_to_curve(message, DST)
        assert int.from_bytes(fast, "little") == _multiply(k // 8 % order, int(x), int(y))


def _multiply(k: int, x: int, y: int) -> int:
    """Double and add on ``y² = x³ + J x² + x`` with affine formulas: slow and obvious."""
    p, j = int(P), int(J)

    def add(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
        if a is None or b is None:
            return a or b
        if a[0] == b[0]:
            if (a[1] + b[1]) % p == 0:
                return None
            slope = (3 * a[0] ** 2 + 2 * j * a[0] + 1) * pow(2 * a[1], -1, p)
        else:
            slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, p)
        u = (slope * slope - j - a[0] - b[0]) % p
        return u, (slope * (a[0] - u) - a[1]) % p

    result: tuple[int, int] | None = None
    point: tuple[int, int] | None = (x, y)
    while k:
        if k & 1:
            result = add(result, point)
        point = add(point, point)
        k >>= 1
    assert result is not None
    return result[0]


def test_every_point_is_on_the_curve_and_none_on_its_twist() -> None:
    points = hash_many_to_u([b"%d" % i for i in range(500)], DST)
    assert all(is_on_curve(int.from_bytes(u.tobytes(), "little")) for u in points)
    assert 150 < sum(is_on_curve(int.from_bytes(secrets.token_bytes(31), "little")) for _ in range(500)) < 350


def _map_slowly(u: int) -> tuple[int, int]:
    """RFC 9380, section 6.7.1, step by step, by Euler's criterion and trial of both roots: slow and obvious."""
    p, j = int(P), int(J)

    def g(x: int) -> int:
        return (x * x * x + j * x * x + x) % p

    def root(a: int) -> int:
        r = pow(a, (p + 3) // 8, p)
        r = r if r * r % p == a else r * pow(2, (p - 1) // 4, p) % p
        assert r * r % p == a
        return r

    denominator = (1 + 2 * u * u) % p
    x1 = -j * pow(denominator, -1, p) % p if denominator else -j % p
    x, sign = (x1, 1) if pow(g(x1), (p - 1) // 2, p) in (0, 1) else ((-x1 - j) % p, 0)
    y = root(g(x))
    return x, y if y % 2 == sign else -y % p


@settings(max_examples=40, deadline=None)
@given(st.integers(0, int(P) - 1))
def test_the_map_equals_the_slow_one(u: int) -> None:
    assert map_to_curve([P * 0 + u]) == [_map_slowly(u)]


def test_the_map_at_its_edges() -> None:
    edges = [0, 1, 2, int(P) - 1, int(P) - 2, (int(P) - 1) // 2, (int(P) + 1) // 2]
    assert map_to_curve([P * 0 + u for u in edges]) == [_map_slowly(u) for u in edges]
    assert map_to_curve([P * 0]) == [(0, 0)]  # the point of order 2
    assert pow(-pow(2, -1, int(P)), (int(P) - 1) // 2, int(P)) == int(P) - 1  # so 1 + 2u^2 = 0 has no solution


def test_addition_of_equal_and_of_opposite_points() -> None:
    """The map is the same for u and −u; two elements that a hash never gives, so the sums are reached through it."""
    (point,), (other,) = map_to_curve([P * 0 + 5]), map_to_curve([P * 0 + 6])
    assert map_to_curve([P - 5]) == [point]
    (doubled,) = sums_of_maps([5, int(P) - 5])
    (added,) = sums_of_maps([5, 6])
    assert doubled == double_point(point)
    assert int(doubled[0]) == _multiply(2, int(point[0]), int(point[1]))
    for x, y in (doubled, added):
        assert y * y % P == x * (x * (x + J) + 1) % P
    slope = (other[1] - point[1]) * pow(int(other[0] - point[0]), -1, int(P)) % P
    assert added[0] == (slope * slope - J - point[0] - other[0]) % P
    with pytest.raises(MalformedError, match="infinity"):
        elligator2._add_many([(point, (point[0], -point[1] % P))])
    with pytest.raises(MalformedError, match="infinity"):
        sums_of_maps([0, 0])  # (0, 0) twice: of order two


def test_sums_take_numbers_beyond_p_and_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [secrets.randbits(384) for _ in range(40)]
    whole = sums_of_maps(numbers)
    assert whole == sums_of_maps([number % int(P) for number in numbers])
    monkeypatch.setattr(elligator2, "_CHUNK", 7)
    assert sums_of_maps(numbers) == whole
    assert [sums_of_maps(numbers[k : k + 2])[0] for k in range(0, 40, 2)] == whole


def test_chunks_do_not_change_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [b"%d" % i for i in range(20)]
    whole = hash_many_to_u(messages, DST)
    assert whole.shape == (20, 32)
    assert whole.dtype == np.uint8
    monkeypatch.setitem(hash_many_to_u.__globals__, "CHUNK", 7)
    assert np.array_equal(hash_many_to_u(messages, DST), whole)
    assert [hash_many_to_u([message], DST)[0].tobytes() for message in messages] == [u.tobytes() for u in whole]


def test_rows_are_hashed_in_the_order_asked_for() -> None:
    texts = ["a", "longer", "b", "", "longest of all", "c"]
    whole = hash_many_to_u([text.encode() for text in texts], DST)
    rows = np.array([4, 0, 0, 3, 5])
    assert np.array_equal(hash_many_to_u(Identifiers.of_texts(texts), DST, rows), whole[rows])


def test_nothing_hashes_to_nothing() -> None:
    assert hash_many_to_u([], DST).shape == (0, 32)


def test_the_point_at_infinity_is_refused() -> None:
    class Unlucky(type(choose_engine("cryptography"))):  # type: ignore[misc]
        def hash_to_u(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
            out: np.ndarray = super().hash_to_u(messages, dst)
            out[-1] = 0
            return out

    unlucky: Engine = Unlucky("cryptography")
    with pytest.raises(PSIError, match="infinity"):
        hash_many_to_u([b"a", b"b"], DST, by=unlucky)
