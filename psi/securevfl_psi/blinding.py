"""What all roles do with their own set: hash it to the group, blind it in a secret order, give it away in chunks."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Sequence

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.arrays import require_unique, secret_order
from securevfl_psi.chunks import check_points, require_rows, split
from securevfl_psi.errors import IdentifierError, MalformedError, PSIError, SetSizeError
from securevfl_psi.group import CHUNK, TOKEN_BYTES, Scalar, hash_to_group, tokens
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session

__all__ = ["MAX_SET_SIZE", "Gathered", "Party", "whole_array"]

MAX_SET_SIZE = 1 << 24
"""Default bound of a set; the tokens' length allows 2^40."""


class Gathered:
    """Rows of a peer's that arrive in chunks: room for them grows with what has come, never with what was announced.

    They stand in segments of 2^22 rows, large enough that the system takes each back when it is let go; of a segment
    only what was written counts.
    """

    _SEGMENT = 1 << 22

    def __init__(self, width: int, limit: int, what: str) -> None:
        self._width, self._limit, self._what = width, limit, what
        self._segments: list[np.ndarray] = []
        self.count = 0

    def add(self, rows: np.ndarray) -> None:
        """One more chunk, which is copied.

        Raises:
            SetSizeError: more rows than allowed.
        """
        if self.count + len(rows) > self._limit:
            raise SetSizeError(
                f"{self._what} holds {self.count + len(rows)} points or more; at most {self._limit} are accepted: "
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

    def whole(self, count: int | None) -> np.ndarray:
        """All rows; refuses another number than was announced, and rows that come twice."""
        if count is not None and self.count != count:
            raise SetSizeError(f"{self._what} holds {self.count} points; {count} were announced")
        if len(self._segments) == 1:
            rows, self.count = self._segments.pop()[: self.count], 0
        else:
            rows = np.empty((self.count, self._width), dtype=np.uint8)
            while self._segments:  # one by one, so that the segments and the whole are not there at the same time
                segment, start = self._segments.pop(), len(self._segments) * self._SEGMENT
                rows[start : self.count] = segment[: self.count - start]
                self.count = start
        require_unique(rows, self._what)
        return rows


class Party:
    """What all roles share: own identifiers, hashed and blinded in a secret order.

    Args:
        ids: normalised identifiers, none twice.
        session: what both agreed on.
        max_set_size: largest set, own or peer's.
        pad_to: fill the set with random points up to this size, so that the peer learns only a bound.
        by: the engine; by default the fastest.
        secret: the blinding scalar, to be used again; by default a fresh one.

    Raises:
        SetSizeError: more identifiers than `max_set_size` or `pad_to`.
        IdentifierError: identifiers that are doubled.
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
        """Points that this party sends."""
        if self.size > max_set_size:
            raise SetSizeError(f"a set of {self.size} identifiers; at most {max_set_size}: raise max_set_size")
        if pad_to is not None and len(ids) > pad_to:
            raise SetSizeError(f"{len(ids)} identifiers do not fit into pad_to={pad_to}: raise pad_to")
        self._ids = Identifiers.of_texts(ids)
        if self._ids.doubled():
            raise IdentifierError("identifiers are doubled; normalise them first, which says which")
        self._session = session
        self._max = max_set_size
        self._by = by
        self._key = Scalar(secret, by)
        self._filler = secret or secrets.token_bytes(32)
        self._order = secret_order(self.size)
        self._blinded: np.ndarray | None = None
        self._sent = not self.size  # of an empty set there is nothing to send
        self._done: set[str] = set()
        self._gathered: Gathered | None = None

    def chunks(self) -> Iterator[np.ndarray]:
        """The party's set, blinded, in a secret order: parts of uint8 (k, 32), computed as they are asked for. Once.

        Raises:
            PSIError: asked for a second time.
        """
        self._once("chunks")
        self._sent = True
        for start in range(0, self.size, CHUNK):
            rows = self._order[start : start + CHUNK]
            yield self._key.multiply(self._hashed(rows), "the own set")

    def _hashed(self, rows: np.ndarray) -> np.ndarray:
        real = rows < len(self._ids)
        points = np.empty((len(rows), 32), dtype=np.uint8)
        points[real] = hash_to_group(self._ids, self._session.dst, rows[real], self._by)
        dummies = [self._dummy(int(row) - len(self._ids)) for row in rows[~real]]
        points[~real] = hash_to_group(dummies, self._session.dst, by=self._by)
        return points

    def _dummy(self, number: int) -> bytes:
        """What fills the set up: with a secret that is used again it comes back as rows do, or it would stand out."""
        return hmac.digest(self._filler, b"padding" + number.to_bytes(8, "big"), "sha512")[:32]

    def blinded(self) -> np.ndarray:
        """All `chunks` in one array, uint8 (n, 32), read-only; the same however often it is asked."""
        if self._blinded is None:
            parts = list(self.chunks())
            self._blinded = np.concatenate(parts) if parts else np.empty((0, 32), dtype=np.uint8)
            self._blinded.setflags(write=False)
        return self._blinded

    def _tokens(self, points: np.ndarray, what: str) -> np.ndarray:
        check_points(points, what)
        return tokens(self._key.multiply(points, what), self._session.dst, by=self._by)

    def take_tokens(self, doubled: np.ndarray) -> None:
        """A chunk of what `Sender.double_chunk` made of this party's set, uint8 (k, 16), in the same order.

        Raises:
            MalformedError: another type or shape.
            SetSizeError: more than were sent.
        """
        what = "the doubled set"
        require_rows(doubled, TOKEN_BYTES, what)
        if self._gathered is None:
            self._gathered = Gathered(TOKEN_BYTES, self.size, what)
        self._gathered.add(doubled)

    def own_tokens(self) -> np.ndarray:
        """What `take_tokens` took, by this party's rows, without the padding's: uint8 (n, 16).

        Raises:
            SetSizeError: another number than was sent.
            MalformedError: tokens that come twice.
        """
        answers = self._answers()
        by_row = np.empty_like(answers)
        by_row[self._order] = answers
        return by_row[: len(self._ids)]

    def _answers(self) -> np.ndarray:
        """All that `take_tokens` took, in the order in which points were sent; kept no longer."""
        gathered, self._gathered = self._gathered, None
        own = (gathered or Gathered(TOKEN_BYTES, 0, "the doubled set")).whole(None)
        if len(own) != self.size:
            raise SetSizeError(f"the doubled set holds {len(own)} tokens; {self.size} points were sent")
        return own

    def _once(self, step: str) -> None:
        if step in self._done:
            raise PSIError(f"{step} was called out of order or twice; one session serves one intersection")
        self._done.add(step)

    def _require_sent(self, what: str) -> None:
        if not self._sent:
            raise PSIError(f"{what} was called out of order: the peer answers to blinded(), which was not called")


def whole_array(array: np.ndarray, width: int, what: str, limit: int) -> Iterator[np.ndarray]:
    """Chunks of an array, whose shape is checked first."""
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != width:
        shown = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise MalformedError(f"{what} is {shown}; an array, uint8 (n, {width}), was expected")
    if len(array) > limit:
        raise SetSizeError(f"{what} holds {len(array)} points; at most {limit} are accepted: raise max_set_size")
    return split(array)
