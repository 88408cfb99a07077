"""Tables of products on compiled kernels: powers of a fixed base, and Straus' products of powers."""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.engine.tables import scan_window
from securevfl_crypto.modular.base import Batch, FixedBase
from securevfl_crypto.modular.checks import checked_rows, checked_window
from securevfl_crypto.modular.inverses import modular_inverse
from securevfl_crypto.modular.lanes import LaneBatch, Lanes, allocate_aligned, word_address

__all__ = ["VectorFixedBase", "by_tables", "entry_products", "flat_indices"]

_MOST_BYTES = 1 << 27
"""The most bytes of a fixed base's tables, unless even windows of 4 bits take more."""
_MOST_GROWN, _MOST_ENTRIES = 160 << 20, 200_000
"""The most bytes and entries of tables that grow with use: 123 MB for a key of 2048 bits, 151 MB for one of 3072. The
two halves of an owner's key have entries of half the size."""
_FOLLOWING = 2
"""How many powers are assumed to follow each that was taken. If none does, tables cost two fifths of what was done."""
_WINDOW, _WIDEST = 8, 12
"""Bits of a digit of tables that grow: at first, and at most."""
_ENTRY = 1.5
"""The cost of making an entry of a table, in products (measured on AVX2: 1.4 to 1.6)."""


