"""Messages, the wire codec and channels."""

from securevfl.transport.channel import Channel, MemoryChannel, memory_pair
from securevfl.transport.message import NO_GUARD, Array, Guard, Kind, Message, Scalar
from securevfl.transport.wire import DEFAULT_LIMITS, Limits, decode, encode, size

__all__ = [
    "DEFAULT_LIMITS",
    "NO_GUARD",
    "Array",
    "Channel",
    "Guard",
    "Kind",
    "Limits",
    "MemoryChannel",
    "Message",
    "Scalar",
    "decode",
    "encode",
    "memory_pair",
    "size",
]
