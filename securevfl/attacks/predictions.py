"""Attacks on predictions: from one observation of predicted rows, and from repeated ones.

All rows of one prediction share the same weights, so with ``h ≥ d`` a single observation of new rows is a full linear
image of their features, see `features`. Averaging repeated predictions with fresh noise removes the noise: its
deviation falls with the square root of their number.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.features import LEARNERS
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import View

__all__ = ["averaged", "infer", "infer_from_scores", "own_only"]


def averaged(view: View, victim: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the predicted rows, (n,), and the mean of all observations of each, (n, width).

    Args:
        view: the active party's view of one or several predictions of the same rows.
        victim: the party whose rows are attacked.
    """
    rows, seen = view.of_features(victim).scoring().of(view.test)
    return rows, seen.mean(axis=1)


def infer(view: View, victim: str, known: Known, *, learner: str = "ridge") -> Estimate:
    """Infer the victim's columns of the predicted rows from the mean observation."""
    rows, seen = averaged(view, victim)
    return LEARNERS[learner](rows, seen, known)


def infer_from_scores(view: View, scores: np.ndarray, known: Known, *, learner: str = "ridge") -> Estimate:
    """Infer the victim's columns of all predicted rows from final predictions (n, classes) and the attacker's own
    columns; a predicted number, (n, 1), is used unchanged.
    """
    rows = np.arange(len(scores))
    if view.numeric:
        return LEARNERS[learner](rows, np.hstack([view.x[rows], scores]), known)
    odds = np.log(np.maximum(scores, 1e-12))
    seen = np.hstack([view.x[rows], odds[:, 1:] - odds[:, :1]])
    return LEARNERS[learner](rows, seen, known)


def own_only(view: View, victim: str, known: Known, *, learner: str = "ridge") -> Estimate:
    """Run the same learner on the active party's own columns: the baseline. Labels of new rows are unknown."""
    rows, _ = averaged(view, victim)
    return LEARNERS[learner](rows, view.x[rows], known)
