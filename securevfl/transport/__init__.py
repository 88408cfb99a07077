"""Messages, the wire codec, channels and meshes.

A name loads its module when it is first used: a gate process imports from here and never loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.transport.channel import WINDOW, Channel, CommitsFirst
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
    from securevfl.transport.kinds import NO_GUARD, Guard, Kind, Scalar
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
    from securevfl.transport.message import Array, Message
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
    "securevfl.transport.channel": "WINDOW Channel CommitsFirst",
    "securevfl.transport.devices": "HostCopy wait_for_device fits_device on_host to_device",
    "securevfl.transport.exchange": "ACTIVE COORDINATOR PASSIVE Exchange Exchanges PartyRole Severity Sight",
    "securevfl.transport.hub": "MemoryHub MemoryMesh",
    "securevfl.transport.kinds": "NO_GUARD Guard Kind Scalar",
    "securevfl.transport.memory": "MemoryChannel memory_pair",
    "securevfl.transport.mesh": (
        "CertificateReplaced Connected ConnectionRefused Disconnected JobAborted Mesh MeshEvent NoteReceived PeerLeft"
    ),
    "securevfl.transport.message": "Array Message",
    "securevfl.transport.parts": "PART Assembler in_parts",
    "securevfl.transport.wire": (
        "DEFAULT_LIMITS MessageLimits begin_copies decode_message encode_message encode_parts encoded_size "
        "measure_message move_to_host wire_arrays"
    ),
}
"""Module → its public names."""

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
    "CommitsFirst",
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
    __getattr__ = load_on_use(__name__, _NAMES)
