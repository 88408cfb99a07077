"""Files of shards: a header with the run, the shard and a digest, then arrays. Written whole or not at all.

| bytes | what |
|---|---|
| 8 | ``SVSHARD`` and ``s`` for a shard, ``r`` for a result, ``d`` for a digest |
| 16 | tag of the run |
| 4, 8 | number of the shard, number of rows; little-endian like all that follows |
| 32 | SHA-256 of all before it and of what follows |

A shard continues with its row numbers, int64 (n,), lengths in bytes, int32 (n,), and texts in UTF-8, one after the
other, in ascending order of their bucket hashes. A result continues with row numbers, int64 (k,), in the same order:
it is the same, byte by byte, however often a shard is run. A digest continues with the 32 bytes of the last session
that ended; it is written after the result, so a shard with a digest is done.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from securevfl_psi.column import Identifiers
from securevfl_psi.errors import ShardError

__all__ = [
    "read_digest",
    "read_result",
    "read_shard",
    "write_digest",
    "write_pieces",
    "write_result",
    "write_shard",
]

_HEAD = struct.Struct("<8s16sIQ")
_DIGEST = 32
_SHARD, _RESULT, _DONE = b"SVSHARDs", b"SVSHARDr", b"SVSHARDd"


def write_pieces(path: Path, parts: Iterable[bytes | memoryview | np.ndarray]) -> None:
    """Give a file its name once all of it is on disk: it is either missing or complete.

    Raises:
        ShardError: it cannot be written.
    """
    passing = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
    try:
        try:
            with passing.open("wb") as stream:
                for part in parts:
                    stream.write(part if not isinstance(part, np.ndarray) else np.ascontiguousarray(part).data)
                stream.flush()
                os.fsync(stream.fileno())
            passing.replace(path)
        finally:
            passing.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # some file systems know no such thing
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise ShardError(f"{path} cannot be written: {error.strerror or error}") from None


def _write_file(path: Path, head: bytes, arrays: list[np.ndarray]) -> None:
    digest = hashlib.sha256(head)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    write_pieces(path, [head, digest.digest(), *arrays])


def _read_file(path: Path, kind: bytes, tag: bytes, shard: int) -> tuple[int, np.ndarray]:
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise ShardError(f"{path} cannot be read: {error.strerror or error}") from None
    begin = _HEAD.size + _DIGEST
    if len(data) < begin:
        raise ShardError(f"{path} has {len(data)} bytes, less than a header: delete it, and run again")
    found, run, number, count = _HEAD.unpack(data[: _HEAD.size].tobytes())
    if (found, run, number) != (kind, tag, shard):
        raise ShardError(f"{path} is not shard {shard} of this run: delete it, and run again")
    digest = hashlib.sha256(data[: _HEAD.size].data)
    digest.update(data[begin:].data)
    if digest.digest() != data[_HEAD.size : begin].tobytes():
        raise ShardError(f"{path} was changed or cut off since it was written: delete it, and run again")
    return count, data[begin:]


def write_shard(path: Path, tag: bytes, shard: int, rows: np.ndarray, lengths: np.ndarray, data: np.ndarray) -> None:
    """A shard: row numbers, int64 (n,), lengths, int32 (n,), texts, uint8 (total,)."""
    _write_file(path, _HEAD.pack(_SHARD, tag, shard, len(rows)), [rows, lengths, data])


def read_shard(path: Path, tag: bytes, shard: int) -> tuple[np.ndarray, Identifiers]:
    """Row numbers, int64 (n,), and identifiers of a shard.

    Raises:
        ShardError: it cannot be read, was changed, or is another one.
    """
    count, body = _read_file(path, _SHARD, tag, shard)
    rows, lengths, data = body[: 8 * count].view("<i8"), body[8 * count : 12 * count].view("<i4"), body[12 * count :]
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(lengths) != count or (count and int(ends[-1]) != len(data)):
        raise ShardError(f"{path} does not contain the {count} rows that it announces: delete it, and run again")
    return rows, Identifiers(data, ends - lengths, lengths)


def write_result(path: Path, tag: bytes, shard: int, rows: np.ndarray) -> None:
    """Row numbers of a shard's common identifiers, in ascending order of their bucket hashes, int64 (k,)."""
    _write_file(path, _HEAD.pack(_RESULT, tag, shard, len(rows)), [np.asarray(rows, dtype="<i8")])


def read_result(path: Path, tag: bytes, shard: int) -> np.ndarray:
    """What `write_result` wrote.

    Raises:
        ShardError: it cannot be read, was changed, or is another one.
    """
    count, body = _read_file(path, _RESULT, tag, shard)
    if len(body) != 8 * count:
        raise ShardError(f"{path} does not contain the {count} rows that it announces: delete it, and run again")
    return body.view("<i8")


def write_digest(path: Path, tag: bytes, shard: int, digest: bytes) -> None:
    """The digest of the session that a shard's result is from, 32 bytes."""
    _write_file(path, _HEAD.pack(_DONE, tag, shard, 0), [np.frombuffer(digest, dtype=np.uint8)])


def read_digest(path: Path, tag: bytes, shard: int) -> bytes:
    """What `write_digest` wrote.

    Raises:
        ShardError: it cannot be read, was changed, or is another one.
    """
    digest = _read_file(path, _DONE, tag, shard)[1].tobytes()
    if len(digest) != _DIGEST:
        raise ShardError(f"{path} has {len(digest)} bytes, which is not a digest: delete it, and run again")
    return digest
