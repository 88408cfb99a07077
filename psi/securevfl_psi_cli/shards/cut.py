"""A table that Spark, Dask or SQL cut into shards beforehand, by the bucket hash: used as it is.

It is a folder of Parquet files with a folder ``shard=57`` for each shard, as these programs write a table that is
partitioned by a column ``shard``. Folder names are not trusted: each identifier's bucket hash is checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from securevfl_psi.column import Identifiers
from securevfl_psi.errors import InputError, ShardError
from securevfl_psi.identifiers import IdRules
from securevfl_psi.sharded.bucket import bucket_hashes, require_key

from securevfl_psi_cli.shards.leading import Cut, Source
from securevfl_psi_cli.shards.shard import sorted_shard
from securevfl_psi_cli.shards.source import parquet_batches, parquet_files, parquet_row_count, source_digest
from securevfl_psi_cli.shards.state import RunState
from securevfl_psi_cli.table import Missing

__all__ = ["cut_source", "is_cut", "read_shard_key", "sort_cut"]

_FOLDER = re.compile(r"shard=([0-9]{1,5})")
_KEY = re.compile(r"[0-9a-fA-F]{128}")


def read_shard_key(path: Path) -> bytes:
    """The key of the bucket hash from a file of 128 hexadecimal digits.

    Raises:
        InputError: it cannot be read, or contains something else.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(200).decode("ascii", "replace").strip()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    if not _KEY.fullmatch(text):
        raise InputError(
            f"{path} does not contain a shard key: 128 hexadecimal digits are needed, as from 'openssl rand -hex 64'"
        )
    return bytes.fromhex(text)


def is_cut(path: Path) -> bool:
    """Whether a table is a folder with folders of shards."""
    return path.is_dir() and any(_FOLDER.fullmatch(one.name) for one in path.iterdir() if one.is_dir())


def cut_source(path: Path, columns: Sequence[str], rules: IdRules, missing: Missing, bits: int) -> Source:
    """The identifiers of a table that was cut beforehand. Rows count over all files in the order of their names.

    Args:
        path: folder with a folder for each shard; shards without rows need none.
        columns: that make an identifier.
        rules: how to normalise.
        missing: ``refuse`` or ``keep``.
        bits: of the bucket hash that make a shard.

    Raises:
        InputError: it cannot be read, has no rows, files outside of shards, or shards that there are not.
    """
    files = parquet_files(path, missing)
    parts: list[list[tuple[str, int]]] = [[] for _ in range(1 << bits)]
    counts, rows = np.zeros(1 << bits, dtype=np.int64), 0
    for file in files:
        found = _FOLDER.fullmatch(file.relative_to(path).parts[0])
        if found is None:
            raise InputError(f"{file} is in no folder shard=NUMBER of {path}: move it, or give a table that is not cut")
        shard = int(found[1])
        if shard >= 1 << bits:
            raise InputError(
                f"{file} is of shard {shard}; {1 << bits} shards go from 0 to {(1 << bits) - 1}: give --shards the "
                "number that the table was cut into"
            )
        parts[shard].append((str(file), rows))
        count = parquet_row_count(file)
        counts[shard] += count
        rows += count
    if not rows:
        raise InputError(f"{path} has no rows; at least one is needed")
    texts = tuple(json.dumps([list(columns), missing.value, part]) for part in parts)
    said = source_digest(files, [",".join(columns), rules.tag(), "cut", str(bits), missing.value])
    return Source(
        batches=lambda: (), rows=rows, digest=said, cut=Cut(task=_TASK, bits=bits, counts=counts, parts=texts)
    )


_TASK = "securevfl_psi_cli.shards.cut:sort_cut"


def sort_cut(folder: str, shard: int, text: str) -> bytes:
    """A task: a shard of a table that was cut beforehand, in ascending order of bucket hashes.

    Args:
        folder: of the run.
        shard: its number.
        text: `cut_source`'s description of the shard.

    Returns:
        How many identifiers it has, 8 bytes, big-endian.

    Raises:
        IdentifierError: identifiers that cannot be used, or come twice.
        ShardError: files that cannot be read or written, or rows of another shard.
    """
    state = RunState(Path(folder))
    columns, missing, parts = json.loads(text)
    return sorted_shard(state, shard, lambda: _read_parts(state, shard, columns, Missing(missing), parts))


def _read_parts(
    state: RunState, shard: int, columns: Sequence[str], missing: Missing, parts: Sequence[tuple[str, int]]
) -> tuple[np.ndarray, np.ndarray, Identifiers]:
    settings = state.settings
    key = bytes.fromhex(settings.key)
    require_key(key)
    rows, hashes, lengths = ([np.empty(0, dtype=kind)] for kind in (np.int64, np.uint64, np.int32))
    texts = [np.empty(0, dtype=np.uint8)]
    for file, first in parts:
        for batch in parquet_batches(Path(file), columns, settings.rules, missing, first):
            rows.append(batch.rows)
            hashes.append(bucket_hashes(batch.ids, key))
            if settings.bits:
                _require_here(file, shard, settings.bits, batch.rows - first, hashes[-1])
            lengths.append(batch.ids.lengths.astype(np.int32))
            texts.append(batch.ids.concatenate(np.arange(len(batch.ids))))
    ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
    ids = Identifiers(np.concatenate(texts), ends - np.concatenate(lengths), np.concatenate(lengths))
    return np.concatenate(rows), np.concatenate(hashes), ids


def _require_here(file: str, shard: int, bits: int, rows: np.ndarray, hashes: np.ndarray) -> None:
    shards = hashes >> np.uint64(64 - bits)
    away = np.flatnonzero(shards != np.uint64(shard))
    if len(away):
        raise ShardError(
            f"{file}: {len(away):,} of {len(rows):,} rows are of other shards, the first of them row "
            f"{int(rows[away[0]]):,} of the file, whose bucket hash is for shard {int(shards[away[0]])}: was the table "
            f"cut with another key, into another number than {1 << bits}, or before its identifiers were normalised?"
        )
