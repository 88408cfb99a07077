"""Scripts: a party's part of a protocol as two generators for each peer, `send_script` and `receive_script`.

The two share state through the object that makes them. Neither uses sockets, threads or clocks: a driver takes frames
from `send_script` and passes arriving frames to `receive_script`.

- `send_script` yields a frame, or None if something has to arrive first.
- `receive_script` yields the kind of frame that is due and receives that frame; or yields None if something has to be
  sent first, so that a peer that sends quickly cannot fill this party's memory.

The kinds in each direction follow from the sizes that both announced, so both ends agree on them. A driver that keeps
receiving while it waits to send cannot deadlock, whatever the channel buffers: of two parties at least one can always
receive.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import numpy as np

from securevfl_psi import chunks
from securevfl_psi.chunks import require_chunk
from securevfl_psi.errors import MalformedError
from securevfl_psi.wire import Frame, Kind

__all__ = ["Incoming", "Outgoing", "as_frames", "chunks_of", "read_payload", "receive_rows", "rows_of"]

Outgoing = Iterator[Frame | None]
Incoming = Generator[Kind | None, Frame, None]


def as_frames(kind: Kind, parts: Iterable[np.ndarray]) -> Iterator[Frame]:
    """Yield each part as a frame."""
    for part in parts:
        yield Frame(kind, np.ascontiguousarray(part).tobytes())


def rows_of(frame: Frame, width: int) -> np.ndarray:
    """Decode a payload to uint8 (k, width), k ≥ 1.

    Raises:
        MalformedError: the length is not a multiple of the width.
    """
    if not frame.payload or len(frame.payload) % width:
        raise MalformedError(f"a {frame.kind.name} of {len(frame.payload)} bytes; expected a multiple of {width}")
    return np.frombuffer(frame.payload, dtype=np.uint8).reshape(-1, width)


def read_payload(frame: Frame, size: int) -> bytes:
    """Return a payload of a fixed length.

    Raises:
        MalformedError: a wrong length.
    """
    if len(frame.payload) != size:
        raise MalformedError(f"a {frame.kind.name} of {len(frame.payload)} bytes; expected {size}")
    return frame.payload


def chunks_of(count: int) -> int:
    """Number of chunks that `count` rows take."""
    return -(-count // chunks.CHUNK)


def receive_rows(kind: Kind, width: int, count: int, what: str) -> Generator[Kind | None, Frame, np.ndarray]:
    """Receive `count` rows in chunks and return them, uint8 (count, width).

    Memory grows with arrivals, never with the announced number.

    Raises:
        MalformedError, SetSizeError: a malformed chunk, see `require_chunk`.
    """
    parts = [np.empty((0, width), dtype=np.uint8)]
    done = 0
    while done < count:
        rows = rows_of((yield kind), width)
        require_chunk(rows, width, done, count, what)
        parts.append(rows)
        done += len(rows)
    return np.concatenate(parts)
