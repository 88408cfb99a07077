"""Load party tables from files, folders, object stores, Arrow and pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.column_builders import LabelColumn, PersonColumn
from securevfl.data.columns import ColumnUse, Target, column_names, doubled_names
from securevfl.data.compound_ids import identifier_of
from securevfl.data.csv_rows import NotConverted
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import place_of
from securevfl.data.labels import encode_labels
from securevfl.data.lake import BATCH, source_of
from securevfl.data.limits import DEFAULT_LIMITS, TableLimits
from securevfl.data.prepare import Preparation
from securevfl.data.roles import column_builders, name_labels, several_labels
from securevfl.data.row_source import OF, RowSource, refuse_extension
from securevfl.data.storage import DEFAULT_STORAGE, Storage, release_memory
from securevfl.data.table import PartyTable, run_all
from securevfl.data.wide_batches import add_columns
from securevfl.errors import InputError

__all__ = ["from_arrow", "from_pandas", "read_csv", "read_parquet", "read_table"]

_FULL = BATCH // 2
_MOST_HELD = 1 << 22
"""Values of small batches that are merged, where a table is wide."""


def read_table(
    path: str | Path,
    *,
    name: str,
    id: str | Sequence[str],
    label: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    categorical: Iterable[str] = (),
    classes: Sequence[object] | None = None,
    prepare: Preparation | Mapping[str, object] | str | None = None,
    target: Target = "classes",
    weight: str | None = None,
    group: str | None = None,
    time: str | None = None,
    person: str | None = None,
    drop: Sequence[str] = (),
    limits: TableLimits = DEFAULT_LIMITS,
    storage: Storage = DEFAULT_STORAGE,
    filesystem: Any = None,
    kind: str = "",
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    aggregate: Mapping[str, str | Sequence[str]] | None = None,
    order_by: str | None = None,
) -> PartyTable:
    """Load a party's table from a file, a folder of Parquet files or an object store. Reads only the columns it uses,
    once, some rows at a time.

    Numbers become float32, or float64 in columns where float32 would lose more than 2e-6 standard deviations.

    Args:
        path: a CSV file with a header (also .gz, .bz2), a Parquet file or a folder of them, or an Arrow file (.arrow,
            .feather, .ipc), told apart by the ending; or an address such as ``s3://bucket/folder`` in any store that
            `pyarrow.fs` supports, without credentials in it. Also the folder of a Delta or an Iceberg table, or a query
            (.sql) for DuckDB, PostgreSQL, MySQL or SQLite.
        name: the party's name.
        id: the identifier column; read as text, so that ``007`` stays ``007``. Up to 16 columns for a compound
            identifier; all parties list theirs in the same order.
        label: the active party's label column; or several columns of zeros and ones, for a job with task="multilabel".
        features: the feature columns; if None, all columns except id and label.
        categorical: the feature columns that contain categories.
        classes: the label's values in class-index order; if None, the values found, sorted.
        prepare: ``"auto"`` or a `Preparation`: features may then contain missing values, texts, dates and booleans, and
            are prepared when a job trains. None allows only numbers and categories without gaps.
        target: ``"number"`` if the label is an amount or a count, for a job with task="regression"; ``"labels"`` for
            several labels.
        weight: at the active party, a column of numbers from 0 up: how much each row counts in training and in metrics.
        group: at the active party, a column whose values stay together in a split (``split_by="group"``).
        time: at the active party, the column by which rows are split (``split_by="time"``).
        person: the column that names the person of each row, if a person has several rows or a new identifier in each
            snapshot: what may be answered about the person is counted by it. Not a feature; may be part of the
            identifier.
        drop: columns that are not used, instead of listing all others in `features`.
        limits: bounds on rows, columns and bytes.
        storage: size above which columns go to a memory-mapped file, and the folder of that file.
        filesystem: a `pyarrow.fs.FileSystem` that `path` is in, if an address does not name it.
        kind: ``"CSV"``, ``"Parquet"`` or ``"Arrow"`` to override the ending.
        delimiter: of CSV: ``","``, ``";"``, ``"|"`` or a tab; detected from the first lines by default.
        encoding: of CSV, Python's name of it, for example ``"cp1252"``; detected by default.
        decimal: decimal mark of CSV, ``"."`` or ``","``; detected by default.
        aggregate: of a table with several rows of an identifier, column → functions that make one value of them: sum,
            mean, std, min, max, count, distinct, first, last. ``{"amount": ["sum", "max"], "*": "count"}`` gives the
            columns ``amount_sum``, ``amount_max`` and ``rows``, which all other arguments name; other columns go.
        order_by: the column by which ``first`` and ``last`` are told.

    Raises:
        InputError: the file or its content cannot be used; the message names the place and the cure.
        UnknownNameError: a column does not exist; suggests the nearest one.
    """
    use = ColumnUse.from_arguments(
        id=id,
        label=label,
        features=features,
        categorical=categorical,
        classes=classes,
        prepare=prepare,
        target=target,
        weight=weight,
        group=group,
        time=time,
        person=person,
        drop=drop,
        aggregate=aggregate,
        order_by=order_by,
    )
    source = source_of(place_of(path, filesystem), kind, CsvForm(delimiter, encoding, decimal), use, limits)
    columns = use.columns_to_read(source.column_names(limits), source.location)
    while True:
        rows = source.most_rows(columns, use, limits)
        if rows < 0:
            raise InputError(f"{source.location} announces {rows} rows: the file is damaged")
        groups = _number_groups(source, columns, use, rows)
        apart = {name for group in groups for name in group}
        batches = source.iter_batches([name for name in columns if name not in apart], use, limits)
        wide = source.iter_groups(groups, limits)
        try:
            return _build_table(batches, columns, rows, name, use, source.location, limits, storage, wide)
        except NotConverted as error:  # numbers at the top of a file, and a text further down
            if use.preparation is None or error.column in use.text_columns or error.column not in columns:
                raise
            use = use.with_text(error.column)


def read_csv(path: str | Path, *, name: str, id: str | Sequence[str], **options: Any) -> PartyTable:
    """Load a party's table from a CSV file with any ending; arguments and errors as for `read_table`."""
    return read_table(path, name=name, id=id, kind="CSV", **options)


