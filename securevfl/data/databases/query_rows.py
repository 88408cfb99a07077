"""Read the rows that a query returns, from DuckDB, PostgreSQL, MySQL or SQLite.

A query is a text file: its first line names the database, the others are SQL.

```sql
-- database: postgresql://reader@db.bank.example/credit
select client_no, income, late from clients where opened < date '2026-01-01'
```

No password stands in the file: each library finds it where it always does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from securevfl.data.databases.dataset_rows import DatasetRows
from securevfl.data.file_locations import FileLocation
from securevfl.data.limits import TableLimits
from securevfl.data.row_source import BATCH, Count
from securevfl.errors import InputError

__all__ = ["QUERY", "open_query"]

QUERY = ".sql"
"""File name ending of a query."""
_HEAD = re.compile(r"\s*--\s*database:\s*(?P<address>\S+)\s*$")
_LONGEST = 1 << 20
_EXAMPLE = "its first line names the database, as in '-- database: duckdb:clients.duckdb'"
_NO_ROWS = "the query returns no rows: begin it with select"
_PASSWORDS = {
    "postgresql": "PGPASSWORD or ~/.pgpass",
    "mysql": "the section [client] of ~/.my.cnf",
}


def open_query(place: FileLocation, limits: TableLimits) -> DatasetRows:
    """Run a query once, and return the rows that it gave. They stay in memory.

    Args:
        place: the file of the query.
        limits: bounds on the rows, columns and bytes of the result.

    Raises:
        InputError: the file names no database, or one with a password; the database's library is not installed; the
            database or the query fails; or the result exceeds a limit.
    """
    import pyarrow as pa
    import pyarrow.dataset as pa_dataset

    address, query = _read_query(place)
    kind = urlsplit(address).scheme
    if kind not in _READERS:
        raise InputError(f"{place.where}: {kind!r} is no database that is read here; {', '.join(_READERS)} are")
    parts, count = [], Count(limits, place.where)
    for batch in _explain_failures(place.where, address, _READERS[kind](address, query, place)):
        limits.check(place.where, columns=batch.num_columns)
        count.add(batch, batch.nbytes // max(len(batch), 1))
        parts.append(batch)
    try:
        table = pa.concat_tables([pa.Table.from_batches([part]) for part in parts], promote_options="permissive")
    except pa.ArrowInvalid as error:
        raise InputError(f"{place.where}: a column changes its type: {error.args[0]}; cast it in the query") from None
    return DatasetRows(place.where, "query", pa_dataset.dataset(table))


def _read_query(place: FileLocation) -> tuple[str, str]:
    """Return the address of the database and the query."""
    place.require_exists(folder=False)
    if place.size > _LONGEST:
        raise InputError(f"{place.where} has {place.size:,} bytes; a query has at most {_LONGEST:,}")
    with place.open_file() as file:
        try:
            text = bytes(file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{place.where} is not UTF-8: save the query in UTF-8") from None
    first, _, query = text.lstrip().partition("\n")
    found = _HEAD.match(first)
    if found is None:
        raise InputError(f"{place.where} names no database: {_EXAMPLE}")
    if not query.strip():
        raise InputError(f"{place.where} has no query below its first line")
    address = found["address"]
    parts = urlsplit(address)
    if parts.password is not None or "password" in parts.query.lower():
        cure = _PASSWORDS.get(parts.scheme, "the library's own place")
        raise InputError(f"{place.where}: the address of the database contains a password: leave it out; use {cure}")
    return address, query


def _explain_failures(where: str, address: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches; raise what a driver raises as `InputError`."""
    try:
        yield from batches
    except (InputError, MemoryError):
        raise
    except Exception as error:  # each driver has errors of its own, whose common base is this
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise InputError(f"{where}: {urlsplit(address).scheme} says: {lines[0]}") from None


