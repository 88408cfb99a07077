"""The links between the parties: a small TCP proxy on each, which can cut, tear, delay and half close it."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["Link", "Links"]

_PIECE = 1 << 16
_RESET = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Pipe:
    """One connection through a proxy: both sockets, and what waits to be written to each."""

    near: socket.socket
    far: socket.socket
    waiting: dict[socket.socket, bytearray] = field(default_factory=dict)
    ended: set[socket.socket] = field(default_factory=set)
    swallows: socket.socket | None = None

    def other(self, sock: socket.socket) -> socket.socket:
        return self.far if sock is self.near else self.near


class Link:
    """The link of two parties; `caller` dials.

    Args:
        caller, called: the parties.
        target: port of the called party.
    """

    def __init__(self, caller: str, called: str, target: int) -> None:
        self.caller, self.called, self.target = caller, called, target
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.listener.setblocking(False)
        self.pipes: list[_Pipe] = []
        self.closed_until = self.held_until = 0.0
        self.tears_after: int | None = None

    @property
    def port(self) -> int:
        """Where the caller dials."""
        return int(self.listener.getsockname()[1])

    @property
    def ends(self) -> frozenset[str]:
        """Both parties."""
        return frozenset((self.caller, self.called))


class Links:
    """All links of a run, pumped by `run_once`."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.links: list[Link] = []

    def add(self, caller: str, called: str, target: int) -> Link:
        """Open a link's proxy."""
        link = Link(caller, called, target)
        self.links.append(link)
        self.selector.register(link.listener, selectors.EVENT_READ, lambda _: self._accept(link))
        return link

    def between(self, one: str, other: str) -> Link:
        """The link of two parties."""
        return next(link for link in self.links if link.ends == {one, other})

    def watch(self, sock: socket.socket, read: Callable[[int], None]) -> None:
        """Call `read` when there is something to read."""
        self.selector.register(sock, selectors.EVENT_READ, read)

    def run_once(self, seconds: float) -> None:
        """Move what is there, waiting at most so long for something."""
        for key, mask in self.selector.select(seconds):
            if key.fileobj in self.selector.get_map():  # an earlier event may have closed it
                key.data(mask)
        now = time.monotonic()
        for link in self.links:
            for pipe in list(link.pipes):
                if link.held_until <= now:
                    self._flush(link, pipe)

    def cut(self, link: Link, closed: float) -> None:
        """Reset all connections of a link, and refuse new ones for a while."""
        link.closed_until = time.monotonic() + closed
        for pipe in list(link.pipes):
            self._drop(link, pipe)

    def tear(self, link: Link, after: int) -> None:
        """Cut the link when so many more bytes have passed: in the middle of a message."""
        link.tears_after = after

    def hold(self, link: Link, seconds: float) -> None:
        """Let nothing through for a while."""
        link.held_until = time.monotonic() + seconds

    def half_close(self, link: Link, silent: str) -> None:
        """One party's bytes are lost from here on, and its peer sees their end; the other way stays open."""
        for pipe in link.pipes:
            mute = pipe.near if link.caller == silent else pipe.far
            pipe.swallows = mute
            with suppress(OSError):
                pipe.other(mute).shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close everything."""
        for link in self.links:
            for pipe in list(link.pipes):
                self._drop(link, pipe)
            link.listener.close()
        self.selector.close()

    def _accept(self, link: Link) -> None:
        with suppress(BlockingIOError):
            near, _ = link.listener.accept()
            if time.monotonic() < link.closed_until:
                near.close()
                return
            far = socket.socket()
            try:
                far.connect(("127.0.0.1", link.target))
            except OSError:
                near.close()
                far.close()
                return
            pipe = _Pipe(near, far)
            link.pipes.append(pipe)
            for sock in (near, far):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pipe.waiting[sock] = bytearray()
                self.selector.register(sock, selectors.EVENT_READ, self._make_reader(link, pipe, sock))

    def _make_reader(self, link: Link, pipe: _Pipe, sock: socket.socket) -> Callable[[int], None]:
        return lambda _: self._read(link, pipe, sock)

    def _read(self, link: Link, pipe: _Pipe, sock: socket.socket) -> None:
        target = pipe.other(sock)
        try:
            data = sock.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            self._drop(link, pipe)
            return
        if not data:
            pipe.ended.add(sock)
            self.selector.unregister(sock)
            return
        if pipe.swallows is sock:
            return
        if link.tears_after is not None:
            data = data[: link.tears_after]
            link.tears_after -= len(data)
        pipe.waiting[target] += data
        if time.monotonic() >= link.held_until:
            self._flush(link, pipe)

    def _flush(self, link: Link, pipe: _Pipe) -> None:
        """Write what waits; then end the connection where its time has come."""
        for sock, data in pipe.waiting.items():
            try:
                while data:
                    del data[: sock.send(data)]
            except BlockingIOError:
                return
            except OSError:
                self._drop(link, pipe)
                return
            source = pipe.other(sock)
            if source in pipe.ended and pipe.swallows is not source:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)
        if link.tears_after == 0:
            link.tears_after = None
            self.cut(link, 0.0)
        elif len(pipe.ended) == 2:
            self._drop(link, pipe, reset=False)

    def _drop(self, link: Link, pipe: _Pipe, *, reset: bool = True) -> None:
        if pipe in link.pipes:
            link.pipes.remove(pipe)
        for sock in (pipe.near, pipe.far):
            with suppress(KeyError, ValueError):
                self.selector.unregister(sock)
            with suppress(OSError):
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()
