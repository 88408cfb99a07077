"""One party's columns as statistics take them: standardised numbers, bins, and coarser bins for where counts are few.

Everything here happens at the owner. Bins of exact rows are those of boosted trees: frequent values apart, quantiles
for the rest. `noisy_columns` makes the bins of a job with a budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.algorithms.boosting.bins import fit_bins
from securevfl.privacy.statistics_budget import StatisticsBudget, clip_norm
from securevfl.training.crossing import PartyLayout, join_bins

__all__ = [
    "ONE",
    "ONE_LEVEL",
    "SQUARE_ONE",
    "OwnColumn",
    "OwnColumns",
    "clip_of",
    "coarsen",
    "cut_columns",
    "encode_scores",
]

ONE = 1 << 16
"""Units of one standard deviation."""

SQUARE_ONE = 1 << 12
"""Units of a squared deviation of one."""

FARTHEST = 128.0
"""Bound of a score, with which sums fit the ring; `_pull_in` keeps scores far smaller unless `least` is 1."""

ONE_LEVEL = "too few rows have another level than its most frequent one"
"""The reason to leave a column of categories out."""

_SHARE_OF_LEAST = 2.0
"""A row's share of a column's squares is at most this, divided by `least`. The share is the R² with which an exact
correlation reveals the row's value in another column; a row whose rare value `least` rows share has 1 / least."""


@dataclass
class OwnColumn:
    """A column at its owner.

    Attributes:
        name: of the column.
        is_number: whether it holds numbers; else categories.
        missing: rows without a value.
        mean: of its values; not a number for categories, and where they are not exact.
        deviation: their standard deviation with missing values at the mean, likewise.
        codes: the bin of each row, int64 (n,).
        labels: of the finest bins, in words.
        levels: as `PartyLayout`.
        scores: standardised, float64 (n,), 0 where missing; None for categories and for columns that single out rows.
        present: which rows have a value, bool (n,); None where they are not exact.
        left_out: why it has no scores, in words; others read the part before a comma, which counts no rows.
        twofold: whether it has two values alone.
        pulled_in: rows whose value was pulled in, since one row had too large a part of the column's squares.
    """

    name: str
    is_number: bool
    missing: int
    codes: np.ndarray = field(repr=False)
    labels: list[str]
    levels: tuple[tuple[int, ...], ...]
    mean: float = math.nan
    deviation: float = math.nan
    scores: np.ndarray | None = field(default=None, repr=False)
    present: np.ndarray | None = field(default=None, repr=False)
    left_out: str = ""
    twofold: bool = False
    pulled_in: int = 0

    def merge_labels(self, level: int) -> list[str]:
        """Labels of the bins of a level."""
        found = []
        for bin_ in range(max(self.levels[level]) + 1):
            parts = [label for label, merged in zip(self.labels, self.levels[level], strict=True) if merged == bin_]
            found.append(join_bins(parts, number=self.is_number))
        return found


@dataclass
class OwnColumns:
    """A party's columns.

    Attributes:
        columns: in the table's order.
        means: whether squares are computed, too.
    """

    columns: list[OwnColumn]
    means: bool = True

    @property
    def scored(self) -> list[OwnColumn]:
        """Columns with scores."""
        return [one for one in self.columns if one.scores is not None]

    @property
    def binned(self) -> list[OwnColumn]:
        """Columns with two bins or more."""
        return [one for one in self.columns if len(one.labels) > 1]

    def layout(self) -> PartyLayout:
        """The layout that a passive party sends, without names."""
        binned, scored = self.binned, self.scored
        means = tuple(bool(one.missing) for one in scored) if self.means else ()
        places = {one.name: place for place, one in enumerate(binned)}
        twofold = tuple(places[one.name] if one.twofold else -1 for one in scored) if self.means else ()
        return PartyLayout(
            scores=len(scored),
            means=means,
            bins=tuple(one.levels for one in binned),
            twofold=twofold,
            missing=tuple(one.labels[-1] == "missing" for one in binned),
        )

    def score_matrix(self) -> np.ndarray:
        """Standardised numbers, float64 (n, scores)."""
        return (
            np.stack([_require_scores(one) for one in self.scored], axis=1) if self.scored else np.zeros((self.rows, 0))
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].codes) if self.columns else 0

    def passive_matrix(self, clip: float | None = None) -> np.ndarray:
        """A passive party's rows as `PartyLayout` orders them, int64 (n, width)."""
        scores = encode_scores(self.score_matrix(), clip)
        parts = [np.ones((len(scores), 1), np.int64), scores]
        if self.means:
            squares = [np.rint(np.square(_require_scores(one)) * SQUARE_ONE).astype(np.int64) for one in self.scored]
            there = [one.present.astype(np.int64) for one in self.scored if one.present is not None and one.missing]
            parts += [np.stack(some, axis=1) for some in (squares, there) if some]
        for one in self.binned:
            parts.append((one.codes[:, None] == np.arange(len(one.labels))).astype(np.int64))
        return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _require_scores(column: OwnColumn) -> np.ndarray:
    if column.scores is None:
        raise ValueError("a column without scores")
    return column.scores


