"""Identifiers as arrays, a batch at a time: never a whole column, and no list of texts where Arrow has the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl_psi.column import Identifiers
from securevfl_psi.errors import IdentifierError
from securevfl_psi.identifiers import IdRules, ascii_column, normalise_rows

__all__ = ["IdBatch", "in_batches", "normalised_batch", "of_arrow"]

_ROWS = 1 << 18
_EXAMPLES = 3


@dataclass(frozen=True)
class IdBatch:
    """Some rows of a table.

    Attributes:
        rows: their numbers, int64 (n,).
        ids: their identifiers, normalised.
    """

    rows: np.ndarray
    ids: Identifiers


def in_batches(ids: Iterable[object], rules: IdRules, rows: int = _ROWS) -> Iterator[IdBatch]:
    """Identifiers from anything that can be gone through, in batches.

    Raises:
        IdentifierError: as `normalise`, but for identifiers that come twice: `sort_shard` finds those.
    """
    part: list[object] = []
    first = 0
    for one in ids:
        part.append(one)
        if len(part) == rows:
            yield normalised_batch(part, rules, first)
            first, part = first + len(part), []
    if part:
        yield normalised_batch(part, rules, first)


def normalised_batch(raw: Identifiers | Sequence[object], rules: IdRules, first: int) -> IdBatch:
    """One batch, whose rows are counted on from `first`.

    Raises:
        IdentifierError: identifiers that cannot be used.
    """
    column: Identifiers | None = None
    if rules.columns == 1:
        try:
            column = Identifiers.of_texts(raw)  # type: ignore[arg-type]
        except IdentifierError:
            column = None
    quick = None if column is None else ascii_column(column, rules)
    if quick is None:
        try:
            quick = Identifiers.of_texts(normalise_rows(list(raw), rules))
        except IdentifierError as error:
            raise IdentifierError(f"{error}" + (f" (rows counted from row {first:,})" if first else "")) from None
    return IdBatch(np.arange(first, first + len(quick), dtype=np.int64), quick)


def of_arrow(array: Any, first: int) -> Identifiers | list[object]:
    """A column of Arrow as identifiers, over its own buffers where it holds texts.

    Args:
        array: a `pyarrow.Array` of texts, bytes excluded, or whole numbers.
        first: the number of its first row, for messages.

    Returns:
        Identifiers as the file has them; a list where it holds something else than texts and numbers.

    Raises:
        IdentifierError: nulls, with their rows.
    """
    import pyarrow as pa  # an extra of securevfl-psi

    if array.null_count:
        rows = np.flatnonzero(np.asarray(array.is_null())) + first
        more = f" and {len(rows) - _EXAMPLES} more" if len(rows) > _EXAMPLES else ""
        listed = ", ".join(map(str, rows[:_EXAMPLES]))
        raise IdentifierError(f"the identifier in row {listed}{more} is null; give it one or drop the row")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_integer(array.type):
        array = array.cast(pa.large_string())
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return list(array.to_pylist())
    if not len(array):
        return []
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, texts = array.buffers()
    ends = np.frombuffer(offsets, dtype=width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    begin, end = int(ends[0]), int(ends[-1])
    data = np.frombuffer(texts, dtype=np.uint8)[begin:end] if end > begin else np.empty(0, dtype=np.uint8)
    ends -= begin
    return Identifiers(data, ends[:-1], np.diff(ends).astype(np.int32))
