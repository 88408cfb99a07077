"""Make one row of several rows of an identifier, at the owner, before anything is aligned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from securevfl.data.aggregates import ALL, FUNCTIONS
from securevfl.data.columns import ColumnUse
from securevfl.data.csv_rows import NotConverted
from securevfl.data.databases.dataset_rows import DatasetRows
from securevfl.data.limits import TableLimits
from securevfl.data.row_source import RowSource
from securevfl.errors import InputError, UnknownNameError

__all__ = ["group_rows"]

_OF_NUMBERS = ("sum", "mean", "std")


def group_rows(source: RowSource, use: ColumnUse, limits: TableLimits) -> RowSource:
    """Return the table with one row of each identifier; the same source where the table is not aggregated.

    Columns are the identifier's and ``COLUMN_FUNCTION`` of each function; ``rows`` is the number of rows. The rows come
    in the order in which identifiers first occur. The table is read at once: it has to fit into memory.

    Args:
        source: the table as it is.
        use: with `aggregate`, `order_by` and the identifier.
        limits: bounds on what is read.

    Raises:
        InputError: a function of numbers for a column of texts, or the table cannot be read.
        UnknownNameError: a column is not there.
    """
    if not use.aggregate:
        return source
    import pyarrow as pa
    import pyarrow.dataset as pa_dataset

    where, names = source.location, source.column_names(limits)
    extra = [use.order_by] if use.order_by else []
    wanted = list(dict.fromkeys([*use.ids, *(name for name in use.aggregate if name != ALL), *extra]))
    for name in wanted:
        if name not in names:
            raise UnknownNameError(f"column of {where}, named in aggregate, order_by or id:", name, names)
    table = _read_columns(source, wanted, use.ids, limits)
    if use.order_by:
        table = table.sort_by(use.order_by)
    asked: list[tuple[Any, str, Any]] = []
    called: list[str] = []
    for column, functions in use.aggregate.items():
        for function in functions:
            asked.append(_ask_arrow(table, column, function, where))
            called.append("rows" if column == ALL else f"{column}_{function}")
    grouped = pa.TableGroupBy(table, list(use.ids), use_threads=False).aggregate(asked)
    made = [*use.ids, *called]
    for name in made:
        if made.count(name) > 1:
            raise InputError(f"{where}: aggregate makes column {name!r} twice; rename one in the file")
    return DatasetRows(where, "aggregated", pa_dataset.dataset(grouped.rename_columns(made)))


def _read_columns(source: RowSource, wanted: Sequence[str], ids: Sequence[str], limits: TableLimits) -> Any:
    import pyarrow as pa

    names = source.column_names(limits)
    columns = [name for name in names if name in wanted]
    use = ColumnUse.from_arguments(
        id=tuple(ids), label=None, features=None, categorical=(), classes=None, prepare="auto"
    )
    while True:
        source.most_rows(columns, use, limits)
        try:
            parts = [pa.Table.from_batches([one]) for one in source.iter_batches(columns, use, limits)]
            break
        except NotConverted as error:  # numbers at the top of a file, and a text further down
            if error.column in use.text_columns:
                raise
            use = use.with_text(error.column)
    if not parts:
        raise InputError(f"{source.location} has no rows")
    table = pa.concat_tables([part.cast(_decode_texts(part.schema)) for part in parts], promote_options="permissive")
    return table.select(list(dict.fromkeys(wanted)))


def _decode_texts(schema: Any) -> Any:
    """Return a schema with plain texts in place of dictionaries of texts."""
    import pyarrow as pa

    kinds = [one.type.value_type if pa.types.is_dictionary(one.type) else one.type for one in schema]
    return pa.schema([(one.name, kind) for one, kind in zip(schema, kinds, strict=True)])


def _ask_arrow(table: Any, column: str, function: str, where: str) -> tuple[Any, str, Any]:
    """Return one aggregation as `pyarrow.TableGroupBy` takes it.

    Raises:
        InputError: a sum of texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if column == ALL:
        return [], "count_all", None
    kind = table.schema.field(column).type
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if function in _OF_NUMBERS and not any(is_one(kind) for is_one in numbers):
        raise InputError(
            f"{where}: aggregate asks for the {function} of {column!r}, which is {kind}, not numbers; count, distinct, "
            "first and last take any column"
        )
    options = pc.VarianceOptions(ddof=1) if function == "std" else None
    return column, FUNCTIONS[function], options
