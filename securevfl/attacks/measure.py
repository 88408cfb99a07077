"""What an attack got, as a figure beside that of an attacker who saw nothing of the job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec
import numpy as np

__all__ = [
    "Estimate",
    "Known",
    "Measured",
    "auc",
    "auc_error",
    "correlated",
    "draw_known",
    "r_squared",
    "ranked",
    "score_labels",
]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One attack, scored."""

    attack: str
    """which one: "labels: spectral", "features: ridge", …"""
    attacker: str
    """the party whose view it used"""
    victim: str
    """whose data it is about"""
    target: str
    """what of it: "labels", "features", a column's name, "membership", …"""
    metric: str
    """"AUC" (0.5 is guessing), "R²" (0 is guessing the mean), "correlation" (of a number with what was recovered of
    it; 0 is guessing), "Spearman", "share" """
    value: float
    baseline: float
    """the same metric for the same learner without what was seen; 0.5 or 0 where there is nothing to learn from"""
    known: int
    """records or labels that the attacker knew from elsewhere"""
    rows: int
    """rows that it was scored on"""
    seed: int
    """of the job"""
    error: float = 0.0
    """standard error of `value` over the scored rows, for AUC and correlation; 0 where there is none"""
    seen: str = ""
    """what it used"""
    source: str = ""
    """where it was published"""

    @property
    def gain(self) -> float:
        """Over the baseline."""
        return self.value - self.baseline


@dataclass(frozen=True)
class Estimate:
    """What an attack says of rows.

    Attributes:
        rows: numbers, (n,).
        values: scores that rank the rows, (n,), or estimates of columns, (n, d), or of classes, (n, classes); of a
            numeric target (n, 1).
        either_way: whether a score's sign is open, which costs the attacker one bit: which class is the rarer one, or
            whether large numbers are large.
    """

    rows: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    either_way: bool = False

    def without(self, rows: np.ndarray) -> Estimate:
        """Of the other rows only: those that the attacker did not know before."""
        left = ~np.isin(self.rows, rows)
        return Estimate(self.rows[left], self.values[left], self.either_way)


@dataclass(frozen=True)
class Known:
    """Records that the attacker knows from elsewhere.

    Attributes:
        rows: their numbers, (k,).
        values: of the target, (k,) or (k, d).
    """

    rows: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)


def draw_known(rows: np.ndarray, target: np.ndarray, count: int, seed: int) -> Known:
    """`count` of `rows` at random, with their targets; at least two of each class where targets are classes.

    Args:
        rows: numbers to draw from, (n,).
        target: of all numbered rows, (N,) classes or numbers, or (N, d) values.
        count: how many.
        seed: of the draw.
    """
    draw = np.random.default_rng(seed)
    chosen = rows[draw.permutation(len(rows))[:count]]
    if (
        count and target.ndim == 1 and target.dtype.kind in "iub"
    ):  # an attacker who looks for known records finds one of each class
        first = [draw.permutation(rows[target[rows] == c])[:2] for c in np.unique(target[rows])]
        have = np.concatenate(first)
        chosen = np.concatenate([have, chosen[~np.isin(chosen, have)]])[: max(count, len(have))]
    return Known(np.sort(chosen), target[np.sort(chosen)])


def auc(positive: np.ndarray, score: np.ndarray) -> float:
    """Probability that a positive row is ranked above another one, ties counted half; 0.5 where there is only one kind.

    The Mann-Whitney statistic from mid-ranks.

    Args:
        positive: (n,) bool.
        score: (n,).
    """
    positive = np.asarray(positive, dtype=bool)
    n, m = int(positive.sum()), int((~positive).sum())
    if not n or not m:
        return 0.5
    _, at, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts - 1) / 2
    return float((rank[at][positive].sum() - n * (n + 1) / 2) / (n * m))


def auc_error(value: float, positive: int, negative: int) -> float:
    """Standard error of an AUC (Hanley and McNeil, Radiology 143, 1982)."""
    if positive < 1 or negative < 1:
        return 0.5
    q1, q2 = value / (2 - value), 2 * value**2 / (1 + value)
    square = value * (1 - value) + (positive - 1) * (q1 - value**2) + (negative - 1) * (q2 - value**2)
    return math.sqrt(max(square, 0.0) / (positive * negative))


