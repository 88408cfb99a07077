"""The share of a party's columns that a few numbers about each row can give away, from the party's own table.

`compute_share` answers: an attacker chooses n numbers about each row, any function of the row's columns, and knows some
whole rows; which share of the spread of the columns does it learn of the other rows, on average over the columns? The
result is the largest of four attacks, rounded up to a twentieth:

- *linear*: the n largest eigenvalues of the columns' correlations, over their sum. No linear decoder gets more out of n
  linear numbers.
- *components*: the first n principal components, decoded by boosted trees.
- *columns*: n whole columns, chosen for what they say of the others, decoded by boosted trees.
- *packed*: a number with 256 levels holds several columns of few values at once: eight of two values as a sum of powers
  of two. The other columns are decoded by boosted trees.

Trees fit up to four numbers; beyond that the linear and the packed share remain, and at least the share of four. The
share is a measurement of known attacks, not a proof: a decoder that nobody tried may get more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from securevfl.attacks.learners import standardise

__all__ = ["JUDGED_ROWS", "KNOWN_ROWS", "LEAST_ROWS", "LEVELS", "LearnedShare", "compute_share", "compute_shares"]

KNOWN_ROWS = 1000
"""Whole rows that the attacker knows, where the table has twice as many."""

JUDGED_ROWS = 2000
"""Most other rows on which the attacks are judged."""

LEAST_ROWS = 40
"""In fewer rows no attack can be judged, and the share is 1."""

LEVELS = 256
"""Levels of one answer: log-odds from -8 to 8 in steps of 1/16."""

_STEP = 20
"""Shares are rounded up to one in so many."""

_FITTED = 4
"""Most numbers that trees decode."""

_EACH = 24
"""Most columns that get trees of their own; more share a forest."""

_CANDIDATES = 2
"""Columns tried with boosted trees as the next best one, after a forest has ranked all."""

_TAIL = 0.001
"""Of the rows at either end, whose values are cut: one amount among thousands is not the column."""


@dataclass(frozen=True, slots=True)
class LearnedShare:
    """What n numbers about each row give away of a table.

    Attributes:
        share: of the spread of the columns, on average; at most 1, in twentieths, rounded up.
        numbers: n.
        columns: that vary; columns of one value, but for a row in a thousand, have nothing to learn.
        known: whole rows that the attacker was given.
        judged: other rows on which it was judged.
    """

    share: float
    numbers: int
    columns: int
    known: int
    judged: int


def compute_share(
    table: np.ndarray, numbers: int, *, columns: Sequence[int] | None = None, seed: int = 0
) -> LearnedShare:
    """Compute what `numbers` numbers about each row give away of a table: see `compute_shares`."""
    return compute_shares(table, [numbers], columns=columns, seed=seed)[-1]


def compute_shares(
    table: np.ndarray, numbers: Sequence[int], *, columns: Sequence[int] | None = None, seed: int = 0
) -> tuple[LearnedShare, ...]:
    """Compute what several numbers of numbers about each row give away of a table, sooner than one after the other.

    Args:
        table: (rows, values), without missing values. A category is several values: 0 or 1 each.
        numbers: how many the attacker gets of each row, rising.
        columns: for each value, the column that it belongs to; by default each value is a column. Columns count alike,
            however many values they have.
        seed: of the draw of known rows.

    Raises:
        ValueError: not a table of finite numbers, or numbers that do not rise from 1 or more.
    """
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError("the table has to be finite numbers, rows by values")
    if not numbers or numbers[0] < 1 or sorted(numbers) != list(numbers):
        raise ValueError(f"numbers are {list(numbers)}; numbers of at least 1 that rise are needed")
    of = np.arange(table.shape[1]) if columns is None else np.asarray(columns)
    values = table.astype(np.float64)
    values = values.clip(
        np.quantile(values, _TAIL, axis=0, method="higher"), np.quantile(values, 1 - _TAIL, axis=0, method="lower")
    )
    varies = np.ptp(values, axis=0) > 0
    values, of = values[:, varies], of[varies]
    count = len(np.unique(of))
    known = min(KNOWN_ROWS, len(values) // 2)
    judged = min(JUDGED_ROWS, len(values) - known)
    if count < 2 or len(values) < LEAST_ROWS:
        return tuple(LearnedShare(1.0, n, count, known, judged) for n in numbers)
    rows = np.random.default_rng(seed).permutation(len(values))
    attacker = _Attacker(standardise(values), of, rows[:known], rows[known : known + judged])
    found, best, fitted = [], 0.0, 0
    for n in numbers:
        best = 1.0 if n >= count else max(best, attacker.linear_share(n), attacker.packed_share(n))
        while fitted < min(n, _FITTED) and _STEP * best <= _STEP - 1:  # trees are slow, and need not prove a whole one
            fitted += 1
            best = max(best, attacker.components_share(fitted), attacker.columns_share(fitted))
        rounded = min(1.0, math.ceil(_STEP * best - 1e-6) / _STEP)
        found.append(LearnedShare(rounded, n, count, known, judged))
    return tuple(found)


class _Attacker:
    """The attacks on one table, whose values are standardised."""

    def __init__(self, values: np.ndarray, of: np.ndarray, known: np.ndarray, judged: np.ndarray) -> None:
        self._values, self._of, self._known, self._judged = values, of, known, judged
        names, place, sizes = np.unique(of, return_inverse=True, return_counts=True)
        self._columns = [np.flatnonzero(of == name) for name in names]
        self._weights = 1 / (sizes[place] * len(names))  # of the values, in the mean over columns
        weighted = values * np.sqrt(self._weights)
        spectrum, directions = np.linalg.eigh(weighted.T @ weighted / len(values))
        self._spectrum = np.clip(spectrum[::-1], 0, None) / spectrum.sum()
        self._components = standardise(weighted @ directions[:, ::-1])
        self._chosen: list[int] = []
        self._decoded: dict[tuple[int, ...], float] = {}

    def linear_share(self, numbers: int) -> float:
        return float(self._spectrum[:numbers].sum())

    def components_share(self, numbers: int) -> float:
        return self._average(_decode_values(self._components[:, :numbers], self._values, self._known, self._judged))

    def columns_share(self, numbers: int) -> float:
        """Of columns chosen one after the other; a column is a number only if it has one value."""
        while len(self._chosen) < numbers:
            rest = [i for i in range(len(self._columns)) if i not in self._chosen]
            ranked = sorted(rest, key=lambda i: -self._decode_columns((*self._chosen, i), _fit_forest))
            tried = ranked[:_CANDIDATES]
            self._chosen.append(max(tried, key=lambda i: self._decode_columns((*self._chosen, i), None)))
        return self._decode_columns(tuple(self._chosen), None)

    def packed_share(self, numbers: int) -> float:
        """Of the columns with the fewest values, as many as fit into the levels of `numbers` numbers."""
        kinds = [len(np.unique(self._values[:, at], axis=0)) for at in self._columns]
        packed: list[int] = []
        room = [float(LEVELS)] * numbers
        for i in sorted(range(len(kinds)), key=kinds.__getitem__):
            fits = next((k for k, left in enumerate(room) if kinds[i] <= left), None)
            if fits is None:
                break
            room[fits] /= kinds[i]
            packed.append(i)
        if len(packed) <= numbers:
            return 0.0
        return self._decode_columns(tuple(packed), None)

    def _decode_columns(self, which: tuple[int, ...], learner: Decoder | None) -> float:
        """The mean share over all columns, of an attacker who has these ones; theirs is 1."""
        key = (-1 if learner is None else 0, *sorted(which))
        if key not in self._decoded:
            at = np.concatenate([self._columns[i] for i in which])
            rest = np.setdiff1d(np.arange(self._values.shape[1]), at)
            got = np.ones(self._values.shape[1])
            if len(rest):
                fit = _decode_values if learner is None else partial(_judge, learner)
                got[rest] = fit(self._values[:, at], self._values[:, rest], self._known, self._judged)
            self._decoded[key] = self._average(got)
        return self._decoded[key]

    def _average(self, shares: np.ndarray) -> float:
        return float((np.clip(shares, 0, 1) * self._weights).sum())


Decoder = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Seen and true values of known rows, seen values of others → an estimate of the others' true values, (rows, values).
"""


