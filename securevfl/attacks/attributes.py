"""Attribute inference: the active party infers one private binary column of a passive party.

A classifier trained on a few records with known attribute infers it for the others, from observations of their rows or
from the model's predictions (Luo et al., ICDE 2021, arXiv 2010.10152, on predictions). The baseline has the same known
records, the active party's own columns and the labels, but no observations.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.features import Which, stacked_observations
from securevfl.attacks.learners import classify
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import View

__all__ = ["binary_columns", "from_observations", "from_own", "from_predictions"]


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


def from_observations(view: View, victim: str, known: Known, *, which: Which = "trained") -> Estimate:
    """Infer the attribute from observations of the victim's rows plus the active party's own columns and labels."""
    rows, seen = stacked_observations(view, victim, which)
    return classify(rows, np.hstack([seen, view.own_columns(rows)]), known, 2)


def from_own(view: View, rows: np.ndarray, known: Known) -> Estimate:
    """Infer the attribute only from the active party's own columns and labels: the baseline."""
    return classify(rows, view.own_columns(rows), known, 2)


def from_predictions(view: View, known: Known) -> Estimate | None:
    """Infer the attribute of the test rows from the model's predictions plus own columns and labels; None without
    predictions.
    """
    if view.scores is None or len(view.scores) != len(view.test):
        return None
    logits = view.scores if view.numeric else np.log(np.clip(view.scores, 1e-9, 1.0))
    return classify(view.test, np.hstack([logits, view.own_columns(view.test)]), known, 2)
