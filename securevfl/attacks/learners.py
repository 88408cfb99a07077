"""The attackers' learners: a linear map, ridge, a small perceptron, logistic regression. Each fits known records and
estimates the targets of all rows.
"""

from __future__ import annotations

import warnings

import numpy as np

from securevfl.attacks.measure import Estimate, Known

__all__ = ["fit_classifier", "fit_perceptron", "fit_ridge", "linear_solve", "standardise"]

_PENALTIES = np.logspace(-8, 4, 25)


def standardise(columns: np.ndarray) -> np.ndarray:
    """Standardise columns to mean 0 and deviation 1, (n, d); constant columns become 0."""
    deviation = columns.std(axis=0)
    centred = columns - columns.mean(axis=0)
    found: np.ndarray = np.where(deviation > 1e-12, centred / np.maximum(deviation, 1e-300), 0.0)
    return found


def _known_positions(rows: np.ndarray, known: Known) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the known records in `rows`, and their targets."""
    place = {row: i for i, row in enumerate(rows.tolist())}
    have = [i for i, row in enumerate(known.rows.tolist()) if row in place]
    return np.array([place[int(known.rows[i])] for i in have], dtype=np.int64), known.values[have]


def linear_solve(rows: np.ndarray, columns: np.ndarray, known: Known) -> Estimate:
    """Return the minimum-norm linear map of `columns` (n, d) that fits the known records exactly."""
    at, values = _known_positions(rows, known)
    with_one = np.hstack([columns, np.ones((len(columns), 1))])
    weights = np.linalg.lstsq(with_one[at], values, rcond=1e-9)[0]
    return Estimate(rows, with_one @ weights)


def fit_ridge(rows: np.ndarray, columns: np.ndarray, known: Known) -> Estimate:
    """Fit ridge regression; leave-one-out on the known records selects the penalty."""
    from sklearn.linear_model import RidgeCV

    at, values = _known_positions(rows, known)
    x = standardise(columns)
    fit = RidgeCV(alphas=_PENALTIES).fit(x[at], values)
    return Estimate(rows, np.asarray(fit.predict(x)).reshape(len(rows), *values.shape[1:]))


def fit_perceptron(rows: np.ndarray, columns: np.ndarray, known: Known, *, seed: int = 0) -> Estimate:
    """Fit a perceptron with one hidden layer of 32 by L-BFGS, with a penalty against overfitting."""
    from sklearn.neural_network import MLPRegressor

    at, values = _known_positions(rows, known)
    x = standardise(columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = MLPRegressor(hidden_layer_sizes=(32,), solver="lbfgs", alpha=3.0, max_iter=150, random_state=seed).fit(
            x[at], values
        )
    return Estimate(rows, np.asarray(fit.predict(x)).reshape(len(rows), *values.shape[1:]))


def fit_classifier(rows: np.ndarray, columns: np.ndarray, known: Known, classes: int) -> Estimate:
    """Fit logistic regression; returns class probabilities, (n, classes). For a numeric target (one class), use
    `ridge`.
    """
    if classes == 1:
        found = fit_ridge(rows, columns, known)
        return Estimate(rows, found.values.reshape(len(rows), 1))
    from sklearn.linear_model import LogisticRegression

    at, values = _known_positions(rows, known)
    x = standardise(columns)
    likely = np.zeros((len(rows), classes))
    present = np.unique(values)
    if len(present) < 2:
        likely[:, present] = 1.0
        return Estimate(rows, likely)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = LogisticRegression(C=0.1, max_iter=300).fit(x[at], values)
    likely[:, fit.classes_.astype(int)] = fit.predict_proba(x)
    return Estimate(rows, likely)
