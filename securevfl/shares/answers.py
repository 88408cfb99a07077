"""What a model on shares answers about a row, and how finely.

The kinds of answer:

- ``"probabilities"``: the logits, clipped at ±8 and rounded at 2^-4; of a number the prediction itself, clipped at 24
  of its scales and rounded at 2^-8.
- ``"class"``: the likeliest class alone, one number whatever the number of classes. It is what a job with more than two
  classes answers unless it says otherwise: K logits are K numbers of a row.
- ``"grades"``: of two classes, which of 21 steps of half a unit of log-odds the logit is nearest to.

Rounding makes an answer coarser, not cheaper: a row's budget counts numbers, whatever their precision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from securevfl_crypto.replicated import Product, Share
from securevfl_crypto.ring import FRACTION, decode_words

from securevfl.shares.engine import ONE, Engine, compute_products, scaling_job

__all__ = ["LOGIT_BITS", "LOGIT_BOUND", "NUMBER_BITS", "NUMBER_BOUND", "AnswerKind", "RowAnswer", "clip_outputs"]

AnswerKind: TypeAlias = Literal["probabilities", "class", "grades"]

LOGIT_BOUND = 8
"""Answered logits lie between minus and plus this."""

LOGIT_BITS = 4
"""Fractional bits of an answered logit."""

NUMBER_BOUND = 24
"""Answered numbers lie between minus and plus this many scales of the target."""

NUMBER_BITS = 8
"""Fractional bits of an answered number, in units of the target's scale."""

_STEPS = 10
_SIX = 6
_FACTOR_BITS = 20
_CERTAIN = 30.0


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """What is opened of each row that a model on shares scores.

    Attributes:
        kind: see this module.
        classes: number of classes; 1 stands for a number.
    """

    kind: AnswerKind
    classes: int

    @classmethod
    def of(cls, wanted: AnswerKind | None, classes: int) -> RowAnswer:
        """The answer that a job asks for; by default the class alone for more than two classes."""
        if wanted is None:
            wanted = "class" if classes > 2 else "probabilities"
        return cls("probabilities" if classes == 1 else wanted, classes)

    @property
    def width(self) -> int:
        """How many numbers of a row it opens."""
        return self.classes if self.kind == "probabilities" and self.classes > 2 else 1

    async def compute(self, engine: Engine, outputs: Share) -> Share:
        """The words to open, (n, width).

        Args:
            engine: computes on shares.
            outputs: of the network, (n, outputs), with 16 fractional bits.
        """
        if self.kind == "class":
            return await self._find_class(engine, outputs)
        if self.kind == "grades":
            edges = [(2 * step - 1) / 4 for step in range(1 - _STEPS, _STEPS + 1)]
            bits = await engine.compare(outputs, edges)
            return bits.reshape(len(edges), -1).sum(axis=0).reshape(-1, 1)
        bound, bits_kept = self._bound, LOGIT_BITS if self.classes > 1 else NUMBER_BITS
        clipped = await _clip_to_six(engine, outputs, bound)
        factor = round(2 * bound / _SIX * 2**_FACTOR_BITS)
        shift = _FACTOR_BITS + FRACTION - bits_kept
        (rounded,) = await compute_products(engine, [scaling_job(engine, clipped, factor, shift)])
        return rounded - engine.constant(np.full(rounded.shape, bound << bits_kept, np.uint64))

    def decode(self, words: np.ndarray) -> np.ndarray:
        """Opened words as outputs of the network, (n, outputs) float64.

        A class alone becomes logits that give it all of the probability.
        """
        if self.kind == "class":
            if self.classes == 2:
                return np.where(words == 1, _CERTAIN, -_CERTAIN).astype(np.float64)
            return np.where(words == np.arange(self.classes, dtype=np.uint64), _CERTAIN, 0.0)
        if self.kind == "grades":
            return (words.astype(np.float64) - _STEPS) / 2
        return decode_words(words, LOGIT_BITS if self.classes > 1 else NUMBER_BITS)

    @property
    def _bound(self) -> int:
        return LOGIT_BOUND if self.classes > 1 else NUMBER_BOUND

    async def _find_class(self, engine: Engine, outputs: Share) -> Share:
        if self.classes == 2:
            return (await engine.compare(outputs)).reshape(-1, 1)
        # Scaled up, with a different rest for each class: no two values are equal, so exactly one is the largest.
        rest = np.arange(self.classes, 0, -1, dtype=np.uint64)
        ranked = outputs * (1 << int(self.classes).bit_length())
        ranked = ranked + engine.constant(np.broadcast_to(rest, outputs.shape))
        behind = ranked - (await engine.maximum(ranked)).broadcast_to(ranked.shape)
        bits = (await engine.compare(behind)).reshape(*outputs.shape)
        return (bits * np.arange(self.classes)).sum(axis=1, keepdims=True)


async def clip_outputs(engine: Engine, outputs: Share, classes: int) -> Share:
    """Outputs of the network clipped as answers are, with 16 fractional bits.

    Args:
        engine: computes on shares.
        outputs: (n, outputs).
        classes: number of classes; 1 stands for a number.
    """
    bound = LOGIT_BOUND if classes > 1 else NUMBER_BOUND
    clipped = await _clip_to_six(engine, outputs, bound)
    factor = round(2 * bound / _SIX * 2**_FACTOR_BITS)
    (found,) = await compute_products(engine, [scaling_job(engine, clipped, factor, _FACTOR_BITS)])
    return found - engine.constant(np.full(found.shape, bound * ONE, np.uint64))


async def _clip_to_six(engine: Engine, outputs: Share, bound: int) -> Share:
    """(clip(x, ±bound) + bound) · 6 / (2 bound), by the ReLU6 that the engine has."""
    moved = outputs + engine.constant(np.full(outputs.shape, bound * ONE, np.uint64))
    # 6 / (2 · 8) is 3 / 2^3, and 6 / (2 · 24) is 1 / 2^3.
    job: Product = replace(scaling_job(engine, moved, 24 // bound, 3), then="relu6")
    (done,) = await engine.compute_products([job])
    return done[0] if isinstance(done, tuple) else done
