"""Products of numbers by group on compiled kernels: the sums by bin of encrypted gradients.

Each group's numbers are cut into pieces of about the same length. Pieces of like length are multiplied side by side,
one in a lane, gathered from one table; the products of a group's pieces are multiplied in the next round in the same
way, until one is left. So lanes are full even if a few groups contain most of the numbers.
"""

from __future__ import annotations

import numpy as np

from securevfl_crypto.modular.base import Batch
from securevfl_crypto.modular.lanes import LaneBatch, Lanes, allocate_aligned
from securevfl_crypto.modular.tables import entry_products

__all__ = ["group_products"]

_LONGEST = 64
"""The most numbers in a piece."""
_STEP = 4
"""Lengths of pieces are filled up with ones to a multiple of this, so that few different lengths remain."""


def group_products(modulus: Lanes, batch: Batch, groups: np.ndarray, count: int) -> LaneBatch:
    """`Modulus.group_products`, of checked groups."""
    flat = groups.reshape(-1)
    held = np.flatnonzero(flat >= 0)
    order = held[np.argsort(flat[held], kind="stable")]
    members = order // max(1, groups.shape[1])
    sizes = np.bincount(flat[held], minlength=count)
    table = _with_one(modulus, modulus.rows_of(batch))
    while True:
        pieces = np.maximum(1, -(-sizes // _LONGEST))
        products = _piece_products(modulus, table, members, sizes, pieces)
        if len(products) == count:
            return modulus.from_rows(products)
        table, members, sizes = _with_one(modulus, products), np.arange(len(products)), pieces


def _with_one(modulus: Lanes, numbers: np.ndarray) -> np.ndarray:
    """The numbers in rows, and a row with the number 1 after them."""
    table = allocate_aligned(len(numbers) + 1, modulus.step)
    table[:-1], table[-1] = numbers, modulus.one[0, :, 0]
    return table


def _piece_products(
    modulus: Lanes, table: np.ndarray, members: np.ndarray, sizes: np.ndarray, pieces: np.ndarray
) -> np.ndarray:
    """The product of each piece of each group, uint64 (pieces of all groups, step).

    Args:
        table: numbers in rows, the last of them 1.
        members: places in the table, group after group.
        sizes: members of each group.
        pieces: into how many pieces each group is cut.
    """
    one = len(table) - 1
    group = np.repeat(np.arange(len(sizes)), pieces)
    nth = np.arange(len(group)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    low, high = sizes[group] * nth // pieces[group], sizes[group] * (nth + 1) // pieces[group]
    first, length = (np.cumsum(sizes) - sizes)[group] + low, high - low
    out = np.empty((len(group), modulus.step), dtype=np.uint64)
    padded = np.where(length <= 2, np.maximum(length, 1), -(-length // _STEP) * _STEP)
    ends = np.append(members, one)  # never empty
    for width in np.unique(padded):
        which = np.flatnonzero(padded == width)
        inside = np.arange(width) < length[which, None]
        numbers = np.where(inside, ends[np.minimum(first[which, None] + np.arange(width), len(members))], one)
        out[which] = (
            table[numbers[:, 0]] if width == 1 else modulus.rows_of(entry_products(modulus, table, numbers, 1, 0))
        )
    return out
