"""Leaks from what a run leaves behind, beside its messages: predictions, the row numbering and saved model parts.

*Membership inference* asks whether a row was used in training, from the final model's predictions and without shadow
models. Training rows have smaller losses (Yeom et al., "Privacy risk in machine learning", CSF 2018, section 3: the
loss threshold), and the modified entropy also accounts for confident wrong predictions (Song and Mittal, "Systematic
evaluation of privacy risks of machine learning models", USENIX Security 2021, equation 9). The attacker is anyone who
gets predictions and has the label; the parties already know which rows they trained on.

*Row order* asks whether the shared row numbering follows a column of the party that assigned it.

*Saved parts*: does a party's saved part of the model, or its checkpoint, contain labels or rows? Every array of the
state is compared with each secret: labels of the training rows (or all), and columns of every party. This finds
verbatim copies, in any order of axes; the other attacks cover what can be computed from weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from securevfl.attacks.measure import Estimate

__all__ = [
    "arrays_of",
    "correlate_with_order",
    "find_ordered_column",
    "find_secret",
    "score_by_error",
    "score_by_loss",
    "score_by_modified_entropy",
]


def score_by_loss(rows: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> Estimate:
    """Score rows by loss: the smaller, the likelier a member.

    Args:
        rows: numbers, (n,).
        scores: the model's class probabilities, (n, classes).
        labels: their classes, (n,).
    """
    own = scores[np.arange(len(rows)), labels]
    return Estimate(rows, np.log(np.clip(own, 1e-12, 1.0)))


def score_by_error(rows: np.ndarray, scores: np.ndarray, numbers: np.ndarray) -> Estimate:
    """Score rows by error, the smaller the likelier a member: `score_by_loss` for a numeric target.

    Args:
        rows: numbers of rows, (n,).
        scores: the model's predictions, (n, 1).
        numbers: their targets, (n,).
    """
    return Estimate(rows, -np.abs(scores[:, 0] - numbers))


def score_by_modified_entropy(rows: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> Estimate:
    """Score rows by ``−(1 − p_y) log p_y − Σ_{i≠y} p_i log(1 − p_i)``: the smaller, the likelier a member; see
    `score_by_loss`.
    """
    p = np.clip(scores, 1e-12, 1 - 1e-12)
    at = np.arange(len(rows))
    own = p[at, labels]
    others = p * np.log(1 - p)
    others[at, labels] = 0.0
    return Estimate(rows, (1 - own) * np.log(own) + others.sum(axis=1))


def _mid_ranks(values: np.ndarray) -> np.ndarray:
    """Return mid-ranks, (n,)."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[at]
    return found


def correlate_with_order(values: np.ndarray) -> float:
    """Return Spearman's rank correlation of values (n,) with their positions; 0 if they are constant."""
    if len(values) < 3 or np.ptp(values) == 0:
        return 0.0
    return float(np.corrcoef(_mid_ranks(values), np.arange(len(values)))[0, 1])


def find_ordered_column(columns: np.ndarray) -> tuple[int, float]:
    """Return the column that follows the row order most and its |Spearman|; `columns` (n, d) are in the order of row
    numbers.
    """
    found = [abs(correlate_with_order(columns[:, j])) for j in range(columns.shape[1])]
    best = int(np.argmax(found)) if found else 0
    return best, found[best] if found else 0.0


_SAME = 1e-5
"""Relative tolerance, as a share of the largest number, for equality in float32."""


def arrays_of(state: object, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield every array in a tree of dicts, lists, tuples, tensors and numbers, with its path."""
    if isinstance(state, torch.Tensor):
        yield path, state.detach().cpu().numpy()
    elif isinstance(state, np.ndarray):
        yield path, state
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from arrays_of(value, f"{path}/{key}")
    elif isinstance(state, list | tuple):
        if state and all(isinstance(one, int | float) and not isinstance(one, bool) for one in state):
            yield path, np.asarray(state)
        else:
            for i, value in enumerate(state):
                yield from arrays_of(value, f"{path}/{i}")


def find_secret(state: object, secret: np.ndarray, rows: Sequence[np.ndarray]) -> tuple[float, str]:
    """Return the largest share of a secret found in a state, and its path.

    Args:
        state: a saved part, or a checkpoint.
        secret: secret of all rows in row-number order, (N,) or (N, d).
        rows: selections of rows, by number, that a state might contain: all, the training rows, … …

    Returns:
        For values, the share of rows whose every value is found; for classes, the share of agreeing entries beyond the
            most frequent class, from 0 to 1; for numbers, (N,) float, the share of rows whose number is found beyond
            the most frequent one, unchanged or with one scale and shift for all rows.
    """
    best, where = 0.0, ""
    for path, array in arrays_of(state):
        for chosen in rows:
            if len(chosen) < 3:
                continue
            found = _agreeing_share(array, secret[chosen])
            if found > best:
                best, where = found, path
    return best, where


def _agreeing_share(array: np.ndarray, secret: np.ndarray) -> float:
    if array.dtype.kind not in "iufb" or array.size < len(secret):
        return 0.0
    if secret.ndim == 1:
        flat = array.reshape(-1)
        if len(flat) < len(secret):
            return 0.0
        if secret.dtype.kind == "f":
            same = _same_numbers(flat[: len(secret)].astype(np.float64), secret)
            usual = float(np.unique(secret, return_counts=True)[1].max()) / len(secret)
        else:
            same = float((flat[: len(secret)] == secret).mean())
            usual = float(np.bincount(secret).max()) / len(secret)
        return max(0.0, (same - usual) / (1 - usual)) if usual < 1 else 0.0
    if array.ndim != 2:
        return 0.0
    have = {row.tobytes() for row in np.round(array.astype(np.float64), 4) + 0.0}
    if array.shape[1] != secret.shape[1]:
        return 0.0
    return float(np.mean([row.tobytes() in have for row in np.round(secret, 4) + 0.0]))


def _same_numbers(found: np.ndarray, secret: np.ndarray) -> float:
    """Return the share of rows whose number is found, unchanged or standardised on both sides."""
    close = _close_share(found, secret)
    spread = secret.std()
    if spread > 0 and np.isfinite(found).all() and found.std() > 0:
        close = max(close, _close_share((found - found.mean()) / found.std(), (secret - secret.mean()) / spread))
    return close


def _close_share(found: np.ndarray, secret: np.ndarray) -> float:
    return float((np.abs(found - secret) <= _SAME * max(float(np.abs(secret).max()), 1e-300)).mean())
