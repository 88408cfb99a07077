"""What a model of two parties answers about a row, as `securevfl.shares.answers` defines it."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.two.bits import find_above
from securevfl_crypto.two.multiply import bits_to_words, select
from securevfl_crypto.two.online import LOGIT_BITS

from securevfl.shares.answers import LOGIT_BITS as ANSWER_BITS
from securevfl.shares.answers import LOGIT_BOUND, NUMBER_BITS, NUMBER_BOUND, RowAnswer
from securevfl.shares.two.judging import COARSE, COARSE_BITS, find_classes, find_sides
from securevfl.shares.two.parties import TwoParty

__all__ = ["compute_answers"]

_STEPS = 10


async def compute_answers(party: TwoParty, answer: RowAnswer, logits: np.ndarray) -> tuple[np.ndarray, int, int]:
    """This party's shares of the words to open, how many of their lowest bits are dropped, and how many are opened.

    Args:
        party: one of the two.
        answer: what is opened of each row.
        logits: this party's share of the outputs, uint64 (n, outputs).

    Returns:
        uint64 (n, width); what is left of it is as `RowAnswer.decode` takes it.
    """
    wire, transfers = party.wire, party.transfers
    coarse = logits >> np.uint64(LOGIT_BITS - COARSE)
    if answer.kind == "class":
        if answer.classes == 2:
            bits = await find_above(wire, transfers, coarse.reshape(-1), [-1], COARSE_BITS)
            return (await bits_to_words(wire, transfers, bits.reshape(-1))).reshape(-1, 1), 0, 2
        found = await bits_to_words(wire, transfers, await find_classes(party, logits))
        numbers = np.arange(answer.classes, dtype=np.uint64)
        return (found * numbers).sum(axis=1, keepdims=True, dtype=np.uint64), 0, answer.classes.bit_length() + 1
    if answer.kind == "grades":
        edges = [round((2 * step - 1) / 4 * 2**COARSE) for step in range(1 - _STEPS, _STEPS + 1)]
        bits = await find_above(wire, transfers, coarse.reshape(-1), edges, COARSE_BITS)
        words = await bits_to_words(wire, transfers, bits.reshape(len(edges), -1))
        return words.sum(axis=0, dtype=np.uint64).reshape(-1, 1), 0, len(edges).bit_length() + 1
    bound, bits_kept = (LOGIT_BOUND, ANSWER_BITS) if answer.classes > 1 else (NUMBER_BOUND, NUMBER_BITS)
    size = (bound << bits_kept).bit_length() + 2
    return await _clip(party, logits, coarse, bound), LOGIT_BITS - bits_kept, size


async def _clip(party: TwoParty, logits: np.ndarray, coarse: np.ndarray, bound: int) -> np.ndarray:
    """Shares of the outputs, clipped to ±bound."""
    wire, transfers = party.wire, party.transfers
    low, high = await find_sides(party, coarse, bound << COARSE)
    kept = await select(wire, transfers, np.ascontiguousarray(low ^ high), logits)
    below = low ^ np.uint8(party.is_active)
    ends = await bits_to_words(wire, transfers, np.stack([high, below]))
    return np.asarray(kept + (ends[0] - ends[1]) * np.uint64(bound << LOGIT_BITS))
