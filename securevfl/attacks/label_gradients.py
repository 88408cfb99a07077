"""Infer labels from gradients: attacks by a passive party on ∂L/∂z or ∂L/∂a of its own rows.

A row's gradient is ``(p − y)`` times nearly the same direction for all rows, longer for the rarer class (Li et al.,
"Label leakage and protection in two-party split learning", ICLR 2022, arXiv 2102.08504, section 3: the norm attack and
the direction attack). The first singular vector finds that direction without a label (Sun et al., "Label leakage and
protection from forward embedding in vertical federated learning", 2022, arXiv 2203.01451, section 3: the spectral
attack, there on embeddings). Each observation has fresh noise, so an attacker sums all observations of a row.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.learners import classify
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import View

__all__ = ["direction", "first_singular", "learned", "norm", "spectral", "without_gradients"]


def _sights(view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows and the gradients of each, (n, looks, width)."""
    return view.gradients().training().of(view.train)


def norm(view: View) -> Estimate:
    """Score rows by mean gradient length: the longer, the rarer the class."""
    rows, sights = _sights(view)
    return Estimate(rows, np.linalg.norm(sights, axis=2).mean(axis=1), either_way=True)


def direction(view: View) -> Estimate:
    """Score rows by the cosine with the longest gradient, which most likely belongs to the rarer class; summed over
    observations.

    The longest gradient can belong to a different row in each observation; directions that point away from the first
    are flipped.
    """
    rows, sights = _sights(view)
    total, last = np.zeros(len(rows)), None
    for look in np.moveaxis(sights, 1, 0):
        length = np.linalg.norm(look, axis=1)
        if not length.any():
            continue
        cosine = look @ look[length.argmax()] / (np.maximum(length, 1e-300) * length.max())
        turned = -cosine if last is not None and cosine @ last < 0 else cosine
        total, last = total + turned, turned if last is None else last
    return Estimate(rows, total, either_way=True)


def first_singular(look: np.ndarray) -> np.ndarray:
    """Return the coordinate of each row (n, width) along the first singular vector, (n,)."""
    value, vector = np.linalg.eigh(look.T @ look)
    along: np.ndarray = look @ vector[:, value.argmax()]
    return along


def spectral(view: View, *, looks: int = 0) -> Estimate:
    """Score rows by the coordinate along the first singular vector of each observation, summed over observations.

    Args:
        view: a passive party's view.
        looks: number of first observations to use; 0 for all.
    """
    rows, sights = _sights(view)
    total = np.zeros(len(rows))
    for look in np.moveaxis(sights, 1, 0)[: looks or None]:
        along = first_singular(look)
        along = along / max(float(along.std()), 1e-300)
        total += -along if along @ total < 0 else along
    return Estimate(rows, total, either_way=True)


def single(view: View) -> Estimate:
    """Run the spectral attack as if each observation were of a different row: the average leak of a single observation.

    Rows repeat once per observation. Reported next to `spectral`, because it understates the leak.
    """
    looks = view.gradients().training().widest_stage().all
    whole = np.concatenate([look.values for look in looks]) if looks else np.empty((0, 1))
    rows = np.concatenate([look.rows for look in looks]) if looks else np.arange(0)
    mine = np.isin(rows, view.train)
    return Estimate(rows[mine], first_singular(whole)[mine], either_way=True)


def learned(view: View, known: Known) -> Estimate:
    """Fit a classifier on rows with known labels; inputs are a row's summed gradients, spectral score and mean length,
    and the party's own columns.
    """
    rows, sights = _sights(view)
    whole = sights.mean(axis=1)
    length = np.linalg.norm(sights, axis=2).mean(axis=1)[:, None]
    scale = max(float(whole.std()), 1e-300)
    columns = np.hstack([whole / scale, spectral(view).values[:, None], length, view.x[rows]])
    return classify(rows, columns, known, view.classes)


def without_gradients(view: View, known: Known) -> Estimate:
    """Fit the same classifier only on the party's own columns: the baseline."""
    return classify(view.train, view.x[view.train], known, view.classes)
