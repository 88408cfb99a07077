"""Find columns that are nearly the label: copies of it, what is written only after the event, gaps that give it away.

Values alone decide, never a column's name. Somebody who checks a job file may see all its tables, so that columns of
every party are compared with the label; a party's own file has only its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.categories import Categories, Column
from securevfl.data.columns import ColumnUse, column_names
from securevfl.data.compound_ids import identifier_of
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import place_of
from securevfl.data.lake import source_of
from securevfl.data.limits import DEFAULT_LIMITS
from securevfl.data.prepare.numbers import parse_numbers
from securevfl.errors import InputError
from securevfl.jobfile.toml_text import quote_text
from securevfl.training.metrics import roc_curve

__all__ = ["CheckedTable", "LabelLeak", "Rating", "find_leaks", "rate_column"]

_ROWS = 50_000
"""First rows of each table that are compared."""
_CELLS = 5_000_000
"""Of a wide table, fewer rows: at most so many values."""
_LEAST = 0.995
"""From this AUC, this share of what could be predicted, or this correlation of ranks on, a column is nearly the label.
The strongest single column of the tables that the tests read has an AUC of 0.976 (cells of breast tumours)."""
_MEASURES = {
    "auc": "with AUC {:.3f}",
    "rows": "{:.3f} of the rows that the most frequent class misses",
    "ranks": "with a correlation of ranks of {:.3f}",
}
_FEWEST_ROWS = 30
_FEWEST_OF_CLASS = 8
"""Rows of the rarer class. With 8 of 30, a column of random numbers separates them with probability 2 / C(30, 8),
3 in ten million."""
_ROWS_OF_LEVEL = 10
"""Rows of a level on average: with fewer, a column names the rows."""
_MOST_LEVELS = 1_000


@dataclass(frozen=True, kw_only=True)
class CheckedTable:
    """Where a party's table is, and what its columns are for.

    Attributes:
        party: whose it is.
        path: of the table, as for `read_table`.
        use: the use of its columns.
        form: the dialect of a CSV file, as far as the user gave it.
    """

    party: str
    path: str | Path
    use: ColumnUse
    form: CsvForm | None = None


@dataclass(frozen=True, kw_only=True)
class LabelLeak:
    """A column that is nearly a label.

    Attributes:
        party: whose column it is.
        column: its name.
        label: the label's column.
        owner: whose label it is.
        measure: ``"auc"``, ``"rows"`` (the share predicted right beyond the most frequent class) or ``"ranks"``.
        value: its value, up to 1.
        rows: number of rows compared.
        by_gaps: whether the gaps of the column give the label away, not its values.
    """

    party: str
    column: str
    label: str
    owner: str
    measure: str
    value: float
    rows: int
    by_gaps: bool

    def __str__(self) -> str:
        what = "its gaps alone predict" if self.by_gaps else "alone it predicts"
        return (
            f"column {self.column!r} of {self.party!r} is nearly the label {self.label!r} of {self.owner!r}: {what} "
            f"{_MEASURES[self.measure].format(self.value)} ({self.rows:,} rows; reported from {_LEAST}). If it is a "
            "copy, or known only after the event, leave it out: "
            f"drop = [{quote_text(self.column)}] in the section of {self.party!r}"
        )


@dataclass(frozen=True)
class _Read:
    """First rows of a table: identifiers, an Arrow array (n,); features by name, each (n,); labels by name, (n,)."""

    party: str
    ids: Any
    features: dict[str, Column]
    labels: dict[str, Column]


def find_leaks(tables: Sequence[CheckedTable]) -> list[LabelLeak]:
    """Compare the features of all tables with every label of theirs, on rows with one identifier. Tables that cannot be
    read are left out: others report why.
    """
    if not any(one.use.label for one in tables):
        return []
    read = [found for one in tables if (found := _read_top(one)) is not None]
    leaks = []
    for owner, use in [(one, table.use) for one in read for table in tables if table.party == one.party]:
        for name, label in owner.labels.items():
            for other in read:
                mine, theirs = _common_rows(owner, other)
                target = label[mine]
                for column, values in other.features.items():
                    rated = rate_column(values[theirs], target, number=use.target == "number")
                    if rated is not None and rated.value >= _LEAST:
                        leaks.append(
                            LabelLeak(
                                party=other.party,
                                column=column,
                                label=name,
                                owner=owner.party,
                                measure=rated.measure,
                                value=rated.value,
                                rows=rated.rows,
                                by_gaps=rated.by_gaps,
                            )
                        )
    return leaks


@dataclass(frozen=True)
class Rating:
    """How well one column alone tells a label.

    Attributes:
        measure: as in `LabelLeak`.
        value: its value, up to 1.
        rows: number of rows compared.
        by_gaps: whether only the column's gaps were used.
    """

    measure: str
    value: float
    rows: int
    by_gaps: bool = False


def rate_column(values: Column, label: Column, *, number: bool) -> Rating | None:
    """Rate how well a column alone tells the label; None if there is too little to compare.

    Two classes: the AUC. More: the share of rows predicted right beyond the most frequent class. A number: the
    correlation of ranks. Columns with few levels predict by the label of their levels in the other half of the rows, so
    that a column of many levels is not rated for its own rows.

    Args:
        values: the column, (n,).
        label: the label, (n,).
        number: whether the label is a number to learn.
    """
    scores, missing = _as_numbers(values)
    if number:
        return _rate_number(scores, _as_numbers(label)[0])
    target, unknown = _as_levels(label)
    scores, missing, levels = scores[~unknown], missing[~unknown], _as_levels(values)[0][~unknown]
    classes, target = np.unique(target[~unknown], return_inverse=True)
    counts = np.bincount(target, minlength=2)
    if len(target) < _FEWEST_ROWS or len(classes) < 2 or len(classes) > len(target) / _ROWS_OF_LEVEL:
        return None
    if len(classes) > 2:
        return _rate_classes(levels, target)
    if counts.min() < _FEWEST_OF_CLASS:
        return None
    found = [_rate_two(missing.astype(float), target, by_gaps=True)] if missing.any() else []
    found += [_rate_two(np.where(missing, np.nan, scores), target)]
    if _has_few(levels):
        found += [_rate_two(_predict_levels(levels, target), target)]
    return max((one for one in found if one is not None), key=lambda one: one.value, default=None)


def _rate_two(scores: np.ndarray, target: np.ndarray, *, by_gaps: bool = False) -> Rating | None:
    """The AUC of the rows with a score, in the direction that ranks better."""
    there = ~np.isnan(scores)
    if min(np.bincount(target[there], minlength=2)) < _FEWEST_OF_CLASS:
        return None
    curve = roc_curve(target[there] == 1, scores[there])
    if curve is None:
        return None
    return Rating("auc", max(curve.auc, 1 - curve.auc), int(there.sum()), by_gaps)


def _rate_classes(levels: np.ndarray, target: np.ndarray) -> Rating | None:
    """The share of rows predicted right by the most frequent class of their level, beyond that of all rows."""
    if not _has_few(levels):
        return None
    base = np.bincount(target).max() / len(target)
    tables = [np.zeros((levels.max() + 1, target.max() + 1), np.int64) for _ in range(2)]
    half = _split_halves(len(target))
    for number, counts in enumerate(tables):
        np.add.at(counts, (levels[half == number], target[half == number]), 1)
    given = np.stack([counts.argmax(axis=1) for counts in tables])[1 - half, levels]
    return Rating("rows", float(((given == target).mean() - base) / (1 - base)), len(target))


def _rate_number(scores: np.ndarray, target: np.ndarray) -> Rating | None:
    """The correlation of ranks."""
    there = ~(np.isnan(scores) | np.isnan(target))
    if there.sum() < _FEWEST_ROWS:
        return None
    mine, theirs = _rank(scores[there]), _rank(target[there])
    if min(len(np.unique(mine)), len(np.unique(theirs))) < _FEWEST_OF_CLASS:
        return None
    return Rating("ranks", abs(float(np.corrcoef(mine, theirs)[0, 1])), int(there.sum()))


def _rank(values: np.ndarray) -> np.ndarray:
    """Ranks with ties at their mean, (n,)."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _predict_levels(levels: np.ndarray, target: np.ndarray) -> np.ndarray:
    """For each row the share of class 1 in its level, over the other half of the rows; of all rows for a level that is
    not there, (n,)."""
    half, base = _split_halves(len(target)), float(target.mean())
    shares = []
    for number in range(2):
        mine = half == number
        rows = np.bincount(levels[mine], minlength=levels.max() + 1)
        ones = np.bincount(levels[mine], weights=target[mine], minlength=levels.max() + 1)
        shares.append(np.where(rows > 0, ones / np.maximum(rows, 1), base))
    found: np.ndarray = np.stack(shares)[1 - half, levels]
    return found


