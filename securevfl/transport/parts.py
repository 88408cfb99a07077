"""Messages in parts: split without a copy by the sender, assembled in one buffer by the receiver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from securevfl.errors import InputError, WireError
from securevfl.transport.message import Message
from securevfl.transport.wire import DEFAULT_LIMITS, MessageLimits, decode_message

__all__ = ["PART", "Assembler", "in_parts"]

PART = 1 << 20
"""Most bytes of one part."""


def in_parts(buffers: Iterable[memoryview], size: int = PART) -> Iterator[list[memoryview]]:
    """Cut what `encode_parts` gave into parts, each a list of views for one gathering write.

    Args:
        buffers: views of bytes.
        size: of every part but the last, which may be shorter; bytes.

    Raises:
        InputError: a size below 1.
    """
    if size < 1:
        raise InputError(f"parts of {size} bytes; at least 1 is needed")
    part: list[memoryview] = []
    room = size
    for buffer in buffers:
        rest = buffer
        while len(rest):
            piece, rest = rest[:room], rest[room:]
            part.append(piece)
            room -= len(piece)
            if not room:
                yield part
                part, room = [], size
    if part:
        yield part


class Assembler:
    """Puts the parts of messages together: one buffer for each message, of which the decoded arrays are views.

    A message of one part is not copied at all. The buffer of a longer one takes memory only as parts arrive.

    Args:
        limits: of messages.
    """

    def __init__(self, limits: MessageLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._whole: memoryview | None = None
        self._got = 0

    @property
    def missing_bytes(self) -> int:
        """Bytes until the present message is whole; 0 between messages."""
        return 0 if self._whole is None else len(self._whole) - self._got

    def begin_message(self, total: int, bound: int | None = None) -> None:
        """A message of `total` bytes follows.

        Args:
            total: as its sender declares.
            bound: most bytes of the next step's message, if known.

        Raises:
            WireError: longer than the limit or the bound, empty, or the message before is not whole; nothing was taken.
        """
        self._check_size(total, bound)
        self._whole = np.empty(total, np.uint8).data
        self._got = 0

    def _check_size(self, total: int, bound: int | None) -> None:
        most = self._limits.message_bytes if bound is None else min(bound, self._limits.message_bytes)
        if self._whole is not None:
            raise WireError(f"a message begins while {self.missing_bytes} bytes of the one before are missing")
        if not 0 < total <= most:
            raise WireError(f"a message of {total} bytes is announced; this step has 1 to {most}: is it the same job?")

    def free_memory(self) -> memoryview:
        """Memory for the rest of the message, for `recv_into`; then call `count_filled`.

        Raises:
            WireError: no message was begun.
        """
        if self._whole is None:
            raise WireError("a part comes before the first part of a message")
        return self._whole[self._got :]

    def count_filled(self, count: int) -> memoryview | None:
        """Report that this many bytes were put into `free_memory()`.

        Returns:
            The whole message once it is complete, otherwise None.

        Raises:
            WireError: more than were missing.
        """
        if count > self.missing_bytes or self._whole is None:
            raise WireError(f"a part of {count} bytes where {self.missing_bytes} of the message are missing")
        self._got += count
        if self._got < len(self._whole):
            return None
        whole, self._whole = self._whole, None
        return whole

    def add_part(self, data: memoryview, total: int | None, bound: int | None = None) -> memoryview | None:
        """Take the next part.

        Args:
            data: its bytes; they must not change any more.
            total: bytes of the whole message on its first part, otherwise None.
            bound: as `begin_message`.

        Returns:
            The whole message's bytes with its last part, otherwise None.

        Raises:
            WireError: the part does not fit; nothing was taken.
        """
        if total is not None:
            self._check_size(total, bound)
            if total <= len(data):
                if total == len(data):
                    return data
                raise WireError(f"a message of {total} bytes is announced with a part of {len(data)}")
            self.begin_message(total, bound)
        room = self.free_memory()
        if len(data) > len(room):
            raise WireError(f"a part of {len(data)} bytes where {len(room)} of the message are missing")
        room[: len(data)] = data
        return self.count_filled(len(data))

    def decode_part(self, data: memoryview, total: int | None, bound: int | None = None) -> tuple[Message, int] | None:
        """Like `add_part`, decoded: the message and its bytes on the wire."""
        whole = self.add_part(data, total, bound)
        return None if whole is None else (decode_message(whole, self._limits), len(whole))

    def drop_message(self) -> None:
        """Forget the message that is not whole."""
        self._whole, self._got = None, 0
