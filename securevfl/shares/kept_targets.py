"""Targets that the active party deals once a job, of the rows that train and of those that validate; every epoch uses
these same shares.

A target that changes between two epochs opens what changed with it: the logit of one row to ±0.004 among eight
validation rows, and to ±0.6 among a thousand. Kept shares cannot change, and checkpoints keep them over restarts.
A run that stops before its first checkpoint deals anew.

When they are dealt, the computing parties check, on shares, what they may be:

- a class is 0 or 1 in each column, y (y − 1) = 0 modulo 2^64, which has no other solutions; more than two columns of a
  row add up to one;
- a number is at most `TARGET_BOUND` of its scales from zero; errors beyond three scales count no more, see
  `ERROR_BOUND`. Where sums with a budget of ε are sized by its range, it lies within that to the last unit;
- the validation rows have at least `FEWEST_OF_CLASS` rows of each of two classes, unless the job says `few_rows`.

All three learn whether that holds, and nothing else of the targets; parties that only deal learn it as the job ends.
The check finds a party that deals something else. It does not find one that also computes falsely;
`docs/threat-model.md` says what such a party can do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.replicated import Product, Share, concatenate

from securevfl.errors import PolicyError
from securevfl.shares.engine import ONE, Engine, compute_products, find_outside
from securevfl.shares.network_ranges import TARGET_BOUND

__all__ = [
    "FEWEST_OF_CLASS",
    "BestFigure",
    "KeptTargets",
    "TargetRule",
    "check_targets",
    "decode_kept",
    "encode_kept",
    "explain_wrong_targets",
]

FEWEST_OF_CLASS = 20
"""Fewest validation rows of each of two classes: metrics of fewer follow single rows."""


@dataclass(frozen=True)
class KeptTargets:
    """Shares of all targets, at a computing party.

    Attributes:
        train: of the rows that train, (n, outputs), by the place of their numbers in order; 16 fractional bits.
        valid: of the validation rows, likewise.
    """

    train: Share = field(repr=False)
    valid: Share = field(repr=False)


@dataclass
class BestFigure:
    """The best figure of an epoch so far, where epochs are compared on shares.

    Attributes:
        share: at a computing party of three, (1,) with 16 fractional bits; None before the first.
        words: at a computing party of two, its summand, uint64 (1,) in units of the metrics; likewise.
    """

    share: Share | None = field(default=None, repr=False)
    words: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TargetRule:
    """What targets may be, and how they are dealt.

    Attributes:
        classes: number of classes; 1 for a number.
        unit: units of the last place, of 16 fractional bits, that a target of one stands for as it is dealt: whatever
            is dealt, a target is a multiple of it.
        bound: largest size of a number, in its scales.
    """

    classes: int
    unit: int
    bound: float = TARGET_BOUND

    @classmethod
    def of(cls, classes: int) -> TargetRule:
        """The rule of classes, which are dealt as 0 or 1, and of numbers, with 16 fractional bits."""
        return cls(classes, ONE if classes > 1 else 1)


def encode_kept(words: np.ndarray, rule: TargetRule) -> np.ndarray:
    """Targets in fixed point, uint64 (n, outputs), as they are dealt."""
    found: np.ndarray = (words.view(np.int64) // rule.unit).view(np.uint64)
    return found


def decode_kept(dealt: Share, rule: TargetRule) -> Share:
    """Dealt targets with 16 fractional bits."""
    return dealt if rule.unit == 1 else dealt * rule.unit


async def check_targets(engine: Engine, dealt: Share, trained: int, rule: TargetRule, *, counted: bool) -> bool:
    """Learn, at all three, whether targets are what they may be.

    Args:
        engine: computes on shares.
        dealt: as `encode_kept`: the rows that train, then those that validate.
        trained: how many of them train.
        rule: what they may be.
        counted: whether validation rows of each class have to be `FEWEST_OF_CLASS`.
    """
    classes = rule.classes
    if classes == 1:
        words = decode_kept(dealt, rule).reshape(-1)
        bounds = np.full(words.size, round(rule.bound * ONE), np.int64)
        return await engine.is_zero("targets", await find_outside(engine, words, bounds))
    one = engine.constant(np.ones(dealt.shape, np.uint64))
    (found,) = await compute_products(engine, [Product(dealt, dealt - one, "times")])
    parts = [found.reshape(-1)]
    if classes > 2:
        parts.append(dealt.sum(axis=1) - engine.constant(np.ones(len(dealt), np.uint64)))
    if counted:
        parts.append(await _lacks_classes(engine, dealt[trained:], classes))
    return await engine.is_zero("targets", concatenate(parts))


async def _lacks_classes(engine: Engine, valid: Share, classes: int) -> Share:
    """A word that is zero where at least two classes have `FEWEST_OF_CLASS` rows, else one."""
    counts = valid.sum(axis=0)
    if classes == 2:
        counts = concatenate([counts, engine.constant(np.array([len(valid)], np.uint64)) - counts])
    enough = (await engine.compare(counts * ONE, (FEWEST_OF_CLASS - 0.5,))).reshape(-1)
    two = await engine.compare(enough.sum(keepdims=True) * ONE, (1.5,))
    return engine.constant(np.ones(1, np.uint64)) - two.reshape(1)


def explain_wrong_targets(party: str, rule: TargetRule, *, counted: bool) -> PolicyError:
    """The error of a party whose active peer dealt targets that it does not accept."""
    classes = rule.classes
    within = "the job's target_range" if rule.bound == 1 else f"{rule.bound:g} scales"
    kinds = f"numbers within {within}" if classes == 1 else "one class for each row"
    also, cure = "", ""
    if counted and classes > 1:
        also = f", with at least {FEWEST_OF_CLASS} validation rows of each of two classes"
        cure = "; a job with rarer classes needs few_rows = true in its protection and in each party's policy"
    return PolicyError(
        f"{party!r} refuses to train on the targets that were dealt: they have to be {kinds}{also}. Nothing was opened"
        f"{cure}",
        cause="targets",
    )