def _split_halves(rows: int) -> np.ndarray:
    """0 or 1 for each row, half of each, the same for every column, (rows,) int64."""
    return np.random.default_rng(0).permutation(rows) % 2


def _has_few(levels: np.ndarray) -> bool:
    distinct = len(np.unique(levels))
    return 2 <= distinct <= min(_MOST_LEVELS, len(levels) / _ROWS_OF_LEVEL)


def _as_numbers(values: Column) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, (n,) float64, nan where there is none; and where nothing is written, (n,) bool. Texts that
    are no numbers have their place in the alphabet.
    """
    if isinstance(values, Categories):
        blank = np.array([not word.strip() for word in values.words], dtype=bool)
        known = [parse_numbers(values.words, mark) for mark in (".", ",")]
        best = min(known, key=lambda one: int(np.isnan(one).sum()))
        numbers = best if np.isnan(best).sum() <= blank.sum() else np.arange(len(blank), dtype=np.float64)
        return np.where(blank, np.nan, numbers)[values.codes], blank[values.codes]
    if values.dtype.kind == "M":
        absent = np.isnat(values)
        return np.where(absent, np.nan, values.astype("datetime64[s]").astype(np.int64).astype(np.float64)), absent
    numbers = values.astype(np.float64)
    return numbers, np.isnan(numbers)


def _as_levels(values: Column) -> tuple[np.ndarray, np.ndarray]:
    """A number for each different value, gaps among them, (n,) int64; and where the gaps are, (n,) bool."""
    numbers, missing = _as_numbers(values)
    keys = values.codes.astype(np.float64) if isinstance(values, Categories) else numbers
    return np.unique(keys, return_inverse=True)[1].reshape(-1), missing


def _read_top(one: CheckedTable) -> _Read | None:
    """The first rows; None if they cannot be read."""
    import pyarrow as pa

    use = one.use
    try:
        source = source_of(place_of(one.path), form=one.form)
        names = source.column_names(DEFAULT_LIMITS)
        columns = use.columns_to_read(names, source.location)
        most = max(1_000, min(_ROWS, _CELLS // max(len(columns), 1)))
        batches, parts, rows = source.iter_batches(columns, use, DEFAULT_LIMITS, most), [], 0
        try:
            for batch in batches:
                parts.append(batch)
                rows += len(batch)
                if rows >= most:
                    break
        finally:
            batches.close()
        if not parts:
            return None
        table = pa.Table.from_batches(parts).slice(0, most)
        column_names(table.schema, source.location)
        gathered = identifier_of(use.ids, source.location)
        for batch in table.to_batches():
            gathered.add(batch)
        ids = pa.array(gathered.finish(), pa.string())
    except InputError:
        return None
    labels = [*use.labels] or ([use.label] if use.label else [])
    return _Read(
        one.party,
        ids,
        _convert(table, [name for name in use.select_features(names) if name in columns], use),
        _convert(table, labels, use),
    )


def _convert(table: Any, columns: Sequence[str], use: ColumnUse) -> dict[str, Column]:
    """Columns as preparation takes them, without those that cannot be read."""
    every = ColumnUse.from_arguments(
        id="", label=None, features=(), categorical=use.categorical, classes=None, prepare="auto"
    )
    found = {}
    for column in columns:
        try:
            found[column] = every.convert_feature(table[column], column, "")
        except InputError:
            continue
    return found


def _common_rows(owner: _Read, other: _Read) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two tables with the same identifier, two times (n,) int64."""
    import pyarrow.compute as pc

    if owner is other:
        every = np.arange(len(owner.ids))
        return every, every
    place = pc.fill_null(pc.index_in(owner.ids, value_set=other.ids), -1).to_numpy(zero_copy_only=False)
    mine = np.flatnonzero(place >= 0)
    return mine, place[mine]
