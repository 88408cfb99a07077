"""Features from z: what the active party solves for, from all looks at a row side by side.

With identity bottoms a look is a linear map of the passive parties' features, and rows that are scored with the same
weights (all validation rows after an epoch, all rows of one prediction) share it: as many known records as columns give
all others' features by a linear system. Where weights move between the looks, or a bottom bends the map, ridge and a
perceptron still learn it from known records. The attack on inner layers goes back to Luo et al., "Feature inference
attack on model predictions in vertical federated learning", ICDE 2021 (arXiv 2010.10152), section IV.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from securevfl.attacks.learners import linear_solve, perceptron, ridge
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import Looks, View

__all__ = ["LEARNERS", "MOST_NUMBERS", "Which", "infer", "infer_with_own", "own_only", "sights"]

Learner = Callable[[np.ndarray, np.ndarray, Known], Estimate]

LEARNERS: dict[str, Learner] = {"linear": linear_solve, "ridge": ridge, "perceptron": perceptron}
"""Name → what learns from known records."""

MOST_NUMBERS = 256
"""Numbers of a row that a learner is given at most: the last ones seen."""

Which = Literal["trained", "scored"]
"""Rows that were trained on, each batch with weights of its own; or the validation and test rows."""


def sights(view: View, victim: str, which: Which) -> tuple[np.ndarray, np.ndarray]:
    """Rows, (n,), and all that was seen of each, side by side, (n, numbers).

    Args:
        view: of the active party.
        victim: whose rows.
        which: see `Which`.
    """
    looks: Looks = view.of_features(victim)
    if which == "trained":
        rows, seen = looks.training().of(view.train)
    else:  # validation rows are scored after each epoch; where a job has none, test rows once
        rows, seen = looks.scoring().of(view.valid if len(view.valid) else view.test)
    flat = seen.reshape(len(rows), seen.shape[1] * seen.shape[2])
    return rows, flat[:, max(0, flat.shape[1] - MOST_NUMBERS) :]


def infer(view: View, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained") -> Estimate:
    """The victim's columns from what was seen of its rows alone.

    Args:
        view: of the active party.
        victim: a passive party.
        known: some of its records, (k, d).
        learner: of `LEARNERS`.
        which: which rows.
    """
    rows, seen = sights(view, victim, which)
    return LEARNERS[learner](rows, seen, known)


def infer_with_own(
    view: View, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained"
) -> Estimate:
    """The same, with the active party's own columns and labels beside what it saw."""
    rows, seen = sights(view, victim, which)
    return LEARNERS[learner](rows, np.hstack([seen, view.own(rows)]), known)


def own_only(view: View, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained") -> Estimate:
    """The same learner on the active party's own columns and labels alone: the baseline."""
    rows, _ = sights(view, victim, which)
    return LEARNERS[learner](rows, view.own(rows), known)
