"""The inner loops on the kernels of `engine.compiled_ring`."""

from __future__ import annotations

from ctypes import addressof, c_char

import numpy as np

from securevfl_crypto.engine.compiled_ring import RingKernels
from securevfl_crypto.engine.cpu import has_fast_pext
from securevfl_crypto.engine.narrow_products import CELLS, CHUNK, FACTORS
from securevfl_crypto.engine.ring_products import ROWS
from securevfl_crypto.ring.base import COLUMNS, RingLoops
from securevfl_crypto.ring.limbs import word_product
from securevfl_crypto.ring.portable import PortableRingLoops

__all__ = ["CompiledRingLoops"]

_RESIDUES = (66, 67)
_SMALL = 1 << 12
"""Multiplications up to which numpy's own product is as fast as packing panels."""
_LARGE = 1 << 20
"""Multiplications from which preparing pairs of 12-bit numbers pays."""
_FEW = 512
"""Rows of one panel up to which a copy that is aligned takes longer than it saves."""
_WORDS = 4096
"""Words of a row at a time in `sum_words`: the factors of a piece stay in the second cache."""
_VALUES = 1 << 17
"""Octets of values at a time in `sum_by_bin`, likewise."""
_DEPTH = 256
"""The inner dimension of a piece: a panel and its pairs then stay in the first cache."""


