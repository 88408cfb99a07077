"""Arithmetic modulo a number whose square root is known: pairs of halves (`engine.pairs`), and their edges."""

from __future__ import annotations

import random

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.engine import BoundError
from securevfl_crypto.engine.compiled_long import long_text
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath, paths_of_this_cpu
from securevfl_crypto.engine.limbs import MOST_BITS, FmaLimbs, IfmaLimbs, Limbs, limbs_for
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import modular_arithmetic
from securevfl_crypto.modular.gmp import GmpModulus
from securevfl_crypto.modular.lanes import LaneBatch
from securevfl_crypto.modular.montgomery import montgomery_form
from securevfl_crypto.modular.vector import VectorModulus

VECTORS = [path.name for path in paths_of_this_cpu() if path.has_long_numbers]
NAMES = [*VECTORS, "cryptography"]
RANDOM = random.Random(22)


def _root(bits: int) -> mpz:
    return mpz(RANDOM.getrandbits(bits) | 3 << (bits - 2) | 1)


PRIME = gmpy2.next_prime(_root(1024))
LONG = [path for path in VECTOR_PATHS if path.has_long_numbers]
ROOTS = {
    **{f"{bits} bits": _root(bits) for bits in (512, 513, 779, 1025, 1536, 2047, 3073, 4096)},
    "1024 bits, prime": PRIME,
    # R is 16n or little more, for tiles of 10 and of 4 limbs: bounds are as tight as they can be.
    "1036 bits of ones": (mpz(1) << 1036) - 1,
    "1244 bits of ones": (mpz(1) << 1244) - 1,
    # These do not fit the same lengths: R has to be longer.
    **{f"{bits} bits of ones": (mpz(1) << bits) - 1 for bits in (1037, 1038, 1245, 1246)},
    "1036 bits, sparse": (mpz(1) << 1035) + 1,
    "8192 bits of ones": (mpz(1) << 8192) - 1,
}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _known(n: mpz, path: str) -> VectorModulus:
    found = modular_arithmetic(n * n, path, root=n)
    assert isinstance(found, VectorModulus)
    return found


