"""Three computing parties on replicated shares modulo 2^64: products with exact truncation, comparisons, functions.

Sans-I/O: the protocol awaits a `Wire`. `Computing` is one party; `Clear` makes the same calls on plain numbers;
`deal_shares` shares a data party's values; `run_three` runs all three in one process.
"""

from __future__ import annotations

from securevfl_crypto.replicated.computing import Computing
from securevfl_crypto.replicated.curves import Curve
from securevfl_crypto.replicated.fits import SLOPE_BITS, WIDEST
from securevfl_crypto.replicated.functions import Functions
from securevfl_crypto.replicated.keys import Streams, agreed_streams
from securevfl_crypto.replicated.opening import Opening
from securevfl_crypto.replicated.product import Product
from securevfl_crypto.replicated.reference import Clear, Run, run_three
from securevfl_crypto.replicated.share import Dealt, Share, concatenate, deal_shares, stack
from securevfl_crypto.replicated.task import Task
from securevfl_crypto.replicated.wire import Expected, MemoryWire, Wire, memory_wires, take_turns

__all__ = [
    "SLOPE_BITS",
    "WIDEST",
    "Clear",
    "Computing",
    "Curve",
    "Dealt",
    "Expected",
    "Functions",
    "MemoryWire",
    "Opening",
    "Product",
    "Run",
    "Share",
    "Streams",
    "Task",
    "Wire",
    "agreed_streams",
    "concatenate",
    "deal_shares",
    "memory_wires",
    "run_three",
    "stack",
    "take_turns",
]
