"""A small HTTP proxy in threads of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from securevfl_net.dialers import Address

from support.relays import LIMIT


@contextmanager
def proxy(answer: Callable[[bytes], bytes | None], seen: list[bytes] | None = None) -> Iterator[Address]:
    """A small HTTP proxy: `answer` gets each request and gives the bytes to say, or None to open the tunnel."""

    tunnels: list[threading.Thread] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            tunnel = threading.Thread(target=serve, args=(near,))
            tunnel.start()
            tunnels.append(tunnel)

    def serve(near: socket.socket) -> None:
        with near:
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                request += near.recv(1)
            if seen is not None:
                seen.append(request)
            said = answer(request)
            if said is not None:
                near.sendall(said)
                return
            host, port = request.split(b" ")[1].decode().rsplit(":", 1)
            with socket.create_connection((host.strip("[]"), int(port)), timeout=LIMIT) as far:
                near.sendall(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
                back = threading.Thread(target=pump, args=(far, near))
                back.start()
                pump(near, far)
                back.join(LIMIT)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            host, port = listener.getsockname()[:2]
            yield Address(host, port)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LIMIT)
            for tunnel in tunnels:
                tunnel.join(LIMIT)
            assert not any(one.is_alive() for one in (thread, *tunnels))
