"""Identifiers made of several columns, for example first name, last name and date of birth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from securevfl_psi import IdentifierError, IdRules
from securevfl_psi.identifiers import normalise_rows

from securevfl.data.column_builders import IdentifierColumn
from securevfl.data.names import Names
from securevfl.data.table import run_all
from securevfl.errors import InputError

__all__ = ["CompoundIdentifier", "identifier_of"]

_PART = 1 << 16


class CompoundIdentifier:
    """Identifiers of two or more columns, joined as in `securevfl_psi.IdRules` with ``columns``: each part is
    normalised separately and prefixed with its length in bytes (``3:ann10:1970-01-01``), so that different rows cannot
    give the same text. The command ``securevfl-psi`` joins them in the same way.

    Args:
        columns: their names; all parties list theirs in the same order.
        where: the table, for messages.
    """

    def __init__(self, columns: Sequence[str], where: str) -> None:
        self._columns, self._where = tuple(columns), where
        self._parts = [IdentifierColumn(column, where) for column in columns]

    def add(self, batch: Any) -> None:
        """Add one batch of the table.

        Raises:
            InputError: a part is neither text nor whole numbers.
        """
        for column, part in zip(self._columns, self._parts, strict=True):
            part.add(batch.column(column))

    def finish(self) -> Names:
        """Return all identifiers.

        Raises:
            InputError: parts are null or empty (lists all columns), or cannot be normalised.
        """
        import pyarrow as pa

        parts = run_all([part.finish for part in self._parts])
        rules = IdRules(columns=len(parts))
        joined = []
        for start in range(0, len(parts[0]), _PART):
            rows = list(zip(*(part[start : start + _PART] for part in parts), strict=True))
            try:
                joined.append(pa.array(normalise_rows(rows, rules), pa.large_string()))
            except IdentifierError as error:
                named = ", ".join(map(repr, self._columns))
                after = f" (rows counted from {start + 1:,})" if start else ""
                raise InputError(f"{self._where}: id columns {named}: {error}{after}") from None
        return Names(pa.concat_arrays(joined))


class _One(IdentifierColumn):
    def add(self, values: Any) -> None:
        super().add(values.column(self._column))


def identifier_of(columns: Sequence[str], where: str) -> CompoundIdentifier | IdentifierColumn:
    """Return the builder of a table's identifiers; its `add` takes whole batches."""
    return _One(columns[0], where) if len(columns) == 1 else CompoundIdentifier(columns, where)
