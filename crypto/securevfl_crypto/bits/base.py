"""The interface of the loops over rows of bits. All paths give the same bytes; callers check shapes and types."""

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
    """Keys in an order in which each owns a slot that no later one touches.

    Attributes:
        core: the keys that are left, int64 (k,), ascending.
    """

    core: np.ndarray

    @abstractmethod
    def substitute(self, values: np.ndarray, slots: np.ndarray) -> None:
        """Sets the owned slots such that the three slots of each peeled key sum to its value.

        Args:
            values: by keys, uint64 (n, w).
            slots: uint64 (m, w) with everything else set; written in place.
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
        """Forty sums of rows: the rows whose coefficient's bit is one.

        Args:
            rows: uint8 (n, 64).
            coefficients: uint8 (n, 5).

        Returns:
            uint8 (40, 64); they can be summed over pieces.
        """

    @abstractmethod
    def hash_rows(self, messages: np.ndarray, length: int, salts: np.ndarray, number: int = 0) -> np.ndarray:
        """BLAKE2s (RFC 7693) of messages of one block.

        Args:
            messages: uint8 (n, 64), zeros from `length` on.
            length: bytes of each message, 0 to 64.
            salts: salt and personalisation, uint8 (16,) of all or (n, 16) of each.
            number: the node offset, below 2^32.

        Returns:
            uint8 (n, 32): what ``hashlib.blake2s(message, salt=…, person=…, node_offset=number)`` gives.
        """

    @abstractmethod
    def peel(self, positions: np.ndarray, size: int) -> Peeled:
        """Take keys away that touch a slot which no other key touches, until there are none.

        Paths may take them in another order, and so leave other slots free; the core is the same.

        Args:
            positions: uint32 (n, 3), a key's three are different.
            size: of the slots.
        """


def byte_tables(rows: np.ndarray) -> np.ndarray:
    """For each byte the sums of the rows that its bits select, bit 0 the first: uint8 (8 j, w) to (j, 256, w)."""
    out = np.zeros((len(rows) // 8, 256, rows.shape[1]), dtype=np.uint8)
    for number, row in enumerate(rows):
        bit = 1 << (number % 8)
        out[number // 8, bit : 2 * bit] = out[number // 8, :bit] ^ row
    return out
