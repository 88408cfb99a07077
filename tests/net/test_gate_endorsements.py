"""A gate sends an endorsement over each new connection again, until the peer has it."""

from __future__ import annotations

from typing import cast
from unittest.mock import Mock

import pytest
from securevfl_net.errors import InputError
from securevfl_net.gate.connection import Connection
from securevfl_net.gate.frames import Outbox
from securevfl_net.gate.peer import _PING, GatePeer
from securevfl_net.gate.settings import Timing
from securevfl_net.session import Beaten, Endorsed, Event, SessionEnd


@pytest.fixture
def peer() -> GatePeer:
    session = Mock(spec=SessionEnd, peer="shop", is_up=True)
    made = GatePeer(0, cast(SessionEnd, session), Mock(spec=Outbox), Timing(), calls=False)
    made.current = Mock(spec=Connection)
    return made


def _tell(peer: GatePeer, since: float = 1.0) -> bool:
    return peer.tell_endorsement(b"signed", since, 0.0, 0.0)


def test_it_is_sent_once_and_done_when_the_ping_behind_it_is_answered(peer: GatePeer) -> None:
    assert not _tell(peer)
    assert not _tell(peer)
    cast(Mock, peer.session).send_endorsement.assert_called_once_with(b"signed")
    peer._echoed = 1 << 62
    assert _tell(peer)


def test_a_connection_that_ended_took_it_along(peer: GatePeer) -> None:
    assert not _tell(peer)
    peer.session.is_up = False  # type: ignore[misc]
    assert not _tell(peer)
    peer.session.is_up, peer.current = True, Mock(spec=Connection)  # type: ignore[misc]
    assert not _tell(peer)
    assert cast(Mock, peer.session).send_endorsement.call_count == 2


def test_the_next_certificate_is_another_endorsement(peer: GatePeer) -> None:
    peer._echoed = 1
    assert not _tell(peer)
    assert not _tell(peer, since=2.0)
    assert cast(Mock, peer.session).send_endorsement.call_count == 2


def test_it_waits_while_too_many_notes_do(peer: GatePeer) -> None:
    cast(Mock, peer.session).send_endorsement.side_effect = InputError("too many")
    assert not _tell(peer)
    cast(Mock, peer.session).send_endorsement.side_effect = None
    assert not _tell(peer)
    assert cast(Mock, peer.session).send_endorsement.call_count == 2


def _hear(peer: GatePeer, *events: Event) -> int:
    """Take events of the peer, then ping it; returns which of its pings that answers."""
    session = cast(Mock, peer.session)
    session.take_events.return_value, session.held_bytes = list(events), 0
    peer.relay_events(0.0, 0.0)
    peer.send_ping(0.0, 0.0)
    return int(_PING.unpack_from(session.send_ping.call_args.args[0])[1])


def _ping(clock: int) -> Beaten:
    return Beaten(_PING.pack(clock, 0, 0, 0.0, 0))


@pytest.fixture
def heard(peer: GatePeer) -> GatePeer:
    cast(Mock, peer._outbox).urgent = 1
    return peer


def test_a_ping_behind_an_endorsement_is_answered_once_the_program_has_stored_it(heard: GatePeer) -> None:
    """A program that is killed first has nothing, and would refuse the peer's new certificate for ever."""
    assert _hear(heard, _ping(5)) == 5
    assert _hear(heard, Endorsed(b"signed"), _ping(6)) == 5
    assert _hear(heard, _ping(7)) == 5
    heard.handle_pin(b"another")
    assert _hear(heard) == 5
    heard.handle_pin(b"signed")
    assert _hear(heard) == 7
    assert _hear(heard, _ping(8)) == 8


def test_an_endorsement_that_the_program_refused_is_not_answered_for_before_the_next(heard: GatePeer) -> None:
    assert _hear(heard, _ping(5)) == 5
    assert _hear(heard, Endorsed(b"wrong"), _ping(6)) == 5
    assert _hear(heard, Endorsed(b"right"), _ping(7)) == 5
    heard.handle_pin(b"right")
    assert _hear(heard) == 7
