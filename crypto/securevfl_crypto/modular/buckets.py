"""Products of powers on compiled kernels: the choice of a method, and buckets for many bases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from securevfl_crypto.modular.base import Batch
from securevfl_crypto.modular.lanes import LaneBatch, Lanes, allocate_aligned, word_address
from securevfl_crypto.modular.tables import by_tables, flat_indices

__all__ = ["power_products"]

_SQUARE = 0.7
"""The cost of a squaring, in products."""
_GATHER = 0.08
"""The extra cost of a product whose factor is gathered from a table, in products."""
_MOST_BYTES = 1 << 27
"""The most bytes of a table."""


@dataclass(frozen=True)
class _Method:
    """A method for products of powers.

    Attributes:
        cost: in products of two numbers.
        window: bits of a digit.
        levels: digits of an exponent.
        together: bases that share a table (Straus); 0 stands for buckets (Pippenger).
        parts: the parts into which the bases of a row are divided to fill the lanes (Pippenger).
    """

    cost: float
    window: int
    levels: int
    together: int = 0
    parts: int = 1


def _candidate_methods(modulus: Lanes, rows: int, bases: int, magnitude: int, span: int) -> Iterator[_Method]:
    def padded(count: int) -> int:
        return -(-count // modulus.lanes) * modulus.lanes

    each = 1 + _GATHER
    for size in range(2, 15):
        for window in range(1, size + 1):
            together, levels = size // window, max(1, -(-span // window))
            groups = -(-bases // together)
            entries = padded(groups) << (together * window)
            if size % window or (together > bases > 0 and window < size) or entries * modulus.step * 8 > _MOST_BYTES:
                continue
            tables = entries * each + padded(bases) * (window - 1)
            row = levels * groups * each + (levels - 1) * window * _SQUARE
            yield _Method(tables + padded(rows) * row, window, levels, together)
    for window in range(2, 12):
        levels = max(1, -(-(magnitude + 1) // window))
        for doublings in range(8):
            parts = 1 << doublings
            if parts > 1 and parts * 4 > bases:
                break
            job = (-(-bases // parts) + (1 << (window - 1))) * each
            joined = padded(rows) * (levels * (1 + window * _SQUARE) + levels * (parts - 1))
            cost = padded(rows * levels * parts) * job + joined + 3 * padded(bases) + 15 * modulus.lanes
            yield _Method(cost, window, levels, parts=parts)


def power_products(modulus: Lanes, bases: Batch, exponents: np.ndarray) -> LaneBatch:
    """`Modulus.power_products`, by Straus 1964 or Pippenger 1976, whichever takes fewer products."""
    rows, count = exponents.shape
    if not exponents.size:
        out = modulus.allocate_blocks(rows)
        out[:] = modulus.one
        return modulus.make_batch(out, rows)
    low, high = min(0, int(exponents.min())), max(0, int(exponents.max()))
    magnitude, span = max(-low, high).bit_length(), (high - low).bit_length()
    method = min(_candidate_methods(modulus, rows, count, magnitude, span), key=lambda method: method.cost)
    if method.together:
        return by_tables(modulus, bases, exponents, method.window, method.together, method.levels)
    return by_buckets(modulus, bases, exponents, method.window, method.levels, method.parts)


def _signed_digits(exponents: np.ndarray, window: int, levels: int) -> np.ndarray:
    """(levels, *shape), the least significant first, each from −2^(window − 1) to 2^(window − 1).

    Exponents below 2^(window · levels − 1) in magnitude leave at most 2^(window − 1) for the last digit.
    """
    half, full = 1 << (window - 1), 1 << window
    out = np.empty((levels, *exponents.shape), dtype=np.int64)
    rest = exponents
    for level in range(levels - 1):
        out[level] = (rest & (full - 1) ^ half) - half
        rest = (rest >> window) + (out[level] < 0)
    out[levels - 1] = rest
    return out


def by_buckets(modulus: Lanes, bases: Batch, exponents: np.ndarray, window: int, levels: int, parts: int) -> LaneBatch:
    """``Π_j bases[j]^exponents[i, j]`` by gathering the bases of equal digits (Pippenger 1976).

    Each digit of each part of a row is a job with its own lane; at the end the parts and levels are joined.

    Args:
        bases: units modulo m.
        exponents: (rows, bases) int64, below 2^(window · levels − 1) in magnitude.
        window, levels, parts: see `_Method`.
    """
    rows, count = exponents.shape
    each = -(-count // parts)
    table = allocate_aligned(2 * count, modulus.step)
    table[:count], table[count:] = modulus.rows_of(bases), modulus.rows_of(modulus.invert(bases))
    padded = np.zeros((rows, parts * each), dtype=np.int64)
    padded[:, :count] = exponents
    digits = _signed_digits(padded.reshape(rows, parts, each).transpose(1, 0, 2), window, levels)
    first = np.repeat(np.tile(np.arange(parts) * each, levels), rows)
    jobs = _bucket_jobs(modulus, table, digits.reshape(-1, each), first, 1 << (window - 1))

    def level(number: int) -> LaneBatch:
        start = number * parts * rows
        value = modulus.take(jobs, np.arange(start, start + rows))
        for part in range(1, parts):
            here = start + part * rows
            value = modulus.mul(value, modulus.take(jobs, np.arange(here, here + rows)))
        return value

    value = level(levels - 1)
    for number in range(levels - 2, -1, -1):
        modulus.square_blocks(modulus.blocks_of(value), window)
        value = modulus.mul(value, level(number))
    return value


def _bucket_jobs(modulus: Lanes, table: np.ndarray, digits: np.ndarray, first: np.ndarray, half: int) -> LaneBatch:
    """Π_j b_j^(d_j) for digits of a few bits.

    With the bases in the order of falling digits and P_t the product of the first t of them, the product is
    Π_v P_(n_v) over v ≥ 1, where n_v digits are at least v: the buckets' running products, without the buckets. Where
    a digit is negative, its base's inverse is taken.

    Args:
        table: rows: the bases, then their inverses.
        digits: (jobs, bases of a part), at most `half` in magnitude.
        first: number of the first base of each job's part.
    """
    jobs, _ = digits.shape
    lanes, step = modulus.lanes, modulus.step
    count = len(table) // 2
    sizes = np.abs(digits)
    order = np.argsort(-sizes.astype(np.int16), axis=1, kind="stable")
    numbers = np.minimum(order + first[:, None], count - 1) + count * (np.take_along_axis(digits, order, axis=1) < 0)
    places = np.arange(jobs)[:, None] * (half + 1) + sizes
    tally = np.bincount(places.reshape(-1), minlength=jobs * (half + 1)).reshape(jobs, half + 1)
    least = np.cumsum(tally[:, :0:-1], axis=1)  # how many digits are at least half, half − 1, ..., 1
    longest = max(1, int(least[:, -1].max()))
    index = flat_indices(modulus, numbers[:, :longest])
    picks = flat_indices(modulus, least + (np.arange(jobs) % lanes * (longest + 1))[:, None])
    out = modulus.allocate_blocks(jobs)

    def task(start: int, blocks: int) -> None:
        context = modulus.kernel_context()
        prefixes, scratch = allocate_aligned(lanes * (longest + 1), step), allocate_aligned(2, step, lanes)
        room = word_address(scratch)
        for block in range(start, start + blocks):
            chain = word_address(index, block * longest * lanes), longest, word_address(modulus.one)
            modulus.kernels["prefix_products"](word_address(prefixes), word_address(table), *chain, room, *context, 1)
            place, pick = word_address(out, block * step * lanes), word_address(picks, block * half * lanes)
            modulus.kernels["entry_products"](place, word_address(prefixes), pick, 1, 0, half, room, *context, 1)

    modulus.each_part(len(out), longest + half, task)
    return modulus.make_batch(out, jobs)