def read_parquet(path: str | Path, *, name: str, id: str | Sequence[str], **options: Any) -> PartyTable:
    """Load a party's table from a Parquet file or a folder of them; arguments and errors as for `read_table`."""
    return read_table(path, name=name, id=id, kind="Parquet", **options)


def from_pandas(frame: Any, *, name: str, id: str | Sequence[str], **options: Any) -> PartyTable:
    """Build a party's table from a pandas DataFrame; ignores its index. Arguments and errors as for `from_arrow`."""
    import pyarrow as pa

    names = [str(column) for column in frame.columns]
    for mistake in doubled_names(names, f"the table of {name!r}"):
        raise mistake
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"the table of {name!r} contains a column of mixed types: {error.args[0]}") from None
    except (pa.ArrowException, TypeError) as error:  # complex numbers, sparse columns
        why = "; ".join(map(str, error.args))
        raise InputError(f"the table of {name!r} contains a column of an unsupported type: {why}; {OF}") from None
    return from_arrow(table, name=name, id=id, **options)


def from_arrow(
    table: Any,
    *,
    name: str,
    id: str | Sequence[str],
    label: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    categorical: Iterable[str] = (),
    classes: Sequence[object] | None = None,
    prepare: Preparation | Mapping[str, object] | str | None = None,
    target: Target = "classes",
    weight: str | None = None,
    group: str | None = None,
    time: str | None = None,
    person: str | None = None,
    drop: Sequence[str] = (),
    source: str = "",
    storage: Storage = DEFAULT_STORAGE,
) -> PartyTable:
    """Build a party's table from a `pyarrow.Table`; arguments and errors as for `read_table`."""
    use = ColumnUse.from_arguments(
        id=id,
        label=label,
        features=features,
        categorical=categorical,
        classes=classes,
        prepare=prepare,
        target=target,
        weight=weight,
        group=group,
        time=time,
        person=person,
        drop=drop,
    )
    where = source or f"the table of {name!r}"
    columns = use.columns_to_read(column_names(table.schema, where), where)
    for column in columns:
        refuse_extension(table.schema.field(column).type, column, where)
    batches = table.select(columns).to_batches(max_chunksize=BATCH)
    return _build_table(iter(batches), columns, table.num_rows, name, use, source, DEFAULT_LIMITS, storage)


