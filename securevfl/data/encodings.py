"""Encodings of single columns without preparation: standardised numbers, ranks, one-hot categories, blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from securevfl.data.categories import Categories
from securevfl.data.prepare import fit_scaling, normal_scores
from securevfl.data.prepare.scaling import Linear

__all__ = ["BlockEncoding", "OneHot", "Quantile", "Standard", "fit_scaled"]

_PART = 1 << 22
_FAR = 1e30


@dataclass(frozen=True)
class Standard:
    """(x − mean) / deviation; a column that is constant on the training rows becomes zero."""

    mean: float
    deviation: float

    @classmethod
    def fit(cls, parts: Iterable[np.ndarray]) -> Standard:
        """Fit in one pass. Means and deviations of the parts are combined after Chan, Golub and LeVeque (1979); the
        result differs from that of all values at once by less than 1e-12 deviations.
        """
        count, mean, squares = 0, 0.0, 0.0
        low, high = np.inf, -np.inf
        for part in parts:
            numbers = part.astype(np.float64)
            low, high = min(low, float(numbers.min())), max(high, float(numbers.max()))
            shift, total = float(numbers.mean()) - mean, count + len(numbers)
            squares += float(numbers.var()) * len(numbers) + shift**2 * count * len(numbers) / total
            mean += shift * len(numbers) / total
            count = total
        return cls(mean, 0.0 if low == high else float(np.sqrt(squares / count)))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if self.deviation == 0:
            return np.zeros((len(values), 1))
        standard: np.ndarray = ((values - self.mean) / self.deviation)[:, None]
        return standard


@dataclass(frozen=True)
class Quantile:
    """Normal scores of the rank among the training rows, for heavy tails. Interpolates between knots."""

    values: tuple[float, ...]
    scores: tuple[float, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        scores: np.ndarray = np.interp(values, self.values, self.scores)[:, None]
        return scores


@dataclass(frozen=True)
class OneHot:
    """One column per category of the training rows; a new category becomes zeros."""

    categories: tuple[str, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return np.stack([values == category for category in self.categories], axis=1).astype(np.float32)

    def of_categories(self, values: Categories) -> np.ndarray:
        """Encode coded texts with a lookup table, one row per text."""
        place = {category: i for i, category in enumerate(self.categories)}
        found = np.zeros((len(values.words), len(self.categories)), dtype=np.float32)
        for row, word in enumerate(values.words):
            if word in place:
                found[row, place[word]] = 1
        encoded: np.ndarray = found[values.codes]
        return encoded


@dataclass(frozen=True)
class BlockEncoding:
    """(x − mean) / deviation of a block: per column for a matrix of numbers, over all pixels for images.

    Computed in double precision, some rows at a time, because a whole image set in float64 would be large.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    shape: tuple[int, ...]

    @classmethod
    def fit(cls, values: np.ndarray) -> BlockEncoding:
        """Fit on values (n, …)."""
        axis = 0 if values.ndim == 2 else None
        count = values.size // (values.shape[1] if axis == 0 else 1)
        mean = np.atleast_1d(values.mean(axis=axis, dtype=np.float64))
        squares = sum(((part - mean) ** 2).sum(axis=axis) for part in _iter_parts(values))
        constant = np.atleast_1d(values.max(axis=axis) == values.min(axis=axis))
        deviation = np.where(constant, 0.0, np.sqrt(squares / count))
        return cls(tuple(mean.tolist()), tuple(deviation.tolist()), values.shape[1:])

    @classmethod
    def unscaled_block(cls, values: np.ndarray) -> BlockEncoding:
        """Return an encoding that keeps values unchanged."""
        count = values.shape[1] if values.ndim == 2 else 1
        return cls((0.0,) * count, (1.0,) * count, values.shape[1:])

    def __call__(self, values: np.ndarray) -> np.ndarray:
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        moves = deviation > 0
        divisor = np.where(moves, deviation, 1.0)
        standard = np.empty(values.shape, dtype=np.float32)
        with np.errstate(over="ignore"):  # what leaves the range is far beyond any clip
            for part, out in zip(_iter_parts(values), _iter_parts(standard), strict=True):
                out[...] = np.clip((part - mean) / divisor, -_FAR, _FAR) * moves
        return standard


def _iter_parts(values: np.ndarray) -> list[np.ndarray]:
    step = max(_PART * len(values) // max(values.size, 1), 1)
    return [values[start : start + step] for start in range(0, len(values), step)]


def fit_scaled(values: np.ndarray, scale: str) -> Standard | Quantile:
    """Fit a scaling other than standard on numbers of training rows."""
    if scale == "quantile":
        knots, scores = normal_scores(values)
        return Quantile(tuple(knots.tolist()), tuple(scores.tolist()))
    found = fit_scaling(values, scale)
    if isinstance(found, Linear):
        return Standard(found.centre, found.spread)
    return Quantile(tuple(found.values.tolist()), tuple(found.scores.tolist()))
