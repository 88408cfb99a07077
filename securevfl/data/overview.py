"""Summarise a table from its header and first rows, for a person who checks a job before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.categories import Categories, Column
from securevfl.data.columns import ColumnUse, column_names
from securevfl.data.csv_rows import CsvRows
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import place_of
from securevfl.data.lake import RowSource, source_of
from securevfl.data.limits import DEFAULT_LIMITS
from securevfl.data.prepare import Preparation, PreparedLine, fit_columns
from securevfl.data.prepare.dates import ORDERS, parse_dates
from securevfl.data.prepare.numbers import parse_numbers
from securevfl.data.row_source import is_text
from securevfl.data.sample import SAMPLE, top_rows
from securevfl.errors import InputError

__all__ = ["TableOverview", "table_overview"]

_FEW_LEVELS = 5
_MANY = 0.3
"""If at least this share of a category's rows are numbers or dates, the column may contain mistakes."""
_COUNTED = 64 << 20
"""Largest CSV file, in bytes, whose rows are counted."""


@dataclass(frozen=True, kw_only=True)
class TableOverview:
    """Summary of one party's table: column names and counts, but no values.

    Attributes:
        party: the owner.
        where: the table.
        rows: number of rows; None if counting them would mean reading a large file.
        looked: number of first rows that the following fields are based on.
        columns: number of columns.
        ids: the identifier columns.
        roles: other columns in use, for example ``label`` → column.
        classes: number of classes of the label; None without a label or if it is a number.
        unused: the columns that the job does not use.
        written: dialect of a CSV file, in words; empty for other files.
        lines: the feature columns as preparation would treat them.
        problems: number of feature columns that cannot be classified because they contain mistakes.
        as_text: feature columns of text that are numbers, dates or booleans.
        partly: feature columns of text that are categories but numbers or dates in many rows.
        one_value: feature columns with at most one value in all examined rows.
        prepared: whether columns are prepared; otherwise they are used unchanged.
    """

    party: str
    where: str
    rows: int | None
    looked: int
    columns: int
    ids: tuple[str, ...]
    roles: Mapping[str, str]
    classes: int | None
    unused: tuple[str, ...]
    written: str
    lines: tuple[PreparedLine, ...] = field(repr=False)
    problems: int
    as_text: frozenset[str] = field(repr=False)
    partly: tuple[str, ...]
    one_value: frozenset[str] = field(repr=False)
    prepared: bool

    @property
    def kind_counts(self) -> dict[str, int]:
        """Kind of content → number of feature columns: ``numbers``, ``categories``, ``dates``, ``truth values``."""
        counts = Counter(line.holds for line in self.lines)
        return {kind: counts[kind] for kind in ("numbers", "categories", "dates", "truth values") if counts[kind]}

    @property
    def numeric_text_count(self) -> int:
        """Number of text columns that contain numbers."""
        return sum(line.holds == "numbers" and line.column in self.as_text for line in self.lines)

    @property
    def constant_columns(self) -> list[str]:
        """Feature columns without information: at most one value in all examined rows."""
        return [line.column for line in self.lines if not line.width and line.column in self.one_value]

    @property
    def scattered_columns(self) -> list[str]:
        """Feature columns without information because each text occurs in only a few rows: names, free text."""
        return [line.column for line in self.lines if not line.width and line.column not in self.one_value]

    @property
    def missing_share(self) -> float:
        """Share of missing values in the feature columns; 0 without columns."""
        return float(np.mean([line.missing for line in self.lines])) if self.lines else 0.0

    @property
    def most_missing(self) -> PreparedLine | None:
        """The feature column with the most missing values, or None."""
        line = max(self.lines, key=lambda line: line.missing, default=None)
        return line if line is not None and line.missing else None


