"""Messages, the wire codec, channels and meshes.

A name loads its module when it is first used: a gate process imports from here and never loads torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.transport.channel import WINDOW, Channel
    from securevfl.transport.devices import HostCopy, fits_device, on_host, to_device, wait_for_device
    from securevfl.transport.exchange import (
        ACTIVE,
        COORDINATOR,
        PASSIVE,
        Exchange,
        Exchanges,
        PartyRole,
        Severity,
        Sight,
    )
    from securevfl.transport.hub import MemoryHub, MemoryMesh
    from securevfl.transport.memory import MemoryChannel, memory_pair
    from securevfl.transport.mesh import (
        CertificateReplaced,
        Connected,
        ConnectionRefused,
        Disconnected,
        JobAborted,
        Mesh,
        MeshEvent,
        NoteReceived,
        PeerLeft,
    )
    from securevfl.transport.message import NO_GUARD, Array, Guard, Kind, Message, Scalar
    from securevfl.transport.parts import PART, Assembler, in_parts
    from securevfl.transport.wire import (
        DEFAULT_LIMITS,
        MessageLimits,
        begin_copies,
        decode_message,
        encode_message,
        encode_parts,
        encoded_size,
        measure_message,
        move_to_host,
        wire_arrays,
    )

_NAMES = {
    "channel": "WINDOW Channel",
    "devices": "HostCopy wait_for_device fits_device on_host to_device",
    "exchange": "ACTIVE COORDINATOR PASSIVE Exchange Exchanges PartyRole Severity Sight",
    "hub": "MemoryHub MemoryMesh",
    "memory": "MemoryChannel memory_pair",
    "mesh": "CertificateReplaced Connected ConnectionRefused Disconnected JobAborted Mesh MeshEvent NoteReceived "
    "PeerLeft",
    "message": "NO_GUARD Array Guard Kind Message Scalar",
    "parts": "PART Assembler in_parts",
    "wire": "DEFAULT_LIMITS MessageLimits begin_copies decode_message encode_message encode_parts encoded_size "
    "measure_message move_to_host wire_arrays",
}
"""Module → its public names."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "ACTIVE",
    "COORDINATOR",
    "DEFAULT_LIMITS",
    "NO_GUARD",
    "PART",
    "PASSIVE",
    "WINDOW",
    "Array",
    "Assembler",
    "CertificateReplaced",
    "Channel",
    "Connected",
    "ConnectionRefused",
    "Disconnected",
    "Exchange",
    "Exchanges",
    "Guard",
    "HostCopy",
    "JobAborted",
    "Kind",
    "MemoryChannel",
    "MemoryHub",
    "MemoryMesh",
    "Mesh",
    "MeshEvent",
    "Message",
    "MessageLimits",
    "NoteReceived",
    "PartyRole",
    "PeerLeft",
    "Scalar",
    "Severity",
    "Sight",
    "begin_copies",
    "decode_message",
    "encode_message",
    "encode_parts",
    "encoded_size",
    "fits_device",
    "in_parts",
    "measure_message",
    "memory_pair",
    "move_to_host",
    "on_host",
    "to_device",
    "wait_for_device",
    "wire_arrays",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one

    def __getattr__(name: str) -> object:
        """Load a name on first use (PEP 562)."""
        if name in _MODULES:
            value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
