"""A table's columns as a person would read them: numbers as numbers, categories as texts, before any scaling."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.data.categories import Categories
from securevfl.data.encodings import BlockEncoding, OneHot
from securevfl.data.features import FeatureEncoder
from securevfl.data.prepare import PreparedColumn
from securevfl.data.prepare.columns import PreparedCategory
from securevfl.data.prepare.kinds import as_categories
from securevfl.data.table import PartyTable

__all__ = ["raw_columns"]


def raw_columns(encoder: FeatureEncoder, table: PartyTable, rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """The columns that an encoder reads: numbers as float64, (n,), NaN for a missing value, a truth value as 0 or 1, a
    date as days since 1970-01-01; categories as texts, (n,), empty for a missing value; blocks as they are.

    Args:
        encoder: fitted on the party's columns.
        table: the party's.
        rows: which; all unless given.
    """
    chosen: Any = slice(None) if rows is None else rows
    found = {}
    for name, encoding in encoder.columns.items():
        values = table.columns[name][chosen]
        prepared = isinstance(encoding, PreparedColumn)
        reader = None
        if isinstance(encoding, PreparedColumn) and not isinstance(encoding.how, PreparedCategory):
            reader = encoding.how.reader
        if isinstance(encoding, OneHot) or (prepared and reader is None):
            found[name] = _as_texts(values, prepared=prepared)
        elif reader is not None and (isinstance(values, Categories) or values.dtype.kind in "OUS"):
            texts = as_categories(values)
            found[name] = reader.read_texts(texts.words)[0][texts.codes]
        elif reader is not None:
            found[name] = reader.read_numbers(np.asarray(values))
        else:
            found[name] = np.asarray(values) if isinstance(encoding, BlockEncoding) else np.asarray(values, np.float64)
    return found


def _as_texts(values: Any, *, prepared: bool) -> np.ndarray:
    if prepared or isinstance(values, Categories):
        texts = as_categories(values)
        words: np.ndarray = np.array(texts.words, dtype=object)
        return np.asarray(words[texts.codes])
    return np.asarray(values).astype(np.str_).astype(object)
