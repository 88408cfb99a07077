"""The loops in numpy, for machines without a compiled path and as the reference of the others."""

from __future__ import annotations

import numpy as np

from securevfl_crypto.bits.base import COLUMNS, HASH_BYTES, ROW_BYTES, SUM_BYTES, BitLoops, Peeled
from securevfl_crypto.engine.blake2s import IV, SIGMA, STEPS

__all__ = ["PortableBitLoops"]

_PART = 1 << 12
"""Messages hashed at a time: their words stay in the cache."""


class PortableBitLoops(BitLoops):
    """See `BitLoops`."""

    name = "numpy"

    def transpose(self, columns: np.ndarray) -> np.ndarray:
        """See `BitLoops.transpose`."""
        out = np.empty((8 * columns.shape[1], ROW_BYTES), dtype=np.uint8)
        for start in range(0, columns.shape[1], ROW_BYTES):
            bits = np.unpackbits(columns[:, start : start + ROW_BYTES], axis=1, bitorder="little")
            out[8 * start : 8 * start + COLUMNS] = np.packbits(bits.T, axis=1, bitorder="little")
        return out

    def encode(self, words: np.ndarray, code: np.ndarray, out: np.ndarray) -> None:
        """See `BitLoops.encode`."""
        for number, table in enumerate(code):
            out ^= table.take(words[:, number], axis=0)

    def decode(
        self, positions: np.ndarray, bits: np.ndarray, dense: np.ndarray, slots: np.ndarray, out: np.ndarray
    ) -> None:
        """See `BitLoops.decode`."""
        for column in positions.T:
            out ^= slots.take(column, axis=0)
        self.encode(bits, dense, out)

    def sum_rows(self, rows: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """See `BitLoops.sum_rows`."""
        bits = np.unpackbits(coefficients[:, :SUM_BYTES], axis=1, bitorder="little").astype(bool)
        found = [np.bitwise_xor.reduce(rows[column], axis=0, initial=0) for column in bits.T]
        return np.stack(found).astype(np.uint8)

    def hash_rows(self, messages: np.ndarray, length: int, salts: np.ndarray, number: int = 0) -> np.ndarray:
        """See `BitLoops.hash_rows`."""
        out = np.empty((len(messages), HASH_BYTES), dtype=np.uint8)
        for start in range(0, len(messages), _PART):
            part = slice(start, start + _PART)
            out[part] = _blake2s(messages[part], length, salts if salts.ndim == 1 else salts[part], number)
        return out

    def peel(self, positions: np.ndarray, size: int) -> Peeled:
        """See `BitLoops.peel`."""
        return _Rounds(positions, size)


def _rotate_right(words: np.ndarray, bits: int) -> np.ndarray:
    return np.asarray((words >> np.uint32(bits)) | (words << np.uint32(32 - bits)))


def _blake2s(messages: np.ndarray, length: int, salts: np.ndarray, number: int) -> np.ndarray:
    """RFC 7693, section 3.2, of one block, with numpy's words, which wrap."""
    m = np.ascontiguousarray(messages).view("<u4").astype(np.uint32).T
    salt = np.ascontiguousarray(salts).reshape(-1, 16).view("<u4").astype(np.uint32).T
    first = [IV[0] ^ 0x01010020, IV[1], IV[2] ^ number, IV[3]]
    last = [*IV[:4], IV[4] ^ length, IV[5], IV[6] ^ 0xFFFFFFFF, IV[7]]
    h = [np.full(len(messages), x, dtype=np.uint32) for x in first]
    h += [np.full(len(messages), IV[4 + k], dtype=np.uint32) ^ salt[k] for k in range(4)]
    v = h + [np.full(len(messages), x, dtype=np.uint32) for x in last]
    for sigma in SIGMA:
        for step, (a, b, c, d) in enumerate(STEPS):
            for word, right, left in ((sigma[2 * step], 16, 12), (sigma[2 * step + 1], 8, 7)):
                v[a] = v[a] + v[b] + m[word]
                v[d] = _rotate_right(v[d] ^ v[a], right)
                v[c] = v[c] + v[d]
                v[b] = _rotate_right(v[b] ^ v[c], left)
    out = np.stack([v[k] ^ v[k + 8] ^ h[k] for k in range(8)], axis=1)
    return out.astype("<u4").view(np.uint8)


class _Rounds(Peeled):
    """Keys in rounds. Those of one round are independent, since no other key touches their slots, and are set together.

    A slot keeps its degree and the sum of its keys' numbers, so in a slot of degree one the sum is the key's number.
    """

    def __init__(self, positions: np.ndarray, size: int) -> None:
        rows = np.ascontiguousarray(positions.T).astype(np.int64)
        self._rows = rows
        self._rounds: list[tuple[np.ndarray, np.ndarray]] = []
        count = rows.shape[1]
        degree = np.bincount(rows.ravel(), minlength=size)
        numbers = np.arange(count, dtype=np.float64)  # sums stay whole: at most 2^24 numbers below 2^24
        total = sum((np.bincount(row, weights=numbers, minlength=size) for row in rows), np.zeros(size))
        total = total.astype(np.int64)
        place = np.empty(count, dtype=np.int64)
        left = np.ones(count, dtype=bool)
        slots = np.flatnonzero(degree == 1)
        while len(slots):
            keys = total[slots]
            place[keys] = np.arange(len(keys))
            first = place[keys] == np.arange(len(keys))  # a key that owns several slots, or one that is listed twice
            keys, slots = keys[first], slots[first]
            self._rounds.append((keys, slots))
            left[keys] = False
            touched = rows[:, keys].ravel()
            np.subtract.at(degree, touched, 1)
            np.subtract.at(total, touched, np.concatenate([keys, keys, keys]))
            slots = touched[degree[touched] == 1]
        self.core = np.flatnonzero(left)

    def substitute(self, values: np.ndarray, slots: np.ndarray) -> None:
        """See `Peeled.substitute`."""
        for _, owned in self._rounds:
            slots[owned] = 0
        for keys, owned in reversed(self._rounds):
            value = values.take(keys, axis=0)
            for row in self._rows:
                value ^= slots.take(row.take(keys), axis=0)  # the owned slot among them is still zero
            slots[owned] = value
