"""Arithmetic modulo one number on lists of GMP's integers: it runs everywhere, and the vector paths must equal it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.engine.cpu import threads
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import Batch, FixedBase, Modulus
from securevfl_crypto.multiexp import best_window, many_bases, shared_tables

__all__ = [
    "GmpyModulus",
    "IntBatch",
    "checked_exponents",
    "checked_modulus",
    "checked_places",
    "checked_power",
    "checked_rows",
    "inverse",
    "inverses",
    "pairing",
]

_LEAST_BITS, _MOST_BITS = 1024, 16384
_WINDOW = 8
_ALONE = 8
"""Powers that one thread computes before a second is worth its start."""


def checked_modulus(m: int | mpz) -> mpz:
    """The modulus.

    Raises:
        MalformedError: it is even, or of fewer than 1024 or more than 16384 bits.
    """
    number = mpz(m)
    if number < 0 or not _LEAST_BITS <= number.bit_length() <= _MOST_BITS or not number & 1:
        raise MalformedError(
            f"a modulus of {number.bit_length()} bits, {'odd' if number & 1 else 'even'}; an odd one of "
            f"{_LEAST_BITS} to {_MOST_BITS} bits is needed"
        )
    return number


def checked_rows(numbers: np.ndarray, width: int, what: str) -> np.ndarray:
    """Little-endian numbers as they arrive, C-contiguous.

    Raises:
        MalformedError: another type or shape.
    """
    if numbers.dtype != np.uint8 or numbers.ndim != 2 or numbers.shape[1] != width:
        raise MalformedError(f"{what} as {numbers.dtype} {numbers.shape}; uint8 (n, {width}) is needed")
    return np.ascontiguousarray(numbers)


def checked_exponents(exponents: np.ndarray, bases: int) -> np.ndarray:
    """Exponents of `power_products`.

    Raises:
        MalformedError: another type or shape, or −2^63, which has no magnitude in 64 bits.
    """
    if exponents.dtype != np.int64 or exponents.ndim != 2 or exponents.shape[1] != bases:
        raise MalformedError(f"exponents as {exponents.dtype} {exponents.shape}; int64 (rows, {bases}) is needed")
    if exponents.size and int(exponents.min()) == -(1 << 63):
        raise MalformedError(f"an exponent of −2^63; those from {-(1 << 63) + 1} to {(1 << 63) - 1} are possible")
    return exponents


def pairing(a: Batch, b: Batch) -> None:
    """Whether `mul` can pair these.

    Raises:
        MalformedError: batches of different lengths, none of them one number.
    """
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        raise MalformedError(f"batches of {len(a)} and {len(b)} numbers; as many, or one on a side, can be multiplied")


class IntBatch(Batch):
    """Numbers from 0 to m − 1."""

    def __init__(self, values: list[mpz]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)


class _Table(FixedBase):
    """table[k][v] = base^(v · 2^(8k))."""

    def __init__(self, base: mpz, bits: int, m: mpz) -> None:
        self.bits, self._m = bits, m
        self._table: list[list[mpz]] = []
        for _ in range(-(-bits // _WINDOW)):
            row = [mpz(1), base]
            while len(row) < 1 << _WINDOW:
                row.append(row[-1] * base % m)
            self._table.append(row)
            base = row[-1] * base % m

    def powers(self, exponents: np.ndarray) -> IntBatch:
        out = []
        for digits in checked_rows(exponents, len(self._table), "exponents").tolist():
            value = mpz(1)
            for row, digit in zip(self._table, digits, strict=True):
                value = value * row[digit] % self._m
            out.append(value)
        return IntBatch(out)


class _Ladder(FixedBase):
    """Without a table, by GMP's exponentiation whose addresses do not depend on the exponent."""

    def __init__(self, base: mpz, bits: int, m: mpz) -> None:
        self.bits, self._base, self._m = bits, base, m

    def powers(self, exponents: np.ndarray) -> IntBatch:
        rows = checked_rows(exponents, -(-self.bits // 8), "exponents")
        numbers = [mpz(int.from_bytes(row.tobytes(), "little")) for row in rows]
        top = mpz(1) << 8 * rows.shape[1]  # sets one bit above all, and takes it out: lengths are alike, and none is 0
        out = _in_threads(lambda part: [gmpy2.powmod_sec(self._base, e + top, self._m) for e in part], numbers)
        rest = inverse(gmpy2.powmod(self._base, top, self._m), self._m)
        return IntBatch([value * rest % self._m for value in out])


@lru_cache(maxsize=4)
def _pool(workers: int, process: int) -> ThreadPoolExecutor:  # a forked child has its parent's pool, not its threads
    return ThreadPoolExecutor(workers, thread_name_prefix="securevfl-gmp")


def _in_threads(task: Callable[[list[mpz]], list[mpz]], values: list[mpz]) -> list[mpz]:
    """The task on parts of the values, side by side; GMP works without the interpreter's lock."""
    workers = min(threads(), len(values) // _ALONE)
    if workers <= 1:
        return task(values)

    def unlocked(part: list[mpz]) -> list[mpz]:
        with gmpy2.context(allow_release_gil=True):
            return task(part)

    step = -(-len(values) // workers)
    parts = [values[i : i + step] for i in range(0, len(values), step)]
    return list(chain.from_iterable(_pool(workers, os.getpid()).map(unlocked, parts)))


def _values(batch: Batch) -> list[mpz]:
    if not isinstance(batch, IntBatch):
        raise MalformedError(f"a batch of another path: {type(batch).__name__}; load it with this modulus")
    return batch.values


class GmpyModulus(Modulus):
    """Arithmetic modulo m by GMP, one number after the other; powers in threads.

    Args:
        m: as `moduli.modulus` takes it.
        root: likewise; GMP has no use for it.
    """

    def __init__(self, m: int | mpz, *, root: int | mpz | None = None) -> None:
        self.m = checked_modulus(m)
        self.width = -(-self.m.bit_length() // 8)

    def load(self, numbers: np.ndarray) -> IntBatch:
        raw, w = checked_rows(numbers, self.width, "numbers").tobytes(), self.width
        values = [mpz(int.from_bytes(raw[i : i + w], "little")) for i in range(0, len(raw), w)]
        if any(value >= self.m for value in values):
            raise MalformedError(f"a number that is not below the modulus of {self.m.bit_length()} bits; reduce it")
        return IntBatch(values)

    def store(self, batch: Batch) -> np.ndarray:
        values = _values(batch)
        raw = b"".join(int(value).to_bytes(self.width, "little") for value in values)
        return np.frombuffer(raw, dtype=np.uint8).reshape(len(values), self.width)

    def from_ints(self, numbers: Sequence[int | mpz]) -> IntBatch:
        return IntBatch([mpz(x) % self.m for x in numbers])

    def to_ints(self, batch: Batch) -> list[mpz]:
        return list(_values(batch))

    def mul(self, a: Batch, b: Batch) -> IntBatch:
        pairing(a, b)
        left, right, m = _values(a), _values(b), self.m
        if len(left) == len(right):
            return IntBatch([x * y % m for x, y in zip(left, right, strict=True)])
        many, one = (left, right[0]) if len(right) == 1 else (right, left[0])
        return IntBatch([x * one % m for x in many])

    def take(self, batch: Batch, rows: np.ndarray) -> IntBatch:
        values = _values(batch)
        return IntBatch([values[i] for i in checked_places(rows, len(values)).tolist()])

    def concat(self, batches: Sequence[Batch]) -> IntBatch:
        return IntBatch([value for batch in batches for value in _values(batch)])

    def invert(self, batch: Batch) -> IntBatch:
        return IntBatch(inverses(_values(batch), self.m))

    def power(self, batch: Batch, exponent: int | mpz) -> IntBatch:
        e, m = checked_power(exponent), self.m
        if not e:
            return IntBatch([mpz(1)] * len(batch))
        return IntBatch(_in_threads(lambda part: [gmpy2.powmod_sec(x, e, m) for x in part], _values(batch)))

    def fixed_base(self, base: int | mpz, bits: int, *, scan: bool = False) -> FixedBase:
        number = mpz(base) % self.m
        if bits < 1:
            raise MalformedError(f"exponents of {bits} bits; 1 or more are possible")
        return _Ladder(number, bits, self.m) if scan else _Table(number, bits, self.m)

    def power_products(self, bases: Batch, exponents: np.ndarray) -> IntBatch:
        values, table = _values(bases), checked_exponents(exponents, len(bases))
        rows, count = table.shape
        if not table.size:
            return IntBatch([mpz(1)] * rows)
        bits = int(np.abs(table).max()).bit_length() + 1
        window = best_window(bits, rows)
        shared = count * ((1 << window) + rows * -(-bits // window))
        buckets = rows * min(-(-bits // w) * (count + (2 << (w - 1)) + w) for w in range(2, 9)) + 3 * count
        try:
            if bits > 40 or shared <= buckets:
                return IntBatch(shared_tables(values, table, self.m))
            return IntBatch(many_bases(values, table, self.m))
        except ZeroDivisionError:
            raise MalformedError("a base that has no inverse modulo m; all must be units") from None


def checked_places(rows: np.ndarray, count: int) -> np.ndarray:
    """Places in a batch of `count` numbers.

    Raises:
        MalformedError: another type or shape, or a place that is none.
    """
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise MalformedError(f"places as {rows.dtype} {rows.shape}; int64 (n,) is needed")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        raise MalformedError(f"places from {rows.min()} to {rows.max()} in a batch of {count}; 0 to {count - 1} exist")
    return rows


def checked_power(exponent: int | mpz) -> mpz:
    """The exponent of `power`.

    Raises:
        MalformedError: it is negative.
    """
    number = mpz(exponent)
    if number < 0:
        raise MalformedError("a negative exponent; invert the numbers first")
    return number


def inverse(value: mpz, m: mpz) -> mpz:
    """1/value modulo m.

    Raises:
        MalformedError: there is none.
    """
    try:
        return gmpy2.invert(value, m)
    except ZeroDivisionError:
        raise MalformedError(f"a number without an inverse modulo {m.bit_length()} bits; all must be units") from None


def inverses(values: Sequence[mpz], m: mpz) -> list[mpz]:
    """1/value modulo m for all values, with one inversion.

    Raises:
        MalformedError: there is none.
    """
    before = [mpz(1)]
    for value in values:
        before.append(before[-1] * value % m)
    rest = inverse(before[-1], m)
    out = []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        out.append(rest * product % m)
        rest = rest * value % m
    return out[::-1]
