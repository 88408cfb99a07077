"""Split sets of points or tokens into chunks for the wire, and check each chunk as it arrives.

Chunks let both sides compute while bytes move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from securevfl_psi.arrays import count_duplicates
from securevfl_psi.errors import MalformedError, SetSizeError
from securevfl_psi.group import CHUNK, POINT_BYTES

__all__ = [
    "CHUNK",
    "PointStream",
    "check_points",
    "join_chunks",
    "require_chunk",
    "require_rows",
    "require_size",
    "split",
]

_PREFIX = 16  # bytes of a point that are compared: two honest ones of 2^24 agree in them with probability 2^-81
_TOP = np.uint64(0x7FFFFFFFFFFFFFFF)
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOWEST_OF_P = np.uint64(0xFFFFFFFFFFFFFFED)
_SMALL_ORDER = (  # the five canonical u of points of order 1, 2, 4 and 8 on the curve and its twist
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    2**255 - 20,
)
_SMALL_ORDER_ROWS = np.frombuffer(b"".join(u.to_bytes(32, "little") for u in _SMALL_ORDER), dtype=np.uint8).reshape(
    -1, 32
)


def split(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of an array in chunks of at most `CHUNK`; an empty array gives no chunk."""
    for start in range(0, len(array), CHUNK):
        yield array[start : start + CHUNK]


def join_chunks(chunks: Iterable[np.ndarray], count: int, width: int, what: str) -> np.ndarray:
    """Join chunks that arrived, the inverse of `split`: uint8 (count, width).

    `count` is the announced number. Check it against the policy first: this function allocates that much at once.

    Raises:
        MalformedError: a chunk with the wrong type, shape or number of rows.
        SetSizeError: more or fewer rows than announced.
    """
    out = np.empty((count, width), dtype=np.uint8)
    done = 0
    for chunk in chunks:
        require_rows(chunk, width, what)
        if done + len(chunk) > count:
            raise SetSizeError(f"{what} contains more than the {count} rows that were announced")
        out[done : done + len(chunk)] = chunk
        done += len(chunk)
    if done != count:
        raise SetSizeError(f"{what} ended after {done} of {count} rows that were announced")
    return out


def require_rows(chunk: np.ndarray, width: int, what: str) -> None:
    """Raise MalformedError unless the chunk is uint8 (n, width) with 1 to `CHUNK` rows."""
    if not isinstance(chunk, np.ndarray):
        raise MalformedError(f"{what} contains a {type(chunk).__name__}; expected arrays, uint8 (n, {width})")
    if chunk.dtype != np.uint8 or chunk.ndim != 2 or chunk.shape[1] != width:
        raise MalformedError(f"{what} contains {chunk.dtype} {chunk.shape}; expected uint8 (n, {width})")
    if not 1 <= len(chunk) <= CHUNK:
        raise MalformedError(f"{what} contains a chunk of {len(chunk)} rows; expected 1 to {CHUNK}: use split")


def require_chunk(chunk: np.ndarray, width: int, done: int, count: int, what: str) -> None:
    """Check the chunk that follows `done` of `count` rows: it must be full unless it is the last.

    A peer that sent one row per chunk would cost the receiver thirty times the memory and a hundred times the work.

    Raises:
        MalformedError: wrong type, shape or number of rows.
        SetSizeError: more rows than announced.
    """
    require_rows(chunk, width, what)
    if done + len(chunk) > count:
        raise SetSizeError(f"{what} contains {done + len(chunk)} rows or more; {count} were announced")
    due = min(CHUNK, count - done)
    if len(chunk) < due:
        raise MalformedError(f"{what} contains a chunk of {len(chunk)} rows where {due} are due: use split")


def require_size(count: object, limit: int, what: str) -> int:
    """Check an announced size before anything is allocated for it, and return it.

    Raises:
        MalformedError: not a whole number, or negative.
        SetSizeError: above the limit.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise MalformedError(f"{what} is announced with {count!r} rows; expected a whole number")
    if count > limit:
        raise SetSizeError(f"{what} is announced with {count} rows; at most {limit} are accepted: raise max_set_size")
    return count


def check_points(points: np.ndarray, what: str) -> None:
    """Refuse a chunk of points that no honest party would send.

    Raises:
        MalformedError: wrong type or shape, a coordinate that is not canonical, a point of small order, or the same
            point twice.
    """
    require_rows(points, POINT_BYTES, what)
    words = np.ascontiguousarray(points).view("<u8")
    # Not canonical: u and u + p are the same point, so a repeated point would pass the check for duplicates.
    if ((words[:, 3] == _TOP) & (words[:, 2] == _ONES) & (words[:, 1] == _ONES) & (words[:, 0] >= _LOWEST_OF_P)).any():
        raise MalformedError(f"{what} contains a coordinate that is not below 2^255 - 19: X25519 did not compute it")
    if (words[:, 3] > _TOP).any():
        raise MalformedError(
            f"{what} contains a coordinate that is not below 2^255 - 19 (highest bit set): X25519 did not compute it"
        )
    # One comparison of 64 bits a point; the five full comparisons run only on rows that pass it.
    suspects = points[np.isin(words[:, 0], _SMALL_ORDER_ROWS.view("<u8")[:, 0])]
    for row in _SMALL_ORDER_ROWS if len(suspects) else ():
        if (suspects == row).all(axis=1).any():
            raise MalformedError(f"{what} contains a point of small order; the peer does not follow the protocol")
    _refuse_doubled(points[:, :_PREFIX], what)


def _refuse_doubled(prefixes: np.ndarray, what: str) -> None:
    if count_duplicates(prefixes):
        raise MalformedError(f"{what} contains a point twice; every identifier is unique")


class PointStream:
    """Checks chunks of points as they arrive; finds a repetition across chunks before it yields the last chunk."""

    def __init__(self, chunks: Iterable[np.ndarray], count: int, what: str) -> None:
        self._chunks = chunks
        self._count = count
        self._what = what

    def __iter__(self) -> Iterator[np.ndarray]:
        seen = np.empty((self._count, _PREFIX), dtype=np.uint8)
        done = 0
        for chunk in self._chunks:
            check_points(chunk, self._what)
            if done + len(chunk) > self._count:
                raise SetSizeError(f"{self._what} contains more than the {self._count} points that were announced")
            seen[done : done + len(chunk)] = chunk[:, :_PREFIX]
            done += len(chunk)
            if done == self._count:
                _refuse_doubled(seen, self._what)
            yield chunk
        if done != self._count:
            raise SetSizeError(f"{self._what} ended after {done} of {self._count} points that were announced")
