"""A mesh: one party's connections to all peers of a job, whatever carries them.

A mesh carries two things. *Notes* are small and unordered with the rest: parties gather by them before they train, and
again after one of them was started anew. *Channels* carry a protocol's messages. They exist for one *view* only: who
takes part in which incarnation, and from where they go on. `begin` makes the channels of a view and opens their
receiving side; `open` lets what was sent leave; `park` ends them all when a peer is gone.

A connection that breaks and comes back changes nothing in the channels: `Down`, then `Up` with `resumed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from securevfl_net.incarnation import Incarnation
from securevfl_net.link_state import LinkState

from securevfl.transport.channel import Channel

__all__ = [
    "NOTE",
    "VIEW",
    "Aborted",
    "Down",
    "Ended",
    "Endorsed",
    "Mesh",
    "MeshEvent",
    "Noted",
    "Refused",
    "Up",
]

NOTE = 64 << 10
"""Most bytes of a note."""
VIEW = 16
"""Bytes that name a view."""


@dataclass(frozen=True, slots=True)
class Up:
    """A peer is connected.

    Attributes:
        peer: its name.
        incarnation: which start of its program.
        resumed: whether it is the incarnation that was connected before; then channels of the view go on and nothing
            was lost. False at the first connection, too.
    """

    peer: str
    incarnation: Incarnation
    resumed: bool


@dataclass(frozen=True, slots=True)
class Down:
    """A connection is gone. The mesh tries to connect again.

    Attributes:
        peer: at the other end.
        why: in words.
    """

    peer: str
    why: str


@dataclass(frozen=True, slots=True)
class Noted:
    """A note came.

    Attributes:
        peer: who wrote it.
        payload: at most 64 KiB; written by somebody else: decode it strictly.
    """

    peer: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """A connection was refused, here or there.

    Attributes:
        peer: who; empty where the other side gave no name that could be checked.
        code: the reason's name, for example ``"revoked"``.
        words: the reason, for people.
    """

    peer: str
    code: str
    words: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """A peer ended the job for all.

    Attributes:
        peer: which.
        reason: its words.
    """

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A peer is done, has read everything and needs nobody any more.

    Attributes:
        peer: which.
    """

    peer: str


@dataclass(frozen=True, slots=True)
class Endorsed:
    """A peer put another certificate in the place of its own, signed by its signing key.

    Attributes:
        peer: which.
        fingerprint: SHA-256 of the new certificate, hexadecimal.
    """

    peer: str
    fingerprint: str


MeshEvent = Up | Down | Noted | Refused | Aborted | Ended | Endorsed


class Mesh(Protocol):
    """One party's connections to all peers.

    Attributes:
        me: the party.
        peers: all others of the job, sorted.
        incarnation: the party's own.
    """

    @property
    def me(self) -> str:
        """The party."""
        ...

    @property
    def peers(self) -> tuple[str, ...]:
        """All others of the job, sorted."""
        ...

    @property
    def incarnation(self) -> Incarnation:
        """The party's own."""
        ...

    async def next(self) -> MeshEvent:
        """What happened next; waits for it. Events of one peer come in their order.

        Raises:
            ProtocolError: the mesh was closed, or what carries it died.
        """
        ...

    async def note(self, peer: str, payload: bytes) -> None:
        """Write to a peer. Notes arrive in order within one connection and are lost with it: say it again on `Up`.

        Raises:
            InputError: more than 64 KiB, or nobody of this name.
        """
        ...

    def begin(self, view: bytes) -> Mapping[str, Channel]:
        """New channels for a view, by peer. Their receiving side is open, so tell peers that one is ready afterwards.

        What is sent waits until `open`. Channels of an earlier view are parked.

        Args:
            view: 16 bytes, which no earlier view had.

        Raises:
            InputError: not 16 bytes.
        """
        ...

    def open(self) -> None:
        """What is sent over this view's channels goes out: all peers said that they are ready.

        Raises:
            InputError: there is no view.
        """
        ...

    def park(self, why: str) -> None:
        """End this view: what was not sent or not read is dropped, pending and later calls of its channels raise
        `Parked`. Does nothing without a view."""
        ...

    async def abort(self, reason: str) -> None:
        """End the job for all: peers learn the reason, ahead of all that is on its way, and their channels raise."""
        ...

    async def close(self) -> None:
        """Leave, after peers acknowledged all that was sent; a peer that is away is not waited for longer than a
        limit. `Mesh.next` raises afterwards."""
        ...

    def links(self) -> Mapping[str, LinkState]:
        """The state of each connection, by peer."""
        ...