def ranked(estimate: Estimate, classes: np.ndarray, count: int) -> tuple[float, float]:
    """AUC of an estimate of classes, and its standard error; of a numeric target the correlation with it, see
    `correlated`.

    Args:
        estimate: one score a row, or one a class; for more than two classes the mean over them, one against the rest.
        classes: true ones of all numbered rows, (N,).
        count: number of classes; 1 stands for a number.
    """
    if count == 1:
        return correlated(estimate, classes)
    y, values = classes[estimate.rows], estimate.values
    if values.ndim == 1:
        target = y == 1 if count == 2 else y == int(np.bincount(y, minlength=count).argmax())
        found = auc(target, values)
        found = max(found, 1 - found) if estimate.either_way else found
        return found, auc_error(found, int(target.sum()), int((~target).sum()))
    if count == 2:
        return ranked(Estimate(estimate.rows, values[:, 1]), classes, 2)
    each = [(auc(y == c, values[:, c]), int((y == c).sum())) for c in range(count) if 0 < (y == c).sum() < len(y)]
    if not each:
        return 0.5, 0.5
    found = float(np.mean([value for value, _ in each]))
    return found, auc_error(found, min(size for _, size in each), len(y) - min(size for _, size in each))


def correlated(estimate: Estimate, numbers: np.ndarray) -> tuple[float, float]:
    """Pearson's correlation of what was recovered with the true numbers, and its standard error, (1 − r²)/√(n − 1).

    Args:
        estimate: one number a row; where its sign is open, the absolute correlation counts.
        numbers: true ones of all numbered rows, (N,), NaN where nobody knows.
    """
    y, values = numbers[estimate.rows], estimate.values.reshape(len(estimate.rows))
    known = np.isfinite(y)
    y, values = y[known], values[known]
    if len(y) < 3 or not (y.std() > 0 and values.std() > 0):
        return 0.0, 1.0
    found = float(np.clip(np.corrcoef(y, values)[0, 1], -1.0, 1.0))
    return abs(found) if estimate.either_way else found, (1 - found**2) / math.sqrt(len(y) - 1)


def r_squared(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Share of the variance of standardised columns that an estimate explains; below 0 is worse than the mean.

    Args:
        estimate: (n, d).
        truth: (n, d); columns that do not vary do not count.
    """
    deviation = truth.std(axis=0)
    varies = deviation > 1e-6
    if not varies.any():
        return 0.0
    left = ((estimate - truth)[:, varies] / deviation[varies]) ** 2
    return float(1 - left.mean())


def score_labels(
    attack: str,
    estimate: Estimate,
    classes: np.ndarray,
    count: int,
    *,
    attacker: str,
    victim: str,
    baseline: Estimate | None = None,
    known: Known | None = None,
    seed: int = 0,
    target: str = "labels",
    seen: str = "",
    source: str = "",
) -> Measured:
    """Score an estimate of classes by AUC, or of a number by its correlation, on rows that the attacker did not know.

    Args:
        attack: name.
        estimate: of the attack.
        classes: true ones of all numbered rows, (N,).
        count: number of classes; 1 stands for a number.
        attacker: who.
        victim: whose labels.
        baseline: what the same learner says without having seen anything; None for guessing.
        known: what the attacker knew.
        seed: of the job.
        target: what the classes are.
        seen: what the attack used.
        source: where it was published.
    """
    told = np.arange(0) if known is None else known.rows
    rest = estimate.without(told)
    value, error = ranked(rest, classes, count)
    guessing, metric = (0.0, "correlation") if count == 1 else (0.5, "AUC")
    without = guessing if baseline is None else ranked(baseline.without(told), classes, count)[0]
    return Measured(
        attack=attack,
        attacker=attacker,
        victim=victim,
        target=target,
        metric=metric,
        value=value,
        baseline=without,
        known=len(told),
        rows=len(rest.rows),
        seed=seed,
        error=error,
        seen=seen,
        source=source,
    )
