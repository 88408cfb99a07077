"""The wire codec: a versioned header and raw little-endian buffers; never pickle.

Layout of one message, all integers little-endian::

    bytes 0–3    b"SVFL"
    bytes 4–5    version (uint16)
    bytes 6–7    zero
    bytes 8–11   length of the header (uint32)
    bytes 12–15  zero
    header       MessagePack: kind, what, meta, guard, and (name, dtype, shape) of each array
    padding      zeros up to a multiple of 8
    buffers      each array in C order, padded with zeros to a multiple of 8

`decode` checks every length against the limits before it allocates anything, and gives read-only views of the
received buffer. `encoded_size` computes what `encode` would write without writing it: simulations count bytes with
it. The *digest* of a message is SHA-256 of exactly these bytes, so that the one that was sent and the one that
arrived have the same; `measure` computes it without a copy of the arrays.
"""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from securevfl_net.version import VERSION

from securevfl.errors import WireError
from securevfl.transport.devices import HostCopy, on_host
from securevfl.transport.kinds import Guard, Kind, Scalar
from securevfl.transport.message import Array, Message

__all__ = [
    "DEFAULT_LIMITS",
    "VERSION",
    "MessageLimits",
    "begin_copies",
    "decode_message",
    "encode_message",
    "encode_parts",
    "encoded_size",
    "measure_message",
    "move_to_host",
    "wire_arrays",
]

_MAGIC = b"SVFL"
_LONGEST_SIDE = 1 << 62
"""Sides of arrays stay below it, and below it again multiplied by each other: numpy counts in 63 bits, even where
another side is zero and there is nothing to count."""
_PREFIX = struct.Struct("<4sHHII")
_LITTLE = sys.byteorder == "little"

