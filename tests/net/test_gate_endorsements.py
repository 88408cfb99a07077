"""A gate sends an endorsement over each new connection again, until the peer has it."""

from __future__ import annotations

from typing import cast
from unittest.mock import Mock

import pytest
from securevfl_net.errors import InputError
from securevfl_net.gate.connection import Connection
from securevfl_net.gate.frames import Outbox
from securevfl_net.gate.peer import GatePeer
from securevfl_net.gate.settings import Timing
from securevfl_net.session import SessionEnd


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
