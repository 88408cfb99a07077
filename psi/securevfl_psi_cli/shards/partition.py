"""Identifiers into a file for each shard, a batch at a time: no more than a batch is in memory."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from securevfl_psi.column import Identifiers
from securevfl_psi.errors import ShardError
from securevfl_psi.sharded.bucket import bucket_hashes
from securevfl_psi.sharded.reading import IdBatch

__all__ = ["part_path", "partition_rows", "read_part"]

_CHUNK = struct.Struct("<QQ")
_MOST_BYTES = 1 << 23  # of texts that are put in order at once, which takes nine times as much memory
_MOST_ROWS = 1 << 18


def part_path(folder: Path, shard: int) -> Path:
    """Where the rows of a shard are, as they came."""
    return folder / f"part-{shard:05d}"


def partition_rows(batches: Iterable[IdBatch], key: bytes, bits: int, folder: Path) -> np.ndarray:
    """Write every row to its shard's part. Done again, it begins from nothing.

    A part is a row of chunks: number of rows and of bytes, uint64 each; row numbers, int64; bucket hashes, uint64;
    lengths in bytes, int32; texts. It is trusted within a run only; `sort_shard` makes a shard with a digest of it.

    Args:
        batches: normalised identifiers.
        key: of the bucket hash.
        bits: of it that make a shard.
        folder: for the parts; its old content is deleted.

    Returns:
        Rows of each shard, int64 (2^bits,).

    Raises:
        ShardError: the disk is full, or a part cannot be written.
    """
    counts = np.zeros(1 << bits, dtype=np.int64)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        for batch in batches:
            for piece in _split_batch(batch):
                counts += _write_batch(piece, key, bits, folder)
    except OSError as error:
        raise ShardError(f"{folder} cannot be written: {error.strerror or error}") from None
    return counts


def _split_batch(batch: IdBatch) -> Iterator[IdBatch]:
    """A batch in pieces of bounded size."""
    ends = np.cumsum(batch.ids.lengths, dtype=np.int64)
    start = 0
    while start < len(batch.rows):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _MOST_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _MOST_ROWS)
        yield IdBatch(batch.rows[start:stop], batch.ids.slice_rows(start, stop))
        start = stop


def _write_batch(batch: IdBatch, key: bytes, bits: int, folder: Path) -> np.ndarray:
    hashes = bucket_hashes(batch.ids, key)
    shards = (hashes >> np.uint64(64 - bits)).astype(np.uint16) if bits else np.zeros(len(hashes), dtype=np.uint16)
    order = np.argsort(shards, kind="stable")  # of 16 bits: by radix
    counts = np.bincount(shards, minlength=1 << bits)
    rows, hashes, lengths = batch.rows[order], hashes[order], batch.ids.lengths[order].astype("<i4")
    texts = batch.ids.concatenate(order)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    start = 0
    for shard in np.flatnonzero(counts).tolist():
        stop = start + int(counts[shard])
        with part_path(folder, shard).open("ab") as stream:
            stream.write(_CHUNK.pack(stop - start, int(ends[stop] - ends[start])))
            stream.write(rows[start:stop].astype("<i8").data)
            stream.write(hashes[start:stop].astype("<u8").data)
            stream.write(lengths[start:stop].data)
            stream.write(texts[ends[start] : ends[stop]].data)
        start = stop
    return counts


def read_part(path: Path) -> tuple[np.ndarray, np.ndarray, Identifiers]:
    """Row numbers, int64 (n,), bucket hashes, uint64 (n,), and identifiers of a part; of a shard that nothing fell
    into, none.

    Raises:
        ShardError: it cannot be read, or is cut off.
    """
    try:
        data = np.fromfile(path, dtype=np.uint8) if path.exists() else np.empty(0, dtype=np.uint8)
    except OSError as error:
        raise ShardError(f"{path} cannot be read: {error.strerror or error}") from None
    rows, hashes, lengths, starts = ([np.empty(0, dtype=kind)] for kind in ("<i8", "<u8", "<i4", "<i8"))
    place = 0
    while place < len(data):
        count, size = _CHUNK.unpack(data[place : place + _CHUNK.size].tobytes())
        place += _CHUNK.size
        if place + 20 * count + size > len(data):
            raise ShardError(f"{path} is cut off; delete the run's folder, and run again")
        rows.append(data[place : place + 8 * count].view("<i8"))
        hashes.append(data[place + 8 * count : place + 16 * count].view("<u8"))
        lengths.append(data[place + 16 * count : place + 20 * count].view("<i4"))
        place += 20 * count
        starts.append(place + np.cumsum(lengths[-1], dtype=np.int64) - lengths[-1])
        place += size
    ids = Identifiers(data, np.concatenate(starts), np.concatenate(lengths))
    return np.concatenate(rows), np.concatenate(hashes), ids
