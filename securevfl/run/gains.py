"""What joining was worth: how much better a run is on the test rows than what its active party has without the others,
with an interval.

Both runs score the same rows, so the interval is that of a paired difference: of the AUC by DeLong et al. (1988,
Biometrics 44), of other metrics by the delta method. It holds for these two models on new rows of the same kind; it
does not say how another training would have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from securevfl.report.record import GainRecord, RunRecord
from securevfl.training import Trained
from securevfl.training.metrics import SURE

__all__ = ["METRICS", "add_gains", "average_gains", "measure_gain", "row_influences"]

METRICS = ("auc", "accuracy", "r2")
"""Metrics that a gain is stated in, the first that both runs have; larger is better."""

_ALONE = ("alone", "alone_boosted")
_ROUNDING = 1e-12


def add_gains(runs: Sequence[RunRecord], trained: Mapping[str, Trained]) -> list[RunRecord]:
    """The runs; those of a federation say what joining was worth, where a baseline of the active party alone ran.

    It is compared with the better one of these baselines on the test rows, which makes the gain rather too small.

    Args:
        runs: baselines and others, over the same test rows.
        trained: run → what the label owner's program returned; of a run with several draws, the first.
    """
    alone = [run for run in runs if run.key in _ALONE]
    return [run if run.baseline else _with_gain(run, alone, trained) for run in runs]


def _with_gain(run: RunRecord, alone: Sequence[RunRecord], trained: Mapping[str, Trained]) -> RunRecord:
    for metric in METRICS:
        rivals = [one for one in alone if metric in one.test]
        if metric not in run.test or not rivals:
            continue
        best = max(rivals, key=lambda one: one.test[metric])
        mine, other = trained.get(run.key), trained.get(best.key)
        half = None if mine is None or other is None else measure_gain(metric, mine, other)
        gain = run.test[metric] - best.test[metric]
        found = GainRecord(metric=metric, over=best.key, gain=gain, rows=0 if mine is None else len(mine.labels))
        if half is not None:
            found = msgspec.structs.replace(found, low=gain - half, high=gain + half)
        return msgspec.structs.replace(run, gained=found)
    return run


def measure_gain(metric: str, mine: Trained, other: Trained) -> float | None:
    """Half the width of the 95 % interval of the difference of a metric on the same test rows; None where one has no
    scores of these rows, the metric no interval, or scores differ and yet no row moves the difference: such rows show
    no chance, and do not show that there is none.

    Args:
        metric: one of `METRICS`.
        mine: one run's scores and labels.
        other: the other's.
    """
    if not len(mine.scores) or mine.scores.shape != other.scores.shape or not np.array_equal(mine.labels, other.labels):
        return None
    parts = [row_influences(metric, one.scores, one.labels, mine.weight) for one in (mine, other)]
    if parts[0] is None or parts[1] is None:
        return None
    half = float(SURE * np.sqrt(((parts[0] - parts[1]) ** 2).sum()))
    return half if half > _ROUNDING or np.array_equal(mine.scores, other.scores) else None


def row_influences(
    metric: str, scores: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None
) -> np.ndarray | None:
    """By how much each row moves the metric, (n,): the squares add up to the metric's variance. None where the rows do
    not define the metric.

    Args:
        metric: one of `METRICS`.
        scores: probabilities (n, classes), or predictions (n, 1).
        labels: classes (n,), several labels (n, labels), or numbers (n,).
        weight: how much the rows count, (n,); equal unless given.
    """
    each = np.full(len(scores), 1.0) if weight is None else np.asarray(weight, np.float64)
    if metric == "auc":
        if labels.ndim == 2:
            hits = [(labels[:, k] == 1, scores[:, k]) for k in range(labels.shape[1])]
        else:
            which = [1] if scores.shape[1] == 2 else range(scores.shape[1])
            hits = [(labels == k, scores[:, k]) for k in which]
        found = [_auc_influences(hit, score, each) for hit, score in hits]
        return None if any(one is None for one in found) else np.mean([one for one in found if one is not None], axis=0)
    share = each / each.sum()
    if metric == "accuracy":
        right = (
            (scores.argmax(axis=1) == labels) if labels.ndim == 1 else ((scores >= 0.5) == (labels == 1)).mean(axis=1)
        )
        return np.asarray(share * (right - (share * right).sum()))
    error, spread = (labels - scores[:, 0]) ** 2, (labels - (share * labels).sum()) ** 2
    wrong, all_of_it = (share * error).sum(), (share * spread).sum()
    if not all_of_it:
        return None
    return np.asarray(-share * ((error - wrong) / all_of_it - wrong * (spread - all_of_it) / all_of_it**2))


def _auc_influences(hits: np.ndarray, scores: np.ndarray, weight: np.ndarray) -> np.ndarray | None:
    """Of the area under one class's curve: DeLong's structural components, whose spread is estimated with one row less
    than a side has; None unless each side has two rows."""
    if any(np.count_nonzero(weight[side]) < 2 for side in (~hits, hits)):
        return None
    totals = [weight[side].sum() for side in (~hits, hits)]
    found = np.empty(len(scores))
    for side, other, total in ((hits, ~hits, totals[0]), (~hits, hits, totals[1])):
        order = np.argsort(scores[other], kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(weight[other][order])])
        ranked = scores[other][order]
        below = sums[np.searchsorted(ranked, scores[side], "left")]
        found[side] = (below + sums[np.searchsorted(ranked, scores[side], "right")]) / (2 * total)
    found[~hits] = 1 - found[~hits]
    area = float(np.average(found[hits], weights=weight[hits]))
    share = weight / np.where(hits, totals[1], totals[0])
    lost = [1 - (share[side] ** 2).sum() for side in (~hits, hits)]  # 1 - 1/n where rows count alike
    return np.asarray((found - area) * share / np.sqrt(np.where(hits, lost[1], lost[0])))


def average_gains(found: Sequence[GainRecord | None]) -> GainRecord | None:
    """The mean gain of folds, whose test rows differ; None unless all have one of the same metric. Each is over the
    baseline that is better in its fold; where that is not always the same one, the mean names none."""
    gains = [one for one in found if one is not None]
    if len(gains) < len(found) or len({one.metric for one in gains}) != 1:
        return None
    rivals = {one.over for one in gains}
    mean = float(np.mean([one.gain for one in gains]))
    halves = [one.high - one.gain for one in gains if one.high is not None]
    half = float(np.sqrt(np.square(halves).sum())) / len(gains) if len(halves) == len(gains) else None
    return msgspec.structs.replace(
        gains[0],
        over=rivals.pop() if len(rivals) == 1 else "",
        gain=mean,
        low=None if half is None else mean - half,
        high=None if half is None else mean + half,
        rows=sum(one.rows for one in gains),
    )
