"""Infer other parties' columns from p in the gradient: an attack by a passive party on features it never received.

The gradient of a row is ``(p − y)`` times a direction. Its size reveals the prediction p, which depends on all parties'
columns. If a ReLU follows z, the gradient's zeros reveal which units are off for this row; noise on labels and
randomised labels do not change these zeros. The attacker gets the labels, so that the result measures only what leaks
about features. Ridge regression on zeros, sizes and directions is compared with the same learner on the party's own
columns and the labels.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.learners import ridge
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import View

__all__ = ["from_gradients", "from_own"]

_LAST = 3
_ZERO = 1e-12


def from_gradients(view: View, labels: np.ndarray, known: Known) -> Estimate | None:
    """Infer other parties' columns from a passive party's gradients; None if it received no gradients.

    Args:
        view: the passive party's view.
        labels: labels of all aligned rows, which the attacker is assumed to know.
        known: known records with their columns, (k, d).
    """
    rows, seen = view.gradients().training().of(view.train)
    if not len(rows):
        return None
    last = seen[:, -_LAST:]
    length = np.linalg.norm(last, axis=2)
    toward = last / np.maximum(length, 1e-300)[:, :, None]
    if view.numeric:  # the label does not tell which way the row was pulled; p is the label and a share of the gradient
        scale = max(float(last.std()), 1e-300)
        about = [last.reshape(len(rows), -1) / scale, length / scale, (np.abs(seen) > _ZERO).mean(axis=1)]
        return ridge(rows, np.hstack([*about, _own(view, rows, labels)]), known)
    side = np.where(labels[rows] == view.classes - 1, -1.0, 1.0)[:, None]
    about = [length * side, np.log(np.maximum(length, 1e-12)), (toward * side[:, :, None]).reshape(len(rows), -1)]
    about += [np.abs(toward).reshape(len(rows), -1), (np.abs(seen) > _ZERO).mean(axis=1)]
    return ridge(rows, np.hstack([*about, _own(view, rows, labels)]), known)


def from_own(view: View, labels: np.ndarray, known: Known) -> Estimate:
    """Run the same learner on the party's own columns and the labels: the baseline."""
    return ridge(view.train, _own(view, view.train, labels), known)


def _own(view: View, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.hstack([view.x[rows], view.encode_labels(labels, rows)])