def _subset_tables(modulus: Lanes, numbers: np.ndarray, group: int) -> np.ndarray:
    """Products of all subsets of each group of numbers, one in each row.

    Args:
        numbers: (groups · group, step) uint64, rows in Montgomery form.
        group: numbers in a group.

    Returns:
        uint64 rows; those of group g begin at row g · 2^group.
    """
    lanes, step = modulus.lanes, modulus.step
    groups = len(numbers) // group
    blocks = -(-groups // lanes)
    sources = allocate_aligned(blocks, group, step, lanes)
    sources[-1] = 0
    flat = numbers.reshape(groups, group, step)
    for block in range(blocks):
        part = flat[block * lanes : (block + 1) * lanes]
        sources[block, :, :, : len(part)] = part.transpose(1, 2, 0)
    rows = allocate_aligned((blocks * lanes) << group, step)

    def arguments(first: int) -> Sequence[int]:
        start = (first * lanes << group) * step
        return (
            word_address(rows, start),
            word_address(sources, first * group * step * lanes),
            word_address(modulus.one),
            group,
        )

    modulus.run_kernel("subsets", blocks, 1 << group, arguments, 1 << group)
    return rows


def flat_indices(modulus: Lanes, numbers: np.ndarray) -> np.ndarray:
    """(n, k) int64 numbers as flat [block, k, lane], followed by a vector of zeros, which kernels prefetch."""
    count, width = numbers.shape
    lanes = modulus.lanes
    blocks = -(-count // lanes)
    flat = allocate_aligned((blocks * width + 1) * lanes).view(np.int64)
    flat[-lanes:] = 0
    index = flat[:-lanes].reshape(blocks, width, lanes)
    whole = count // lanes
    index[:whole] = numbers[: whole * lanes].reshape(whole, lanes, width).transpose(0, 2, 1)
    if whole < blocks:
        index[whole] = 0
        index[whole, :, : count - whole * lanes] = numbers[whole * lanes :].T
    return flat


def entry_products(modulus: Lanes, rows: np.ndarray, numbers: np.ndarray, levels: int, squarings: int) -> LaneBatch:
    """Products of table entries.

    Args:
        rows: the table, one entry in each row.
        numbers: (n, levels · factors) int64, the rows to multiply.
        levels: how many groups of factors there are.
        squarings: how often the product is squared between two groups.
    """
    index = flat_indices(modulus, numbers)
    out = modulus.allocate_blocks(len(numbers))
    width = numbers.shape[1]

    def arguments(first: int) -> Sequence[int]:
        return (
            word_address(out, first * modulus.step * modulus.lanes),
            word_address(rows),
            word_address(index, first * width * modulus.lanes),
            levels,
            squarings,
            width // levels,
        )

    modulus.run_kernel("entry_products", len(out), width + (levels - 1) * squarings, arguments, 1)
    return modulus.make_batch(out, len(numbers))


class VectorFixedBase(FixedBase):
    """Products of subsets of fixed numbers by tables: ``Π_k table_k[digit k of e]``. See `Modulus.subset_products`.

    With the numbers b, b², b⁴, … these are the powers of b. See `Modulus.fixed_base`.

    Raises:
        MalformedError: there is no number, or the window is out of range.
    """

    def __init__(self, modulus: Lanes, numbers: Batch, *, scan: bool = False, window: int | None = None) -> None:
        checked_window(len(numbers), window)
        self.bits, self._modulus, self._scan = len(numbers), modulus, scan
        self._width = -(-self.bits // 8)
        # Measured with four lanes alone: with eight, a product costs a third and an entry from memory as much.
        self._grows, self._used = window is None and not scan and modulus.lanes == 4, 0
        self._numbers = modulus.rows_of(numbers)
        window = scan_window(modulus.lanes) if scan else window or _WINDOW
        while not scan and window > 4 and self._table_bytes(window) > _MOST_BYTES:
            window -= 1
        self._table = self._build_table(window)

    @classmethod
    def of_base(
        cls, modulus: Lanes, base: mpz, bits: int, *, scan: bool = False, window: int | None = None
    ) -> VectorFixedBase:
        """Powers of one base with exponents of up to `bits` bits, rounded up to whole bytes."""
        checked_window(bits, window)
        powers = []
        for _ in range(-(-bits // 8) * 8):
            powers.append(base)
            base = base * base % modulus.m
        found = cls(modulus, modulus.from_ints(powers), scan=scan, window=window)
        found.bits = bits
        return found

    def raise_to(self, exponents: np.ndarray) -> LaneBatch:
        """See `FixedBase.raise_to`. A large batch, or many small ones, may first make wider tables."""
        checked = checked_rows(exponents, self._width, "exponents")
        if self._grows:
            self._widen(len(checked))
        modulus, (window, rows) = self._modulus, self._table
        digits, count = self._window_digits(checked, window), self._digit_count(window)
        if not self._scan:
            first = np.arange(count, dtype=np.int64) << window
            return entry_products(modulus, rows, digits + first, 1, 0)
        index = flat_indices(modulus, digits)
        out = modulus.allocate_blocks(len(digits))

        def arguments(first: int) -> Sequence[int]:
            return (
                word_address(out, first * modulus.step * modulus.lanes),
                word_address(rows),
                word_address(index, first * count * modulus.lanes),
                count,
            )

        modulus.run_kernel("scanned_products", len(out), count, arguments, 1)
        return modulus.make_batch(out, len(digits))

    def _digit_count(self, window: int) -> int:
        return -(-8 * self._width // window)

    def _table_bytes(self, window: int) -> int:
        return (self._digit_count(window) << window) * self._modulus.step * 8

    def _build_table(self, window: int) -> tuple[int, np.ndarray]:
        """The window and its table, which are replaced together: other threads may read them."""
        modulus = self._modulus
        numbers = np.empty((self._digit_count(window) * window, modulus.step), dtype=np.uint64)
        numbers[: len(self._numbers)] = self._numbers
        numbers[len(self._numbers) :] = modulus.one[0, :, 0]
        rows = _subset_tables(modulus, numbers, window)
        return window, self._entries_together(rows, window) if self._scan else rows

    def _widen(self, count: int) -> None:
        """Make wider tables before a batch of `count` powers, if they are cheaper for what is likely to follow."""
        self._used += count

        def products(window: int) -> float:
            return _FOLLOWING * self._used * self._digit_count(window) + _ENTRY * (self._digit_count(window) << window)

        def fits(window: int) -> bool:
            entries = self._digit_count(window) << window
            return entries <= _MOST_ENTRIES and self._table_bytes(window) <= _MOST_GROWN

        now = self._table[0]
        best = min(filter(fits, range(now + 1, _WIDEST + 1)), key=products, default=now)
        if best > now and products(best) < _FOLLOWING * self._used * self._digit_count(now):
            self._table = self._build_table(best)

    def _entries_together(self, rows: np.ndarray, window: int) -> np.ndarray:
        """The tables as [table, limb, entry], the layout of kernel `scan`."""
        entries, count = 1 << window, self._digit_count(window)
        out = allocate_aligned(count, self._modulus.step, entries)
        for k in range(count):
            out[k] = rows[k * entries : (k + 1) * entries].T
        return out

    def _window_digits(self, exponents: np.ndarray, window: int) -> np.ndarray:
        """The digits (n, windows), by shifts; no address depends on the exponents."""
        if window == 8:
            return exponents.astype(np.int64)
        padded = np.zeros((len(exponents), self._width + 3), dtype=np.int32)
        padded[:, : self._width] = exponents
        start = np.arange(self._digit_count(window)) * window
        three = padded[:, start // 8] | padded[:, start // 8 + 1] << 8 | padded[:, start // 8 + 2] << 16
        return (three >> (start % 8).astype(np.int32) & ((1 << window) - 1)).astype(np.int64)


def by_tables(
    modulus: Lanes, bases: Batch, exponents: np.ndarray, window: int, together: int, levels: int
) -> LaneBatch:
    """``Π_j bases[j]^exponents[i, j]`` by tables that all rows share (Straus 1964).

    A table serves `together` bases and `window` bits of their exponents: it contains the products of all subsets of
    their powers b, b², b⁴, ... Exponents are shifted to be non-negative; one inverse, shared by all rows, shifts the
    products back.

    Args:
        bases: units modulo m.
        exponents: (rows, bases) int64.
        window: bits of a digit.
        together: bases that share a table.
        levels: digits of a shifted exponent.
    """
    rows, count = exponents.shape
    low = min(0, int(exponents.min()))
    groups = -(-count // together)
    numbers = np.empty((groups * together, window, modulus.step), dtype=np.uint64)
    numbers[count:] = modulus.one[0, :, 0]
    power = modulus.allocate_blocks(count)
    power[:] = modulus.blocks_of(bases)
    for k in range(window):
        if k:
            modulus.square_blocks(power, 1)
        numbers[:count, k] = modulus.rows_of(modulus.make_batch(power, count))
    table = _subset_tables(modulus, numbers.reshape(-1, modulus.step), together * window)
    shifted = np.zeros((rows, groups * together), dtype=np.uint64)
    shifted[:, :count] = exponents.astype(np.uint64) + np.uint64(-low)
    places = np.arange(together, dtype=np.uint64) * np.uint64(window)
    first = np.arange(groups, dtype=np.int64) << (together * window)
    index = np.empty((rows, levels, groups), dtype=np.int64)
    for level in range(levels):
        shift = np.uint64(window * (levels - 1 - level))
        digits = (shifted >> shift & np.uint64((1 << window) - 1)).reshape(rows, groups, together)
        index[:, level] = (digits << places).sum(axis=2).astype(np.int64) + first
    out = entry_products(modulus, table, index.reshape(rows, -1), levels, window)
    if not low:
        return out
    whole = modulus.to_ints(product_of_all(modulus, bases))[0]
    back = modular_inverse(gmpy2.powmod(whole, -low, modulus.m), modulus.m)
    return modulus.mul(out, modulus.from_ints([back]))


def product_of_all(modulus: Lanes, batch: Batch) -> LaneBatch:
    """The product of all numbers of a batch, which must not be empty."""
    data, count = modulus.blocks_of(batch), len(batch)
    while count > 1:
        half, odd = count // 2, count % 2
        rows = modulus.rows_of(modulus.make_batch(data, count))
        left, right = (modulus.from_rows(rows[k * half : (k + 1) * half]) for k in range(2))
        product = modulus.mul(left, right)
        data = modulus.concat([product, modulus.from_rows(rows[2 * half :])]).data if odd else product.data
        count = half + odd
    return modulus.make_batch(data, 1)
