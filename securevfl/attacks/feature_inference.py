"""Feature inference: one party infers columns of another, from the embedding z, from predictions or from gradients.

*From z*, by the active party. With identity bottoms, an observation is a linear map of the passive parties' features.
Rows scored with the same weights (all validation rows after an epoch, all rows of one prediction) share the map, so as
many known records as there are columns give all other features by a linear system. If weights change between
observations, or a bottom is nonlinear, ridge and a perceptron can still learn the map from known records. The attack on
inner layers goes back to Luo et al., "Feature inference attack on model predictions in vertical federated learning",
ICDE 2021 (arXiv 2010.10152), section IV.

*From predictions*, by the active party. All rows of one prediction share the same weights, so with ``h ≥ d`` a single
observation of new rows is a full linear image of their features. Averaging repeated predictions with fresh noise
removes the noise: its deviation falls with the square root of their number.

*One private binary column*, by the active party. A classifier trained on a few records with known attribute infers it
for the others, from observations of their rows or from the model's predictions (Luo et al., as above). The baseline has
the same known records, the active party's own columns and the labels, but no observations.

*From gradients*, by a passive party, on features it never received. The gradient of a row is ``(p − y)`` times a
direction. Its size reveals the prediction p, which depends on all parties' columns. If a ReLU follows z, the gradient's
zeros reveal which units are off for this row; noise on labels and randomised labels do not change these zeros. The
attacker gets the labels, so the result measures only what leaks about features. Ridge regression on zeros, sizes and
directions is compared with the same learner on the party's own columns and the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from securevfl.attacks.learners import fit_classifier, fit_perceptron, fit_ridge, linear_solve
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import Observations, PartyView

__all__ = [
    "LEARNERS",
    "MOST_NUMBERS",
    "Which",
    "average_observations",
    "binary_columns",
    "infer_attribute",
    "infer_attribute_baseline",
    "infer_attribute_from_predictions",
    "infer_columns",
    "infer_columns_baseline",
    "infer_columns_from_gradients",
    "infer_columns_with_own",
    "infer_from_gradients_baseline",
    "infer_from_scores",
    "infer_predicted_rows",
    "infer_predicted_rows_baseline",
    "stacked_observations",
]

Learner = Callable[[np.ndarray, np.ndarray, Known], Estimate]

LEARNERS: dict[str, Learner] = {"linear": linear_solve, "ridge": fit_ridge, "perceptron": fit_perceptron}
"""Name → learner that fits known records."""

MOST_NUMBERS = 256
"""Maximum numbers per row passed to a learner: the last ones observed."""

Which = Literal["trained", "scored"]
"""Training rows, observed with different weights in each batch; or validation and test rows."""


def stacked_observations(view: PartyView, victim: str, which: Which) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, (n,), and all observations of each, concatenated, (n, numbers).

    Args:
        view: the active party's view.
        victim: the party whose rows are attacked.
        which: see `Which`.
    """
    observations: Observations = view.of_features(victim)
    if which == "trained":
        rows, seen = observations.training().of_rows(view.train)
    else:  # validation rows are scored after each epoch; where a job has none, test rows once
        rows, seen = observations.scoring().of_rows(view.valid if len(view.valid) else view.test)
    flat = seen.reshape(len(rows), seen.shape[1] * seen.shape[2])
    return rows, flat[:, max(0, flat.shape[1] - MOST_NUMBERS) :]


def infer_columns(
    view: PartyView, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained"
) -> Estimate:
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


def infer_columns_with_own(
    view: PartyView, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained"
) -> Estimate:
    """Infer the victim's columns from observations plus the active party's own columns and labels."""
    rows, seen = stacked_observations(view, victim, which)
    return LEARNERS[learner](rows, np.hstack([seen, view.own_columns(rows)]), known)


def infer_columns_baseline(
    view: PartyView, victim: str, known: Known, *, learner: str = "ridge", which: Which = "trained"
) -> Estimate:
    """Run the same learner only on the active party's own columns and labels: the baseline."""
    rows, _ = stacked_observations(view, victim, which)
    return LEARNERS[learner](rows, view.own_columns(rows), known)


