"""Truncation of words that two parties share, right up to one unit of the last place: one transfer a word.

The top bits of both summands tell whether their sum wraps, because 2^62 is added first, so that the value lies below
2^63. Dropping low bits of each summand alone would be off by 2^(64 − shift) wherever it wraps, which is not rare for
large values (1 of 100,000 at 48 bits).
"""

from __future__ import annotations

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.two.transfers import Transfers
from securevfl_crypto.two.wire import TwoWire

__all__ = ["truncate"]

_LABEL = "step truncation"


async def truncate(wire: TwoWire, transfers: Transfers, words: np.ndarray, shift: int) -> np.ndarray:
    """Shares of x >> shift modulo 2^64, or of one unit less.

    Args:
        wire: the link.
        transfers: party 0 chooses, party 1 gives.
        words: this party's share of x, uint64 of any shape, |x| < 2^62.
        shift: 1 to 61.

    Raises:
        MalformedError: another shift.
    """
    if not 1 <= shift <= 61:
        raise MalformedError(f"a truncation by {shift} bits; 1 to 61 are possible")
    flat, down, unit = words.reshape(-1), np.uint64(shift), np.uint64(1 << (64 - shift))
    if wire.me == 0:
        moved = flat + np.uint64(1 << 62)
        top = moved >> np.uint64(63)
        chosen = (await transfers.choose(top.astype(np.uint8)))[:, 0]
        (delta,) = await wire.receive(_LABEL, [(np.uint64, flat.shape)])
        both = chosen + delta * top
        found = (moved >> down) - top * unit + both - np.uint64(1 << (62 - shift))
    else:
        top = flat >> np.uint64(63)
        zeros, ones = await transfers.give(flat.size)
        payload = top * unit
        await wire.send(_LABEL, [zeros[:, 0] + payload - ones[:, 0]])
        found = (flat >> down) - payload - zeros[:, 0]
    result: np.ndarray = found.reshape(words.shape)
    return result
