"""What every two-party protocol has after the handshake: two scripts, a policy, a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from securevfl_crypto.engine import Engine

from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.errors import SmallIntersectionError
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.session import Session
from securevfl_psi.terms import Protocol, Terms

__all__ = ["Conversation", "Make", "Pseudonyms", "Result"]


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
        verified: whether the peer proved each of these rows: that it has the identifier, and entered it in this run.
        pseudonyms: of the protocol of that name.
        why: the protocol was chosen, where a party left that open with ``auto``.
    """

    protocol: Protocol
    peer_size: int
    why: str = field(default="", compare=False)
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

    @abstractmethod
    def sending(self) -> Outgoing:
        """What this party sends."""

    @abstractmethod
    def hearing(self) -> Incoming:
        """What it expects, and does with it."""

    @property
    def receives(self) -> bool:
        """Whether this is the party that learns the result in any case."""
        return self.terms.role == "receiver"

    def allowed(self, count: int) -> None:
        """Refuses fewer common identifiers than the policy demands."""
        if count < self.terms.min_intersection:
            raise SmallIntersectionError(
                f"{count} common identifiers; at least {self.terms.min_intersection} are demanded: "
                "do both use the same identifiers, written the same way?"
            )

    def finish(self, **known: object) -> None:
        """Sets the result."""
        protocol = cast(Protocol, self.session.protocol)
        self.result = Result(protocol=protocol, why=self.session.why, peer_size=self.peer_size, **known)  # type: ignore[arg-type]


Make = Callable[[Identifiers, Terms, Session, int, Engine | None], Conversation]
"""Makes this party's side of a protocol: identifiers, terms, session, the peer's announced size, the engine."""