def _local_path(address: str, place: FileLocation) -> str:
    """Return the path in ``duckdb:file``, from the folder of the query; "" for a database in memory."""
    parts = urlsplit(address)
    named = unquote(parts.netloc + parts.path)
    if not named:
        return ""
    path = Path(place.path).parent / named
    if not path.is_file():
        raise InputError(f"{place.where}: the database {named} does not exist beside the query: correct its path")
    return str(path)


def _query_duckdb(address: str, query: str, place: FileLocation) -> Iterator[Any]:
    try:
        import duckdb
    except ImportError:
        raise _explain_missing(place, "DuckDB", "duckdb", "duckdb") from None
    path = _local_path(address, place)
    settings = {"file_search_path": str(Path(place.path).parent)}
    with closing(duckdb.connect(path or ":memory:", read_only=bool(path), config=settings)) as connection:
        found = connection.sql(query)
        if found is None:
            raise InputError(f"{place.where}: {_NO_ROWS}")
        yield from found.to_arrow_reader(BATCH)


def _query_postgresql(address: str, query: str, place: FileLocation) -> Iterator[Any]:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise _explain_missing(place, "PostgreSQL", "adbc-driver-postgresql", "postgresql") from None
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        yield from map(_convert_numerics, cursor.fetch_record_batch())


def _convert_numerics(batch: Any) -> Any:
    """Return the batch with float64 in place of what the driver hands over as the text of a ``numeric``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        pc.cast(column.storage, pa.float64()) if getattr(column.type, "type_name", "") == "numeric" else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _query_mysql(address: str, query: str, place: FileLocation) -> Iterator[Any]:
    try:
        import pymysql
    except ImportError:
        raise _explain_missing(place, "MySQL", "PyMySQL", "mysql") from None
    parts = urlsplit(address)
    tls = parse_qs(parts.query)
    options: dict[str, Any] = {"host": parts.hostname, "port": parts.port or 3306, "database": parts.path.strip("/")}
    options |= {"user": unquote(parts.username)} if parts.username else {}
    options |= {"ssl_ca": tls["ssl_ca"][0]} if "ssl_ca" in tls else {}
    login = Path("~/.my.cnf").expanduser()
    options |= {"read_default_file": str(login)} if login.is_file() else {}
    with closing(pymysql.connect(**options)) as connection, connection.cursor(pymysql.cursors.SSCursor) as cursor:
        cursor.execute(query)
        yield from _convert_rows(cursor, place.where)


def _query_sqlite(address: str, query: str, place: FileLocation) -> Iterator[Any]:
    import sqlite3

    path = _local_path(address, place)
    if not path:
        raise InputError(f"{place.where}: name the file of the database: -- database: sqlite:clients.sqlite")
    with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as connection:
        yield from _convert_rows(connection.execute(query), place.where)


def _convert_rows(cursor: Any, where: str) -> Iterator[Any]:
    """Yield what a cursor of Python's database interface has (PEP 249), as `pyarrow.RecordBatch`."""
    import pyarrow as pa

    names = [column[0] for column in cursor.description or ()]
    if not names:
        raise InputError(f"{where}: {_NO_ROWS}")
    some = False
    while rows := cursor.fetchmany(BATCH):
        some = True
        yield pa.RecordBatch.from_arrays([pa.array(list(values)) for values in zip(*rows, strict=True)], names=names)
    if not some:
        yield pa.RecordBatch.from_arrays([pa.nulls(0) for _ in names], names=names)


_READERS: Mapping[str, Callable[[str, str, FileLocation], Iterator[Any]]] = {
    "duckdb": _query_duckdb,
    "postgresql": _query_postgresql,
    "mysql": _query_mysql,
    "sqlite": _query_sqlite,
}


def _explain_missing(place: FileLocation, what: str, package: str, extra: str) -> InputError:
    return InputError(
        f"{place.where} asks {what}, and the package {package} is not installed: pip install 'securevfl[{extra}]'"
    )
