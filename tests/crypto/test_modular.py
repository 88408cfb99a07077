"""One contract for all ways to compute modulo a number, against Python's own integers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.engine.compiled_long import long_text
from securevfl_crypto.engine.cpu import paths_of_this_cpu
from securevfl_crypto.engine.limbs import FmaLimbs, IfmaLimbs, Limbs
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import Modulus, buckets, tables
from securevfl_crypto.modular import modular_arithmetic as any_modulus
from securevfl_crypto.modular.tables import by_tables
from securevfl_crypto.modular.vector import VectorModulus

VECTORS = [path.name for path in paths_of_this_cpu() if path.has_long_numbers]
NAMES = [*VECTORS, "cryptography"]
RANDOM = random.Random(20)


def _odd(bits: int) -> mpz:
    return mpz(RANDOM.getrandbits(bits) | 1 << (bits - 1) | 1)


PRIME = (mpz(1) << 1279) - 1
MODULI = {
    "1024 bits": _odd(1024),
    "a prime of ones": PRIME,
    "1039 bits, sparse": (mpz(1) << 1038) + 1,
    "2050 bits": _odd(2050),
    "a square of 4094 bits": gmpy2.next_prime(_odd(2046)) ** 2,
    "8191 bits of ones": (mpz(1) << 8191) - 1,
}
ROOTS = [gmpy2.next_prime(_odd(1023) | 1 << 1022), (mpz(1) << 1036) - 1]
"""Of moduli that are known to be squares; the second is the longest for its number of limbs on every path."""
MODULI |= {f"a square with a known root of {n.bit_length()} bits": n**2 for n in ROOTS}


def modulus(m: mpz, name: str) -> Modulus:
    """With the root, where it is known."""
    return any_modulus(m, name, root=next((n for n in ROOTS if n**2 == m), None))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=MODULI)
def m(request: pytest.FixtureRequest) -> mpz:
    return MODULI[request.param]


def _numbers(m: mpz, count: int) -> list[mpz]:
    """The edges, then random ones."""
    edges = [mpz(0), mpz(1), m - 1, m - 2, m >> 1, (mpz(1) << (m.bit_length() - 1)) - 1, mpz(2)]
    return [*edges, *(mpz(RANDOM.randrange(m)) for _ in range(count))][:count]


def _units(m: mpz, count: int) -> list[mpz]:
    found = [mpz(1), m - 1, mpz(2)]
    while len(found) < count:
        value = mpz(RANDOM.randrange(m))
        if gmpy2.gcd(value, m) == 1:
            found.append(value)
    return found[:count]


def _bytes(exponents: list[int], width: int) -> np.ndarray:
    raw = b"".join(e.to_bytes(width, "little") for e in exponents)
    return np.frombuffer(raw, dtype=np.uint8).reshape(len(exponents), width)


def _products(bases: list[mpz], exponents: np.ndarray, m: mpz) -> list[mpz]:
    out = []
    for row in exponents.tolist():
        value = mpz(1)
        for base, e in zip(bases, row, strict=True):
            value = value * gmpy2.powmod(base, e, m) % m
        out.append(value)
    return out


def test_numbers_in_and_out(name: str, m: mpz) -> None:
    arithmetic = modulus(m, name)
    values = _numbers(m, 19)
    wire = _bytes([int(value) for value in values], arithmetic.width)
    batch = arithmetic.load_bytes(wire)
    assert len(batch) == 19
    assert arithmetic.to_ints(batch) == values
    assert np.array_equal(arithmetic.store_bytes(batch), wire)
    assert arithmetic.store_bytes(batch).dtype == np.uint8
    beyond = [value + k * m for k, value in enumerate(values)]
    assert arithmetic.to_ints(arithmetic.from_ints([*beyond, -1])) == [*values, m - 1]
    assert arithmetic.to_ints(arithmetic.from_ints([])) == []
    assert arithmetic.store_bytes(arithmetic.from_ints([])).shape == (0, arithmetic.width)


def test_products_and_places(name: str, m: mpz) -> None:
    arithmetic = modulus(m, name)
    a, b = _numbers(m, 19), _numbers(m, 19)[::-1]
    left, right = arithmetic.from_ints(a), arithmetic.from_ints(b)
    assert arithmetic.to_ints(arithmetic.mul(left, right)) == [x * y % m for x, y in zip(a, b, strict=True)]
    one = arithmetic.take(right, np.array([3]))
    scaled = [x * b[3] % m for x in a]
    assert arithmetic.to_ints(arithmetic.mul(left, one)) == scaled
    assert arithmetic.to_ints(arithmetic.mul(one, left)) == scaled
    places = np.array([18, 0, 0, 7, 8, 9], dtype=np.int64)
    taken = arithmetic.take(left, places)
    assert arithmetic.to_ints(taken) == [a[i] for i in places]
    whole = arithmetic.take(left, np.arange(16))
    for parts in ([taken, left, one], [whole, taken], [left], []):
        expected = [value for part in parts for value in arithmetic.to_ints(part)]
        assert arithmetic.to_ints(arithmetic.concat(parts)) == expected
    nothing = arithmetic.take(left, np.array([], dtype=np.int64))
    assert arithmetic.to_ints(arithmetic.mul(nothing, one)) == []
    assert arithmetic.to_ints(arithmetic.power(nothing, 5)) == []
    assert arithmetic.to_ints(arithmetic.invert(nothing)) == []


def test_powers_and_inverses(name: str, m: mpz) -> None:
    arithmetic = modulus(m, name)
    values = _numbers(m, 9)
    batch = arithmetic.from_ints(values)
    for e in (0, 1, 2, 3, 255, RANDOM.getrandbits(130) | 1 << 129):
        assert arithmetic.to_ints(arithmetic.power(batch, e)) == [gmpy2.powmod(x, e, m) for x in values]
    for count in (1, 8, 19, 40):
        units = _units(m, count)
        found = arithmetic.to_ints(arithmetic.invert(arithmetic.from_ints(units)))
        assert found == [gmpy2.invert(x, m) for x in units]
    with pytest.raises(MalformedError, match="inverse"):
        arithmetic.invert(batch)


def test_products_that_are_zero(name: str) -> None:
    p = gmpy2.next_prime(_odd(1100))  # p · kp is a multiple of m = p², but no factor is: lanes hold m itself
    arithmetic = modulus(p * p, name)
    batch = arithmetic.from_ints([p, 5 * p, p * p - p, 7, 0])
    square = arithmetic.mul(batch, batch)
    assert arithmetic.to_ints(square) == [0, 0, 0, 49, 0]
    assert not arithmetic.store_bytes(square)[:3].any()
    assert arithmetic.to_ints(arithmetic.power(batch, 3)) == [0, 0, 0, 343, 0]
    assert arithmetic.to_ints(arithmetic.mul(square, batch)) == [0, 0, 0, 343, 0]


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("bits", [1, 61, 320])
def test_a_fixed_base(name: str, bits: int, scan: bool) -> None:
    m = MODULI["a square of 4094 bits"]
    arithmetic = modulus(m, name)
    base = m - 5
    table = arithmetic.fixed_base(base + m, bits, scan=scan)
    assert table.bits == bits
    exponents = [0, 1, (1 << bits) - 1, *(RANDOM.getrandbits(bits) for _ in range(7))]
    wire = _bytes(exponents, -(-bits // 8))
    assert arithmetic.to_ints(table.raise_to(wire)) == [gmpy2.powmod(base, e, m) for e in exponents]
    assert len(table.raise_to(wire[:0])) == 0
    with pytest.raises(MalformedError, match="exponents"):
        table.raise_to(wire.astype(np.int8))


@pytest.mark.parametrize("count", [1, 9, 61, 320])
def test_products_of_subsets(name: str, count: int) -> None:
    m = MODULI["a square of 4094 bits"]
    arithmetic = modulus(m, name)
    numbers = [m - 5, *(RANDOM.randrange(int(m)) for _ in range(count - 1))]
    table = arithmetic.subset_products(arithmetic.from_ints(numbers))
    assert table.bits == count
    chosen = [0, 1, (1 << count) - 1, *(RANDOM.getrandbits(count) for _ in range(7))]
    wire, expected = _bytes(chosen, -(-count // 8)), []
    for subset in chosen:
        value = 1
        for i, number in enumerate(numbers):
            value = value * number % m if subset >> i & 1 else value
        expected.append(value)
    assert arithmetic.to_ints(table.raise_to(wire)) == expected
    with pytest.raises(MalformedError, match="exponents"):
        table.raise_to(wire.astype(np.int8))
    with pytest.raises(MalformedError, match="0 bits"):
        arithmetic.subset_products(arithmetic.from_ints([]))


@pytest.mark.parametrize("path", VECTORS)
@pytest.mark.parametrize("room", [1 << 20, 1 << 21, 1 << 22])
def test_tables_of_a_fixed_base_in_less_memory(path: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_BYTES", room)
    arithmetic = modulus(PRIME, path)
    table = arithmetic.fixed_base(3, 320)
    exponents = [(1 << 320) - 1, *(RANDOM.getrandbits(320) for _ in range(9))]
    assert arithmetic.to_ints(table.raise_to(_bytes(exponents, 40))) == [gmpy2.powmod(3, e, PRIME) for e in exponents]


@pytest.mark.parametrize("window", [4, 11, 13])
def test_windows_of_a_fixed_base(name: str, window: int) -> None:
    arithmetic = modulus(PRIME, name)
    exponents = [0, (1 << 104) - 1, *(RANDOM.getrandbits(104) for _ in range(9))]
    table = arithmetic.fixed_base(5, 104, window=window)
    assert arithmetic.to_ints(table.raise_to(_bytes(exponents, 13))) == [gmpy2.powmod(5, e, PRIME) for e in exponents]


@pytest.mark.parametrize("path", VECTORS)
def test_tables_that_grow_with_use(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power is the same before and after, tables grow only where there are four lanes, and never beyond the room."""
    arithmetic = modulus(PRIME, path)
    table = arithmetic.fixed_base(3, 320)
    assert isinstance(arithmetic, VectorModulus)
    assert isinstance(table, tables.VectorFixedBase)
    exponents = [0, (1 << 320) - 1, *(RANDOM.getrandbits(320) for _ in range(9))]
    wire, right = _bytes(exponents, 40), [gmpy2.powmod(3, e, PRIME) for e in exponents]
    windows = []
    for _ in range(6):
        assert arithmetic.to_ints(table.raise_to(wire)) == right
        windows.append(table._table[0])
        table._used *= 40
    assert windows[0] == 8
    grows = arithmetic.lanes == 4
    assert windows == sorted(windows)
    assert (windows[-1] > 8) == grows
    assert len(table._table[1]) <= tables._MOST_ENTRIES
    monkeypatch.setattr(tables, "_MOST_GROWN", 5 << 20)
    small = arithmetic.fixed_base(3, 320)
    small._used = 1 << 30  # type: ignore[attr-defined]
    assert arithmetic.to_ints(small.raise_to(wire)) == right
    assert small._table[0] == (9 if grows else 8)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", VECTORS)
