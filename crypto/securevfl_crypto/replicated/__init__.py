"""Three computing parties on replicated shares modulo 2^64: products with exact truncation, comparisons, functions.

Sans-I/O: the protocol awaits a `Wire`. `Computing` is one party; `Clear` makes the same calls on plain numbers;
`deal_shares` shares a data party's values, `deal_narrow` and `deal_owned` small ones modulo 2^32;
`run_three` runs all three in one process.
"""

from __future__ import annotations

from securevfl_crypto.replicated.computing import Computing
from securevfl_crypto.replicated.curves import Curve
from securevfl_crypto.replicated.fits import SLOPE_BITS, WIDEST
from securevfl_crypto.replicated.functions import Functions
from securevfl_crypto.replicated.keys import Streams, agreed_streams
from securevfl_crypto.replicated.narrow import (
    DealtNarrow,
    DealtOwned,
    NarrowBits,
    NarrowShare,
    NarrowTerm,
    combine_summand,
    deal_narrow,
    deal_owned,
    dealt_terms,
    owned_term,
    owner_term,
    sum_summand,
)
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
    "DealtNarrow",
    "DealtOwned",
    "Expected",
    "Functions",
    "MemoryWire",
    "NarrowBits",
    "NarrowShare",
    "NarrowTerm",
    "Opening",
    "Product",
    "Run",
    "Share",
    "Streams",
    "Task",
    "Wire",
    "agreed_streams",
    "combine_summand",
    "concatenate",
    "deal_narrow",
    "deal_owned",
    "deal_shares",
    "dealt_terms",
    "memory_wires",
    "owned_term",
    "owner_term",
    "run_three",
    "stack",
    "sum_summand",
    "take_turns",
]
