"""Read a table (CSV, Parquet or a folder of Parquet) as batches of identifiers, any number of times.

Row numbers count from 0 over all files of a folder, in the order of their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from securevfl_psi.errors import IdentifierError, InputError
from securevfl_psi.identifiers import MISSING, IdRules
from securevfl_psi.sharded import IdBatch
from securevfl_psi.sharded.reading import normalised_batch, of_arrow

from securevfl_psi_cli.shards.leading import Source
from securevfl_psi_cli.table import Missing
from securevfl_psi_cli.table_rows import find_column, is_parquet, open_parquet, read_columns, read_rows

__all__ = ["open_source", "parquet_batches", "parquet_files", "parquet_row_count", "source_digest"]

_ROWS = 1 << 17
_STREAMED = {"pre_buffer": False, "buffer_size": 1 << 20}  # Arrow would read ahead the whole column


def open_source(
    path: Path, columns: Sequence[str], delimiter: str, rules: IdRules, missing: Missing, max_bytes: int
) -> Source:
    """The identifiers of a table.

    Args:
        path: a file, or a folder of Parquet files (``.parquet``, ``.pq``; those in subfolders as well).
        columns: that make an identifier.
        delimiter: between fields of CSV.
        rules: how to normalise.
        missing: ``refuse`` or ``keep``.
        max_bytes: most bytes of a CSV file, unpacked.

    Raises:
        InputError: it cannot be read, or has no rows.
    """
    files = parquet_files(path, missing) if path.is_dir() else _one_file(path, missing)
    rows = sum(_count_rows(file, delimiter, max_bytes) for file in files)
    if not rows:
        raise InputError(f"{path} has no rows; at least one is needed")
    digest = source_digest(files, [",".join(columns), rules.tag(), delimiter, missing.value])

    def iter_batches() -> Iterator[IdBatch]:
        first = 0
        for file in files:
            if is_parquet(file):
                found = parquet_batches(file, columns, rules, missing, first)
            else:
                found = _csv_batches(file, columns, delimiter, rules, missing, max_bytes, first)
            for batch in found:
                first += len(batch.rows)
                yield batch

    return Source(batches=iter_batches, rows=rows, digest=digest)


def source_digest(files: Sequence[Path], said: Sequence[str]) -> str:
    """Hexadecimal text that is another one where files (paths, sizes, times) or what is said of them is."""
    texts = list(said)
    for file in files:
        found = file.stat()
        texts += [str(file.resolve()), str(found.st_size), str(found.st_mtime_ns)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _require_kept(missing: Missing) -> None:
    if missing is Missing.drop:
        raise InputError("--missing drop with --shards: drop these rows first, or use --missing keep")


def _one_file(path: Path, missing: Missing) -> list[Path]:
    _require_kept(missing)
    if not path.exists():
        raise InputError(f"{path} cannot be read: there is no such file")
    return [path]


def parquet_files(path: Path, missing: Missing) -> list[Path]:
    """Files of a folder, in the order of their names.

    Raises:
        InputError: there are none, or rows would have to be dropped.
    """
    _require_kept(missing)
    files = sorted(file for file in path.rglob("*") if file.is_file() and is_parquet(file))
    if not files:
        raise InputError(f"{path} is a folder without Parquet files (.parquet, .pq)")
    return files


def parquet_row_count(path: Path) -> int:
    """Rows of a Parquet file.

    Raises:
        InputError: it cannot be read.
    """
    with open_parquet(path, **_STREAMED) as file:
        return int(file.metadata.num_rows)


def _count_rows(path: Path, delimiter: str, max_bytes: int) -> int:
    if is_parquet(path):
        return parquet_row_count(path)
    return sum(1 for _ in read_rows(path, delimiter, max_bytes)) - 1


def parquet_batches(
    path: Path, columns: Sequence[str], rules: IdRules, missing: Missing, first: int
) -> Iterator[IdBatch]:
    """The identifiers of a Parquet file, its rows counted on from `first`.

    Raises:
        IdentifierError: identifiers that are missing or cannot be used.
        InputError: it cannot be read, or lacks a column.
    """
    with open_parquet(path, **_STREAMED) as file:
        for column in columns:
            find_column(path, file.schema_arrow.names, column, ",")
        for batch in file.iter_batches(batch_size=_ROWS, columns=list(columns), use_threads=False):
            arrays = [of_arrow(batch.column(name), first) for name in columns]
            if missing is Missing.refuse:
                for name in columns:
                    _refuse_missing(path, batch.column(name), first)
            raw = arrays[0] if len(arrays) == 1 else list(zip(*arrays, strict=True))
            yield _normalise_batch(path, raw, rules, first)
            first += batch.num_rows


def _refuse_missing(path: Path, array: Any, first: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return
    texts = pa.array(sorted(text for text in MISSING if text), type=array.type)
    short = pc.less_equal(pc.binary_length(array), 24)  # what stands for nothing is short, white space included
    if not pc.any(short).as_py():
        return
    found = np.flatnonzero(np.asarray(pc.is_in(pc.utf8_trim_whitespace(array), value_set=texts)))
    if len(found):
        raise IdentifierError(
            f"{path}: the identifier is missing ({array[int(found[0])].as_py()!r}) in row {first + int(found[0])}"
            + (f" and {len(found) - 1} more" if len(found) > 1 else "")
            + "; correct or drop these rows, or use --missing keep, if that is somebody's identifier"
        )


def _csv_batches(
    path: Path,
    columns: Sequence[str],
    delimiter: str,
    rules: IdRules,
    missing: Missing,
    max_bytes: int,
    first: int,
) -> Iterator[IdBatch]:
    part: list[object] = []
    for line, found in read_columns(path, columns, delimiter, max_bytes):
        if missing is Missing.refuse:
            absent = next((text for text in found if text and text.strip() in MISSING), None)
            if absent is not None:
                raise IdentifierError(
                    f"{path}: the identifier is missing ({absent!r}) in line {line}; correct or drop this row, or use "
                    "--missing keep, if that is somebody's identifier"
                )
        part.append(found[0] if len(found) == 1 else found)
        if len(part) == _ROWS:
            yield _normalise_batch(path, part, rules, first)
            first, part = first + len(part), []
    if part:
        yield _normalise_batch(path, part, rules, first)


def _normalise_batch(path: Path, raw: Any, rules: IdRules, first: int) -> IdBatch:
    try:
        return normalised_batch(raw, rules, first)
    except IdentifierError as error:
        raise IdentifierError(f"{path}: {error}") from None
