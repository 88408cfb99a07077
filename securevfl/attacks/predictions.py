"""Predictions: what looks at rows that are predicted show, once and over again.

All rows of one prediction are seen with the same weights, so with ``h ≥ d`` a single look at new rows is a full linear
image of their features, see `features`. Noise that is drawn anew for each prediction is worn out by their mean: its
deviation falls with the square root of their number.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.features import LEARNERS
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import View

__all__ = ["averaged", "infer", "infer_from_scores", "own_only"]


def averaged(view: View, victim: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows that were predicted, (n,), and the mean of all looks at each, (n, width).

    Args:
        view: of the active party, of one prediction or several of the same rows.
        victim: whose rows.
    """
    rows, seen = view.of_features(victim).scoring().of(view.test)
    return rows, seen.mean(axis=1)


def infer(view: View, victim: str, known: Known, *, learner: str = "ridge") -> Estimate:
    """The victim's columns of the predicted rows from the mean of the looks."""
    rows, seen = averaged(view, victim)
    return LEARNERS[learner](rows, seen, known)


def infer_from_scores(view: View, scores: np.ndarray, known: Known, *, learner: str = "ridge") -> Estimate:
    """The victim's columns of all predicted rows from final predictions (n, classes) and the attacker's own columns; a
    predicted number, (n, 1), is taken as it is."""
    rows = np.arange(len(scores))
    if view.numeric:
        return LEARNERS[learner](rows, np.hstack([view.x[rows], scores]), known)
    odds = np.log(np.maximum(scores, 1e-12))
    seen = np.hstack([view.x[rows], odds[:, 1:] - odds[:, :1]])
    return LEARNERS[learner](rows, seen, known)


def own_only(view: View, victim: str, known: Known, *, learner: str = "ridge") -> Estimate:
    """The same learner on the active party's own columns: the baseline. Labels of new rows are not known."""
    rows, _ = averaged(view, victim)
    return LEARNERS[learner](rows, view.x[rows], known)
