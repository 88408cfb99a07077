"""The socket that questions come in by."""

from __future__ import annotations

import socket

from securevfl.agreement import Address
from securevfl.serving.listening import _bind_socket


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """An answer goes out in two segments; without TCP_NODELAY the second one waits 40 ms."""
    bound = _bind_socket(Address.parse("127.0.0.1:0"))
    with bound, socket.create_connection(bound.getsockname()), bound.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
