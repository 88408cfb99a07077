"""The messages between a pool and its workers, as bytes: a task's arguments, and its result or error."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import import_module

from securevfl_crypto.errors import PoolError, TaskFailed
from securevfl_crypto.pools.base import Argument, load_task

__all__ = ["answer_task", "pack_arguments", "read_answer", "unpack_arguments"]

_HEAD = struct.Struct("<cQ")
_DONE, _ENDED = 0, 1


def pack_arguments(arguments: Sequence[Argument]) -> bytes:
    """Encode arguments one after the other, each after its type (1 byte) and length (8 bytes, little-endian)."""
    parts: list[bytes] = []
    for argument in arguments:
        if isinstance(argument, bytes):
            kind, body = b"b", argument
        elif isinstance(argument, str):
            kind, body = b"s", argument.encode("utf-8", "surrogateescape")
        else:
            kind, body = b"i", argument.to_bytes(argument.bit_length() // 8 + 1, "little", signed=True)
        parts += [_HEAD.pack(kind, len(body)), body]
    return b"".join(parts)


def unpack_arguments(data: bytes) -> list[Argument]:
    """Decode the arguments that `pack_arguments` encoded.

    Raises:
        PoolError: the bytes have another form.
    """
    found: list[Argument] = []
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise PoolError("a message between a pool and its worker is cut off")
        kind, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        body = data[at : at + size]
        if len(body) != size:
            raise PoolError(f"a message between a pool and its worker ends after {len(body)} of {size} bytes")
        at += size
        if kind == b"b":
            found.append(body)
        elif kind == b"s":
            found.append(body.decode("utf-8", "surrogateescape"))
        elif kind == b"i":
            found.append(int.from_bytes(body, "little", signed=True))
        else:
            raise PoolError(
                f"a message between a pool and its worker has a part of the unknown kind {kind!r}; expected b, i or s"
            )
    return found


def answer_task(task: str, arguments: Sequence[Argument]) -> bytes:
    """Run a task in this process, and encode its result or error for `read_answer`."""
    try:
        found = load_task(task)(*arguments)
        if not isinstance(found, bytes):
            raise PoolError(f"the task {task!r} returned a {type(found).__name__}; a task returns bytes")
        return pack_arguments([_DONE, found])
    except BaseException as error:  # includes SystemExit: a task must not end a worker without an answer
        kind = type(error)
        return pack_arguments([_ENDED, f"{kind.__module__}:{kind.__qualname__}", str(error)])


def read_answer(task: str, data: bytes) -> bytes:
    """Decode a task's result, or raise its error.

    Raises:
        Exception: the task's error, if a ``securevfl`` package defines its class.
        TaskFailed: the task raised another error; the message contains its name and text.
    """
    ended, *rest = unpack_arguments(data) or [-1]
    if ended == _DONE and len(rest) == 1 and isinstance(rest[0], bytes):
        return rest[0]
    if ended != _ENDED or len(rest) != 2:
        raise PoolError(
            f"the answer to the task {task!r} has an unknown form: both sides need the same version of securevfl"
        )
    name, words = str(rest[0]), str(rest[1])
    own = _own_error(name, words)
    if own is not None:
        own.add_note(f"in the task {task}")
        raise own
    raise TaskFailed(f"the task {task} ended with {name.rpartition(':')[2]}: {words}")


def _own_error(name: str, words: str) -> Exception | None:
    """Rebuild an error of this toolkit from its class's name and its message; None for any other class."""
    module, _, kind = name.partition(":")
    if not module.split(".")[0].startswith("securevfl") or not kind.isidentifier():
        return None
    try:
        found = getattr(import_module(module), kind, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found(words)
    except (ImportError, TypeError):  # the class's constructor needs more than a message
        return None
    return None
