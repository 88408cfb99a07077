"""Average the probabilities of several models, with weights fitted on rows that none of them was trained on.

With few such rows a choice among models is mostly chance, and equal weights do better. So weights are equal below
`FEWEST_TO_CHOOSE` rows. From there they minimise the log-loss plus a pull towards equal weights, which more rows
outweigh:

    w = argmin_{w ≥ 0, Σ w = 1}  Σ_i −log Σ_m w_m p_m(y_i | x_i)  −  α Σ_m log w_m,

the mode under a Dirichlet prior of parameter 1 + α for each weight (stacking, Wolpert 1992; of probabilities by their
log-loss, as in Breiman 1996 and Yao et al. 2018). Its stationary point is that of expectation–maximisation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = [
    "average_probabilities",
    "fit_stacking_weights",
    "log_loss",
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
