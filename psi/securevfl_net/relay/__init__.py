"""A blind relay: two parties dial it, and it forwards the bytes of their TLS connection, which it cannot decrypt."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from securevfl_net.relay.introduction import ID, TOKEN, Side, introduce, read_rendezvous, read_token
from securevfl_net.relay.limits import Allowance, Limits
from securevfl_net.relay.tokens import Tokens

if TYPE_CHECKING:
    from securevfl_net.relay.server import RelayServer

__all__ = [
    "ID",
    "TOKEN",
    "Allowance",
    "Limits",
    "RelayServer",
    "Side",
    "Tokens",
    "introduce",
    "read_rendezvous",
    "read_token",
]

if not TYPE_CHECKING:  # a gate calls through a relay and needs no server, nor what it is made of

    def __getattr__(name: str) -> object:
        """Load the server on first use (PEP 562)."""
        if name == "RelayServer":
            return import_module(f"{__name__}.server").RelayServer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