def test_few_powers_make_no_wider_tables(path: str) -> None:
    """Wider tables cost less than what was computed already; explicit windows and scanned tables stay."""
    arithmetic = modulus(PRIME, path)
    table = arithmetic.fixed_base(3, 320)
    wire = _bytes([RANDOM.getrandbits(320) for _ in range(200)], 40)
    table.raise_to(wire)
    assert table._table[0] == 8  # type: ignore[attr-defined]
    for fixed in (arithmetic.fixed_base(3, 320, window=8), arithmetic.fixed_base(3, 320, scan=True)):
        window = fixed._table[0]  # type: ignore[attr-defined]
        fixed._used = 1 << 30  # type: ignore[attr-defined]
        fixed.raise_to(wire)
        assert fixed._table[0] == window  # type: ignore[attr-defined]


@pytest.mark.parametrize("sizes", [[0], [1], [0, 3, 0, 1, 2], [700, 1, 64, 65, 0, 129], [5000]])
def test_products_by_group(name: str, sizes: list[int]) -> None:
    """Groups of no, few and many numbers, which need several rounds; each number in two columns, and once in none."""
    arithmetic = modulus(PRIME, name)
    values = [mpz(RANDOM.randrange(1, PRIME)) for _ in range(sum(sizes) + 1)]
    codes = np.append(np.repeat(np.arange(len(sizes)), sizes), -1)
    groups = np.stack([codes, codes[::-1]], axis=1)
    right = [mpz(1)] * (len(sizes) + 1)
    for value, places in zip(values, groups.tolist(), strict=True):
        for place in places:
            if place >= 0:
                right[place] = right[place] * value % PRIME
    found = arithmetic.group_products(arithmetic.from_ints(values), groups, len(sizes) + 1)
    assert arithmetic.to_ints(found) == right


