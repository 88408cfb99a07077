"""Multiply both sets by both keys, as state machines over byte arrays: for `cardinality` and `pseudonyms`.

Meadows 1986; Huberman, Franklin and Hogg 1999. Each party multiplies its set and the other party's set by one secret
scalar. Multiplication commutes, so both sets end up under both keys. 2n + 2m scalar products.

`Counter`: the sender shuffles the tokens of ab·H1(x) before it returns them, so the receiver learns how many are
common, not which. The sender does not know the receiver's identifiers and cannot bind them into the tokens: a deviating
receiver can multiply each point by a different scalar, undo each on the tokens and so learn which are common.

`Namer`: each party gets its own set back under both keys and hashes it *with its identifiers*, H2(x, ab·H1(x)). With
one key, the party that has it could name any identifier; with two, both parties must take part.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from securevfl_psi.arrays import match_rows, require_unique, secret_order
from securevfl_psi.blinding import BlindingParty, ChunkQueue, RowBuffer
from securevfl_psi.chunks import check_points, require_rows
from securevfl_psi.errors import SetSizeError
from securevfl_psi.group import TOKEN_BYTES, hash_points
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oprf import finalise

__all__ = ["Counter", "Namer"]

_PEERS = "the peer's set"
_DOUBLED = "the doubled set"  # this party's set under both keys


class Counter(BlindingParty):
    """A party of `cardinality`, in either role."""

    _doubled: RowBuffer | None = None
    _answers: RowBuffer | None = None

    def take_chunk(self, points: np.ndarray) -> None:
        """A chunk of the peer's set, uint8 (n, 32).

        Raises:
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        check_points(points, _PEERS)
        if self._doubled is None:
            self._doubled = RowBuffer(TOKEN_BYTES, self._max, _PEERS)
        self._doubled.add_rows(hash_points(self._key.multiply(points, _PEERS), self._session.dst, by=self._by))

    def shuffle_tokens(self, count: int | None = None) -> np.ndarray:
        """At the sender, tokens of the peer's complete set in a secret order, uint8 (n, 16). Call it once.

        Args:
            count: the announced number of points, or None.

        Raises:
            PSIError: called a second time; a second set would allow more guesses.
            SetSizeError: another number than announced.
            MalformedError: two equal tokens: if points could repeat, the count would show which are common.
        """
        self._require_once("shuffled")
        whole = self._take_theirs(count)
        shuffled: np.ndarray = whole[secret_order(len(whole))]
        return shuffled

    def take_tokens(self, doubled: np.ndarray) -> None:
        """At the receiver, take a chunk of the sender's answer, uint8 (n, 16).

        Raises:
            MalformedError: wrong type or shape.
            SetSizeError: more tokens than points sent.
        """
        require_rows(doubled, TOKEN_BYTES, _DOUBLED)
        if self._answers is None:
            self._answers = RowBuffer(TOKEN_BYTES, self.size, _DOUBLED)
        self._answers.add_rows(doubled)

    def count_common(self, announced: int | None = None) -> int:
        """At the receiver, count the common identifiers.

        Args:
            announced: the number of points that the sender announced, or None.

        Raises:
            PSIError: called before this party's set was sent, or a second time.
            SetSizeError: another number than announced, or than was sent.
            MalformedError: two equal tokens.
        """
        self._require_sent("count")
        self._require_once("count_common")
        answers = (self._answers or RowBuffer(TOKEN_BYTES, 0, _DOUBLED)).take_all(None)
        if len(answers) != self.size:
            raise SetSizeError(f"{_DOUBLED} contains {len(answers)} tokens; {self.size} points were sent")
        return len(match_rows(answers, self._take_theirs(announced))[0])

    def _take_theirs(self, count: int | None) -> np.ndarray:
        return (self._doubled or RowBuffer(TOKEN_BYTES, 0, _PEERS)).take_all(count)


class Namer(BlindingParty):
    """A party of `pseudonyms`, in either role."""

    _named = 0

    @cached_property
    def _empty_names(self) -> np.ndarray:
        return np.empty((self.size, TOKEN_BYTES), dtype=np.uint8)

    @cached_property
    def waiting_chunks(self) -> ChunkQueue:
        """Chunks of the peer's set that still have to be multiplied by this party's key."""
        return ChunkQueue(self._max, _PEERS)

    def take_chunk(self, points: np.ndarray) -> None:
        """A chunk of the peer's set, uint8 (n, 32).

        Raises:
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        self.waiting_chunks.add_chunk(points)

    def double_chunk(self) -> np.ndarray:
        """Multiply the oldest waiting chunk by this party's key, in its order: uint8 (n, 32).

        Raises:
            PSIError: no chunk waits.
        """
        return self._key.multiply(self.waiting_chunks.pop_first(), _PEERS)

    def take_doubled(self, points: np.ndarray) -> None:
        """Take a chunk of this party's set that the peer's `double_chunk` returned, uint8 (n, 32), in the order sent.

        Raises:
            PSIError: called before the set was sent.
            MalformedError: wrong type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more points than were sent.
        """
        self._require_sent("take_doubled")
        check_points(points, _DOUBLED)
        if self._named + len(points) > self.size:
            raise SetSizeError(f"{_DOUBLED} contains {self._named + len(points)} points; {self.size} were sent")
        rows = self._order[self._named : self._named + len(points)]
        self._named += len(points)
        own = rows < len(self._ids)
        numbers = rows[own].astype(np.int64)
        self._empty_names[rows[own]] = finalise(
            self._ids, numbers, points[own], self._session.dst, TOKEN_BYTES, self._by
        )
        # Padding gets names as rows do: otherwise a peer that changes its key between runs could tell the two apart.
        filler = Identifiers.of_bytes([self._make_dummy(int(row) - len(self._ids)) for row in rows[~own]])
        places = np.arange(len(filler))
        self._empty_names[rows[~own]] = finalise(filler, places, points[~own], self._session.dst, TOKEN_BYTES, self._by)

    def own_names(self) -> np.ndarray:
        """H2(x, ab·H1(x)) for each of this party's rows, uint8 (n, 16).

        Raises:
            SetSizeError: fewer answers than points sent.
        """
        if self._named != self.size:
            raise SetSizeError(f"{_DOUBLED} contains {self._named} points; {self.size} were sent")
        return self._empty_names[: len(self._ids)]

    def shuffle_names(self) -> np.ndarray:
        """The names that the sender sends: `own_names` and the padding's names in a secret order, uint8 (n, 16)."""
        self.own_names()
        require_unique(self._empty_names, "the own set")
        shuffled: np.ndarray = self._empty_names[secret_order(self.size)]
        return shuffled
