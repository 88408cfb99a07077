"""How far columns moved since training: the population stability index of each, at its owner.

Training counts its rows in each bin of each column; the counts stay in the party's part of the model. Later rows are
counted in the same bins: ``PSI = Σ (a − e) ln(a / e)`` over the bins' shares, with missing values as a bin of their
own. By chance alone the index of n rows against m is about ``χ²(bins − 1) · (1/n + 1/m)`` (Yurdakul, "Statistical
properties of the population stability index", 2018): a column has drifted only where it is beyond that, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.errors import InputError

__all__ = [
    "MAJOR",
    "MODERATE",
    "ColumnCounts",
    "Drift",
    "count_columns",
    "count_scores",
    "measure_drift",
    "one_score",
    "stability_index",
]

MODERATE, MAJOR = 0.1, 0.25
"""Usual thresholds of credit scoring: below the first nothing moved, from the second on the model needs a look."""

_BINS, _LEVELS = 10, 30
_EMPTY = 1e-4
"""Share used in place of an empty bin's."""
_HALF = 0.5
"""Rows that an empty bin counts as: of few rows, a bin is empty by chance."""

_CHANCE = 0.999
"""With few rows the index has a longer tail than χ²: of 60 rows, one stable column in a hundred exceeds this."""


@dataclass(frozen=True)
class ColumnCounts:
    """Training rows of one column, by bin.

    Attributes:
        edges: of numbers, ascending: bin b has ``edges[b−1] < x ≤ edges[b]``; empty for categories.
        levels: of categories, the most frequent ones; all others share a bin.
        counts: rows of each bin; the last two are other levels (of categories only) and missing values.
    """

    edges: tuple[float, ...] = field(repr=False)
    levels: tuple[str, ...] = field(repr=False)
    counts: tuple[int, ...] = field(repr=False)

    @classmethod
    def fit(cls, values: np.ndarray) -> ColumnCounts:
        """Choose bins by these values and count them: deciles of numbers, (n,) float64, or the most frequent texts."""
        if values.dtype.kind == "f":
            known = values[~np.isnan(values)]
            inner = np.quantile(known, np.linspace(0, 1, _BINS + 1)[1:-1]) if len(known) else np.empty(0)
            bare = cls(tuple(np.unique(inner).tolist()), (), ())
        else:
            words, rows = np.unique(values.astype(np.str_), return_counts=True)
            order = np.argsort(-rows, kind="stable")
            bare = cls((), tuple(str(words[i]) for i in order if words[i])[:_LEVELS], ())
        return cls(bare.edges, bare.levels, tuple(bare.count(values).tolist()))

    def count(self, values: np.ndarray) -> np.ndarray:
        """Rows of each bin, int64."""
        if values.dtype.kind == "f":
            place = np.searchsorted(self.edges, values, side="left")
            place = np.where(np.isnan(values), len(self.edges) + 1, place)
            return np.bincount(place, minlength=len(self.edges) + 2)
        number = {level: i for i, level in enumerate(self.levels)} | {"": len(self.levels) + 1}
        words, inverse = np.unique(values.astype(np.str_), return_inverse=True)
        places = np.array([number.get(str(word), len(self.levels)) for word in words], dtype=np.int64)
        return np.bincount(places[inverse.reshape(-1)], minlength=len(self.levels) + 2)

    def state(self) -> dict[str, object]:
        """Plain values from which `from_state` rebuilds it."""
        return {"edges": list(self.edges), "levels": list(self.levels), "counts": list(self.counts)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ColumnCounts:
        """Rebuild it from its `state`.

        Raises:
            InputError: the values are not such a state.
        """
        try:
            edges, levels = tuple(map(float, state["edges"])), tuple(map(str, state["levels"]))
            counts = tuple(map(int, state["counts"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the counts of a column at training are damaged: {error}") from None
        if len(counts) != len(edges or levels) + 2 or min(counts) < 0 or (np.diff(edges) <= 0).any():
            raise InputError(f"the counts of a column at training are damaged: {len(counts)} bins")
        return cls(edges, levels, counts)


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far one column, or the score, moved.

    Attributes:
        column: its name.
        psi: the population stability index.
        chance: what so few rows seldom exceed by chance alone: in about one stable column of a hundred.
        missing_before: share of the training rows without a value.
        missing_now: share of the new rows without one.
        rows: how many new rows there are.
    """

    column: str
    psi: float
    chance: float
    missing_before: float
    missing_now: float
    rows: int

    @property
    def level(self) -> str:
        """``"stable"``, ``"moderate"`` or ``"major"``."""
        if self.psi < max(MODERATE, self.chance):
            return "stable"
        return "moderate" if self.psi < MAJOR else "major"


def count_columns(columns: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Column → its `ColumnCounts`, as plain values for a party's part of a model. Blocks are left out.

    Args:
        columns: as `raw_columns` gives them, of the training rows.
    """
    return {name: ColumnCounts.fit(_as_counted(values)).state() for name, values in columns.items() if values.ndim == 1}


def count_scores(scores: np.ndarray) -> dict[str, object]:
    """`ColumnCounts` of scores as plain values, see `one_score`.

    Args:
        scores: of validation rows, (n, classes) or (n, 1).
    """
    return ColumnCounts.fit(one_score(scores)).state()


def one_score(scores: np.ndarray) -> np.ndarray:
    """Probability of the second of two classes, or of the likeliest of several; or the number, (n,)."""
    if not scores.size:
        return np.empty(0)
    wide = scores.reshape(len(scores), -1)
    found: np.ndarray = wide[:, 1] if wide.shape[1] == 2 else wide.max(axis=1)
    return found.astype(np.float64)


def measure_drift(name: str, before: ColumnCounts, values: np.ndarray) -> Drift:
    """Compare new values with those of training.

    Args:
        name: of the column.
        before: of the training rows.
        values: new ones, (n,).
    """
    now, was = before.count(_as_counted(values)), np.array(before.counts)
    used = (now + was) > 0
    rows, trained = int(now.sum()), int(was.sum())
    if not rows or not trained:
        raise InputError(f"column {name!r} has {rows} new rows and {trained} rows of training: give at least one")
    return Drift(
        column=name,
        psi=stability_index(np.maximum(was[used], _HALF) / trained, np.maximum(now[used], _HALF) / rows),
        chance=_chance_quantile(int(used.sum())) * (1 / rows + 1 / trained),
        missing_before=float(was[-1] / trained),
        missing_now=float(now[-1] / rows),
        rows=rows,
    )


def stability_index(expected: Sequence[float] | np.ndarray, actual: Sequence[float] | np.ndarray) -> float:
    """``Σ (a − e) ln(a / e)`` of the bins' shares; an empty bin counts as a share of 0.0001."""
    a, e = np.maximum(np.asarray(actual), _EMPTY), np.maximum(np.asarray(expected), _EMPTY)
    return float(((a - e) * np.log(a / e)).sum())


def _chance_quantile(bins: int) -> float:
    from scipy.special import chdtri

    return float(chdtri(max(bins - 1, 1), 1 - _CHANCE))


def _as_counted(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) if values.dtype.kind in "fiub" else values