def test_products_of_no_number_are_ones(name: str) -> None:
    arithmetic = modulus(PRIME, name)
    none = arithmetic.from_ints([])
    assert arithmetic.to_ints(arithmetic.group_products(none, np.zeros((0, 3), dtype=np.int64), 2)) == [1, 1]
    assert not len(arithmetic.group_products(none, np.zeros((0, 3), dtype=np.int64), 0))
    assert not len(arithmetic.horner(none, 3, 5))


@pytest.mark.parametrize(("parts", "each"), [(1, 3), (2, 8), (5, 9), (39, 1)])
def test_horner(name: str, parts: int, each: int) -> None:
    arithmetic = modulus(PRIME, name)
    values = _numbers(PRIME, parts * each)
    right = [mpz(1)] * each
    for k in range(parts):
        for i in range(each):
            right[i] = right[i] * gmpy2.powmod(values[k * each + i], mpz(1) << (52 * k), PRIME) % PRIME
    assert arithmetic.to_ints(arithmetic.horner(arithmetic.from_ints(values), parts, 52)) == right


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (1, 40), (3, 70), (40, 3), (9, 9)])
@pytest.mark.parametrize(
    ("low", "high"), [(0, 1 << 16), (-(1 << 16), 1 << 16), (-1, 1), (-(1 << 63) + 1, (1 << 63) - 1)]
)
def test_products_of_powers(name: str, rows: int, count: int, low: int, high: int) -> None:
    arithmetic = modulus(PRIME, name)
    bases = _units(PRIME, count)
    exponents = np.random.default_rng(rows).integers(low, high, (rows, count), endpoint=True)
    exponents.flat[0], exponents.flat[-1] = low, high
    exponents[0, 1:] = 0
    found = arithmetic.power_products(arithmetic.from_ints(bases), exponents)
    assert arithmetic.to_ints(found) == _products(bases, exponents, PRIME)


