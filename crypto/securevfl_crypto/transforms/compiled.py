"""The inner loops on the kernels of `engine.transforms.compiled`."""

from __future__ import annotations

from ctypes import addressof, c_char
from functools import lru_cache

import numpy as np

from securevfl_crypto.engine.transforms.compiled import KERNEL_DEGREE, TransformKernels
from securevfl_crypto.transforms.base import TransformLoops
from securevfl_crypto.transforms.portable import PortableTransformLoops
from securevfl_crypto.transforms.roots import Roots

__all__ = ["CompiledTransformLoops"]


class CompiledTransformLoops(TransformLoops):
    """See `TransformLoops`. For another N than `KERNEL_DEGREE`, numpy computes.

    Args:
        kernels: compiled for one path.
    """

    def __init__(self, kernels: TransformKernels) -> None:
        self._kernels = kernels
        self._portable = PortableTransformLoops()
        self.name = kernels.path.name

    def forward(self, out: np.ndarray, values: np.ndarray, roots: Roots) -> None:
        """See `TransformLoops.forward`."""
        if roots.degree != KERNEL_DEGREE:
            self._portable.forward(out, values, roots)
        else:
            self._transform("forward", out, values, _forward_table(roots, self._kernels.path.lanes))

    def inverse(self, out: np.ndarray, values: np.ndarray, roots: Roots) -> None:
        """See `TransformLoops.inverse`."""
        if roots.degree != KERNEL_DEGREE:
            self._portable.inverse(out, values, roots)
        else:
            self._transform("inverse", out, values, _inverse_table(roots, self._kernels.path.lanes))

    def _transform(self, kernel: str, out: np.ndarray, values: np.ndarray, table: Table) -> None:
        if not len(out):
            return
        rows = _rows(values)
        # Fresh for each call: kernels run without Python's lock, so threads would share it.
        scratch = np.empty((1, KERNEL_DEGREE), dtype=np.float64)
        addresses = _address(out), _address(rows), table[1], _address(scratch)
        self._kernels[kernel](*addresses, len(rows), out.strides[0] // 8, rows.strides[0] // 8)

    def add_products(self, total: np.ndarray, a: np.ndarray, b: np.ndarray, roots: Roots) -> None:
        """See `TransformLoops.add_products`."""
        if not len(a):
            return
        lanes = self._kernels.path.lanes
        left, right = _rows(a), _rows(b)
        addresses = _address(total[None]), _address(left), _address(right), _forward_table(roots, lanes)[1]
        sizes = len(left), left.strides[0] // 8, right.strides[0] // 8, roots.degree // lanes
        self._kernels["add_products"](*addresses, *sizes)


Table = tuple[np.ndarray, int]
"""Constants, and their address."""


def _rows(array: np.ndarray) -> np.ndarray:
    """The array, with the words of a row next to each other."""
    row, word = array.strides
    return array if word == 8 and row >= 0 and not row % 8 else np.ascontiguousarray(array)


def _address(array: np.ndarray) -> int:
    """Where the first row is. `ctypes.addressof` takes a third of the time of numpy's `ctypes`, which also does the
    rest."""
    first = array[0]
    flags = first.flags
    if flags.writeable and flags.c_contiguous:
        return addressof(c_char.from_buffer(first))
    return int(first.ctypes.data)


@lru_cache(maxsize=16)
def _forward_table(roots: Roots, lanes: int) -> Table:
    return _table(roots, roots.forward, lanes)


@lru_cache(maxsize=16)
def _inverse_table(roots: Roots, lanes: int) -> Table:
    powers = roots.inverse.copy()
    last = int(powers[1]) * roots.scale % roots.prime
    powers[1] = last - roots.prime if last > roots.prime // 2 else last
    return _table(roots, powers, lanes)


def _table(roots: Roots, powers: np.ndarray, lanes: int) -> Table:
    """The constants as `engine.transforms.butterflies.TRANSFORM` describes them."""
    prime, degree = roots.prime, roots.degree
    head = [prime, 1 / prime, roots.scale, roots.scale / prime, 0, 0, 0, 0]
    blocks = degree // lanes // lanes
    vectors, width = [], 1
    while width < lanes:  # the groups of a level within vectors, of which each lane has `width`
        level = powers[degree // lanes * width : 2 * degree // lanes * width]
        vectors.append(level.reshape(blocks, lanes, width).swapaxes(1, 2))
        width *= 2
    tail = np.concatenate(vectors, axis=1)  # (blocks, lanes − 1, lanes)
    tail = np.stack([tail, tail / prime], axis=1)
    table = np.concatenate([np.array(head, dtype=np.float64), powers, powers / prime, tail.ravel()])
    return table, table.ctypes.data
