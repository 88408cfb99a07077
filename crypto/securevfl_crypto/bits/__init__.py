"""Loops over rows of bits, the costly part of oblivious transfer extension and key-value stores. No protocol.

`paths` chooses how they run: `compiled` on kernels of `engine`, or `portable` in numpy; both implement `base`. Rows
have 64 bytes; bit 0 of a byte comes first. This folder imports `engine` and `errors`.
"""

from __future__ import annotations

from securevfl_crypto.bits.base import (
    CODE_BYTES,
    COLUMNS,
    DENSE_BYTES,
    HASH_BYTES,
    ROW_BYTES,
    SUM_BYTES,
    BitLoops,
    Peeled,
    byte_tables,
)
from securevfl_crypto.bits.paths import bit_loops

__all__ = [
    "CODE_BYTES",
    "COLUMNS",
    "DENSE_BYTES",
    "HASH_BYTES",
    "ROW_BYTES",
    "SUM_BYTES",
    "BitLoops",
    "Peeled",
    "bit_loops",
    "byte_tables",
]