def _build_table(
    batches: Iterator[Any],
    columns: Sequence[str],
    most_rows: int,
    name: str,
    use: ColumnUse,
    source: str,
    limits: TableLimits,
    storage: Storage,
    wide: Iterable[Any] = (),
) -> PartyTable:
    where = source or f"the table of {name!r}"
    chosen = use.select_features(columns)
    area = storage.allocate((len(chosen), most_rows), np.float32)
    features = {column: use.column_builder(column, where, area[i], limits, storage) for i, column in enumerate(chosen)}
    ids = identifier_of(use.ids, where)
    labels = LabelColumn(use.label, where) if use.label is not None and use.target == "classes" else None
    persons = None if use.person is None else PersonColumn(use.person, where)
    roles = column_builders(use.role_columns, where)
    rows = 0
    for batch in _merge_batches(batches):
        rows += len(batch)
        if rows > most_rows:
            raise InputError(f"{where} contains more than the {most_rows:,} rows it announces: write the file again")
        ids.add(batch)
        if labels is not None:
            labels.add(batch.column(use.label))
        if persons is not None:
            persons.add(batch.column(use.person))
        for column, role in roles.values():
            role.add(batch.column(column))
        add_columns(features, batch)
        release_memory(area)
    if not rows:
        raise InputError(f"{where} has no rows below its header: export it again, with its rows")
    for batch in wide:
        add_columns(features, batch)
        release_memory(area)
    indexes, known = (None, ()) if labels is None else encode_labels(labels.finish(), use.classes, where)
    own = {role: gathered.finish() for role, (_, gathered) in roles.items()}
    if use.labels:
        several = {column: own.pop(f"label {place}") for place, column in enumerate(use.labels)}
        own["label"], known = several_labels(several, where), use.labels
    return PartyTable(
        name=name,
        ids=ids.finish(),
        columns=dict(zip(features, run_all([one.finish for one in features.values()]), strict=True)),
        categorical=use.categorical,
        label=own.get("label", indexes),
        classes=known,
        label_name=name_labels(use.labels) if use.labels else use.label or "",
        weight=own.get("weight"),
        group=own.get("group"),
        time=own.get("time"),
        persons=() if persons is None else persons.finish(),
        source=source,
        storage=storage,
        preparation=use.preparation,
        id_columns=tuple(use.ids),
    )


def _number_groups(source: RowSource, columns: Sequence[str], use: ColumnUse, rows: int) -> list[list[str]]:
    """Return the features that are numbers of a wide table, in groups; see `RowSource.number_groups`."""
    if use.preparation is not None:  # a column's first batch decides what the column is
        return []
    features = set(use.select_features(columns)) - use.categorical
    return source.number_groups([name for name in columns if name in features], rows)


def _merge_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Merge small batches, because the work per batch has a fixed cost."""
    held: list[Any] = []
    for batch in batches:
        if held and not batch.schema.equals(held[0].schema):
            yield from _join_batches(held)
            held = []
        held.append(batch)
        rows = sum(map(len, held))
        if rows >= _FULL or rows * batch.num_columns >= _MOST_HELD:
            yield from _join_batches(held)
            held = []
    yield from _join_batches(held)


def _join_batches(held: list[Any]) -> list[Any]:
    import pyarrow as pa

    if len(held) < 2:
        return [one for one in held if len(one)]
    found: list[Any] = pa.Table.from_batches(held).combine_chunks().to_batches()
    return found
