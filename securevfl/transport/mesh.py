"""A mesh: one party's connections to all peers of a job, over any transport.

A mesh carries two things. *Notes* are small, and not ordered relative to messages: parties use them for their
rendezvous before training and after one of them has restarted. *Channels* carry a protocol's messages. They exist for
one *view* only: who takes part in which incarnation, and the state from which they continue. `begin_view` makes the
channels of a view and opens their receiving side; `open_view` releases what was sent; `park_view` closes them all when
a peer is lost.

A connection that breaks and comes back changes nothing in the channels: the events are `Disconnected`, then `Connected`
with `resumed`.
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
    "CertificateReplaced",
    "Connected",
    "ConnectionRefused",
    "Disconnected",
    "JobAborted",
    "Mesh",
    "MeshEvent",
    "NoteReceived",
    "PeerLeft",
]

NOTE = 64 << 10
"""Most bytes of a note."""
VIEW = 16
"""Bytes that name a view."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A peer is connected.

    Attributes:
        peer: its name.
        incarnation: which start of its program.
        resumed: whether the same incarnation was connected before; then the view's channels continue without loss. Also
            False at the first connection.
    """

    peer: str
    incarnation: Incarnation
    resumed: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection is gone. The mesh tries to connect again.

    Attributes:
        peer: at the other end.
        why: in words.
    """

    peer: str
    why: str


@dataclass(frozen=True, slots=True)
class NoteReceived:
    """A note arrived.

    Attributes:
        peer: who wrote it.
        payload: at most 64 KiB; written by somebody else: decode it strictly.
    """

    peer: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """A connection was refused, here or there.

    Attributes:
        peer: who; empty where the other side gave no name that could be checked.
        code: the reason's name, for example ``"revoked"``.
        words: the reason, for people.
        party: whose process is at fault, for example the older of two; empty where nobody knows.
    """

    peer: str
    code: str
    words: str
    party: str = ""


@dataclass(frozen=True, slots=True)
class JobAborted:
    """A peer ended the job for all.

    Attributes:
        peer: which.
        reason: its words.
    """

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """A peer has its result, has read everything and needs no other party.

    Attributes:
        peer: which.
    """

    peer: str


@dataclass(frozen=True, slots=True)
class CertificateReplaced:
    """A peer replaced its certificate by another, signed by its signing key.

    Attributes:
        peer: which.
        fingerprint: SHA-256 of the new certificate, hexadecimal.
    """

    peer: str
    fingerprint: str


MeshEvent = Connected | Disconnected | NoteReceived | ConnectionRefused | JobAborted | PeerLeft | CertificateReplaced


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

    async def next_event(self) -> MeshEvent:
        """Wait for the next event. Events of one peer come in their order.

        Raises:
            ProtocolError: the mesh was closed, or what carries it died.
        """
        ...

    async def send_note(self, peer: str, payload: bytes) -> None:
        """Send a note to a peer. Notes arrive in order within one connection and are lost with it: repeat them on
        `Connected`.

        Raises:
            InputError: more than 64 KiB, or nobody of this name.
        """
        ...

    def begin_view(self, view: bytes) -> Mapping[str, Channel]:
        """Make new channels for a view, by peer. Their receiving side is open, so announce readiness only afterwards.

        What is sent waits until `open_view`. Channels of an earlier view are parked.

        Args:
            view: 16 bytes, which no earlier view had.

        Raises:
            InputError: not 16 bytes.
        """
        ...

    def open_view(self) -> None:
        """Release what is sent over this view's channels: all peers have announced that they are ready.

        Raises:
            InputError: no view was begun.
        """
        ...

    def park_view(self, why: str) -> None:
        """End this view: what was not sent or not read is dropped, pending and later calls of its channels raise
        `Parked`. Does nothing without a view."""
        ...

    async def abort_job(self, reason: str) -> None:
        """End the job for all: peers receive the reason before anything in flight, and their channels raise."""
        ...

    async def close(self) -> None:
        """Leave, after peers acknowledged all that was sent; a peer that is away is not waited for longer than a
        limit. `Mesh.next_event` raises afterwards."""
        ...

    def link_states(self) -> Mapping[str, LinkState]:
        """The state of each connection, by peer."""
        ...