def average_observations(view: PartyView, victim: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the predicted rows, (n,), and the mean of all observations of each, (n, width).

    Args:
        view: the active party's view of one or several predictions of the same rows.
        victim: the party whose rows are attacked.
    """
    rows, seen = view.of_features(victim).scoring().of_rows(view.test)
    return rows, seen.mean(axis=1)


def infer_predicted_rows(view: PartyView, victim: str, known: Known, *, learner: str = "ridge") -> Estimate:
    """Infer the victim's columns of the predicted rows from the mean observation."""
    rows, seen = average_observations(view, victim)
    return LEARNERS[learner](rows, seen, known)


def infer_from_scores(view: PartyView, scores: np.ndarray, known: Known, *, learner: str = "ridge") -> Estimate:
    """Infer the victim's columns of all predicted rows from final predictions (n, classes) and the attacker's own
    columns; a predicted number, (n, 1), is used unchanged.
    """
    rows = np.arange(len(scores))
    if view.numeric:
        return LEARNERS[learner](rows, np.hstack([view.x[rows], scores]), known)
    odds = np.log(np.maximum(scores, 1e-12))
    seen = np.hstack([view.x[rows], odds[:, 1:] - odds[:, :1]])
    return LEARNERS[learner](rows, seen, known)


def infer_predicted_rows_baseline(view: PartyView, victim: str, known: Known, *, learner: str = "ridge") -> Estimate:
    """Run the same learner on the active party's own columns: the baseline. Labels of new rows are unknown."""
    rows, _ = average_observations(view, victim)
    return LEARNERS[learner](rows, view.x[rows], known)


def binary_columns(x: np.ndarray, most: int = 2) -> dict[int, np.ndarray]:
    """Turn columns of a party's features into binary attributes, (n,) each: above the median, or the larger of two
    values.

    The most balanced columns come first; columns whose rarer value has less than a twentieth of the rows are left out.

    Args:
        x: (n, d).
        most: maximum number of columns.
    """
    found = {}
    for column in range(x.shape[1]):
        values = x[:, column]
        levels = np.unique(values)
        cut = (levels[0] + levels[-1]) / 2 if len(levels) == 2 else float(np.median(values)) + 1e-6
        found[column] = (values > cut).astype(np.int64)
    share = {column: min(float(yes.mean()), 1 - float(yes.mean())) for column, yes in found.items()}
    order = sorted((c for c in found if share[c] >= 0.05), key=lambda c: (-round(share[c], 1), c))
    return {column: found[column] for column in order[:most]}


def infer_attribute(view: PartyView, victim: str, known: Known, *, which: Which = "trained") -> Estimate:
    """Infer the attribute from observations of the victim's rows plus the active party's own columns and labels."""
    rows, seen = stacked_observations(view, victim, which)
    return fit_classifier(rows, np.hstack([seen, view.own_columns(rows)]), known, 2)


def infer_attribute_baseline(view: PartyView, rows: np.ndarray, known: Known) -> Estimate:
    """Infer the attribute only from the active party's own columns and labels: the baseline."""
    return fit_classifier(rows, view.own_columns(rows), known, 2)


def infer_attribute_from_predictions(view: PartyView, known: Known) -> Estimate | None:
    """Infer the attribute of the test rows from the model's predictions plus own columns and labels; None without
    predictions.
    """
    if view.scores is None or len(view.scores) != len(view.test):
        return None
    logits = view.scores if view.numeric else np.log(np.clip(view.scores, 1e-9, 1.0))
    return fit_classifier(view.test, np.hstack([logits, view.own_columns(view.test)]), known, 2)


_LAST = 3
_ZERO = 1e-12


def infer_columns_from_gradients(view: PartyView, labels: np.ndarray, known: Known) -> Estimate | None:
    """Infer other parties' columns from a passive party's gradients; None if it received no gradients.

    Args:
        view: the passive party's view.
        labels: labels of all aligned rows, which the attacker is assumed to know.
        known: known records with their columns, (k, d).
    """
    rows, seen = view.gradients().training().of_rows(view.train)
    if not len(rows):
        return None
    last = seen[:, -_LAST:]
    length = np.linalg.norm(last, axis=2)
    toward = last / np.maximum(length, 1e-300)[:, :, None]
    if view.numeric:  # the label does not tell which way the row was pulled; p is the label and a share of the gradient
        scale = max(float(last.std()), 1e-300)
        about = [last.reshape(len(rows), -1) / scale, length / scale, (np.abs(seen) > _ZERO).mean(axis=1)]
        return fit_ridge(rows, np.hstack([*about, _own_inputs(view, rows, labels)]), known)
    side = np.where(labels[rows] == view.classes - 1, -1.0, 1.0)[:, None]
    about = [length * side, np.log(np.maximum(length, 1e-12)), (toward * side[:, :, None]).reshape(len(rows), -1)]
    about += [np.abs(toward).reshape(len(rows), -1), (np.abs(seen) > _ZERO).mean(axis=1)]
    return fit_ridge(rows, np.hstack([*about, _own_inputs(view, rows, labels)]), known)


def infer_from_gradients_baseline(view: PartyView, labels: np.ndarray, known: Known) -> Estimate:
    """Run the same learner on the party's own columns and the labels: the baseline."""
    return fit_ridge(view.train, _own_inputs(view, view.train, labels), known)


def _own_inputs(view: PartyView, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.hstack([view.x[rows], view.encode_labels(labels, rows)])
