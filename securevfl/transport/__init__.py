"""Messages, the wire codec and channels."""

from securevfl.transport.channel import WINDOW, Beat, Channel, MemoryChannel, memory_pair
from securevfl.transport.exchange import ACTIVE, COORDINATOR, PASSIVE, Exchange, Exchanges, PartyRole, Severity
from securevfl.transport.message import NO_GUARD, Array, Guard, Kind, Message, Scalar
from securevfl.transport.wire import DEFAULT_LIMITS, Limits, decode, encode, measure, size

__all__ = [
    "ACTIVE",
    "COORDINATOR",
    "DEFAULT_LIMITS",
    "NO_GUARD",
    "PASSIVE",
    "WINDOW",
    "Array",
    "Beat",
    "Channel",
    "Exchange",
    "Exchanges",
    "Guard",
    "Kind",
    "Limits",
    "MemoryChannel",
    "Message",
    "PartyRole",
    "Scalar",
    "Severity",
    "decode",
    "encode",
    "measure",
    "memory_pair",
    "size",
]
