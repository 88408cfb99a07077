"""Both sets under both keys, as state machines over arrays of bytes: for `cardinality` and `pseudonyms`.

Meadows 1986; Huberman, Franklin and Hogg 1999. Each party multiplies its set by a secret scalar and the other's set by
the same scalar; multiplication commutes, so both sets end under both keys. 2n + 2m scalar products.

`Counter`: the receiver gets tokens of ab·H1(x) in an order that the sender shuffles, so it learns how many are common,
not which. These tokens cannot bind identifiers, since their maker does not know them: a receiver that deviates can
multiply each of its points by a scalar of its own, undo it on the tokens' side and so learn which are common.

`Namer`: each party gets its own set back under both keys and hashes it *with its identifiers*, H2(x, ab·H1(x)). Neither
can name an identifier without the other, which one key alone would allow to the party that holds it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from securevfl_psi.arrays import match, require_unique, secret_order
from securevfl_psi.blinding import Gathered, Party, Waiting
from securevfl_psi.chunks import check_points, require_rows
from securevfl_psi.errors import SetSizeError
from securevfl_psi.group import TOKEN_BYTES, tokens
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oprf import finalise

__all__ = ["Counter", "Namer"]

_PEERS = "the peer's set"
_DOUBLED = "the doubled set"


class Counter(Party):
    """Either role of `cardinality`."""

    _doubled: Gathered | None = None
    _answers: Gathered | None = None

    def take(self, points: np.ndarray) -> None:
        """A chunk of the peer's set, uint8 (n, 32).

        Raises:
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        check_points(points, _PEERS)
        if self._doubled is None:
            self._doubled = Gathered(TOKEN_BYTES, self._max, _PEERS)
        self._doubled.add(tokens(self._key.multiply(points, _PEERS), self._session.dst, by=self._by))

    def shuffled(self, count: int | None = None) -> np.ndarray:
        """Tokens of the whole peer's set in a secret order, uint8 (n, 16): what the sender answers. Once.

        Args:
            count: how many points were announced, if they were.

        Raises:
            PSIError: called a second time; a second set would be an oracle for more guesses.
            SetSizeError: another number than announced.
            MalformedError: tokens that come twice: by points sent twice, the count would show which are common.
        """
        self._once("shuffled")
        whole = self._theirs(count)
        shuffled: np.ndarray = whole[secret_order(len(whole))]
        return shuffled

    def take_tokens(self, doubled: np.ndarray) -> None:
        """At the receiver, a chunk of what the sender answered, uint8 (n, 16).

        Raises:
            MalformedError: another type or shape.
            SetSizeError: more than were sent.
        """
        require_rows(doubled, TOKEN_BYTES, _DOUBLED)
        if self._answers is None:
            self._answers = Gathered(TOKEN_BYTES, self.size, _DOUBLED)
        self._answers.add(doubled)

    def count(self, announced: int | None = None) -> int:
        """At the receiver, how many are common.

        Args:
            announced: how many points of the sender were announced, if they were.

        Raises:
            PSIError: called before the own set was sent, or a second time.
            SetSizeError: another number than announced, or than was sent.
            MalformedError: tokens that come twice.
        """
        self._require_sent("count")
        self._once("count")
        answers = (self._answers or Gathered(TOKEN_BYTES, 0, _DOUBLED)).whole(None)
        if len(answers) != self.size:
            raise SetSizeError(f"{_DOUBLED} holds {len(answers)} tokens; {self.size} points were sent")
        return len(match(answers, self._theirs(announced))[0])

    def _theirs(self, count: int | None) -> np.ndarray:
        return (self._doubled or Gathered(TOKEN_BYTES, 0, _PEERS)).whole(count)


class Namer(Party):
    """Either role of `pseudonyms`."""

    _named = 0

    @cached_property
    def _names(self) -> np.ndarray:
        return np.empty((self.size, TOKEN_BYTES), dtype=np.uint8)

    @cached_property
    def waiting(self) -> Waiting:
        """Chunks of the peer's set that wait to be doubled."""
        return Waiting(self._max, _PEERS)

    def take(self, points: np.ndarray) -> None:
        """A chunk of the peer's set, uint8 (n, 32).

        Raises:
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than allowed.
        """
        self.waiting.add(points)

    def double(self) -> np.ndarray:
        """The own key times each point of the chunk that has waited longest, in its order: uint8 (n, 32).

        Raises:
            PSIError: none waits.
        """
        return self._key.multiply(self.waiting.first(), _PEERS)

    def take_doubled(self, points: np.ndarray) -> None:
        """A chunk of what `double` made of this party's set, uint8 (n, 32), in the same order.

        Raises:
            PSIError: called before the set was sent.
            MalformedError: another type or shape, a bad coordinate, a point of small order, or the same point twice.
            SetSizeError: more than were sent.
        """
        self._require_sent("take_doubled")
        check_points(points, _DOUBLED)
        if self._named + len(points) > self.size:
            raise SetSizeError(f"{_DOUBLED} holds {self._named + len(points)} points; {self.size} were sent")
        rows = self._order[self._named : self._named + len(points)]
        self._named += len(points)
        own = rows < len(self._ids)
        numbers = rows[own].astype(np.int64)
        self._names[rows[own]] = finalise(self._ids, numbers, points[own], self._session.dst, TOKEN_BYTES, self._by)
        # What fills the set up is named as rows are, or it would stand out where the peer changes its key.
        filler = Identifiers.of_bytes([self._dummy(int(row) - len(self._ids)) for row in rows[~own]])
        places = np.arange(len(filler))
        self._names[rows[~own]] = finalise(filler, places, points[~own], self._session.dst, TOKEN_BYTES, self._by)

    def own(self) -> np.ndarray:
        """H2(x, ab·H1(x)) by the own rows, uint8 (n, 16).

        Raises:
            SetSizeError: fewer answers than points that were sent.
        """
        if self._named != self.size:
            raise SetSizeError(f"{_DOUBLED} holds {self._named} points; {self.size} were sent")
        return self._names[: len(self._ids)]

    def shuffled(self) -> np.ndarray:
        """`own` in a secret order, filled up to the size that was announced: what the sender sends, uint8 (n, 16)."""
        self.own()
        require_unique(self._names, "the own set")
        shuffled: np.ndarray = self._names[secret_order(self.size)]
        return shuffled
