"""Arithmetic modulo one number on lists of GMP's integers.

This implementation runs on every machine. The compiled one (`vector`) must give the same results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.engine.cpu import thread_count
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular.base import Batch, FixedBase, Modulus
from securevfl_crypto.modular.checks import (
    check_pairing,
    checked_exponents,
    checked_groups,
    checked_modulus,
    checked_part,
    checked_places,
    checked_power,
    checked_rows,
    checked_window,
)
from securevfl_crypto.modular.inverses import modular_inverse, modular_inverses
from securevfl_crypto.modular.multi_exponentiation import best_window, many_bases, shared_tables

__all__ = ["GmpModulus", "IntBatch"]

_WINDOW = 8
_ALONE = 8
"""A second thread pays off from twice as many powers on."""


class IntBatch(Batch):
    """Numbers from 0 to m − 1."""

    def __init__(self, values: list[mpz]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)


class _Table(FixedBase):
    """table[k][v]: the product of those of the numbers 8k to 8k + 7 whose bit in v is 1."""

    def __init__(self, numbers: list[mpz], m: mpz) -> None:
        self.bits, self._m = len(numbers), m
        self._table: list[list[mpz]] = []
        for first in range(0, len(numbers), _WINDOW):
            row = [mpz(1)]
            for number in [*numbers[first : first + _WINDOW], *[mpz(1)] * _WINDOW][:_WINDOW]:
                row += [value * number % m for value in row]
            self._table.append(row)

    @classmethod
    def of_base(cls, base: mpz, bits: int, m: mpz) -> _Table:
        powers = []
        for _ in range(-(-bits // 8) * 8):
            powers.append(base)
            base = base * base % m
        found = cls(powers, m)
        found.bits = bits
        return found

    def raise_to(self, exponents: np.ndarray) -> IntBatch:
        out = []
        for digits in checked_rows(exponents, len(self._table), "exponents").tolist():
            value = mpz(1)
            for row, digit in zip(self._table, digits, strict=True):
                value = value * row[digit] % self._m
            out.append(value)
        return IntBatch(out)


class _Ladder(FixedBase):
    """Powers without a table, by GMP's exponentiation, whose memory accesses do not depend on the exponent."""

    def __init__(self, base: mpz, bits: int, m: mpz) -> None:
        self.bits, self._base, self._m = bits, base, m

    def raise_to(self, exponents: np.ndarray) -> IntBatch:
        rows = checked_rows(exponents, -(-self.bits // 8), "exponents")
        numbers = [mpz(int.from_bytes(row.tobytes(), "little")) for row in rows]
        # An extra top bit, divided out below, gives all exponents the same length and keeps them from being 0.
        top = mpz(1) << 8 * rows.shape[1]
        out = _in_threads(lambda part: [gmpy2.powmod_sec(self._base, e + top, self._m) for e in part], numbers)
        rest = modular_inverse(gmpy2.powmod(self._base, top, self._m), self._m)
        return IntBatch([value * rest % self._m for value in out])


@lru_cache(maxsize=4)
def _process_pool(
    workers: int, process: int
) -> ThreadPoolExecutor:  # a forked child has its parent's pool, not its threads
    return ThreadPoolExecutor(workers, thread_name_prefix="securevfl-gmp")


def _in_threads(task: Callable[[list[mpz]], list[mpz]], values: list[mpz]) -> list[mpz]:
    """Run the task on parts of the values in several threads; GMP releases the interpreter's lock."""
    workers = min(thread_count(), len(values) // _ALONE)
    if workers <= 1:
        return task(values)

    def unlocked(part: list[mpz]) -> list[mpz]:
        with gmpy2.context(allow_release_gil=True):
            return task(part)

    step = -(-len(values) // workers)
    parts = [values[i : i + step] for i in range(0, len(values), step)]
    return list(chain.from_iterable(_process_pool(workers, os.getpid()).map(unlocked, parts)))


def _gmp_values(batch: Batch) -> list[mpz]:
    if not isinstance(batch, IntBatch):
        raise MalformedError(f"a batch of another path: {type(batch).__name__}; load it with this modulus")
    return batch.values


class GmpModulus(Modulus):
    """Arithmetic modulo m by GMP, one number after another; powers run in threads.

    Args:
        m: as `choice.modular_arithmetic` takes it.
        root: as `choice.modular_arithmetic` takes it; GMP has no use for it.
    """

    def __init__(self, m: int | mpz, *, root: int | mpz | None = None) -> None:
        self.m = checked_modulus(m)
        self.width = -(-self.m.bit_length() // 8)

    def load_bytes(self, numbers: np.ndarray) -> IntBatch:
        """See `Modulus.load_bytes`."""
        raw, w = checked_rows(numbers, self.width, "numbers").tobytes(), self.width
        values = [mpz(int.from_bytes(raw[i : i + w], "little")) for i in range(0, len(raw), w)]
        if any(value >= self.m for value in values):
            raise MalformedError(f"a number that is not below the modulus of {self.m.bit_length()} bits; reduce it")
        return IntBatch(values)

    def store_bytes(self, batch: Batch) -> np.ndarray:
        """See `Modulus.store_bytes`."""
        values = _gmp_values(batch)
        raw = b"".join(int(value).to_bytes(self.width, "little") for value in values)
        return np.frombuffer(raw, dtype=np.uint8).reshape(len(values), self.width)

    def from_ints(self, numbers: Sequence[int | mpz]) -> IntBatch:
        """See `Modulus.from_ints`."""
        return IntBatch([mpz(x) % self.m for x in numbers])

    def to_ints(self, batch: Batch) -> list[mpz]:
        """See `Modulus.to_ints`."""
        return list(_gmp_values(batch))

    def mul(self, a: Batch, b: Batch) -> IntBatch:
        """See `Modulus.mul`."""
        check_pairing(a, b)
        left, right, m = _gmp_values(a), _gmp_values(b), self.m
        if len(left) == len(right):
            return IntBatch([x * y % m for x, y in zip(left, right, strict=True)])
        many, one = (left, right[0]) if len(right) == 1 else (right, left[0])
        return IntBatch([x * one % m for x in many])

    def take(self, batch: Batch, rows: np.ndarray) -> IntBatch:
        """See `Modulus.take`."""
        values = _gmp_values(batch)
        return IntBatch([values[i] for i in checked_places(rows, len(values)).tolist()])

    def concat(self, batches: Sequence[Batch]) -> IntBatch:
        """See `Modulus.concat`."""
        return IntBatch([value for batch in batches for value in _gmp_values(batch)])

    def invert(self, batch: Batch) -> IntBatch:
        """See `Modulus.invert`."""
        return IntBatch(modular_inverses(_gmp_values(batch), self.m))

    def power(self, batch: Batch, exponent: int | mpz) -> IntBatch:
        """See `Modulus.power`."""
        e, m = checked_power(exponent), self.m
        if not e:
            return IntBatch([mpz(1)] * len(batch))
        return IntBatch(_in_threads(lambda part: [gmpy2.powmod_sec(x, e, m) for x in part], _gmp_values(batch)))

    def fixed_base(self, base: int | mpz, bits: int, *, scan: bool = False, window: int | None = None) -> FixedBase:
        """See `Modulus.fixed_base`."""
        checked_window(bits, window)
        number = mpz(base) % self.m
        return _Ladder(number, bits, self.m) if scan else _Table.of_base(number, bits, self.m)

    def subset_products(self, numbers: Batch, *, window: int | None = None) -> FixedBase:
        """See `Modulus.subset_products`."""
        checked_window(len(numbers), window)
        return _Table(_gmp_values(numbers), self.m)

    def group_products(self, batch: Batch, groups: np.ndarray, count: int) -> IntBatch:
        """See `Modulus.group_products`."""
        values, m = _gmp_values(batch), self.m
        out = [mpz(1)] * count
        for value, places in zip(values, checked_groups(groups, len(values), count).tolist(), strict=True):
            for place in places:
                if place >= 0:
                    out[place] = out[place] * value % m
        return IntBatch(out)

    def horner(self, batch: Batch, parts: int, bits: int) -> IntBatch:
        """See `Modulus.horner`."""
        values, m = _gmp_values(batch), self.m
        each, shift = checked_part(len(values), parts, bits), mpz(1) << bits
        out = values[(parts - 1) * each :]
        for start in range((parts - 2) * each, -1, -each or -1):
            part = values[start : start + each]
            out = [gmpy2.powmod(x, shift, m) * y % m for x, y in zip(out, part, strict=True)]
        return IntBatch(out)

    def power_products(self, bases: Batch, exponents: np.ndarray) -> IntBatch:
        """See `Modulus.power_products`."""
        values, table = _gmp_values(bases), checked_exponents(exponents, len(bases))
        rows, count = table.shape
        if not table.size:
            return IntBatch([mpz(1)] * rows)
        bits = int(np.abs(table).max()).bit_length() + 1
        window = best_window(bits, rows)
        shared = count * ((1 << window) + rows * -(-bits // window))
        buckets = rows * min(-(-bits // w) * (count + (2 << (w - 1)) + w) for w in range(2, 9)) + 3 * count
        if bits > 40 or shared <= buckets:
            return IntBatch(shared_tables(values, table, self.m))
        return IntBatch(many_bases(values, table, self.m))
