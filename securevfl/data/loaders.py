"""Party tables from CSV, Parquet, Arrow and pandas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.table import PartyTable, encode_labels
from securevfl.errors import InputError, UnknownNameError

__all__ = ["from_arrow", "from_pandas", "read_csv", "read_parquet"]


def read_csv(
    path: str | Path,
    *,
    name: str,
    id: str,
    label: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Iterable[str] = (),
    classes: Sequence[object] | None = None,
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

    Raises:
        InputError: the file or what it holds cannot be used; says where and what to do.
        UnknownNameError: a column that does not exist; says which is nearest.
    """
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    file = _existing(path)
    texts = {id, *categorical}
    convert = pa_csv.ConvertOptions(column_types={column: pa.string() for column in texts}, strings_can_be_null=True)
    try:
        table = pa_csv.read_csv(file, convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not a CSV table: {str(error).splitlines()[0]}") from None
    return from_arrow(
        table,
        name=name,
        id=id,
        label=label,
        features=features,
        categorical=categorical,
        classes=classes,
        source=str(file),
    )


def read_parquet(
    path: str | Path,
    *,
    name: str,
    id: str,
    label: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Iterable[str] = (),
    classes: Sequence[object] | None = None,
) -> PartyTable:
    """A party's table from a Parquet file; arguments and errors as for `read_csv`."""
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    file = _existing(path)
    try:
        table = pa_parquet.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{file} is not a Parquet table: {str(error).splitlines()[0]}") from None
    return from_arrow(
        table,
        name=name,
        id=id,
        label=label,
        features=features,
        categorical=categorical,
        classes=classes,
        source=str(file),
    )


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
    where = source or f"the table of {name!r}"
    names = table.column_names
    doubled = sorted({column for column in names if names.count(column) > 1})
    if doubled:
        raise InputError(f"{where} has column {doubled[0]!r} twice; rename one")
    categories = frozenset([categorical] if isinstance(categorical, str) else categorical)
    chosen = [c for c in names if c not in (id, label)] if features is None else list(features)
    for what, wanted in (
        ("id column", [id]),
        ("label column", [label] if label else []),
        ("column", [*chosen, *sorted(categories)]),
    ):
        for column in wanted:
            if column not in names:
                raise UnknownNameError(f"{what} of {where}:", column, names)
    if id in chosen or (label and label in chosen):
        raise InputError(f"{where}: {id!r} or {label!r} is listed as a feature too; a column has one use")
    if not table.num_rows:
        raise InputError(f"{where} has no rows")
    if not chosen and (features is None or not label):
        hint = "; an owner of labels alone says features=[]" if label else ""
        raise InputError(f"{where} has no feature columns; name at least one in features=…{hint}")
    columns = {
        column: _categories(table[column], column, where)
        if column in categories
        else _numbers(table[column], column, where)
        for column in chosen
    }
    indexes, known = (None, ()) if label is None else encode_labels(table[label].to_pylist(), classes, where)
    return PartyTable(
        name=name,
        ids=_ids(table[id], id, where),
        columns=columns,
        categorical=categories,
        label=indexes,
        classes=known,
        label_name=label or "",
        source=source,
    )


def _existing(path: str | Path) -> Path:
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} does not exist or is no file: name the party's table")
    return file


def _ids(values: Any, column: str, where: str) -> list[str]:
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise InputError(
            f"{where}: id column {column!r} holds {kind}; identifiers are texts or whole numbers: convert it"
        )
    found = values.to_pylist()
    missing = [row + 1 for row, value in enumerate(found) if value is None or value == ""]
    if missing:
        rows = ", ".join(map(str, missing[:3])) + (", …" if len(missing) > 3 else "")
        raise InputError(
            f"{where}: id column {column!r} is null or empty in {len(missing)} rows (rows {rows}); drop them"
        )
    return [str(value) for value in found]


def _numbers(values: Any, column: str, where: str) -> np.ndarray:
    import pyarrow as pa

    kind = values.type
    if pa.types.is_null(kind):
        raise InputError(f"{where}: column {column!r} is null in all rows; drop it with features=…")
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        raise InputError(_no_number(values, column, where))
    found = values.to_pylist()
    missing = [
        row + 1 for row, value in enumerate(found) if value is None or (isinstance(value, float) and math.isnan(value))
    ]
    if missing:
        rows = ", ".join(map(str, missing[:3])) + (", …" if len(missing) > 3 else "")
        raise InputError(
            f"{where}: column {column!r} is null or NaN in {len(missing)} of {len(found)} rows (rows {rows}); "
            "fill or drop them"
        )
    return np.array(found, dtype=np.float64)


def _no_number(values: Any, column: str, where: str) -> str:
    for row, value in enumerate(values.to_pylist()):
        if isinstance(value, str):
            try:
                float(value)
            except ValueError:
                return (
                    f"{where}: column {column!r} holds text, {value!r} in row {row + 1}; list it in "
                    "categorical=… or correct it"
                )
    return (
        f"{where}: column {column!r} holds {values.type}, no numbers; list it in categorical=… or drop it "
        "with features=…"
    )


def _categories(values: Any, column: str, where: str) -> np.ndarray:
    found = values.to_pylist()
    missing = [row + 1 for row, value in enumerate(found) if value is None]
    if missing:
        rows = ", ".join(map(str, missing[:3])) + (", …" if len(missing) > 3 else "")
        raise InputError(
            f"{where}: column {column!r} is null in {len(missing)} rows (rows {rows}); write a category for it, "
            "such as 'unknown'"
        )
    return np.array([_word(value) for value in found], dtype=np.str_)


def _word(value: object) -> str:
    """A category as text, whole floats without their point, so that CSV and Parquet agree."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
