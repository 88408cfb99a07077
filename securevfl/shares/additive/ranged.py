"""Numbers dealt so that they cannot lie outside a range: as bits, whose weights add up to its end.

Of a number from 0 to `top`, the weights are 1, 2, 4, … and a last one that fills up to `top`: any bits give a number of
the range, so that the bits alone have to be checked, and a random combination of b (b − 1) checks as many as there are
without a message for each. A comparison on shares takes four rounds and 200 bytes for each number.
"""

from __future__ import annotations

import numpy as np
from securevfl_crypto.replicated import Share

from securevfl.errors import RangeError

__all__ = ["bit_weights", "join_bits", "split_bits"]


def bit_weights(top: int) -> tuple[int, ...]:
    """The weights of the bits of a number from 0 to `top`, which is 1 at least."""
    full = (top + 1).bit_length() - 1
    rest = top + 1 - (1 << full)
    return (*(1 << k for k in range(full)), *([rest] if rest else []))


def split_bits(values: np.ndarray, top: int) -> np.ndarray:
    """The bits of numbers (…), uint64 (…, bits).

    Args:
        values: int64, from 0 to `top`.
        top: end of the range.

    Raises:
        RangeError: a number outside the range.
    """
    if values.size and not (values.min() >= 0 and values.max() <= top):
        raise RangeError(f"a number from {values.min()} to {values.max()} would be dealt; 0 to {top} are possible")
    full = (top + 1).bit_length() - 1
    rest = top + 1 - (1 << full)
    above = values >= 1 << full
    low = values - above * rest
    bits = low[..., None] >> np.arange(full) & 1
    return (np.concatenate([bits, above[..., None]], axis=-1) if rest else bits).astype(np.uint64)


def join_bits(bits: Share, top: int) -> Share:
    """The numbers (…) of shared bits (…, bits)."""
    return (bits * np.array(bit_weights(top), np.int64)).sum(axis=-1)