def encode_scores(scores: np.ndarray, clip: float | None) -> np.ndarray:
    """Scores in units, int64 (n, scores); rows with a norm above `clip`, roundings included, are shortened to it."""
    if clip is not None and scores.shape[1]:
        bound = clip - math.sqrt(scores.shape[1]) / ONE
        norms = np.linalg.norm(scores, axis=1, keepdims=True)
        scores = scores * np.minimum(1.0, bound / np.maximum(norms, 1e-300))
    return np.asarray(np.rint(scores * ONE).astype(np.int64))


def coarsen(values: int, *, missing: bool, ordered: bool) -> tuple[tuple[int, ...], ...]:
    """Levels of a column's bins, coarser and coarser: neighbours are merged in runs of 1, 2, 4, …, and at last all
    below and above one cut, first in the middle; of categories, the first ones stay and the others are merged. Each
    comes with the bin of missing values apart, and then with it in the last bin.

    Args:
        values: bins of values.
        missing: whether there is one more, of missing values.
        ordered: whether the bins are of numbers.
    """
    found: list[tuple[int, ...]] = []
    every = []
    run = 1
    while values > run:
        kept = -(-values // run)
        every.append([i // run if ordered else min(i, kept - 1) for i in range(values)])
        run *= 2
    cuts = (values // 4, values - values // 4, 1, values - 1) if ordered else ()
    every += [[int(i >= cut) for i in range(values)] for cut in cuts if 0 < cut < values]
    for merged in [*every, [0] * values]:
        for apart in (True, False) if missing else (True,):
            level = tuple(merged + ([merged[-1] + apart] if missing else []))
            if max(level) and level not in found:
                found.append(level)
    return tuple(found) or (tuple(range(values + missing)),)


def cut_columns(
    names: Sequence[str],
    codes: Sequence[int],
    levels: Mapping[str, Sequence[str]],
    x: np.ndarray,
    *,
    bins: int,
    least: int,
) -> list[OwnColumn]:
    """A party's columns by its exact rows.

    Args:
        names: of the columns.
        codes: number of codes of each, 0 for numbers.
        levels: column → names of its codes.
        x: rows, float64 (n, columns), NaN where missing.
        bins: most bins of values.
        least: rows that a bin needs of each class; a bin has at least twice as many rows, and a column with fewer rows
            than that beside its most frequent value has no scores.
    """
    found = []
    for j, name in enumerate(names):
        column = x[:, j]
        there = ~np.isnan(column)
        fitted = fit_bins(column[:, None], bins, (codes[j],) if codes[j] else ())
        coded = fitted.encode_rows(column[:, None])[:, 0]
        edges = fitted.edges[0]
        # Each of two values has its own bin: their counts guard all that is released of such a column.
        fewest = 2 * least if len(edges) == 1 else max(2 * least, len(column) // (4 * bins))
        merge = _merge_small(np.bincount(coded[there], minlength=len(edges) + 1), fewest, ordered=not codes[j])
        values = int(merge.max()) + 1
        missing = int((~there).sum())
        coded = np.where(there, merge[np.minimum(coded, len(merge) - 1)], values)
        texts = _name_bins(column[there], coded[there], values, list(levels.get(name, ())), category=bool(codes[j]))
        one = OwnColumn(
            name=name,
            is_number=not codes[j],
            missing=missing,
            codes=coded,
            labels=texts + (["missing"] if missing else []),
            levels=coarsen(values, missing=missing > 0, ordered=not codes[j]),
            present=there,
        )
        if not codes[j]:
            _standardise_column(one, column, there, least)
        elif len(one.labels) < 2:
            one.left_out = ONE_LEVEL
        found.append(one)
    return found


def _standardise_column(one: OwnColumn, column: np.ndarray, there: np.ndarray, least: int) -> None:
    counts = np.unique(column[there], return_counts=True)[1]
    beside = int(there.sum() - counts.max(initial=0))
    if beside < 2 * least:
        one.left_out = f"fewer than {2 * least} rows differ from its most frequent value, namely {beside}"
        return
    with np.errstate(over="ignore", invalid="ignore"):
        scale = float(np.abs(column[there]).max())
        values = _pull_in(column[there] / scale, _SHARE_OF_LEAST / least)
        mean = float(values.mean())
        # Missing values count as the mean, so a column's scores keep a mean square of one.
        deviation = math.sqrt(float(np.square(values - mean).sum()) / len(column))
    if not deviation > 1e-13 * abs(mean) or not math.isfinite(deviation):
        one.left_out = "its values have no spread"
        return
    one.mean, one.deviation = mean * scale, deviation * scale
    one.twofold = len(counts) == 2
    one.pulled_in = int((values != column[there] / scale).sum())
    scores = np.zeros(len(column))
    scores[there] = np.clip((values - mean) / deviation, -FARTHEST, FARTHEST)
    one.scores = scores


def _pull_in(values: np.ndarray, most: float) -> np.ndarray:
    """Values whose farthest are moved towards the others, until none has more than a part of the squared deviations.

    Args:
        values: (n,).
        most: the part.
    """
    for _ in range(_MOST_PULLS):
        mean = values.mean()
        away = np.abs(values - mean)
        bound = math.sqrt(most * float(np.square(away).sum()))
        if not away.max() > bound * (1 + 1e-9):
            return values
        # A little below the bound, which falls with the values that are pulled in.
        values = np.clip(values, mean - _PULL * bound, mean + _PULL * bound)
    return np.zeros(len(values))


_MOST_PULLS, _PULL = 200, 0.97


def _merge_small(counts: np.ndarray, fewest: int, *, ordered: bool) -> np.ndarray:
    """For each bin of values the bin that it is in, once those with fewer rows joined others: of numbers the smaller
    neighbour, of categories all small ones together as the last."""
    if not ordered:
        order = np.argsort(-counts, kind="stable")
        place = np.empty(len(counts), np.int64)
        place[order] = np.arange(len(counts))
        large = int((counts >= fewest).sum())
        if large == len(counts):
            return place
        rest = counts.sum() - np.sort(counts)[::-1][:large].sum()
        last = large if rest >= fewest else max(large - 1, 0)
        return np.asarray(np.minimum(place, last))
    groups = [[i] for i in range(len(counts))]
    sizes = [int(one) for one in counts]
    while len(groups) > 1 and min(sizes) < fewest:
        at = sizes.index(min(sizes))
        around = [i for i in (at - 1, at + 1) if 0 <= i < len(groups)]
        other = min(around, key=lambda i: sizes[i])
        low = min(at, other)
        groups[low : low + 2] = [groups[low] + groups[low + 1]]
        sizes[low : low + 2] = [sizes[low] + sizes[low + 1]]
    found = np.empty(len(counts), np.int64)
    for number, group in enumerate(groups):
        found[group] = number
    return found


def _name_bins(values: np.ndarray, coded: np.ndarray, bins: int, levels: Sequence[str], *, category: bool) -> list[str]:
    found = []
    for bin_ in range(bins):
        inside = np.unique(values[coded == bin_])
        if not len(inside):
            found.append("–")
        elif category:
            texts = [levels[int(code)] if int(code) < len(levels) else "other" for code in inside]
            found.append(", ".join(texts[:3]) + (f", {len(texts) - 3} more" if len(texts) > 3 else ""))
        elif len(inside) == 1:
            found.append(f"{inside[0]:.6g}")
        else:
            found.append(f"{inside[0]:.6g} to {inside[-1]:.6g}")
    return found


def clip_of(budget: StatisticsBudget | None, scores: int) -> float | None:
    """The norm that rows of scores are clipped to; None without a budget."""
    return None if budget is None or not scores else clip_norm(scores)
