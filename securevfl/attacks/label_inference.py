"""Label inference: attacks by a passive party, on the gradients of its rows and on its own trained bottom model.

*Gradients* (∂L/∂z or ∂L/∂a). A row's gradient is ``(p − y)`` times nearly the same direction for all rows, longer for
the rarer class (Li et al., "Label leakage and protection in two-party split learning", ICLR 2022, arXiv 2102.08504,
section 3: the norm attack and the direction attack). The first singular vector finds that direction without a label
(Sun et al., "Label leakage and protection from forward embedding in vertical federated learning", 2022, arXiv
2203.01451, section 3: the spectral attack, there on embeddings). Each observation has fresh noise, so an attacker sums
all observations of a row.

*Model completion* (Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022,
section 4.1: the passive attack). Training adapted the bottom model to the labels, so a head on its outputs needs fewer
known labels than one on the features. The baseline is the same learner on the party's raw features. Neither uses
messages, so no protection of the cut layer prevents this attack; only what the bottom model learned matters.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.learners import fit_classifier
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import PartyView

__all__ = [
    "complete_model",
    "complete_model_baseline",
    "fit_on_gradients",
    "fit_on_own_columns",
    "project_on_first_singular",
    "score_by_direction",
    "score_by_norm",
    "score_by_spectrum",
    "sum_agreeing",
]


def _gradients_of_rows(view: PartyView) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows and the gradients of each, (n, observations, width)."""
    return view.gradients().training().of_rows(view.train)


def score_by_norm(view: PartyView) -> Estimate:
    """Score rows by mean gradient length: the longer, the rarer the class."""
    rows, sights = _gradients_of_rows(view)
    return Estimate(rows, np.linalg.norm(sights, axis=2).mean(axis=1), either_way=True)


def score_by_direction(view: PartyView) -> Estimate:
    """Score rows by the cosine with the longest gradient, which most likely belongs to the rarer class; summed over
    observations.

    The longest gradient can belong to a different row in each observation; see `sum_agreeing`.
    """
    rows, sights = _gradients_of_rows(view)
    cosines = np.zeros(sights.shape[:2])
    for at, observation in enumerate(np.moveaxis(sights, 1, 0)):
        length = np.linalg.norm(observation, axis=1)
        if length.any():
            cosines[:, at] = observation @ observation[length.argmax()] / (np.maximum(length, 1e-300) * length.max())
    return Estimate(rows, sum_agreeing(cosines), either_way=True)


def project_on_first_singular(observation: np.ndarray) -> np.ndarray:
    """Return the coordinate of each row (n, width) along the first singular vector, (n,)."""
    value, vector = np.linalg.eigh(observation.T @ observation)
    along: np.ndarray = observation @ vector[:, value.argmax()]
    return along


def score_by_spectrum(view: PartyView, *, first: int = 0) -> Estimate:
    """Score rows by the coordinate along the first singular vector of each observation, summed over observations.

    Args:
        view: a passive party's view.
        first: how many observations to use, from the first on; 0 for all.
    """
    rows, sights = _gradients_of_rows(view)
    along = np.zeros(sights[:, : first or None].shape[:2])
    for at, observation in enumerate(np.moveaxis(sights, 1, 0)[: first or None]):
        one = project_on_first_singular(observation)
        along[:, at] = one / max(float(one.std()), 1e-300)
    return Estimate(rows, sum_agreeing(along), either_way=True)


def sum_agreeing(scores: np.ndarray) -> np.ndarray:
    """Sum scores (n, observations) whose signs are open, after turning those that point away from the others; (n,).

    A singular vector has no sign, so each observation's scores may be negated. The signs are those of the first
    singular vector of all observations together; to turn one after the other by the sum so far would choose the first
    ones by two noisy observations.
    """
    _, vectors = np.linalg.eigh(scores.T @ scores)
    total: np.ndarray = scores @ np.where(vectors[:, -1] < 0, -1.0, 1.0) if scores.size else np.zeros(len(scores))
    return total


def score_single_observations(view: PartyView) -> Estimate:
    """Run the spectral attack as if each observation were of a different row: the average leak of a single observation.

    Rows repeat once per observation. Reported next to `spectral`, because it understates the leak.
    """
    observations = view.gradients().training().widest_stage().all
    whole = np.concatenate([one.values for one in observations]) if observations else np.empty((0, 1))
    rows = np.concatenate([one.rows for one in observations]) if observations else np.arange(0)
    mine = np.isin(rows, view.train)
    return Estimate(rows[mine], project_on_first_singular(whole)[mine], either_way=True)


def fit_on_gradients(view: PartyView, known: Known) -> Estimate:
    """Fit a classifier on rows with known labels; inputs are a row's summed gradients, spectral score and mean length,
    and the party's own columns.
    """
    rows, sights = _gradients_of_rows(view)
    whole = sights.mean(axis=1)
    length = np.linalg.norm(sights, axis=2).mean(axis=1)[:, None]
    scale = max(float(whole.std()), 1e-300)
    columns = np.hstack([whole / scale, score_by_spectrum(view).values[:, None], length, view.x[rows]])
    return fit_classifier(rows, columns, known, view.classes)


def fit_on_own_columns(view: PartyView, known: Known) -> Estimate:
    """Fit the same classifier only on the party's own columns: the baseline."""
    return fit_classifier(view.train, view.x[view.train], known, view.classes)


def complete_model(view: PartyView, known: Known) -> Estimate | None:
    """Infer the classes of the party's aligned rows from the outputs of its bottom; None without a trained bottom.

    Args:
        view: the passive party's view.
        known: known labels of some rows.
    """
    if view.embed is None:
        return None
    outputs = view.embed(view.x)
    if outputs.shape == view.x.shape and np.array_equal(outputs.astype(np.float32), view.x.astype(np.float32)):
        return None  # an identity bottom
    return fit_classifier(np.arange(view.aligned), outputs, known, view.classes)


def complete_model_baseline(view: PartyView, known: Known) -> Estimate:
    """Run the same learner on the party's own columns: the baseline."""
    return fit_classifier(np.arange(view.aligned), view.x, known, view.classes)
