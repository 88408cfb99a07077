"""What every two-party protocol has after the handshake: counting, policy, telling the sender, verifying."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.chunks import CHUNK, require_chunk, split
from securevfl_psi.dh import Matches
from securevfl_psi.errors import DisagreementError, MalformedError, SetSizeError, SmallIntersectionError
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session
from securevfl_psi.terms import Protocol, Role, Terms
from securevfl_psi.verify import digests_equal, order_digest
from securevfl_psi.wire import Frame, Kind

__all__ = ["Conversation", "Pseudonyms", "Result", "Said", "rows_of"]

Said = Iterator[tuple[Kind, bytes]]
KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Pseudonyms:
    """Tokens that mean the same row at both parties, and nothing to anybody else.

    Attributes:
        own: of this party's rows, uint8 (n, 16).
        peer: at the receiver, of the sender's rows in the secret order in which they were sent, uint8 (m, 16).
    """

    own: np.ndarray
    peer: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one party knows at the end.

    Attributes:
        protocol: which one was run.
        peer_size: rows that the peer sent, with its padding.
        count: common identifiers; None where this party is not told.
        rows: this party's numbers of the common rows, in an order that both share where both learn it, ascending
            otherwise, int64 (k,); None where it is not told.
        verified: whether both compared a keyed digest of the ordered common identifiers and found it equal.
        pseudonyms: of the protocol of that name.
    """

    protocol: Protocol
    peer_size: int
    count: int | None = None
    rows: np.ndarray | None = field(default=None, compare=False)
    verified: bool = False
    pseudonyms: Pseudonyms | None = field(default=None, compare=False)


class Conversation(ABC):
    """One role of one protocol.

    Attributes:
        result: None until the end.
    """

    result: Result | None = None

    def __init__(
        self, ids: Identifiers, terms: Terms, session: Session, peer_size: int, by: Engine | None = None
    ) -> None:
        self.ids, self.terms, self.session, self.peer_size, self.by = ids, terms, session, peer_size, by
        self._points = 0
        self._positions: list[np.ndarray] = []

    def start(self) -> Said:
        """What is said at once, before anything arrives."""
        return iter(())

    @abstractmethod
    def own(self) -> Iterator[tuple[Kind, np.ndarray]]:
        """The own set, in chunks."""

    @abstractmethod
    def take(self, frame: Frame) -> Said:
        """Answers to one frame."""

    @property
    def receives(self) -> bool:
        """Whether this is the party that compares."""
        return self.terms.role == "receiver"

    def wrong(self, frame: Frame) -> MalformedError:
        """The error for a frame that this role does not expect."""
        return MalformedError(f"a {frame.kind.name}, which a {self.terms.role} of {self.terms.protocol} never gets now")

    def arrived(self, rows: np.ndarray) -> bool:
        """Counts the peer's rows; True with the last one that was announced."""
        require_chunk(rows, rows.shape[1], self._points, self.peer_size, "the peer's set")
        self._points += len(rows)
        return self._points == self.peer_size

    # The end of every protocol in which the sender may learn rows.

    def allowed(self, count: int) -> None:
        """Refuses fewer common identifiers than the policy demands."""
        if count < self.terms.min_intersection:
            raise SmallIntersectionError(
                f"{count} common identifiers; at least {self.terms.min_intersection} are demanded: "
                "do both use the same identifiers, written the same way?"
            )

    def tell(self, matches: Matches) -> Said:
        """At the receiver: where the common rows stand in the sender's set, then a keyed digest of them, in that order.

        The order is that of the sender's positions, which its secret permutation made random.
        """
        order = np.argsort(matches.sender_positions)
        rows, positions = matches.receiver_rows[order], matches.sender_positions[order]
        for part in split(positions):
            yield Kind.POSITIONS, part.astype("<i8").tobytes()
        key = secrets.token_bytes(KEY_BYTES)
        self._rows, self._digest = rows, self._digest_of(rows, key, "sender")  # what the sender has to answer
        yield Kind.DIGEST, key + self._digest_of(rows, key, "receiver")

    def _digest_of(self, rows: np.ndarray, key: bytes, role: Role) -> bytes:
        """Each role says another digest of the same list, so that none can repeat what it heard."""
        return order_digest(self.ids, key, f"{self.session.dst.hex()} {role}", rows)

    def told(self, frame: Frame, find: Callable[[np.ndarray], np.ndarray]) -> Said:
        """At the sender: positions, and at last key and digest; `find` turns positions into own rows."""
        if frame.kind == Kind.POSITIONS:
            self._positions.append(rows_of(frame, 8).view("<i8").reshape(-1).astype(np.int64))
            if any(len(part) < CHUNK for part in self._positions[-2:-1]):
                raise MalformedError(f"positions go on after a chunk of fewer than {CHUNK}: use split")
            if sum(map(len, self._positions)) > len(self.ids):
                raise SetSizeError(f"more positions than the {len(self.ids)} rows of this party")
            return
        rows = find(np.concatenate([np.empty(0, dtype=np.int64), *self._positions]))
        if len(frame.payload) != 2 * KEY_BYTES:
            raise MalformedError(f"key and digest of {len(frame.payload)} bytes; {2 * KEY_BYTES} were expected")
        key, theirs = frame.payload[:KEY_BYTES], frame.payload[KEY_BYTES:]
        self._compare(self._digest_of(rows, key, "receiver"), theirs)
        self.allowed(len(rows))
        yield Kind.DIGEST, self._digest_of(rows, key, "sender")
        self.finish(count=len(rows), rows=rows, verified=True)

    def confirmed(self, frame: Frame) -> None:
        """At the receiver: the sender answers with the digest that it alone has to say."""
        if len(frame.payload) != KEY_BYTES:
            raise MalformedError(f"a digest of {len(frame.payload)} bytes; {KEY_BYTES} were expected")
        self._compare(self._digest, frame.payload)
        self.finish(count=len(self._rows), rows=self._rows, verified=True)

    def _compare(self, mine: bytes, theirs: bytes) -> None:
        if not digests_equal(mine, theirs):
            raise DisagreementError("the parties do not have the same common rows in the same order; none is used")

    def conclude(self, matches: Matches) -> Said:
        """At the receiver, once all was compared."""
        self.allowed(len(matches.receiver_rows))
        if self.terms.learns == "both":
            yield from self.tell(matches)
            return
        yield Kind.FINISHED, b""
        self.finish(count=len(matches.receiver_rows), rows=matches.receiver_rows)

    def finish(self, **known: object) -> None:
        """Sets the result."""
        self.result = Result(protocol=self.terms.protocol, peer_size=self.peer_size, **known)  # type: ignore[arg-type]


def rows_of(frame: Frame, width: int) -> np.ndarray:
    """A payload as uint8 (k, width), k ≥ 1."""
    if not frame.payload or len(frame.payload) % width:
        raise MalformedError(f"a {frame.kind.name} of {len(frame.payload)} bytes; a multiple of {width} was expected")
    return np.frombuffer(frame.payload, dtype=np.uint8).reshape(-1, width)
