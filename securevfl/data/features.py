"""From columns to numbers that a network takes, fitted on the party's own training rows and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl.data.table import PartyTable
from securevfl.errors import InputError, UnknownNameError

__all__ = ["FeatureEncoder"]

_SCALES = ("quantile", "standard")
_MAX_CATEGORIES = 64
_KNOTS = 257


@dataclass(frozen=True)
class _Standard:
    """(x − mean) / deviation; a column that is constant on the training rows becomes zero."""

    mean: float
    deviation: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if self.deviation == 0:
            return np.zeros((len(values), 1))
        standard: np.ndarray = ((values - self.mean) / self.deviation)[:, None]
        return standard


@dataclass(frozen=True)
class _Quantile:
    """Normal scores of the rank among the training rows: for heavy tails. Between knots by interpolation."""

    values: tuple[float, ...]
    scores: tuple[float, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        scores: np.ndarray = np.interp(values, self.values, self.scores)[:, None]
        return scores


@dataclass(frozen=True)
class _OneHot:
    """One column for each category of the training rows; others become zeros."""

    categories: tuple[str, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return np.stack([values == category for category in self.categories], axis=1).astype(np.float64)


@dataclass(frozen=True)
class FeatureEncoder:
    """Standardises numbers, one-hot encodes categories, clips.

    Attributes:
        columns: feature → its encoding.
        clip: largest magnitude of an encoded number, in standard deviations.
    """

    columns: dict[str, _Standard | _Quantile | _OneHot]
    clip: float

    @classmethod
    def fit(cls, table: PartyTable, rows: np.ndarray, *, clip: float = 5.0, scale: str = "standard") -> FeatureEncoder:
        """Fit on `rows` of `table`, the party's own training rows.

        Args:
            table: the party's table.
            rows: row numbers.
            clip: standard deviations at which numbers are cut off.
            scale: ``"standard"``, or ``"quantile"`` for normal scores of ranks.

        Raises:
            InputError: no rows, or a column with more than 64 categories.
            UnknownNameError: an unknown scale.
        """
        if scale not in _SCALES:
            raise UnknownNameError("scale", scale, _SCALES)
        if len(rows) == 0:
            raise InputError(f"{table.name!r} has no training rows to fit its features on")
        columns: dict[str, _Standard | _Quantile | _OneHot] = {}
        for name, values in table.columns.items():
            seen = values[rows]
            if name in table.categorical:
                categories = np.unique(seen.astype(np.str_))
                if len(categories) > _MAX_CATEGORIES:
                    raise InputError(
                        f"{table.name!r}: column {name!r} has {len(categories)} categories; at most "
                        f"{_MAX_CATEGORIES}: group the "
                        "rare ones, or drop it with features=…"
                    )
                columns[name] = _OneHot(tuple(str(category) for category in categories))
            elif scale == "quantile":
                columns[name] = _quantile(seen.astype(np.float64))
            else:
                numbers = seen.astype(np.float64)
                constant = bool((numbers == numbers[0]).all())
                columns[name] = _Standard(float(numbers.mean()), 0.0 if constant else float(numbers.std()))
        return cls(columns, clip)

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns: ``AGE``, ``EDUCATION=2`` …"""
        return [
            label
            for name, encoding in self.columns.items()
            for label in ([f"{name}={c}" for c in encoding.categories] if isinstance(encoding, _OneHot) else [name])
        ]

    def transform(self, table: PartyTable, rows: np.ndarray | None = None) -> np.ndarray:
        """Encoded features of `rows` (all rows if None), (n, len(names)) float32.

        Raises:
            UnknownNameError: the table lacks a column that the encoder was fitted on.
        """
        parts = []
        for name, encoding in self.columns.items():
            if name not in table.columns:
                raise UnknownNameError(f"column of {table.name!r}:", name, table.columns)
            values = table.columns[name] if rows is None else table.columns[name][rows]
            parts.append(
                encoding(values.astype(np.str_) if isinstance(encoding, _OneHot) else values.astype(np.float64))
            )
        encoded: np.ndarray = np.clip(np.concatenate(parts, axis=1), -self.clip, self.clip).astype(np.float32)
        return encoded


def _quantile(values: np.ndarray) -> _Quantile:
    """Knots at distinct values; the score of a value is Φ⁻¹ of its middle rank, standardised."""
    from scipy.special import ndtri

    distinct, counts = np.unique(values, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / len(values)
    scores = ndtri(np.clip(middle, 1e-6, 1 - 1e-6))
    mean = float(np.average(scores, weights=counts))
    deviation = float(np.sqrt(np.average((scores - mean) ** 2, weights=counts)))
    scores = (scores - mean) / deviation if deviation > 0 else np.zeros_like(scores)
    if len(distinct) > _KNOTS:
        keep = np.unique(np.linspace(0, len(distinct) - 1, _KNOTS).round().astype(int))
        distinct, scores = distinct[keep], scores[keep]
    return _Quantile(tuple(distinct.tolist()), tuple(scores.tolist()))
