"""The inner loops on the kernels of `engine.compiled_ring`."""

from __future__ import annotations

import numpy as np

from securevfl_crypto.engine.compiled_ring import RingKernels
from securevfl_crypto.engine.ring_products import ROWS
from securevfl_crypto.ring.base import COLUMNS, Loops
from securevfl_crypto.ring.portable import Portable

__all__ = ["Compiled"]

_RESIDUES = (66, 67)


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
        if not (m and k and n):
            return np.zeros((m, n), dtype=np.uint64)
        lanes = self._kernels.path.lanes
        vectors = 1 if n <= lanes else 2
        panel = vectors * lanes
        panels = -(-n // panel)
        width = panels * panel
        if width == n:
            whole = b
        else:
            whole = np.zeros((k, width), dtype=np.uint64)
            whole[:, :n] = b
        packed = np.ascontiguousarray(whole.reshape(k, panels, panel).transpose(1, 0, 2))
        left = a if all(stride >= 0 and stride % 8 == 0 for stride in a.strides) else np.ascontiguousarray(a)
        row, column = (stride // 8 for stride in left.strides)
        out = np.empty((m, width), dtype=np.uint64)
        self._kernels[f"product_{vectors}"](*_at(out, left, packed), m // ROWS, m % ROWS, k, row, column, panels, width)
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


def _at(*arrays: np.ndarray) -> list[int]:
    return [array.ctypes.data for array in arrays]