def table_overview(
    party: str, path: str | Path, use: ColumnUse, *, form: CsvForm | None = None, sample: int = SAMPLE
) -> TableOverview | None:
    """Summarise a table; None if it cannot be read (`table_mistakes` reports why).

    Args:
        party: the owner.
        path: a table, as for `read_table`.
        use: the use of its columns.
        form: the dialect of a CSV file, as far as the user gave it.
        sample: number of first rows to examine.
    """
    try:
        source = source_of(place_of(path), form=form, use=use)
        table = top_rows(source, use, sample)
        names = column_names(table.schema, source.location)
        if not table.num_rows or len(set(names)) < len(names):
            return None
        columns = [column for column in use.select_features(names) if column in names]
        rows = _count_rows(source, use, names)
        values = _feature_values(table, columns, use, source.location)
    except InputError:
        return None
    preparation = use.preparation or Preparation()
    found = fit_columns(values, use.categorical, np.arange(table.num_rows), preparation, b"")
    roles = {role: column for role, column in (("label", use.label), ("weight", use.weight)) if column}
    roles |= {role: column for role, column in (("group", use.group), ("time", use.time)) if column}
    roles |= {"person": use.person} if use.person else {}
    roles |= {"label": ", ".join(use.labels)} if use.labels else {}
    used = {*use.reserved_columns, *columns}
    texts = {line.column for line in found.lines if line.holds != "categories" and _of_texts(table[line.column])}
    return TableOverview(
        party=party,
        where=source.location,
        rows=rows,
        looked=table.num_rows,
        columns=len(names),
        ids=tuple(column for column in use.ids if column in names),
        roles=roles,
        classes=_count_classes(table, use),
        unused=tuple(name for name in names if name not in used),
        written=source.dialect.description if isinstance(source, CsvRows) else "",
        lines=tuple(found.lines),
        problems=len(columns) - len(found.lines),
        as_text=frozenset(texts),
        partly=tuple(
            one.column for one in found.lines if one.holds == "categories" and _is_partly_numeric(values[one.column])
        ),
        one_value=frozenset(name for name in values if len(table[name].unique().drop_null()) <= 1),
        prepared=use.preparation is not None,
    )


def _of_texts(values: Any) -> bool:
    import pyarrow as pa

    return is_text(values.type.value_type if pa.types.is_dictionary(values.type) else values.type)


def _count_classes(table: Any, use: ColumnUse) -> int | None:
    """Return the number of classes of the label in these rows."""
    if use.label is None or use.target != "classes" or use.label not in table.column_names:
        return None
    return len(table[use.label].unique().drop_null()) if use.classes is None else len(use.classes)


def _is_partly_numeric(values: Column) -> bool:
    """Return True if a text category consists of numbers or dates in many rows."""
    if not isinstance(values, Categories) or len(values.words) <= _FEW_LEVELS:
        return False
    words = list(values.words)
    readings = [parse_numbers(words, mark) for mark in (".", ",")] + [parse_dates(words, order) for order in ORDERS]
    known = ~np.isnan(np.stack(readings)).all(axis=0)
    return bool(_MANY <= known[values.codes].mean() < 1)


def _feature_values(table: Any, columns: list[str], use: ColumnUse, where: str) -> dict[str, Column]:
    """Return the feature columns in the form that preparation takes, without those that contain mistakes."""
    any_ = ColumnUse.from_arguments(
        id="", label=None, features=(), categorical=use.categorical, classes=None, prepare=use.preparation or "auto"
    )
    found = {}
    for column in columns:
        try:
            found[column] = any_.convert_feature(table[column], column, where)
        except InputError:
            continue
    return found


def _count_rows(source: RowSource, use: ColumnUse, names: list[str]) -> int | None:
    """Return a table's number of rows; None for a CSV file that is large or cannot be read to its end."""
    one = next((name for name in use.ids if name in names), names[0])
    if not isinstance(source, CsvRows):
        rows = source.most_rows([one], use, DEFAULT_LIMITS)
        return rows if rows >= 0 else None
    if source.place.size > _COUNTED:
        return None
    try:
        return sum(len(batch) for batch in source.iter_batches([one], use, DEFAULT_LIMITS))
    except InputError:
        return None
