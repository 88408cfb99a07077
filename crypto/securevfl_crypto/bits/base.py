"""The interface of the loops over rows of bits. All paths return the same bytes; callers check shapes and types."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

__all__ = [
    "CODE_BYTES",
    "COLUMNS",
    "DENSE_BYTES",
    "HASH_BYTES",
    "ROW_BYTES",
    "SUM_BYTES",
    "BitLoops",
    "Peeled",
    "byte_tables",
]

ROW_BYTES = 64
COLUMNS = 8 * ROW_BYTES
HASH_BYTES = 32
CODE_BYTES = 10
"""Bytes of a word that `BitLoops.encode` takes."""
DENSE_BYTES = 5
"""Bytes of dense bits that `BitLoops.decode` takes."""
SUM_BYTES = 5
"""Bytes of coefficients of each row that `BitLoops.sum_rows` takes."""


class Peeled(ABC):
    """Keys in an order in which each owns a slot that no later key touches.

    Attributes:
        core: the keys that could not be ordered so, int64 (k,), ascending.
    """

    core: np.ndarray

    @abstractmethod
    def substitute(self, values: np.ndarray, slots: np.ndarray) -> None:
        """Set the owned slots so that the three slots of each peeled key sum to its value.

        Args:
            values: the value of each key, uint64 (n, w).
            slots: uint64 (m, w), with the core's slots and free slots already set; written in place.
        """


class BitLoops(ABC):
    """One path.

    Attributes:
        name: one of `engine.PATHS`, or ``"numpy"``.
    """

    name: str

    @abstractmethod
    def transpose(self, columns: np.ndarray) -> np.ndarray:
        """512 columns, uint8 (512, k) with k a multiple of 64, to rows, uint8 (8 k, 64); bit 0 of a byte is first."""

    @abstractmethod
    def encode(self, words: np.ndarray, code: np.ndarray, out: np.ndarray) -> None:
        """out[i] ^= the sum of the rows of a generator that the bits of words[i] select.

        Args:
            words: uint8 (n, at least 10), rows contiguous.
            code: `byte_tables` of the generator, uint8 (10, 256, 64).
            out: uint8 (n, 64).
        """

    @abstractmethod
    def decode(
        self, positions: np.ndarray, bits: np.ndarray, dense: np.ndarray, slots: np.ndarray, out: np.ndarray
    ) -> None:
        """out[i] ^= the sum of three slots, and of the dense ones that its bits select.

        Args:
            positions: uint32 (n, 3), below len(slots).
            bits: uint8 (n, 5).
            dense: `byte_tables` of the dense slots, uint8 (5, 256, 64).
            slots: uint8 (m, 64).
            out: uint8 (n, 64).
        """

    @abstractmethod
    def sum_rows(self, rows: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Compute forty sums: sum j contains the rows whose coefficient has bit j set.

        Args:
            rows: uint8 (n, 64).
            coefficients: uint8 (n, 5).

        Returns:
            uint8 (40, 64). Sums over pieces of the rows can be added (XOR).
        """

    @abstractmethod
    def hash_rows(self, messages: np.ndarray, length: int, salts: np.ndarray, number: int = 0) -> np.ndarray:
        """Hash messages of one block with BLAKE2s (RFC 7693).

        Args:
            messages: uint8 (n, 64), zeros from `length` on.
            length: bytes of each message, 0 to 64.
            salts: salt and personalisation, uint8 (16,) for all messages or (n, 16) for each.
            number: the node offset, below 2^32.

        Returns:
            uint8 (n, 32): the digests of ``hashlib.blake2s(message, salt=…, person=…, node_offset=number)``.
        """

    @abstractmethod
    def peel(self, positions: np.ndarray, size: int) -> Peeled:
        """Remove keys that touch a slot which no other key touches, until no such key is left.

        Paths may remove keys in another order, and so leave other slots free; the core is the same. Time and memory
        addresses depend on `positions`.

        Args:
            positions: each key's three slots, all different, uint32 (n, 3).
            size: the number of slots.
        """


def byte_tables(rows: np.ndarray) -> np.ndarray:
    """For each byte the sums of the rows that its bits select, bit 0 the first: uint8 (8 j, w) to (j, 256, w)."""
    out = np.zeros((len(rows) // 8, 256, rows.shape[1]), dtype=np.uint8)
    for number, row in enumerate(rows):
        bit = 1 << (number % 8)
        out[number // 8, bit : 2 * bit] = out[number // 8, :bit] ^ row
    return out
