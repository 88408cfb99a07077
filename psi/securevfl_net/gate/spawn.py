"""Start the gate as a child process connected by a socket pair."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

__all__ = ["BUFFER", "spawn_gate"]

BUFFER = 4 << 20
"""Bytes between the two processes in the kernel, each way."""
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
"""glibc keeps the memory of parts for later ones. Returning and requesting it again would cost a page fault for each
page: a third of a gate's time at 800 MB/s.
"""


def spawn_gate(door: int | None = None) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a gate; the process, and this end of the sockets, which does not block.

    Args:
        door: descriptor that it inherits, see `Door`.
    """
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    command = [sys.executable, "-m", "securevfl_net.gate", str(theirs.fileno())]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | _MALLOC | {"PYTHONPATH": paths}
    try:
        passed = (theirs.fileno(),) if door is None else (theirs.fileno(), door)
        gate = subprocess.Popen(  # noqa: S603  # this interpreter, and a number
            command, pass_fds=passed, stdin=subprocess.DEVNULL, env=environment
        )
    finally:
        theirs.close()
    ours.setblocking(False)
    return gate, ours
