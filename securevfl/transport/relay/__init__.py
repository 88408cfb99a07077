"""A blind relay: two parties dial out to it, and it passes the bytes of their TLS on without understanding them."""

from securevfl.transport.relay.introduction import ID, TOKEN, Side, introduce, read_rendezvous, read_token
from securevfl.transport.relay.limits import Allowance, Limits
from securevfl.transport.relay.server import RelayServer
from securevfl.transport.relay.tokens import Tokens

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