class CompiledRingLoops(RingLoops):
    """See `RingLoops`.

    Args:
        kernels: compiled for one path.
        pext: whether to compute residues by ``pext``, where the path has such kernels; None: if the CPU's is fast.
    """

    def __init__(self, kernels: RingKernels, *, pext: bool | None = None) -> None:
        self._kernels = kernels
        self._pext = kernels.pext and (has_fast_pext() if pext is None else pext)
        self._portable = PortableRingLoops()
        self.name = kernels.path.name

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """See `RingLoops.product`."""
        (m, k), n = a.shape, b.shape[1]
        if m * k * n <= _SMALL:
            return word_product(a, b)
        if self._kernels.ifma and n > self._kernels.path.lanes and m * k * n >= _LARGE:
            parts = (self._product52(a[:, i : i + _DEPTH], b[i : i + _DEPTH]) for i in range(0, k, _DEPTH))
            out = next(parts)
            for part in parts:
                out += part
        else:
            out = self._padded_product(a, b)
        return out if out.shape[1] == n else np.ascontiguousarray(out[:, :n])

    def _padded_product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The product, and zeros up to whole panels."""
        vectors = 1 if b.shape[1] <= self._kernels.path.lanes else 2
        return self._run_kernel(f"product_{vectors}", a, b, vectors * self._kernels.path.lanes, [])

    def _product52(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """As `_padded_product`, for large matrices on CPUs with IFMA."""
        panel = 2 * self._kernels.path.lanes
        width = -(-b.shape[1] // panel) * panel
        return self._run_kernel(
            "product_52", a, b, panel, [_allocate_aligned(len(b) * width * 4), _allocate_aligned(ROWS * len(b) * 4)]
        )

    def _run_kernel(
        self, kernel: str, a: np.ndarray, b: np.ndarray, panel: int, scratch: list[np.ndarray]
    ) -> np.ndarray:
        m, k = a.shape
        row, column = a.strides
        if row < 0 or column < 0 or row % 8 or column % 8:
            a = np.ascontiguousarray(a)
            row, column = a.strides
        packed = _cut_panels(b, panel)  # named, because an address alone does not keep an array alive
        panels = len(packed)
        out = np.empty((m, panels * panel), dtype=np.uint64)
        sizes = (m // ROWS, m % ROWS, k, row // 8, column // 8, panels, panels * panel)
        self._kernels[kernel](*_addresses(out, a, packed), *sizes, *_addresses(*scratch))
        return out

    def residues(self, raw: np.ndarray, modulus: int, out: np.ndarray) -> int:
        """See `RingLoops.residues`; kernels for the two moduli of the comparison."""
        if modulus not in _RESIDUES:
            return self._portable.residues(raw, modulus, out)
        found = np.zeros(1, dtype=np.uint64)
        name = f"residues_{modulus}_pext" if self._pext else f"residues_{modulus}"
        self._kernels[name](*_addresses(out, raw, found), len(raw) // COLUMNS)
        return int(found[0])

    def deal_bits(self, r: np.ndarray, first: np.ndarray) -> np.ndarray:
        """See `RingLoops.deal_bits`."""
        out = np.empty(first.shape, dtype=np.uint8)
        self._kernels["deal_bits"](*_addresses(out, r, first), len(r))
        return out

    def mask_comparison(
        self,
        c: np.ndarray,
        bits: np.ndarray,
        factors: np.ndarray,
        zeros: np.ndarray,
        turns: np.ndarray,
        *,
        first: bool,
    ) -> np.ndarray:
        """See `RingLoops.mask_comparison`."""
        out = np.empty((len(c), COLUMNS), dtype=np.uint8)
        if len(c):
            name = f"masked_comparison_{0 if first else 1}"
            self._kernels[name](*_addresses(out, c, bits, factors, zeros, turns), len(bits), len(c) // len(bits))
        return out

    def count_zeros(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """See `RingLoops.count_zeros`."""
        out = np.empty(len(one), dtype=np.uint64)
        self._kernels["count_zeros"](*_addresses(out, one, other), len(one))
        return out

    def sum_words(self, z: np.ndarray, v: np.ndarray) -> np.ndarray:
        """See `RingLoops.sum_words`."""
        (cells, width), k = z.shape, len(v)
        out = np.zeros((cells, k), dtype=np.uint32)
        if out.size:
            per_vector = 2 * self._kernels.path.lanes
            for start in range(0, width, _WORDS):
                vectors = min(_WORDS, width - start) // per_vector
                sizes = (cells // CELLS, cells % CELLS, k // 2, k % 2, vectors, width)
                self._kernels["word_sums"](*_addresses(out, z[:, start:], v[:, start:]), *sizes)
        return out

    def combine_octets(self, factors: np.ndarray, panels: np.ndarray) -> np.ndarray:
        """See `RingLoops.combine_octets`."""
        (count, cells, width), k = panels.shape, len(factors)
        groups = -(-k // FACTORS)
        if not (groups and count and cells):
            return np.zeros((k, count * width), dtype=np.uint8)
        packed = np.zeros((groups, FACTORS, cells), dtype=np.uint32)
        packed.reshape(-1, cells)[:k] = factors
        packed *= np.uint32(0x10001)
        packed = np.ascontiguousarray(packed.transpose(0, 2, 1))
        out = np.empty((groups * FACTORS, count * width), dtype=np.uint8)
        self._kernels["octet_product"](*_addresses(out, packed, panels), groups, cells, count, count * width)
        return out[:k]

    def sum_by_bin(self, codes: np.ndarray, starts: np.ndarray, values: np.ndarray, cells: int) -> np.ndarray:
        """See `RingLoops.sum_by_bin`."""
        (columns, n), (_, k) = codes.shape, values.shape
        out = np.zeros((cells, k), dtype=values.dtype)
        chunks, size = k * values.itemsize // CHUNK, max(1, _VALUES // max(1, k * values.itemsize))
        for start in range(0, n if columns and chunks else 0, size):
            rows = min(size, n - start)
            sizes = (columns, n, rows, chunks)
            kernel = self._kernels[f"bin_sums_{8 * values.itemsize}"]
            kernel(*_addresses(out, codes[:, start:], starts, values[start:]), *sizes)
        return out


def _allocate_aligned(octets: int) -> np.ndarray:
    """Memory that begins at a cache line: loads of whole vectors are then not split."""
    raw = np.empty(octets + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + octets]


def _cut_panels(b: np.ndarray, panel: int) -> np.ndarray:
    """The columns cut into panels, (panels, k, panel); zeros beyond the last column."""
    k, n = b.shape
    if n == panel and k <= _FEW:
        return np.ascontiguousarray(b)[None]
    whole, rest = divmod(n, panel)
    panels = whole + bool(rest)
    out = _allocate_aligned(8 * panels * k * panel).view(np.uint64).reshape(panels, k, panel)
    if whole:
        out[:whole] = b[:, : whole * panel].reshape(k, whole, panel).transpose(1, 0, 2)
    if rest:
        out[whole, :, :rest] = b[:, whole * panel :]
        out[whole, :, rest:] = 0
    return out


def _addresses(*arrays: np.ndarray) -> list[int]:
    """The arrays' addresses. `ctypes.addressof` takes half as long as numpy's `ctypes`, which also does the rest."""
    found = []
    for array in arrays:
        flags = array.flags
        usual = flags.writeable and flags.c_contiguous and array.size
        found.append(addressof(c_char.from_buffer(array)) if usual else array.ctypes.data)  # type: ignore[arg-type]
    return found
