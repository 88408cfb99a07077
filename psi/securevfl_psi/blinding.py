"""Base class of all roles: hash the party's set to the group, blind it in a secret order, send it in chunks."""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import require_unique, secret_order
from securevfl_psi.chunks import check_points, split
from securevfl_psi.errors import IdentifierError, PSIError, SetSizeError
from securevfl_psi.group import Scalar, hash_to_group
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session

__all__ = ["MAX_SET_SIZE", "BlindingParty", "ChunkQueue", "RowBuffer"]

MAX_SET_SIZE = 1 << 28
"""Default bound of a set. It is a policy: tokens are long enough for 2^40, but memory may not be; cut sets of more than
2^24 into shards, see `sharded`."""


class RowBuffer:
    """Collects a peer's rows that arrive in chunks; memory grows with arrivals, never with the announced number.

    Rows are stored in segments of 2^22, large enough that the operating system reclaims each one when it is freed;
    pages of a segment that were not written yet take no memory.
    """

    _SEGMENT = 1 << 22

    def __init__(self, width: int, limit: int, what: str) -> None:
        self._width, self._limit, self._what = width, limit, what
        self._segments: list[np.ndarray] = []
        self.count = 0

    def add_rows(self, rows: np.ndarray) -> None:
        """Copy one more chunk.

        Raises:
            SetSizeError: more rows than allowed.
        """
        if self.count + len(rows) > self._limit:
            raise SetSizeError(
                f"{self._what} contains {self.count + len(rows)} points or more; at most {self._limit} are accepted: "
                "raise max_set_size"
            )
        while len(rows):
            place = self.count % self._SEGMENT
            if not place:
                self._segments.append(np.empty((self._SEGMENT, self._width), dtype=np.uint8))
            fits = rows[: self._SEGMENT - place]
            self._segments[-1][place : place + len(fits)] = fits
            self.count += len(fits)
            rows = rows[len(fits) :]

    def take_all(self, count: int | None) -> np.ndarray:
        """Return all rows; raise if their number differs from the announced one or two rows are equal."""
        if count is not None and self.count != count:
            raise SetSizeError(f"{self._what} contains {self.count} points; {count} were announced")
        if len(self._segments) == 1:
            rows, self.count = self._segments.pop()[: self.count], 0
        else:
            rows = np.empty((self.count, self._width), dtype=np.uint8)
            while self._segments:  # freed one at a time, so that memory never contains every row twice
                segment, start = self._segments.pop(), len(self._segments) * self._SEGMENT
                rows[start : self.count] = segment[: self.count - start]
                self.count = start
        require_unique(rows, self._what)
        return rows


class ChunkQueue:
    """A queue of a peer's points, checked on arrival, that still have to be multiplied.

    Args:
        limit: most points.
        what: how error messages name them.
    """

    def __init__(self, limit: int, what: str) -> None:
        self._limit, self._what = limit, what
        self._chunks: deque[np.ndarray] = deque()
        self._count = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def add_chunk(self, points: np.ndarray) -> None:
        """Check and append a chunk, uint8 (n, 32).

        Raises:
            MalformedError: wrong type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        check_points(points, self._what)
        self._count += len(points)
        if self._count > self._limit:
            raise SetSizeError(
                f"{self._what} contains {self._count} points or more; at most {self._limit} are accepted: "
                "raise max_set_size"
            )
        self._chunks.append(points)

    def pop_first(self) -> np.ndarray:
        """Remove and return the oldest chunk.

        Raises:
            PSIError: no chunk waits.
        """
        if not self._chunks:
            raise PSIError(f"no chunk of {self._what} waits for an answer")
        return self._chunks.popleft()


class BlindingParty:
    """A party with its identifiers, which it hashes and blinds in a secret order.

    Args:
        ids: normalised, unique identifiers.
        session: the session that both parties agreed on.
        max_set_size: largest set, own or peer's.
        pad_to: fill the set with random points up to this size, so that the peer learns only a bound.
        by: the engine; by default the fastest.
        secret: an earlier blinding scalar to reuse; by default a fresh one.

    Raises:
        SetSizeError: more identifiers than `max_set_size` or `pad_to`.
        IdentifierError: duplicate identifiers.
    """

    def __init__(
        self,
        ids: Sequence[str],
        session: Session,
        *,
        max_set_size: int = MAX_SET_SIZE,
        pad_to: int | None = None,
        by: Engine | None = None,
        secret: bytes | None = None,
    ) -> None:
        self.size = max(len(ids), pad_to or 0)
        """Number of points that this party sends, padding included."""
        if self.size > max_set_size:
            raise SetSizeError(f"a set of {self.size} identifiers; at most {max_set_size}: raise max_set_size")
        if pad_to is not None and len(ids) > pad_to:
            raise SetSizeError(f"{len(ids)} identifiers do not fit into pad_to={pad_to}: raise pad_to")
        self._ids = Identifiers.of_texts(ids)
        if self._ids.find_duplicates():
            raise IdentifierError("identifiers are doubled; call normalise first: its error lists the rows")
        self._session = session
        self._max = max_set_size
        self._by = by
        self._key = Scalar(secret, by)
        self._filler = secret or secrets.token_bytes(32)
        self._order = secret_order(self.size)
        self._sent = not self.size  # an empty set needs no message
        self._done: set[str] = set()

    def blind_set(self) -> Iterator[np.ndarray]:
        """Yield the party's set, blinded, in a secret order: chunks of uint8 (k, 32), computed on demand. Call it once.

        Raises:
            PSIError: called a second time.
        """
        self._require_once("blind_set")
        self._sent = True
        for rows in split(self._order):
            yield self._key.multiply(self._hash_rows(rows), "the own set")

    def _hash_rows(self, rows: np.ndarray) -> np.ndarray:
        real = rows < len(self._ids)
        points = np.empty((len(rows), 32), dtype=np.uint8)
        points[real] = hash_to_group(self._ids, self._session.dst, rows[real], self._by)
        dummies = [self._make_dummy(int(row) - len(self._ids)) for row in rows[~real]]
        points[~real] = hash_to_group(dummies, self._session.dst, by=self._by)
        return points

    def _make_dummy(self, number: int) -> bytes:
        """A padding message. With a reused secret it repeats in each run, as rows do; fresh padding would stand out."""
        return hmac.digest(self._filler, b"padding" + number.to_bytes(8, "big"), "sha512")[:32]

    def _require_once(self, step: str) -> None:
        if step in self._done:
            raise PSIError(f"{step} was called out of order or twice; one session serves one intersection")
        self._done.add(step)

    def _require_sent(self, what: str) -> None:
        if not self._sent:
            raise PSIError(f"{what} was called out of order: the peer answers blind_set(), so call that first")