def _radix(arithmetic: VectorModulus) -> mpz:
    return mpz(1) << (arithmetic.kernels.limbs.bits * arithmetic.limbs // 2)


def _edges(n: mpz) -> list[mpz]:
    m = n * n
    ones = [(mpz(1) << bits) - 1 for bits in (52, 27 * 8, n.bit_length() - 1, m.bit_length() - 1)]
    multiples = [k * n for k in (1, 2, 3, n - 1, n - 2, n >> 1)]
    radices = [mpz(1) << (520 * k) for k in range(1, 5)]
    near = [mpz(0), mpz(1), mpz(2), n - 1, n + 1, 2 * n - 1, 2 * n + 1, m - 1, m - 2, m - n - 1, m - n + 1, m >> 1]
    return [x % m for x in (*near, *multiples, *ones, *radices)] + [mpz(RANDOM.randrange(m)) for _ in range(3)]


@pytest.mark.parametrize("n", ROOTS.values(), ids=ROOTS)
def test_edges_of_a_square(name: str, n: mpz) -> None:
    m = n * n
    arithmetic = modular_arithmetic(m, name, root=n)
    values = _edges(n)
    w = arithmetic.width
    wire = np.frombuffer(b"".join(int(x).to_bytes(w, "little") for x in values), dtype=np.uint8).reshape(-1, w)
    batch = arithmetic.load_bytes(wire)
    assert np.array_equal(arithmetic.store_bytes(batch), wire)
    count = len(values)
    left = arithmetic.take(batch, np.repeat(np.arange(count), count))
    right = arithmetic.take(batch, np.tile(np.arange(count), count))
    found = arithmetic.to_ints(arithmetic.mul(left, right))
    assert found == [x * y % m for x in values for y in values]
    assert arithmetic.to_ints(arithmetic.power(batch, 21)) == [gmpy2.powmod(x, 21, m) for x in values]
    for beyond in (m, m + 1, m + n, (mpz(1) << 8 * w) - 1):
        if beyond >> 8 * w == 0:
            with pytest.raises(MalformedError, match="not below"):
                arithmetic.load_bytes(np.frombuffer(int(beyond).to_bytes(w, "little"), dtype=np.uint8).reshape(1, -1))


def _batch(arithmetic: VectorModulus, pairs: list[tuple[mpz, mpz]]) -> LaneBatch:
    """These halves, as they are."""
    bits, half = arithmetic.kernels.limbs.bits, arithmetic.limbs // 2
    rows = np.zeros((len(pairs), arithmetic.step), dtype=np.uint64)
    for row, pair in zip(rows, pairs, strict=True):
        row[: 2 * half] = [int(x >> (bits * k)) & ((1 << bits) - 1) for x in pair for k in range(half)]
    return arithmetic.from_rows(rows)


def _pairs(arithmetic: VectorModulus, batch: LaneBatch) -> list[tuple[mpz, mpz]]:
    bits, half = arithmetic.kernels.limbs.bits, arithmetic.limbs // 2
    out = []
    for row in arithmetic.rows_of(batch).tolist():
        assert max(row[: 2 * half]) >> bits == 0
        low, high = (
            sum(mpz(x) << (bits * k) for k, x in enumerate(part)) for part in (row[:half], row[half : 2 * half])
        )
        out.append((mpz(low), mpz(high)))
    return out


def _check(arithmetic: VectorModulus, left: list[tuple[mpz, mpz]], right: list[tuple[mpz, mpz]]) -> None:
    """Products and squares of these halves, their bounds, and what they are as numbers."""
    n, m = arithmetic.root, arithmetic.m
    assert n is not None
    back = gmpy2.invert(_radix(arithmetic), m)
    a, b = _batch(arithmetic, left), _batch(arithmetic, right)
    first, second = ([(x + y * n) * back % m for x, y in part] for part in (left, right))
    assert arithmetic.to_ints(a) == first
    product = arithmetic.mul(a, b)
    squares = arithmetic.mul(a, arithmetic.from_ints([1]))
    assert arithmetic.to_ints(squares) == first
    arithmetic.square_blocks(squares.data, 1)
    own = _batch(arithmetic, left)
    arithmetic.square_blocks(own.data, 1)
    for found in (product, squares, own):
        assert max(max(pair) for pair in _pairs(arithmetic, found)) < 3 * n
    assert arithmetic.to_ints(product) == [x * y % m for x, y in zip(first, second, strict=True)]
    assert arithmetic.to_ints(squares) == arithmetic.to_ints(own) == [x * x % m for x in first]


@pytest.mark.parametrize("path", VECTORS)
@pytest.mark.parametrize("kind", ["512 bits", "1024 bits, prime", "1036 bits of ones", "1244 bits of ones"])
def test_halves_up_to_their_bound(path: str, kind: str) -> None:
    arithmetic = _known(ROOTS[kind], path)
    n = ROOTS[kind]
    halves = [mpz(0), mpz(1), n - 1, n, n + 1, 2 * n, 3 * n - 1]
    pairs = [(x, y) for x in halves for y in halves]
    _check(arithmetic, pairs, pairs[::-1])
    _check(arithmetic, pairs, [pairs[-1]] * len(pairs))


@pytest.mark.parametrize("path", VECTORS)
@given(data=st.data())
@settings(max_examples=20)
def test_any_halves(path: str, data: st.DataObject) -> None:
    n = ROOTS[data.draw(st.sampled_from(["512 bits", "779 bits", "1036 bits of ones"]))]
    most = 3 * int(n) - 1
    number = st.one_of(st.integers(0, most), st.integers(0, 64).map(lambda k: most - k), st.integers(0, 3))
    pairs = st.tuples(number.map(mpz), number.map(mpz))
    left = data.draw(st.lists(pairs, min_size=1, max_size=10))
    _check(_known(n, path), left, data.draw(st.lists(pairs, min_size=len(left), max_size=len(left))))


@pytest.mark.parametrize("path", VECTORS)
def test_numbers_that_arrive_are_within_the_bound(path: str) -> None:
    for n in (ROOTS[f"{bits} bits of ones"] for bits in (1036, 1038, 1244, 1246)):
        arithmetic = _known(n, path)
        radix = _radix(arithmetic)
        assert radix >= 16 * n
        full = (n * n // radix) * radix - 1  # all ones in the lower half, as much as can be above
        values = [full, n * n - 1, radix - 1, radix, *_edges(n)]
        batch = arithmetic.from_ints(values)
        assert max(max(pair) for pair in _pairs(arithmetic, batch)) < 3 * n
        assert arithmetic.to_ints(batch) == values


def test_all_operations_on_pairs(name: str) -> None:
    m = PRIME**2
    arithmetic = modular_arithmetic(m, name, root=PRIME)
    units = [x for x in _edges(PRIME) if x % PRIME]
    batch = arithmetic.from_ints(units)
    inverses = [gmpy2.invert(x, m) for x in units]
    assert arithmetic.to_ints(arithmetic.invert(batch)) == inverses
    for rows in (2, 40):
        exponents = np.random.default_rng(rows).integers(-3000, 3000, (rows, len(units)))
        expected = []
        for row in exponents.tolist():
            value = mpz(1)
            for x, e in zip(units, row, strict=True):
                value = value * gmpy2.powmod(x, e, m) % m
            expected.append(value)
        assert arithmetic.to_ints(arithmetic.power_products(batch, exponents)) == expected
    digits = np.frombuffer(RANDOM.randbytes(11 * 9), dtype=np.uint8).reshape(11, 9)
    powers = [gmpy2.powmod(units[5], int.from_bytes(row.tobytes(), "little"), m) for row in digits]
    for scan in (False, True):
        assert arithmetic.to_ints(arithmetic.fixed_base(units[5], 72, scan=scan).raise_to(digits)) == powers
    secret = RANDOM.getrandbits(200)
    assert arithmetic.to_ints(arithmetic.power(batch, secret)) == [gmpy2.powmod(x, secret, m) for x in units]
    with pytest.raises(MalformedError, match="inverse"):
        arithmetic.invert(arithmetic.from_ints([2, PRIME]))


def test_a_root_must_be_one(name: str) -> None:
    m = PRIME**2
    for wrong in (PRIME + 2, -PRIME, 1, 0, m):
        with pytest.raises(MalformedError, match="is not the modulus"):
            modular_arithmetic(m, name, root=wrong)
    for even in (2 * PRIME, 1 << 600):
        with pytest.raises(MalformedError, match="an odd one"):
            modular_arithmetic(even**2, name, root=even)
    assert modular_arithmetic(m, name, root=int(PRIME)) is modular_arithmetic(m, name, root=PRIME)
    assert isinstance(GmpModulus(m, root=PRIME), GmpModulus)


@pytest.mark.parametrize("path", VECTORS)
def test_the_two_forms_do_not_mix(path: str) -> None:
    whole, pairs = modular_arithmetic(PRIME**2, path), modular_arithmetic(PRIME**2, path, root=PRIME)
    assert modular_arithmetic(PRIME**2, path, secret=True, root=PRIME) is not pairs
    for one, other in ((whole, pairs), (pairs, whole)):
        with pytest.raises(MalformedError, match="another modulus or path"):
            one.to_ints(other.from_ints([5]))


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.name)
@pytest.mark.parametrize("n", ROOTS.values(), ids=ROOTS)
def test_what_stands_for_minus_the_quotient(path: VectorPath, n: mpz) -> None:
    limbs = limbs_for(path)
    form = montgomery_form(n * n, limbs, n)
    half = form.limbs // 2
    assert "modulus=" not in repr(form)
    assert half % limbs.tile == 0
    assert half >= 2 * limbs.tile
    assert mpz(1) << (limbs.bits * half) >= 16 * n
    assert len(form.modulus) == 2 * half
    assert all(limbs.top <= limb <= 2 * limbs.top for limb in form.modulus[half:])
    assert sum(mpz(limb) << (limbs.bits * k) for k, limb in enumerate(form.modulus[half:])) % n == 0


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.name)
def test_columns_of_pairs_do_not_overflow(path: VectorPath) -> None:
    limbs = limbs_for(path)
    text = long_text(limbs, path.lanes, squares=True)
    assert text.count("define void") == text.count("ret void")
    assert limbs.bits * limbs.most >= MOST_BITS // 2 + 4


@pytest.mark.parametrize(("limbs", "lanes"), [(IfmaLimbs(), 8), (FmaLimbs(), 8), (FmaLimbs(), 4)])
def test_pairs_too_long_for_the_columns_cannot_be_emitted(limbs: Limbs, lanes: int) -> None:
    limbs.most = 660
    long_text(limbs, lanes, squares=True)
    limbs.most = 700
    with pytest.raises(BoundError, match="outside 64 bits"):
        long_text(limbs, lanes, squares=True)
