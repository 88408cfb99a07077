"""Average the probabilities of several models, with weights fitted on rows that none of them was trained on.

With few such rows a choice among models is mostly chance, and equal weights do better. So weights are equal below
`FEWEST_TO_CHOOSE` rows. From there they minimise the log-loss plus a pull towards equal weights, which more rows
outweigh:

    w = argmin_{w ≥ 0, Σ w = 1}  Σ_i −log Σ_m w_m p_m(y_i | x_i)  −  α Σ_m log w_m,

the mode under a Dirichlet prior of parameter 1 + α for each weight (stacking, Wolpert 1992; of probabilities by their
log-loss, as in Breiman 1996 and Yao et al. 2018). Its stationary point is that of expectation–maximisation.

Models that use different columns say different things of a row, and their mean says less than each. Their log-odds add
up: a logarithmic pool (Genest and Zidek 1986) has p(y | x) ∝ Π_m p_m(y | x)^{w_m}, with weights

    w = argmin_{w ≥ 0}  Σ_i −log p(y_i | x_i)  +  α Σ_m (w_m − 1/M)²,

which need not sum to one: two models of independent evidence have a weight of one each. Without weights that rows
chose, a model that is too sure decides such a sum, and not a mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = [
    "add_log_odds",
    "average_probabilities",
    "fit_log_odds_weights",
    "fit_stacking_weights",
    "log_loss",
    "pool_probabilities",
]

_STEPS = 500
_TINY = 1e-12


def average_probabilities(probabilities: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """The weighted mean of probabilities, (n, classes) each.

    Args:
        probabilities: of each model.
        weights: of each model; they sum to one.
    """
    return np.tensordot(np.asarray(weights), np.stack(probabilities), axes=1)


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean log-loss of probabilities (n, classes) on classes (n,)."""
    return float(-np.log(np.clip(probabilities[np.arange(len(labels)), labels], _TINY, None)).mean())


def fit_stacking_weights(probabilities: Sequence[np.ndarray], labels: np.ndarray, *, pull: float) -> np.ndarray:
    """Weights (models,) whose mean of probabilities has the least log-loss, pulled towards equal weights.

    Args:
        probabilities: of each model, for rows that it was not trained on, (n, classes).
        labels: classes of these rows, (n,).
        pull: α; 0 for none.
    """
    each = np.stack([p[np.arange(len(labels)), labels] for p in probabilities], axis=1).clip(_TINY)
    weights = np.full(each.shape[1], 1 / each.shape[1])
    for _ in range(_STEPS):
        shares = weights * each
        shares /= shares.sum(axis=1, keepdims=True)
        found = shares.sum(axis=0) + pull
        found /= found.sum()
        moved, weights = float(np.abs(found - weights).max()), found
        if moved < 1e-9:
            break
    return weights


def add_log_odds(probabilities: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """The logarithmic pool of probabilities, (n, classes): their product, each to the power of its weight, normalised.

    Args:
        probabilities: of each model, (n, classes).
        weights: of each model, 0 or more.
    """
    logs = np.tensordot(np.asarray(weights), np.log(np.stack(probabilities).clip(_TINY)), axes=1)
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    found: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return found


def pool_probabilities(probabilities: Sequence[np.ndarray], weights: Sequence[float], *, averaged: bool) -> np.ndarray:
    """The logarithmic pool, or the mean where nothing weighs the log-odds, (n, classes).

    Args:
        probabilities: of each model, (n, classes).
        weights: of each model; they sum to one for a mean.
        averaged: take the mean.
    """
    return (average_probabilities if averaged else add_log_odds)(probabilities, weights)


def fit_log_odds_weights(probabilities: Sequence[np.ndarray], labels: np.ndarray, *, pull: float) -> np.ndarray:
    """Weights (models,) whose logarithmic pool has the least log-loss, pulled towards equal weights that sum to one.

    The loss is convex. Each weight in turn takes a Newton step, which stops at 0.

    Args:
        probabilities: of each model, for rows that it was not trained on, (n, classes).
        labels: classes of these rows, (n,).
        pull: α; positive.
    """
    logs = np.log(np.stack(probabilities).clip(_TINY))
    told, rows = logs[:, np.arange(len(labels)), labels], len(logs)
    start = 1 / rows
    weights = np.full(rows, start)
    for _ in range(_STEPS):
        before = weights.copy()
        for m in range(rows):
            pool = add_log_odds(probabilities, weights.tolist())
            mean = (pool * logs[m]).sum(axis=1)
            slope = float((mean - told[m]).sum()) + 2 * pull * (weights[m] - start)
            curve = float(((pool * logs[m] ** 2).sum(axis=1) - mean**2).sum()) + 2 * pull
            weights[m] = max(weights[m] - slope / curve, 0.0)
        if float(np.abs(weights - before).max()) < 1e-7:
            break
    return weights
