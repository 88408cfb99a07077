"""A worker process of a `ProcessPool`: reads tasks from its standard input, and answers on what was its output.

The process that started it holds the other ends. When that one is gone, however it ended, the input ends, and so does
the worker, in the middle of a task, too.
"""

from __future__ import annotations

import os
import queue
import struct
import sys
import threading
from typing import BinaryIO

from securevfl_crypto.pools.messages import answer_task, unpack_arguments

__all__ = ["LENGTH", "read_frame", "serve_tasks"]

LENGTH = struct.Struct("<Q")
"""Before each message: its length."""


def read_frame(source: BinaryIO) -> bytes | None:
    """The next message; None at the end, or where it breaks off."""
    head = source.read(LENGTH.size)
    if len(head) != LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    body = source.read(size)
    return body if len(body) == size else None


def serve_tasks() -> None:
    """Serve tasks until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints goes where errors go, not between the answers
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_frames, args=(sys.stdin.buffer, waiting), daemon=True).start()
    while True:
        cpus, task, *arguments = unpack_arguments(waiting.get())
        os.environ["SECUREVFL_THREADS"] = str(cpus)
        body = answer_task(str(task), arguments)
        del arguments
        replies.write(LENGTH.pack(len(body)))
        replies.write(body)
        replies.flush()


def _read_frames(source: BinaryIO, waiting: queue.SimpleQueue[bytes]) -> None:
    while (frame := read_frame(source)) is not None:
        waiting.put(frame)
    os._exit(0)  # nobody waits for an answer any more
