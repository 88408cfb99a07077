"""Score an attack, next to a baseline attacker without any observation of the job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec
import numpy as np

__all__ = [
    "AttackScore",
    "Estimate",
    "Known",
    "auc",
    "auc_error",
    "draw_known",
    "r_squared",
    "score_correlation",
    "score_labels",
    "score_ranking",
]


class AttackScore(msgspec.Struct, frozen=True, kw_only=True):
    """One attack, scored."""

    attack: str
    """name: "labels: spectral", "features: ridge", …"""
    attacker: str
    """the party whose view it used"""
    victim: str
    """the party whose data it attacks"""
    target: str
    """the attacked data: "labels", "features", a column's name, "membership", … …"""
    metric: str
    """"AUC" (0.5 is guessing), "R²" (0 is guessing the mean), "correlation" (of a number with its estimate; 0 is
    guessing), "Spearman", "share"
    """
    value: float
    baseline: float
    """the same metric for the same learner without observations; 0.5 or 0 if it has nothing to learn from"""
    known: int
    """records or labels that the attacker knew from other sources"""
    rows: int
    """number of rows it was scored on"""
    seed: int
    """of the job"""
    error: float = 0.0
    """standard error of `value` over the scored rows, for AUC and correlation; otherwise 0"""
    seen: str = ""
    """the observations it used"""
    source: str = ""
    """its publication"""

    @property
    def gain(self) -> float:
        """Advantage over the baseline."""
        return self.value - self.baseline


@dataclass(frozen=True)
class Estimate:
    """An attack's estimates for rows.

    Attributes:
        rows: numbers, (n,).
        values: scores that rank the rows, (n,), or estimates of columns, (n, d), or of classes, (n, classes); (n, 1)
            for a numeric target.
        either_way: whether the attack cannot determine a score's sign, which costs the attacker one bit: which class is
            rarer, or whether a large score means a large number.
    """

    rows: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)
    either_way: bool = False

    def exclude_rows(self, rows: np.ndarray) -> Estimate:
        """Return the estimate for the other rows, which the attacker did not know before."""
        left = ~np.isin(self.rows, rows)
        return Estimate(self.rows[left], self.values[left], self.either_way)


@dataclass(frozen=True)
class Known:
    """Records that the attacker knows from other sources.

    Attributes:
        rows: their numbers, (k,).
        values: of the target, (k,) or (k, d).
    """

    rows: np.ndarray = field(repr=False)
    values: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)


def draw_known(rows: np.ndarray, target: np.ndarray, count: int, seed: int) -> Known:
    """Draw `count` of `rows` at random, with their targets; at least two per class if targets are classes.

    Args:
        rows: numbers to draw from, (n,).
        target: of all numbered rows, (N,) classes or numbers, or (N, d) values.
        count: number of records.
        seed: seeds the draw.
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
    """Return the probability that a positive row ranks above a negative one; ties count half; 0.5 if there is only one
    kind.

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
    """Return the standard error of an AUC (Hanley and McNeil, Radiology 143, 1982)."""
    if positive < 1 or negative < 1:
        return 0.5
    q1, q2 = value / (2 - value), 2 * value**2 / (1 + value)
    square = value * (1 - value) + (positive - 1) * (q1 - value**2) + (negative - 1) * (q2 - value**2)
    return math.sqrt(max(square, 0.0) / (positive * negative))


def score_ranking(estimate: Estimate, classes: np.ndarray, count: int) -> tuple[float, float]:
    """Return the AUC of an estimate of classes and its standard error; for a numeric target the correlation, see
    `score_correlation`.

    Args:
        estimate: one score per row or per class; for more than two classes, the mean of one-vs-rest AUCs.
        classes: true classes of all numbered rows, (N,).
        count: number of classes; 1 means a numeric target.
    """
    if count == 1:
        return score_correlation(estimate, classes)
    y, values = classes[estimate.rows], estimate.values
    if values.ndim == 1:
        target = y == 1 if count == 2 else y == int(np.bincount(y, minlength=count).argmax())
        found = auc(target, values)
        found = max(found, 1 - found) if estimate.either_way else found
        return found, auc_error(found, int(target.sum()), int((~target).sum()))
    if count == 2:
        return score_ranking(Estimate(estimate.rows, values[:, 1]), classes, 2)
    each = [(auc(y == c, values[:, c]), int((y == c).sum())) for c in range(count) if 0 < (y == c).sum() < len(y)]
    if not each:
        return 0.5, 0.5
    found = float(np.mean([value for value, _ in each]))
    return found, auc_error(found, min(size for _, size in each), len(y) - min(size for _, size in each))


def score_correlation(estimate: Estimate, numbers: np.ndarray) -> tuple[float, float]:
    """Return Pearson's correlation of the estimate with the true numbers and its standard error, (1 − r²)/√(n − 1).

    Args:
        estimate: one number per row; if its sign is unknown, the absolute correlation counts.
        numbers: true numbers of all numbered rows, (N,), NaN if unknown.
    """
    y, values = numbers[estimate.rows], estimate.values.reshape(len(estimate.rows))
    known = np.isfinite(y)
    y, values = y[known], values[known]
    if len(y) < 3 or not (y.std() > 0 and values.std() > 0):
        return 0.0, 1.0
    found = float(np.clip(np.corrcoef(y, values)[0, 1], -1.0, 1.0))
    return abs(found) if estimate.either_way else found, (1 - found**2) / math.sqrt(len(y) - 1)


def r_squared(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of the variance of standardised columns that an estimate explains; below 0 is worse than the
    mean.

    Args:
        estimate: (n, d).
        truth: (n, d); constant columns do not count.
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
) -> AttackScore:
    """Score an estimate of classes by AUC, or of a number by correlation, on rows that the attacker did not know.

    Args:
        attack: name.
        estimate: of the attack.
        classes: true classes of all numbered rows, (N,).
        count: number of classes; 1 means a numeric target.
        attacker: the attacking party.
        victim: the label owner.
        baseline: estimate of the same learner without observations; None for guessing.
        known: the attacker's known records.
        seed: of the job.
        target: name of the attacked data.
        seen: the observations the attack used.
        source: its publication.
    """
    told = np.arange(0) if known is None else known.rows
    rest = estimate.exclude_rows(told)
    value, error = score_ranking(rest, classes, count)
    guessing, metric = (0.0, "correlation") if count == 1 else (0.5, "AUC")
    without = guessing if baseline is None else score_ranking(baseline.exclude_rows(told), classes, count)[0]
    return AttackScore(
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
