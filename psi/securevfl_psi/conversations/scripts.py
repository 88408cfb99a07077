"""How a party's part of a protocol is written: two scripts for each peer, one of what it sends, one of what it hears.

Both are generators, and share what they know through the object that makes them. Neither knows sockets, threads or
clocks: whoever drives them asks `sending` for frames, and tells `hearing` what arrived.

- A script of what is sent yields a frame, or None where something has to arrive first.
- A script of what is heard yields the kind of frame that is due, and is sent that frame; or None where something has
  to be sent first, so that a peer that sends quickly cannot fill this party's memory.

The kinds in each direction follow from the sizes that both announced, so both ends agree on them. A driver that keeps
hearing while it waits to send cannot deadlock, whatever the channel holds: of two parties at least one can always hear.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import numpy as np

from securevfl_psi import chunks
from securevfl_psi.chunks import require_chunk
from securevfl_psi.errors import MalformedError
from securevfl_psi.wire import Frame, Kind

__all__ = ["Incoming", "Outgoing", "chunks_of", "framed", "hear_rows", "payload", "rows_of"]

Outgoing = Iterator[Frame | None]
Incoming = Generator[Kind | None, Frame, None]


def framed(kind: Kind, parts: Iterable[np.ndarray]) -> Iterator[Frame]:
    """Each part as a frame."""
    for part in parts:
        yield Frame(kind, np.ascontiguousarray(part).tobytes())


def rows_of(frame: Frame, width: int) -> np.ndarray:
    """A payload as uint8 (k, width), k ≥ 1.

    Raises:
        MalformedError: another length.
    """
    if not frame.payload or len(frame.payload) % width:
        raise MalformedError(f"a {frame.kind.name} of {len(frame.payload)} bytes; a multiple of {width} was expected")
    return np.frombuffer(frame.payload, dtype=np.uint8).reshape(-1, width)


def payload(frame: Frame, size: int) -> bytes:
    """A payload of a fixed length.

    Raises:
        MalformedError: another length.
    """
    if len(frame.payload) != size:
        raise MalformedError(f"a {frame.kind.name} of {len(frame.payload)} bytes; {size} were expected")
    return frame.payload


def chunks_of(count: int) -> int:
    """In how many chunks so many rows come."""
    return -(-count // chunks.CHUNK)


def hear_rows(kind: Kind, width: int, count: int, what: str) -> Generator[Kind | None, Frame, np.ndarray]:
    """A script of `count` rows in chunks; returns all of them, uint8 (count, width).

    Room is taken as rows come, never for what was announced.

    Raises:
        MalformedError, SetSizeError: a chunk of another form, see `require_chunk`.
    """
    parts = [np.empty((0, width), dtype=np.uint8)]
    done = 0
    while done < count:
        rows = rows_of((yield kind), width)
        require_chunk(rows, width, done, count, what)
        parts.append(rows)
        done += len(rows)
    return np.concatenate(parts)
