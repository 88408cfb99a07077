"""Party tables from CSV, Parquet, Arrow and pandas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from securevfl.data.columns import ColumnUse, column_names, identifiers, labels
from securevfl.data.files import PARQUET, arrow_table, existing
from securevfl.data.labels import encode_labels
from securevfl.data.limits import DEFAULT_LIMITS, TableLimits
from securevfl.data.table import PartyTable
from securevfl.errors import InputError

__all__ = ["PARQUET", "existing", "from_arrow", "from_pandas", "read_csv", "read_parquet"]


def read_csv(
    path: str | Path,
    *,
    name: str,
    id: str,
    label: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Iterable[str] = (),
    classes: Sequence[object] | None = None,
    limits: TableLimits = DEFAULT_LIMITS,
) -> PartyTable:
    """A party's table from a CSV file with a header (compressed ones by their ending: .gz, .bz2).

    Args:
        path: the file.
        name: the party.
        id: the identifier column; read as text, so that ``007`` stays ``007``.
        label: the label column, at the active party.
        features: the feature columns; all others but id and label if None.
        categorical: those of them that hold categories.
        classes: the label's values in the order of their indexes; those found, sorted, if None.
        limits: of rows, columns and bytes that are read.

    Raises:
        InputError: the file or what it holds cannot be used; says where and what to do.
        UnknownNameError: a column that does not exist; says which is nearest.
    """
    use = ColumnUse.of(id=id, label=label, features=features, categorical=categorical, classes=classes)
    file = existing(path)
    return _party(arrow_table(file, use, limits, parquet=False), name, use, str(file), limits)


def read_parquet(
    path: str | Path,
    *,
    name: str,
    id: str,
    label: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Iterable[str] = (),
    classes: Sequence[object] | None = None,
    limits: TableLimits = DEFAULT_LIMITS,
) -> PartyTable:
    """A party's table from a Parquet file, of which only the columns that are used are read; arguments and errors as
    for `read_csv`."""
    use = ColumnUse.of(id=id, label=label, features=features, categorical=categorical, classes=classes)
    file = existing(path)
    return _party(arrow_table(file, use, limits, parquet=True), name, use, str(file), limits)


def from_pandas(frame: Any, *, name: str, id: str, **options: Any) -> PartyTable:
    """A party's table from a pandas DataFrame; its index is not used. Arguments and errors as for `read_csv`."""
    import pyarrow as pa

    names = [str(column) for column in frame.columns]
    doubled = sorted({column for column in names if names.count(column) > 1})
    if doubled:
        raise InputError(f"the table of {name!r} has column {doubled[0]!r} twice; rename one")
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"the table of {name!r} holds a column of mixed types: {error.args[0]}") from None
    return from_arrow(table, name=name, id=id, **options)


def from_arrow(
    table: Any,
    *,
    name: str,
    id: str,
    label: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Iterable[str] = (),
    classes: Sequence[object] | None = None,
    source: str = "",
) -> PartyTable:
    """A party's table from a `pyarrow.Table`; arguments and errors as for `read_csv`."""
    use = ColumnUse.of(id=id, label=label, features=features, categorical=categorical, classes=classes)
    return _party(table, name, use, source, DEFAULT_LIMITS)


def _party(table: Any, name: str, use: ColumnUse, source: str, limits: TableLimits) -> PartyTable:
    where = source or f"the table of {name!r}"
    names = column_names(table.schema, where)
    for mistake in use.mistakes(names, where):
        raise mistake
    if not table.num_rows:
        raise InputError(f"{where} has no rows")
    label = use.label
    indexes, known = (
        (None, ()) if label is None else encode_labels(labels(table[label], label, where), use.classes, where)
    )
    return PartyTable(
        name=name,
        ids=identifiers(table[use.id], use.id, where),
        columns={column: use.feature(table[column], column, where, limits) for column in use.chosen(names)},
        categorical=use.categorical,
        label=indexes,
        classes=known,
        label_name=label or "",
        source=source,
    )
