"""Infer features from z: an attack by the active party on all observations of a row, concatenated.

With identity bottoms, an observation is a linear map of the passive parties' features. Rows scored with the same
weights (all validation rows after an epoch, all rows of one prediction) share the map, so as many known records as
there are columns give all other features by a linear system. If weights change between observations, or a bottom is
nonlinear, ridge and a perceptron can still learn the map from known records. The attack on inner layers goes back to
Luo et al., "Feature inference attack on model predictions in vertical federated learning", ICDE 2021 (arXiv
2010.10152), section IV.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from securevfl.attacks.learners import linear_solve, perceptron, ridge
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import Observations, View

__all__ = ["LEARNERS", "MOST_NUMBERS", "Which", "infer", "infer_with_own", "own_only", "stacked_observations"]

Learner = Callable[[np.ndarray, np.ndarray, Known], Estimate]

LEARNERS: dict[str, Learner] = {"linear": linear_solve, "ridge": ridge, "perceptron": perceptron}
"""Name → learner that fits known records."""

MOST_NUMBERS = 256
"""Maximum numbers per row passed to a learner: the last ones observed."""

Which = Literal["trained", "scored"]
"""Training rows, observed with different weights in each batch; or validation and test rows."""


def stacked_observations(view: View, victim: str, which: Which) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, (n,), and all observations of each, concatenated, (n, numbers).

    Args:
        view: the active party's view.
        victim: the party whose rows are attacked.
        which: see `Which`.
    """
    looks: Observations = view.of_features(victim)
    if which == "trained":
        rows, seen = looks.training().of(view.train)
    else:  # validation rows are scored after each epoch; where a job has none, test rows once
        rows, seen = looks.scoring().of(view.valid if len(view.valid) else view.test)
    flat = seen.reshape(len(rows), seen.shape[1] * seen.shape[2])
    return rows, flat[:, max(0, flat.shape[1] - MOST_NUMBERS) :]


def infer(view: View, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained") -> Estimate:
    """Infer the victim's columns only from observations of its rows.

    Args:
        view: the active party's view.
        victim: a passive party.
        known: its known records, (k, d).
        learner: of `LEARNERS`.
        which: the rows to use.
    """
    rows, seen = stacked_observations(view, victim, which)
    return LEARNERS[learner](rows, seen, known)


def infer_with_own(
    view: View, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained"
) -> Estimate:
    """Infer the victim's columns from observations plus the active party's own columns and labels."""
    rows, seen = stacked_observations(view, victim, which)
    return LEARNERS[learner](rows, np.hstack([seen, view.own_columns(rows)]), known)


def own_only(view: View, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained") -> Estimate:
    """Run the same learner only on the active party's own columns and labels: the baseline."""
    rows, _ = stacked_observations(view, victim, which)
    return LEARNERS[learner](rows, view.own_columns(rows), known)