# The closed list of element types on the wire.
_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name) for name in ("|b1", "|u1", "<i4", "<i8", "<u4", "<u8", "<f2", "<f4", "<f8")
}
_NUMPY = (np.ndarray, np.generic)
_SMALL = 16 << 10
"""Messages up to this many bytes are encoded once, to be hashed and sent: a copy takes less than a call for each part.
"""
_TENSORS = {
    "torch.bool": "|b1",
    "torch.uint8": "|u1",
    "torch.int32": "<i4",
    "torch.int64": "<i8",
    "torch.float16": "<f2",
    "torch.float32": "<f4",
    "torch.float64": "<f8",
}


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of `decode`, in bytes and counts; anything larger is refused before memory is allocated."""

    message_bytes: int = 1 << 30
    header_bytes: int = 1 << 16
    arrays: int = 16
    dimensions: int = 4


DEFAULT_LIMITS = MessageLimits()


class _Header(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    kind: Kind
    what: str
    meta: dict[str, Scalar]
    guard: tuple[str, int, str, float]
    arrays: list[tuple[str, str, tuple[int, ...]]]


_encoder = msgspec.msgpack.Encoder()
_FIVE, _EMPTY, _ZEROS = b"\x95", b"\x80", bytes(8)
"""An array of five and an empty map in MessagePack, and padding."""
_decoder = msgspec.msgpack.Decoder(_Header)


def _count_padding(length: int) -> int:
    return -length % 8


def _dtype_code(name: str, dtype: Any) -> str:
    code = dtype.newbyteorder("<").str if isinstance(dtype, np.dtype) else _TENSORS.get(str(dtype))
    if code not in _DTYPES:
        raise WireError(f"array {name!r} has element type {dtype}; the wire carries {', '.join(_DTYPES)}: cast it")
    return code


_Spec = tuple[str, Any, tuple[int, ...]]
"""Name, element type and shape of an array."""


@lru_cache(maxsize=1024)
def _encode_fixed(kind: Kind, what: str, guard: Guard, specs: tuple[_Spec, ...]) -> tuple[bytes, bytes]:
    """The header before and after `meta`. Cached, because most messages of a run share a few of them."""
    arrays = [(name, _dtype_code(name, dtype), tuple(shape)) for name, dtype, shape in specs]
    before = _FIVE + _encoder.encode(kind) + _encoder.encode(what)
    return before, _encoder.encode((guard.cipher, guard.bits, guard.key, float(guard.noise))) + _encoder.encode(arrays)


def _encode_header(message: Message) -> bytes:
    specs = tuple([(name, array.dtype, array.shape) for name, array in message.arrays.items()])
    before, after = _encode_fixed(message.kind, message.what, message.guard, specs)
    meta = message.meta
    return before + (_encoder.encode(dict(meta)) if meta else _EMPTY) + after


def _encode_beginning(message: Message) -> bytes:
    """What stands before the arrays: prefix, header, padding."""
    header = _encode_header(message)
    length = len(header)
    return _PREFIX.pack(_MAGIC, VERSION, 0, length, 0) + header + _ZEROS[: -length % 8]


def _count_bytes(array: Array) -> int:
    return array.nbytes


def measure_message(message: Message) -> tuple[int, str]:
    """Bytes of `encode(message)` and their SHA-256, hexadecimal; once for each message. Large arrays are not copied.

    Raises:
        WireError: an array of an element type that the wire does not carry.
    """
    if message.written is not None:
        return message.written
    pieces: list[bytes | memoryview] = [_encode_beginning(message)]
    total = len(pieces[0])
    for raw in wire_arrays(message).values():
        length = raw.nbytes
        pad = -length % 8
        pieces += (raw.data, _ZEROS[:pad]) if pad else (raw.data,)
        total += length + pad
    # Message is frozen; these fields only cache what follows from its content.
    if total <= _SMALL:
        encoded = b"".join(pieces)
        object.__setattr__(message, "encoded", encoded)
        digest = hashlib.sha256(encoded).hexdigest()
    else:
        hashed = hashlib.sha256()
        for piece in pieces:
            hashed.update(piece)
        digest = hashed.hexdigest()
    object.__setattr__(message, "written", (total, digest))
    return total, digest


def wire_arrays(message: Message) -> Mapping[str, np.ndarray]:
    """Name → the array in wire format: flat, in C order, little-endian; converted once for each message, without a copy
    if it is so already. Waits for arrays on a device.
    """
    if message.numbers is None:
        found = {
            name: _raw_array(message.copies[name].wait_array() if name in message.copies else array).reshape(-1)
            for name, array in message.arrays.items()
        }
        object.__setattr__(message, "numbers", found)
        return found
    return message.numbers


def begin_copies(message: Message) -> None:
    """Begin to copy arrays on a device to the host, so that `measure` finds them there; once for each message."""
    away = {name: array for name, array in message.arrays.items() if not on_host(array)}
    if away and not message.copies:
        copies = {name: HostCopy(array) for name, array in away.items() if not isinstance(array, np.ndarray)}
        object.__setattr__(message, "copies", copies)


def move_to_host(message: Message) -> Message:
    """The message with all its arrays on the host, as it goes over a wire; waits for them."""
    if message.here:
        return message
    begin_copies(message)
    arrays = {
        name: message.copies[name].wait_array() if name in message.copies else a for name, a in message.arrays.items()
    }
    return replace(message, arrays=arrays)


def _raw_array(array: Array) -> np.ndarray:
    """The array in C order, little-endian, on the host; without a copy where it is so already."""
    host = array if isinstance(array, _NUMPY) else array.numpy(force=True)
    if _LITTLE and host.dtype.isnative:
        return host if host.flags.c_contiguous else np.ascontiguousarray(host)
    return np.ascontiguousarray(host, dtype=host.dtype.newbyteorder("<"))


def encoded_size(message: Message) -> int:
    """Bytes that `encode(message)` has, without encoding the arrays."""
    if message.written is not None:
        return message.written[0]
    total = len(_encode_beginning(message))
    for array in message.arrays.values():
        length = _count_bytes(array)
        total += length + _count_padding(length)
    return total


def encode_parts(message: Message) -> list[memoryview]:
    """The bytes of the message as buffers, in order. Arrays on the host in little-endian C order are not copied.

    Returns:
        Views of bytes, none of them empty. Those of a small message that was measured are the bytes that were hashed;
        others show the arrays at the time of reading: none may change until all was sent.

    Raises:
        WireError: an array of an element type that the wire does not carry.
    """
    if message.encoded is not None:
        return [memoryview(message.encoded)]
    pending = _encode_beginning(message)
    parts = []
    for raw in wire_arrays(message).values():
        if raw.nbytes:
            parts += [memoryview(pending), raw.view(np.uint8).data] if pending else [raw.view(np.uint8).data]
            pending = bytes(_count_padding(raw.nbytes))
    return [*parts, memoryview(pending)] if pending else parts


def encode_message(message: Message) -> bytes:
    """The message as bytes.

    Raises:
        WireError: an array of an element type that the wire does not carry.
    """
    return b"".join(encode_parts(message))


def decode_message(data: bytes | memoryview, limits: MessageLimits = DEFAULT_LIMITS) -> Message:
    """The message that `encode` wrote; arrays are read-only numpy views of `data`.

    Raises:
        WireError: not a message, another version, over a limit, truncated, or with bytes to spare.
    """
    # All checks of sizes come before any allocation: `data` is a peer's.
    view = memoryview(data)
    if len(view) > limits.message_bytes:
        raise WireError(f"message of {len(view)} bytes; the limit is {limits.message_bytes}: send it in parts")
    if len(view) < _PREFIX.size:
        raise WireError(f"message of {len(view)} bytes; a message has at least {_PREFIX.size}: it was cut off")
    magic, version, zero_a, header_length, zero_b = _PREFIX.unpack_from(view)
    if magic != _MAGIC or zero_a or zero_b:
        raise WireError(f"message begins with {bytes(view[:16]).hex()}; expected a securevfl message (SVFL)")
    if version != VERSION:
        raise WireError(f"message of wire version {version}, this party speaks {VERSION}: install the same securevfl")
    if header_length > min(limits.header_bytes, len(view) - _PREFIX.size):
        raise WireError(
            f"header of {header_length} bytes announced, {len(view) - _PREFIX.size} present, limit "
            f"{limits.header_bytes}"
        )
    offset = _PREFIX.size + header_length
    try:
        header = _decoder.decode(view[_PREFIX.size : offset])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"header cannot be read: {error}") from None
    offset += _count_padding(header_length)
    cipher, bits, _, noise = header.guard
    if not (0 <= bits <= 1 << 16 and 0 <= noise < math.inf):
        raise WireError(f"guard {cipher!r} of {bits} bits with noise {noise}; bits are 0 to 65536, noise is finite")
    arrays = _read_arrays(view, offset, header.arrays, limits)
    return Message(header.kind, header.what, arrays, header.meta, _read_guard(*header.guard))


def _read_guard(cipher: str, bits: int, key: str, noise: float) -> Guard:
    if bits < 0 or not 0 <= noise < math.inf:
        raise WireError(f"a guard of {bits} bits with noise multiplier {noise}; finite numbers from 0 on were expected")
    return Guard(cipher, bits, key, noise)


def _read_arrays(
    view: memoryview, offset: int, specs: list[tuple[str, str, tuple[int, ...]]], limits: MessageLimits
) -> Mapping[str, Array]:
    if len(specs) > limits.arrays:
        raise WireError(f"{len(specs)} arrays in one message; the limit is {limits.arrays}")
    arrays: dict[str, Array] = {}
    for name, code, shape in specs:
        dtype = _DTYPES.get(code)
        if dtype is None:
            raise WireError(f"array {name!r} has element type {code!r}; the wire carries {', '.join(_DTYPES)}")
        if len(shape) > limits.dimensions or any(side < 0 for side in shape):
            raise WireError(
                f"array {name!r} has shape {shape}; at most {limits.dimensions} dimensions are allowed, none negative"
            )
        # A side of 0 makes the product 0 and would hide an absurd other side from the checks, so it counts as 1.
        if math.prod(max(side, 1) for side in shape) * dtype.itemsize >= _LONGEST_SIDE:
            raise WireError(
                f"array {name!r} has shape {shape}; its sides multiply to 2^62 bytes or more, which is too large"
            )
        if name in arrays:
            raise WireError(f"array {name!r} appears twice in one message")
        if math.prod(max(side, 1) for side in shape) * dtype.itemsize > limits.message_bytes:  # also beside a side of 0
            raise WireError(f"array {name!r} has shape {shape}; the limit of a message is {limits.message_bytes} bytes")
        count = math.prod(shape)
        length = count * dtype.itemsize
        if length > len(view) - offset:
            raise WireError(f"array {name!r} needs {length} bytes, {len(view) - offset} are left: it was cut off")
        arrays[name] = np.frombuffer(view, dtype, count, offset).reshape(shape)
        offset += length + _count_padding(length)
    if offset != len(view):
        raise WireError(f"message of {len(view)} bytes describes {offset}: it was cut off or has bytes to spare")
    return arrays
