"""The inner loops on the kernels of `engine.compiled_ring`."""

from __future__ import annotations

from ctypes import addressof, c_char

import numpy as np

from securevfl_crypto.engine.compiled_ring import RingKernels
from securevfl_crypto.engine.ring_products import ROWS
from securevfl_crypto.ring.base import COLUMNS, Loops
from securevfl_crypto.ring.limbs import word_product
from securevfl_crypto.ring.portable import Portable

__all__ = ["Compiled"]

_RESIDUES = (66, 67)
_SMALL = 1 << 12
"""Multiplications up to which numpy's own product is as fast as packing panels."""


class Compiled(Loops):
    """See `Loops`.

    Args:
        kernels: compiled for one path.
    """

    def __init__(self, kernels: RingKernels) -> None:
        self._kernels = kernels
        self._portable = Portable()
        self.name = kernels.path.name

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """See `Loops.product`."""
        (m, k), n = a.shape, b.shape[1]
        if m * k * n <= _SMALL:
            return word_product(a, b)
        lanes = self._kernels.path.lanes
        vectors = 1 if n <= lanes else 2
        panel = vectors * lanes
        panels = -(-n // panel)
        width = panels * panel
        row, column = a.strides
        if row < 0 or column < 0 or row % 8 or column % 8:
            a = np.ascontiguousarray(a)
            row, column = a.strides
        packed = _panels(b, panels, panel)  # named, because an address alone does not keep an array alive
        out = np.empty((m, width), dtype=np.uint64)
        self._kernels[f"product_{vectors}"](
            *_at(out, a, packed), m // ROWS, m % ROWS, k, row // 8, column // 8, panels, width
        )
        return out if width == n else np.ascontiguousarray(out[:, :n])

    def residues(self, raw: np.ndarray, modulus: int, out: np.ndarray) -> int:
        """See `Loops.residues`; a kernel for the two moduli of the comparison."""
        if modulus not in _RESIDUES:
            return self._portable.residues(raw, modulus, out)
        found = np.zeros(1, dtype=np.uint64)
        self._kernels[f"residues_{modulus}"](*_at(out, raw, found), len(raw) // COLUMNS)
        return int(found[0])

    def deal_bits(self, r: np.ndarray, first: np.ndarray) -> np.ndarray:
        """See `Loops.deal_bits`."""
        out = np.empty(first.shape, dtype=np.uint8)
        self._kernels["deal_bits"](*_at(out, r, first), len(r))
        return out

    def masked_comparison(
        self,
        c: np.ndarray,
        bits: np.ndarray,
        factors: np.ndarray,
        zeros: np.ndarray,
        turns: np.ndarray,
        *,
        first: bool,
    ) -> np.ndarray:
        """See `Loops.masked_comparison`."""
        out = np.empty((len(c), COLUMNS), dtype=np.uint8)
        if len(c):
            name = f"masked_comparison_{0 if first else 1}"
            self._kernels[name](*_at(out, c, bits, factors, zeros, turns), len(bits), len(c) // len(bits))
        return out

    def found_zeros(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """See `Loops.found_zeros`."""
        out = np.empty(len(one), dtype=np.uint64)
        self._kernels["found_zeros"](*_at(out, one, other), len(one))
        return out


def _panels(b: np.ndarray, panels: int, panel: int) -> np.ndarray:
    """The columns cut into panels, each C-contiguous; zeros beyond the last column."""
    k, n = b.shape
    if n < panels * panel:
        wide = np.zeros((k, panels * panel), dtype=np.uint64)
        wide[:, :n] = b
        b = wide
    if panels == 1:
        return np.ascontiguousarray(b)
    return np.ascontiguousarray(b.reshape(k, panels, panel).transpose(1, 0, 2))


def _at(*arrays: np.ndarray) -> list[int]:
    """The arrays' addresses. `ctypes.addressof` takes half as long as numpy's `ctypes`, which also does the rest."""
    found = []
    for array in arrays:
        flags = array.flags
        usual = flags.writeable and flags.c_contiguous and array.size
        found.append(addressof(c_char.from_buffer(array)) if usual else array.ctypes.data)  # type: ignore[arg-type]
    return found
