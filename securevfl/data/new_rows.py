"""What is unusual about new rows that a trained model is to score: found at the party, from its own table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.data.categories import Categories, Column
from securevfl.data.encodings import OneHot
from securevfl.data.features import FeatureEncoder
from securevfl.data.prepare.coded import CodedLevels
from securevfl.data.prepare.columns import PreparedCategory, PreparedColumn
from securevfl.data.table import PartyTable

__all__ = ["find_unusual_columns"]

_SHOWN = 3
"""Values that a line quotes."""


def find_unusual_columns(encoder: FeatureEncoder, table: PartyTable, columns: Sequence[str] = ()) -> list[str]:
    """Return a line for each thing that a person should know before trusting scores of these rows.

    Args:
        encoder: of the party's part of a model.
        table: its new rows, with the columns that the encoder takes.
        columns: of the file that the rows come from, where it may have more; those that no model takes are listed.
    """
    where = table.source or f"the table of {table.name!r}"
    found = []
    for name, encoding in encoder.columns.items():
        values = table.columns[name]
        if values.ndim == 1 and _lacks_values(values):
            found.append(f"{where}: column {name!r} has no value in any row")
            continue
        levels = _known_levels(encoding)
        if levels is None:
            continue
        words, rows = _count_words(values)
        new = [at for at, word in enumerate(words) if word and word not in levels]
        if new:
            shown = ", ".join(repr(words[at]) for at in sorted(new, key=lambda at: -rows[at])[:_SHOWN])
            more = ", …" if len(new) > _SHOWN else ""
            found.append(
                f"{where}: {int(rows[new].sum()):,} of {table.rows:,} rows have values of {name!r} that are new, or "
                f"were rare in training ({shown}{more}): all of them are encoded alike"
            )
    extra = [name for name in columns if name not in encoder.columns]
    if extra:
        named = ", ".join(map(repr, extra[:_SHOWN])) + (", …" if len(extra) > _SHOWN else "")
        found.append(f"{where}: the model does not use {named}")
    return found


def _lacks_values(values: Column) -> bool:
    if isinstance(values, Categories):
        return not any(values.words)
    return values.dtype.kind == "f" and bool(np.isnan(values).all())


def _known_levels(encoding: object) -> set[str] | None:
    """The levels that have their own code; None of a column without levels, or with hashed ones."""
    if isinstance(encoding, OneHot):
        return set(encoding.categories)
    how = encoding.how if isinstance(encoding, PreparedColumn) else None
    if not isinstance(how, PreparedCategory):
        return None
    if isinstance(how.levels, CodedLevels):
        return set(how.levels.levels)
    return None if how.levels.buckets else {*how.levels.onehot, *how.levels.counted}


def _count_words(values: Column) -> tuple[list[str], np.ndarray]:
    """The different texts of a column, and how many rows have each, int64 (texts,)."""
    if isinstance(values, Categories):
        return list(values.words), np.bincount(values.codes, minlength=len(values.words))
    words, rows = np.unique(values.astype(np.str_), return_counts=True)
    return words.tolist(), rows
