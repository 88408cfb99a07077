"""Sets on the wire: arrays of points or tokens in chunks, so that both sides compute while bytes move, checked as they
arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from securevfl_psi.arrays import duplicates
from securevfl_psi.errors import MalformedError, SetSizeError
from securevfl_psi.group import CHUNK, POINT_BYTES

__all__ = ["CHUNK", "PointStream", "check_points", "gather", "require_chunk", "require_rows", "require_size", "split"]

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
    """The rows of an array in chunks of at most `CHUNK`; none of an empty array."""
    for start in range(0, len(array), CHUNK):
        yield array[start : start + CHUNK]


def gather(chunks: Iterable[np.ndarray], count: int, width: int, what: str) -> np.ndarray:
    """The opposite of `split`: the rows that arrived, uint8 (count, width).

    `count` is what was announced: check it against the policy before, as that much memory is taken at once.

    Raises:
        MalformedError: a chunk of another type, shape or number of rows.
        SetSizeError: more or fewer rows than announced.
    """
    out = np.empty((count, width), dtype=np.uint8)
    done = 0
    for chunk in chunks:
        require_rows(chunk, width, what)
        if done + len(chunk) > count:
            raise SetSizeError(f"{what} holds more than the {count} rows that were announced")
        out[done : done + len(chunk)] = chunk
        done += len(chunk)
    if done != count:
        raise SetSizeError(f"{what} ended after {done} of {count} rows that were announced")
    return out


def require_rows(chunk: np.ndarray, width: int, what: str) -> None:
    """A chunk on the wire: uint8 (n, width) with 1 to `CHUNK` rows, or MalformedError."""
    if not isinstance(chunk, np.ndarray):
        raise MalformedError(f"{what} holds a {type(chunk).__name__}; arrays, uint8 (n, {width}), were expected")
    if chunk.dtype != np.uint8 or chunk.ndim != 2 or chunk.shape[1] != width:
        raise MalformedError(f"{what} holds {chunk.dtype} {chunk.shape}; uint8 (n, {width}) was expected")
    if not 1 <= len(chunk) <= CHUNK:
        raise MalformedError(f"{what} holds a chunk of {len(chunk)} rows; 1 to {CHUNK} are possible: use split")


def require_chunk(chunk: np.ndarray, width: int, done: int, count: int, what: str) -> None:
    """The chunk that follows `done` of `count` rows: full unless it is the last, so that rows cannot be sent one by
    one, which costs the receiver thirty times the memory and a hundred times the work.

    Raises:
        MalformedError: another type, shape or number of rows.
        SetSizeError: more rows than announced.
    """
    require_rows(chunk, width, what)
    if done + len(chunk) > count:
        raise SetSizeError(f"{what} holds {done + len(chunk)} rows or more; {count} were announced")
    due = min(CHUNK, count - done)
    if len(chunk) < due:
        raise MalformedError(f"{what} holds a chunk of {len(chunk)} rows where {due} are due: use split")


def require_size(count: object, limit: int, what: str) -> int:
    """An announced size, before anything is allocated.

    Raises:
        MalformedError: not a whole number, or negative.
        SetSizeError: above the limit.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise MalformedError(f"{what} is announced with {count!r} rows; a whole number was expected")
    if count > limit:
        raise SetSizeError(f"{what} is announced with {count} rows; at most {limit} are accepted: raise max_set_size")
    return count


def check_points(points: np.ndarray, what: str) -> None:
    """Refuse a chunk of points that no party makes that follows the protocol.

    Raises:
        MalformedError: another type or shape, a number that is no canonical coordinate, a point of small order, or the
            same point twice.
    """
    require_rows(points, POINT_BYTES, what)
    words = np.ascontiguousarray(points).view("<u8")
    if ((words[:, 3] == _TOP) & (words[:, 2] == _ONES) & (words[:, 1] == _ONES) & (words[:, 0] >= _LOWEST_OF_P)).any():
        raise MalformedError(f"{what} holds a coordinate that is not below 2^255 - 19: it was not made by X25519")
    if (words[:, 3] > _TOP).any():
        raise MalformedError(
            f"{what} holds a coordinate that is not below 2^255 - 19 (highest bit set): it was not made by X25519"
        )
    suspects = points[np.isin(words[:, 0], _SMALL_ORDER_ROWS.view("<u8")[:, 0])]
    for row in _SMALL_ORDER_ROWS if len(suspects) else ():
        if (suspects == row).all(axis=1).any():
            raise MalformedError(f"{what} holds a point of small order; the peer does not follow the protocol")
    _refuse_doubled(points[:, :_PREFIX], what)


def _refuse_doubled(prefixes: np.ndarray, what: str) -> None:
    if duplicates(prefixes):
        raise MalformedError(f"{what} holds a point twice; every identifier is unique")


class PointStream:
    """Chunks of points as they arrive, checked; a repetition across chunks is found before the last one is passed."""

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
                raise SetSizeError(f"{self._what} holds more than the {self._count} points that were announced")
            seen[done : done + len(chunk)] = chunk[:, :_PREFIX]
            done += len(chunk)
            if done == self._count:
                _refuse_doubled(seen, self._what)
            yield chunk
        if done != self._count:
            raise SetSizeError(f"{self._what} ended after {done} of {self._count} points that were announced")
