"""One connection of a session: splits arriving bytes into frames and enforces the order of the handshake.

A line is *young* until both hellos and the acceptance have passed, then *up*, and *over* once it was refused, replaced
by a newer line, or closed. Whatever arrives on a line that is over is dropped.
"""

from __future__ import annotations

from typing import Protocol

from securevfl_net.session.frames import BODY, FIRST, PREFIX, FrameKind, read_head
from securevfl_net.session.refusal import SessionRefusal
from securevfl_net.session.streams import Incoming

__all__ = ["Line", "LineOwner"]

_SCRATCH = 256 << 10
_LONG = 32 << 10
"""Parts of this many bytes and more are received where they stay; shorter ones are copied out of the scratch buffer."""
_NAMES = {int(kind): kind.name for kind in FrameKind}


class LineOwner(Protocol):
    """Callbacks of a line to its session's end."""

    def on_frame(self, line: Line, kind: int, body: memoryview) -> None:
        """Handle a frame other than DATA; `body` is valid until this returns."""
        ...

    def on_head(self, line: Line, tag: bytes, number: int, size: int, total: int | None) -> Incoming | None:
        """Check the head of a part; the stream that it is for, or None if it belongs to an earlier view."""
        ...

    def on_part(self, incoming: Incoming | None, data: memoryview, total: int | None) -> None:
        """Handle a part whose head was checked."""
        ...

    def on_refusal(self, line: Line, refusal: SessionRefusal) -> None:
        """The line broke a rule."""
        ...

    def pull_bytes(self, line: Line, most: int) -> list[memoryview]:
        """Bytes to write on the line now."""
        ...

    def on_closed(self, line: Line) -> None:
        """The line's connection is gone."""
        ...


class Line:
    """One connection; made by `SessionEnd.open_line`.

    Attributes:
        up: whether the handshake is done and the line is not over.
        over: whether nothing is taken from it any more. The gate writes what `pull_bytes` still gives and closes it.
        why: for what reason it is over; empty otherwise.
        number: of this end's connections, from 1.
        id: the random bytes of this end's hello.
        greeted: whether the peer's hello was taken.
    """

    __slots__ = (
        "_body",
        "_got",
        "_have",
        "_incoming",
        "_owner",
        "_scratch",
        "_skip",
        "_total",
        "_view",
        "greeted",
        "id",
        "last_words",
        "number",
        "over",
        "up",
        "why",
    )

    def __init__(self, owner: LineOwner, number: int, identity: bytes) -> None:
        self._owner = owner
        self._scratch = bytearray(_SCRATCH)
        self._view = memoryview(self._scratch)
        self._have = 0
        self._body: memoryview | None = None
        self._got = self._skip = 0
        self._incoming: Incoming | None = None
        self._total: int | None = None
        self.number = number
        self.id = identity
        self.up = self.over = self.greeted = False
        self.why = ""
        self.last_words: list[bytes] = []

    def end(self, why: str) -> None:
        """Take nothing from it any more."""
        if not self.over:
            self.over, self.up, self.why = True, False, why
            self._body = self._incoming = None
            self._have = self._skip = 0

    def mark_closed(self) -> None:
        """The connection is gone. What was sent and not acknowledged stays, for the next one."""
        self.end("the connection was closed")
        self.last_words.clear()
        self._owner.on_closed(self)

    def pull_bytes(self, most: int = 1 << 18) -> list[memoryview]:
        """Bytes to write now, whole frames, in the order of their urgency; about `most`, or one part. Empty: nothing.

        Write all of it, in order, before the next call of `pull_bytes`.
        """
        return self._owner.pull_bytes(self, most)

    def receive_buffer(self) -> memoryview:
        """Memory for arriving bytes, for `recv_into`; never empty. Then call `commit_received`."""
        if self._body is not None:
            return self._body[self._got :]
        return self._view[self._have :]

    def commit_received(self, count: int) -> None:
        """Report that `count` bytes were put into `receive_buffer()`; `SessionEnd.take_events` returns the events."""
        if self.over:
            return
        if self._body is None:
            self._have += count
        else:
            self._got += count
            if self._got < len(self._body):
                return
            body, incoming, total = self._body, self._incoming, self._total
            self._body = self._incoming = None
            self._owner.on_part(incoming, body, total)
            return
        try:
            self._read_frames()
        except SessionRefusal as refusal:
            self._owner.on_refusal(self, refusal)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Like `receive_buffer` and `commit_received`, with a copy."""
        view = memoryview(data)
        while view and not self.over:
            room = self.receive_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.commit_received(count)
            view = view[count:]

    def _read_frames(self) -> None:
        """Take all whole frames out of the scratch buffer, and keep the rest at its front."""
        view, have, at = self._view, self._have, min(self._skip, self._have)
        self._skip -= at
        unpack, owner = PREFIX.unpack_from, self._owner
        while have - at >= 8:
            kind, flags, zero, length = unpack(view, at)
            if not 0 < kind < len(BODY) or zero or flags & ~(kind == FrameKind.DATA):
                raise SessionRefusal(
                    "no-session", f"a frame begins with {bytes(view[at : at + 8]).hex()}; no frame does"
                )
            least, most = BODY[kind]
            if not least + 8 * flags <= length <= most:
                raise SessionRefusal(
                    "over-limit",
                    f"a {_NAMES[kind]} frame of {length} bytes; it has {least + 8 * flags} to {most}",
                )
            end = at + 8 + length
            if kind != FrameKind.DATA:
                if end > have:
                    self._require_order(kind)
                    break
                self._require_order(kind)
                owner.on_frame(self, kind, view[at + 8 : end])
                if self.over:
                    return
                at = end
                continue
            if not self.up:
                self._require_order(kind)
            start = at + (32 if flags else 24)
            if start > have:
                break
            tag, number, total = read_head(view, at, flags == FIRST)
            size = end - start
            incoming = owner.on_head(self, tag, number, size, total)
            if end <= have:
                owner.on_part(incoming, memoryview(bytes(view[start:end])), total)
                at = end
            elif incoming is None:
                self._skip, at = end - have, have
            elif size >= _LONG:
                self._body = memoryview(bytearray(size))
                self._got = have - start
                self._body[: self._got] = view[start:have]
                self._incoming, self._total = incoming, total
                at = have
            else:
                break
        self._have = have - at
        if at and self._have:
            view[: self._have] = bytes(view[at:have])

    def _require_order(self, kind: int) -> None:
        """Refuse a frame that comes before its time."""
        if self.up or kind == FrameKind.REFUSE:
            if kind in (FrameKind.HELLO, FrameKind.ACCEPT):
                raise SessionRefusal("broken-rule", f"a {_NAMES[kind]} frame on a connection that was accepted")
            return
        due = FrameKind.ACCEPT if self.greeted else FrameKind.HELLO
        if kind != due:
            raise SessionRefusal("broken-rule", f"a {_NAMES[kind]} frame where {due.name} was due")
