"""Base class of every two-party protocol after the handshake: two scripts, a policy, a result."""

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
    """Tokens that name the same row at both parties and are meaningless to anybody else.

    Attributes:
        own: tokens of this party's rows, uint8 (n, 16).
        peer: at the receiver, tokens of the sender's rows in the sender's secret order, uint8 (m, 16).
    """

    own: np.ndarray
    peer: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Result:
    """One party's result of a run.

    Attributes:
        protocol: the protocol that ran.
        peer_size: number of rows that the peer sent, padding included.
        count: number of common identifiers; None if this party does not learn it.
        rows: this party's numbers of the common rows, int64 (k,), in a shared order if both parties learn them, else
            ascending; None if this party does not learn them.
        verified: whether the peer proved each row: that it has the identifier, and entered it in this run.
        pseudonyms: result of the protocol ``pseudonyms``.
        why: the reason for the protocol if a party had ``auto``.
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
    def send_script(self) -> Outgoing:
        """The script of the frames that this party sends."""

    @abstractmethod
    def receive_script(self) -> Incoming:
        """The script that expects and processes the peer's frames."""

    @property
    def is_receiver(self) -> bool:
        """Whether this party is the receiver, which always learns the result."""
        return self.terms.role == "receiver"

    def require_enough(self, count: int) -> None:
        """Raise SmallIntersectionError if fewer identifiers are common than the policy demands."""
        if count < self.terms.min_intersection:
            raise SmallIntersectionError(
                f"{count} common identifiers; the policy demands at least {self.terms.min_intersection}: "
                "do both use the same identifiers, written the same way?"
            )

    def set_result(self, **known: object) -> None:
        """Sets the result."""
        protocol = cast(Protocol, self.session.protocol)
        self.result = Result(protocol=protocol, why=self.session.why, peer_size=self.peer_size, **known)  # type: ignore[arg-type]


Make = Callable[[Identifiers, Terms, Session, int, Engine | None], Conversation]
"""Makes this party's side of a protocol: identifiers, terms, session, the peer's announced size, the engine."""
