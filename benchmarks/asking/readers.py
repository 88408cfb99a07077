"""What an attacker makes of the answers: the others' columns by ridge regression, with and without known records."""

from __future__ import annotations

import numpy as np

from benchmarks.asking.tables import Table
from securevfl.attacks.learners import fit_ridge, standardise
from securevfl.attacks.measure import Known

__all__ = ["KNOWN", "columns_read", "correlation", "explained", "log_odds", "solved"]

KNOWN = (72, 300)
"""Records that the attacker knows from elsewhere, as in the gate and as in the matrices."""
_SQUARES = 8
"""Most answers of a row of which the attacker also takes the squares."""


def explained(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """R² of each column, (d,)."""
    centred = truth - truth.mean(axis=0)
    found: np.ndarray = 1 - ((estimate - truth) ** 2).sum(axis=0) / np.maximum((centred**2).sum(axis=0), 1e-9)
    return found


def columns_read(
    table: Table, rows: np.ndarray, answers: np.ndarray | None, *, known: int, seed: int = 0, draws: int = 2
) -> np.ndarray:
    """R² of each passive column on rows whose records the attacker does not know, (d,); mean over draws of the known.

    Args:
        table: the truth, and the attacker's own columns.
        rows: that were answered about, (n,).
        answers: (n, numbers); None for own columns alone.
        known: records that the attacker knows.
        seed: of the draw.
        draws: of known records.
    """
    own, truth, places = table.own[rows], table.others[rows], np.arange(len(rows))
    seen = [own]
    if answers is not None and answers.shape[1]:
        given = standardise(answers)
        seen = [np.hstack([own, given])]
        if given.shape[1] <= _SQUARES:
            seen.append(np.hstack([own, given, given**2]))
    found = []
    for draw in range(draws):
        chosen = np.sort(np.random.default_rng([seed, draw, 3]).permutation(len(rows))[:known])
        rest = np.setdiff1d(places, chosen)
        told = Known(chosen, truth[chosen])
        found.append(np.max([explained(fit_ridge(places, x, told).values[rest], truth[rest]) for x in seen], axis=0))
    mean: np.ndarray = np.mean(found, axis=0)
    return mean


def solved(answers: np.ndarray, own: np.ndarray, weights: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """R² of each passive column, (d,), from answers that are known linear functions of a row: no record is known.

    Args:
        answers: logits without their mean, (n, classes).
        own: the asker's columns as they entered, (n, d0).
        weights: of all columns and the bias, as the asker computes them from the job's seed, (d0 + d + 1, classes).
        truth: the passive columns as they entered, (n, d).
    """
    centred = weights - weights.mean(axis=1, keepdims=True)
    known = np.column_stack([own, np.ones(len(own))]) @ np.vstack([centred[: own.shape[1]], centred[-1:]])
    rest = centred[own.shape[1] : -1]
    if not np.abs(rest).max() > 0:
        return np.zeros(truth.shape[1])
    return explained((answers - known) @ np.linalg.pinv(rest), truth)


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """The opened numbers, from probabilities (n, classes): (n, 1) of two classes, else logits without their mean."""
    p = np.clip(probabilities, 1e-12, 1.0)
    if p.shape[1] == 2:
        return np.log(p[:, 1:] / np.clip(p[:, :1], 1e-12, 1.0))
    logits: np.ndarray = np.log(p) - np.log(p).mean(axis=1, keepdims=True)
    return logits


def correlation(answers: np.ndarray, column: np.ndarray) -> float:
    """Largest absolute correlation of an answer with a column."""
    varies = answers[:, answers.std(axis=0) > 1e-12]
    if not varies.shape[1] or column.std() < 1e-12:
        return 0.0
    return float(max(abs(np.corrcoef(one, column)[0, 1]) for one in varies.T))
