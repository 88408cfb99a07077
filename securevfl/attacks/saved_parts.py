"""Check whether a party's saved part of the model, or its checkpoint, contains labels or rows.

Compares every array of the state with each secret: labels of the training rows (or all), and columns of every party. It
finds verbatim copies, in any order of axes; the other attacks cover what can be computed from weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

__all__ = ["arrays_of", "share_found"]

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


def share_found(state: object, secret: np.ndarray, rows: Sequence[np.ndarray]) -> tuple[float, str]:
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
            found = _agreement(array, secret[chosen])
            if found > best:
                best, where = found, path
    return best, where


def _agreement(array: np.ndarray, secret: np.ndarray) -> float:
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
    close = _close(found, secret)
    spread = secret.std()
    if spread > 0 and np.isfinite(found).all() and found.std() > 0:
        close = max(close, _close((found - found.mean()) / found.std(), (secret - secret.mean()) / spread))
    return close


def _close(found: np.ndarray, secret: np.ndarray) -> float:
    return float((np.abs(found - secret) <= _SAME * max(float(np.abs(secret).max()), 1e-300)).mean())
