"""Private set intersection of two parties by Diffie–Hellman on Curve25519, as state machines over arrays of bytes.

Meadows 1986; Huberman, Franklin and Hogg 1999. Each party blinds ``H(id)`` with a secret scalar; blinding commutes,
so doubly blinded identifiers of both parties can be compared. The *receiver* learns which of its rows the sender
holds; the *sender* learns what the receiver tells it. Both learn the size of the other's set.

Receiver                              Sender
                    ← chunks()        b·H(y), shuffled
a·H(x), shuffled       chunks() →
                    ← double(…)       tokens of b·a·H(x), in the order they came
take(…), take_tokens(…)
finish()              positions →     rows(positions)

Sets go in chunks of 2^15 points, so that memory is bounded and both sides compute while bytes move; `blinded`, `double`
and `intersect` do the same for whole arrays.

Semi-honest security in the random oracle model under the (one-more gap) Diffie–Hellman assumption on Curve25519, about
126 bits. Whoever can enumerate identifiers can run the protocol on them: it hides what is not in the intersection only
from parties that use their own set.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from securevfl_psi.arrays import match, require_unique
from securevfl_psi.blinding import MAX_SET_SIZE, Gathered, Party, whole_array
from securevfl_psi.chunks import require_rows
from securevfl_psi.errors import MalformedError, PSIError, SetSizeError
from securevfl_psi.group import POINT_BYTES, TOKEN_BYTES
from securevfl_psi.identifiers import IdRules, normalise_column
from securevfl_psi.session import Session

__all__ = ["MAX_SET_SIZE", "TOKEN_BYTES", "Matches", "Receiver", "Sender", "Session", "intersect_in_process"]


@dataclass(frozen=True)
class Matches:
    """What the receiver learns, one entry for each common identifier, by the receiver's rows.

    Attributes:
        receiver_rows: the receiver's own row numbers, ascending, (n,) int64.
        sender_positions: where the same identifiers stand in the sender's blinded set, (n,) int64.
    """

    receiver_rows: np.ndarray
    sender_positions: np.ndarray


class Sender(Party):
    """The party that answers; it learns the other set's size and what the receiver tells it."""

    _what = "the receiver's blinded set"
    _answered = 0

    def double_chunk(self, points: np.ndarray) -> np.ndarray:
        """Tokens of a chunk of the receiver's blinded set, in the order it came: uint8 (k, 16).

        Raises:
            PSIError: `double` was called, or `rows`; a second set would be an oracle for more guesses.
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        if self._done & {"double", "rows"}:
            raise PSIError("double was called out of order or twice; one session serves one intersection")
        return self._double(points)

    def _double(self, points: np.ndarray) -> np.ndarray:
        require_rows(points, POINT_BYTES, self._what)
        self._answered += len(points)
        if self._answered > self._max:
            raise SetSizeError(
                f"{self._what} holds {self._answered} points or more; at most {self._max} are accepted: "
                "raise max_set_size"
            )
        return self._tokens(points, self._what)

    def double(self, blinded: np.ndarray, count: int | None = None) -> np.ndarray:
        """Tokens of the receiver's blinded set, in the order it came: uint8 (n, 16).

        Args:
            blinded: the receiver's set, uint8 (n, 32).
            count: how many were announced, if they were.

        Raises:
            PSIError: called a second time; a second set would be an oracle for more guesses.
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed, or not as many as announced.
        """
        self._once("double")
        parts = whole_array(blinded, 32, self._what, self._max)
        if count is not None and len(blinded) != count:
            raise SetSizeError(f"{self._what} holds {len(blinded)} points; {count} were announced")
        doubled = [self._double(part) for part in parts]
        whole = np.concatenate([np.empty((0, TOKEN_BYTES), dtype=np.uint8), *doubled])
        require_unique(whole, self._what)
        return whole

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """The party's own row numbers at these positions of its blinded set.

        Args:
            positions: what the receiver found, in the order that it chose, int64 (k,).

        Raises:
            PSIError: called before `blinded` and `double`, or a second time.
            MalformedError: another type, a position that does not exist, one that comes twice or one of the padding.
        """
        self._require_sent("rows")
        if isinstance(positions, np.ndarray) and positions.size and "double" not in self._done and not self._answered:
            raise PSIError("rows was called out of order: nothing was doubled")
        self._once("rows")
        if not isinstance(positions, np.ndarray):
            raise MalformedError(f"positions are a {type(positions).__name__}; an array, int64 (n,), was expected")
        if positions.dtype != np.int64 or positions.ndim != 1:
            raise MalformedError(f"positions are {positions.dtype} {positions.shape}; int64 (n,) was expected")
        if len(positions) and (positions.min() < 0 or positions.max() >= len(self._order)):
            raise MalformedError(f"a position is outside the set of {len(self._order)} rows")
        if len(np.unique(positions)) != len(positions):
            raise MalformedError("a position comes twice; every row is common once")
        rows: np.ndarray = self._order[positions].astype(np.int64)
        if len(rows) and rows.max() >= len(self._ids):
            raise MalformedError("a position names a point that only fills the set up; it equals no identifier")
        return rows


class Receiver(Party):
    """The party that learns the intersection."""

    _their_tokens: Gathered | None = None

    def take(self, points: np.ndarray) -> np.ndarray:
        """A chunk of the sender's blinded set, uint8 (k, 32); returns its tokens, uint8 (k, 16).

        Raises:
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        what = "the sender's blinded set"
        if self._their_tokens is None:
            self._their_tokens = Gathered(TOKEN_BYTES, self._max, what)
        doubled = self._tokens(points, what)
        self._their_tokens.add(doubled)
        return doubled

    def finish(self, count: int | None = None) -> Matches:
        """Compare all that arrived.

        Args:
            count: how many points of the sender were announced, if they were.

        Raises:
            PSIError: called before the own set was sent, or a second time.
            SetSizeError: another number than announced, or than was sent.
            MalformedError: tokens that come twice.
        """
        self._require_sent("finish")
        self._once("intersect")
        return self._compare(count)

    def cardinality(self, count: int | None = None) -> int:
        """How many are common, where the sender shuffled its answers, so that they stand for no row.

        Args:
            count: how many points of the sender were announced, if they were.

        Raises:
            PSIError, SetSizeError, MalformedError: as `finish`.
        """
        self._require_sent("cardinality")
        self._once("intersect")
        return len(match(self._answers(), self.their_tokens(count))[0])

    def _compare(self, count: int | None) -> Matches:
        places, positions = match(self._answers(), self.their_tokens(count))
        rows = self._order[places].astype(np.int64)
        order = np.argsort(rows)
        order = order[rows[order] < len(self._ids)]  # padding equals nothing, but for one chance in 2^40
        return Matches(rows[order], positions[order])

    def their_tokens(self, count: int | None = None) -> np.ndarray:
        """Tokens of the sender's set in the order in which it came, uint8 (m, 16); kept no longer.

        Raises:
            SetSizeError, MalformedError: as `finish`.
        """
        return (self._their_tokens or Gathered(TOKEN_BYTES, 0, "the sender's blinded set")).whole(count)

    def intersect(self, sender_blinded: np.ndarray, doubled: np.ndarray, count: int | None = None) -> Matches:
        """`take`, `take_tokens` and `finish` of whole arrays.

        Args:
            sender_blinded: the sender's set, uint8 (m, 32).
            doubled: what `Sender.double` made of this party's set, uint8 (n, 16).
            count: how many points of the sender were announced, if they were.

        Raises:
            PSIError: called before `blinded`, or a second time.
            MalformedError: another type or shape, a bad coordinate, a point of small order, or tokens that come twice.
            SetSizeError: more than allowed, or not as many as announced.
        """
        self._require_sent("intersect")
        self._once("intersect")
        for part in whole_array(doubled, TOKEN_BYTES, "the doubled set", max(self.size, self._max)):
            self.take_tokens(part)
        for part in whole_array(sender_blinded, 32, "the sender's blinded set", self._max):
            self.take(part)
        return self._compare(len(sender_blinded) if count is None else count)


def intersect_in_process(
    receiver_ids: Iterable[object], sender_ids: Iterable[object], rules: IdRules | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Both roles in one process, for tests and examples: whoever calls it holds both sets, so it hides nothing.

    Args:
        receiver_ids: one identifier per row, see `normalise`.
        sender_ids: likewise.
        rules: how to normalise; by default `IdRules()`.

    Returns:
        The receiver's rows, ascending, and the sender's rows of the same identifiers, both int64 (k,).

    Raises:
        IdentifierError: identifiers that cannot be used.
    """
    rules = rules or IdRules()
    session = Session(names=("receiver", "sender"), nonce=secrets.token_bytes(16), rules_tag=rules.tag())
    receiver = Receiver(normalise_column(receiver_ids, rules), session)
    sender = Sender(normalise_column(sender_ids, rules), session)
    matches = receiver.intersect(sender.blinded(), sender.double(receiver.blinded()))
    return matches.receiver_rows, sender.rows(matches.sender_positions)