def _decode_values(seen: np.ndarray, values: np.ndarray, known: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """The share of each value's spread that the better of two kinds of trees decodes from what was seen."""
    got = _judge(_fit_forest, seen, values, known, judged)
    if values.shape[1] <= _EACH:
        got = np.maximum(got, _judge(_fit_boosted, seen, values, known, judged))
    return got


def _judge(learner: Decoder, seen: np.ndarray, values: np.ndarray, known: np.ndarray, judged: np.ndarray) -> np.ndarray:
    truth = values[judged]
    missed = ((learner(seen[known], values[known], seen[judged]) - truth) ** 2).mean(axis=0)
    spread = truth.var(axis=0)
    found: np.ndarray = np.where(spread > 0, 1 - missed / np.maximum(spread, 1e-12), 0.0)
    return found


def _fit_forest(seen: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(n_estimators=20, min_samples_leaf=4, bootstrap=False, random_state=0)
    found: np.ndarray = forest.fit(seen, values.squeeze()).predict(others)
    return found.reshape(len(others), values.shape[1])


def _fit_boosted(seen: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingRegressor

    fit = HistGradientBoostingRegressor(max_iter=40, max_leaf_nodes=8, learning_rate=0.15, early_stopping=False)
    return np.column_stack([fit.fit(seen, column).predict(others) for column in values.T])