def test_no_products_of_powers(name: str) -> None:
    arithmetic = modulus(PRIME, name)
    none, two = arithmetic.from_ints([]), arithmetic.from_ints([2, 3])
    assert arithmetic.to_ints(arithmetic.power_products(none, np.zeros((2, 0), dtype=np.int64))) == [1, 1]
    assert arithmetic.to_ints(arithmetic.power_products(two, np.zeros((0, 2), dtype=np.int64))) == []
    assert arithmetic.to_ints(arithmetic.power_products(two, np.zeros((2, 2), dtype=np.int64))) == [1, 1]


@pytest.mark.parametrize("path", VECTORS)
def test_every_method_gives_the_same_products(path: str) -> None:
    arithmetic = modulus(PRIME, path)
    assert isinstance(arithmetic, VectorModulus)
    bases = _units(PRIME, 21)
    batch = arithmetic.from_ints(bases)
    exponents = np.random.default_rng(3).integers(-(1 << 14) + 1, 1 << 14, (10, 21))
    exponents[0], exponents[1], exponents[2] = (1 << 14) - 1, 1 - (1 << 14), 0
    right = _products(bases, exponents, PRIME)
    for window, together in ((1, 1), (1, 5), (3, 2), (5, 1), (2, 5)):
        found = by_tables(arithmetic, batch, exponents, window, together, -(-15 // window))
        assert arithmetic.to_ints(found) == right, (window, together)
    for window, parts in ((2, 1), (3, 2), (5, 4), (8, 1)):
        found = buckets.by_buckets(arithmetic, batch, exponents, window, -(-15 // window), parts)
        assert arithmetic.to_ints(found) == right, (window, parts)


@pytest.mark.parametrize("path", VECTORS)
@given(data=st.data())
@settings(max_examples=15)
def test_any_numbers(path: str, data: st.DataObject) -> None:
    m = MODULI[data.draw(st.sampled_from(list(MODULI)[:3]))]
    arithmetic = modulus(m, path)
    number = st.one_of(
        st.integers(0, int(m) - 1),
        st.builds(
            lambda runs: sum(((1 << n) - 1) << p for p, n in runs) % int(m), st.lists(st.tuples(*_RUN), max_size=4)
        ),
    )
    a = data.draw(st.lists(number, min_size=1, max_size=20))
    b = data.draw(st.lists(number, min_size=len(a), max_size=len(a)))
    e = data.draw(st.integers(0, 1 << 40))
    left, right = arithmetic.from_ints(a), arithmetic.from_ints(b)
    product = arithmetic.mul(arithmetic.mul(left, right), left)
    assert arithmetic.to_ints(product) == [pow(x, 2, int(m)) * y % m for x, y in zip(a, b, strict=True)]
    assert arithmetic.to_ints(arithmetic.power(left, e)) == [pow(x, e, int(m)) for x in a]


_RUN = st.integers(0, 1000), st.integers(0, 300)


@pytest.mark.parametrize("path", VECTORS)
def test_the_longest_numbers(path: str) -> None:
    m = (mpz(1) << 16384) - 1  # ones in all limbs: columns are as full as they can be
    arithmetic = modulus(m, path)
    values = [m - 1, m - 2, (mpz(1) << 16383) - 1, m >> 1]
    batch = arithmetic.from_ints(values)
    assert arithmetic.to_ints(arithmetic.mul(batch, batch)) == [x * x % m for x in values]
    assert arithmetic.to_ints(arithmetic.power(batch, 37)) == [gmpy2.powmod(x, 37, m) for x in values]


def test_threads_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    m = MODULI["a square of 4094 bits"]
    arithmetic = modulus(m, name)
    values = [mpz(RANDOM.randrange(m)) for _ in range(150)]
    batch = arithmetic.from_ints(values)
    exponents = np.random.default_rng(1).integers(-5000, 5000, (60, 4))
    few = arithmetic.take(batch, np.arange(4))

    def results() -> list[list[mpz]]:
        parts = arithmetic.mul(batch, batch), arithmetic.power(batch, 12345), arithmetic.power_products(few, exponents)
        return [arithmetic.to_ints(part) for part in parts]

    monkeypatch.setenv("SECUREVFL_THREADS", "1")
    alone = results()
    assert alone[0] == [x * x % m for x in values]
    monkeypatch.setenv("SECUREVFL_THREADS", "3")
    assert results() == alone
    with ThreadPoolExecutor(3) as pool:  # callers may be threads as well
        assert all(found == alone for found in pool.map(lambda _: results(), range(3)))


@pytest.mark.parametrize(("limbs", "lanes"), [(IfmaLimbs(), 8), (FmaLimbs(), 8), (FmaLimbs(), 4)])
def test_numbers_too_long_for_the_columns_cannot_be_emitted(limbs: Limbs, lanes: int) -> None:
    from securevfl_crypto.engine import BoundError

    limbs.most = 680
    long_text(limbs, lanes)
    limbs.most = 700
    with pytest.raises(BoundError, match="outside 64 bits"):
        long_text(limbs, lanes)
