"""The hash that turns rows of an extension into pads: a tweakable, circular correlation-robust hash from AES.

Guo, Katz, Wang and Yu, "Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers" (IEEE S&P 2020),
section 7.4: H(x, i) = π(π(x) ⊕ i) ⊕ π(x) for a permutation π. With one application of π less, as π(σ(x) ⊕ i) ⊕ σ(x)
for a linear σ, a chooser that finds two rows and numbers with σ(x) ⊕ i = σ(x') ⊕ i' knows the difference of two pads
that it must not know; the inner π removes that.

π is AES-128 under a key that both parties derive from the batch's columns, so that nothing can be computed ahead of a
batch. If AES is an ideal cipher and Δ has k unknown bits, p evaluations of AES distinguish the n pads of a batch with
advantage about n·p / 2^k.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["PART", "RowHash"]

PART = 1 << 13
"""Most rows hashed at a time: a few arrays of 128 KiB stay in the cache."""
_ROOM = 15  # the library asks for a block less one byte beyond the output


class RowHash:
    """H under one key.

    Args:
        key: public, 16 bytes.
    """

    def __init__(self, key: bytes = bytes(16)) -> None:
        self.rekey(key)
        self._inner, self._outer = np.empty((2, 16 * PART + _ROOM + 1), dtype=np.uint8)
        self._tweaked, self._tweaks = np.empty((2, PART, 2), dtype=np.uint64)

    def rekey(self, key: bytes) -> None:
        """Go on under another key."""
        # Each block is a permutation's input and output, and no message, so the mode "ECB" reveals nothing.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305

    def hash_rows(self, rows: np.ndarray, out: np.ndarray, first: int = 0) -> None:
        """Compute the pads of rows number `first`, `first` + 1, …: word w of row j is of H(x_j, (j, w // 2)).

        Args:
            rows: uint64 (n, 2), C order, n at most 8,192.
            out: uint64 (n, words), written in place.
            first: number of the first row.
        """
        size, words = out.shape
        tweaked, tweaks = self._tweaked[:size], self._tweaks[:size]
        inner = self._permute(rows, self._inner)
        tweaks[:, 0] = np.arange(first, first + size, dtype=np.uint64)
        for word in range(0, words, 2):
            tweaks[:, 1] = word // 2
            np.bitwise_xor(inner, tweaks, out=tweaked)
            outer = self._permute(tweaked, self._outer)
            for half in range(min(2, words - word)):  # a column at a time: numpy is slow along two places
                np.bitwise_xor(outer[:, half], inner[:, half], out=out[:, word + half])

    def _permute(self, rows: np.ndarray, buffer: np.ndarray) -> np.ndarray:
        size = 16 * len(rows)
        self._cipher.update_into(rows.data.cast("B") if size else b"", buffer[: size + _ROOM].data)
        return buffer[:size].view(np.uint64).reshape(-1, 2)
