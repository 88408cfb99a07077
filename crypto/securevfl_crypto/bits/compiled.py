"""The loops on the kernels of `engine.compiled_bits`."""

from __future__ import annotations

import numpy as np

from securevfl_crypto.bits.base import HASH_BYTES, ROW_BYTES, SUM_BYTES, BitLoops, Peeled
from securevfl_crypto.engine.bit_rows import AHEAD
from securevfl_crypto.engine.blake2s import LANES
from securevfl_crypto.engine.compiled_bits import BitKernels
from securevfl_crypto.engine.peeling import AHEAD as QUEUE_AHEAD

__all__ = ["CompiledBitLoops"]

_PART = 1 << 14
"""Messages hashed at a time: planes and digests stay in the cache."""


class CompiledBitLoops(BitLoops):
    """See `BitLoops`.

    Args:
        kernels: compiled for one path.
    """

    def __init__(self, kernels: BitKernels) -> None:
        self._kernels = kernels
        self.name = kernels.path.name

    def transpose(self, columns: np.ndarray) -> np.ndarray:
        """See `BitLoops.transpose`; columns need not follow each other closely."""
        out = np.empty((8 * columns.shape[1], ROW_BYTES), dtype=np.uint8)
        self._kernels["transposed"](
            out.ctypes.data, columns.ctypes.data, columns.strides[0], columns.shape[1] // ROW_BYTES
        )
        return out

    def encode(self, words: np.ndarray, code: np.ndarray, out: np.ndarray) -> None:
        """See `BitLoops.encode`."""
        self._kernels["encoded"](out.ctypes.data, code.ctypes.data, words.ctypes.data, words.strides[0], len(words))

    def decode(
        self, positions: np.ndarray, bits: np.ndarray, dense: np.ndarray, slots: np.ndarray, out: np.ndarray
    ) -> None:
        """See `BitLoops.decode`. A separate call takes the last rows, with a padded copy of their positions."""
        most = max(0, len(positions) - AHEAD)
        tail = np.zeros((len(positions) - most + AHEAD, 3), dtype=np.uint32)
        tail[: len(positions) - most] = positions[most:]
        for part, named in ((slice(0, most), positions), (slice(most, len(positions)), tail)):
            count = len(out[part])
            if count:
                self._kernels["decoded"](
                    out[part].ctypes.data,
                    dense.ctypes.data,
                    bits[part].ctypes.data,
                    bits.strides[0],
                    count,
                    slots.ctypes.data,
                    named.ctypes.data,
                )

    def sum_rows(self, rows: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """See `BitLoops.sum_rows`."""
        buckets = np.zeros((SUM_BYTES, 256, ROW_BYTES), dtype=np.uint8)
        self._kernels["summed"](
            buckets.ctypes.data, rows.ctypes.data, coefficients.ctypes.data, coefficients.strides[0], len(rows)
        )
        selects = np.arange(256)[:, None] >> np.arange(8) & 1  # byte, bit
        found = [np.bitwise_xor.reduce(table[selects[:, bit] == 1], axis=0) for table in buckets for bit in range(8)]
        return np.stack(found)

    def hash_rows(self, messages: np.ndarray, length: int, salts: np.ndarray, number: int = 0) -> np.ndarray:
        """See `BitLoops.hash_rows`."""
        out = np.empty((len(messages), HASH_BYTES), dtype=np.uint8)
        common = salts.ndim == 1
        for start in range(0, len(messages), _PART):
            part, salted = messages[start : start + _PART], salts if common else salts[start : start + _PART]
            count = len(part)
            if count % LANES:
                more = -count % LANES
                part = np.concatenate([part, np.zeros((more, ROW_BYTES), dtype=np.uint8)])
                salted = salted if common else np.concatenate([salted, np.zeros((more, 16), dtype=np.uint8)])
            planes = np.empty((HASH_BYTES // 4, len(part)), dtype="<u4")
            self._kernels["hashed"](
                planes.ctypes.data,
                part.ctypes.data,
                part.strides[0],
                salted.ctypes.data,
                0 if common else salted.strides[0],
                len(part) // LANES,
                length,
                number,
            )
            out[start : start + count].view("<u4")[:] = planes[:, :count].T
        return out

    def peel(self, positions: np.ndarray, size: int) -> Peeled:
        """See `BitLoops.peel`."""
        return _Peeled(self._kernels, positions, size)


class _Peeled(Peeled):
    """Keys in the order in which the kernel removed them, one at a time."""

    def __init__(self, kernels: BitKernels, positions: np.ndarray, size: int) -> None:
        self._kernels, self._positions = kernels, np.ascontiguousarray(positions)
        count = len(positions)
        state = np.zeros(size, dtype=np.uint64)
        kernels["counted"](*_addresses(state, self._positions), count)
        single = np.flatnonzero(state >> np.uint64(32) == 1)
        queue = np.zeros(size + QUEUE_AHEAD, dtype=np.uint32)
        queue[: len(single)] = single
        order, owned = np.empty((2, count + 1), dtype=np.uint32)
        found = np.zeros(1, dtype=np.uint64)
        kernels["peeled"](*_addresses(state, self._positions), len(single), *_addresses(queue, order, owned, found))
        self._order, self._owned = order[: int(found[0])], owned[: int(found[0])]
        left = np.ones(count, dtype=bool)
        left[self._order] = False
        self.core = np.flatnonzero(left)

    def substitute(self, values: np.ndarray, slots: np.ndarray) -> None:
        """See `Peeled.substitute`."""
        slots[self._owned] = 0
        arrays = _addresses(slots, values, self._positions, self._order, self._owned)
        self._kernels["substituted"](*arrays, len(self._order), values.shape[1])


def _addresses(*arrays: np.ndarray) -> list[int]:
    return [array.ctypes.data for array in arrays]
