"""The program of a `ProcessPool`'s worker: reads tasks from standard input, answers on standard output.

The process that owns the pool has the other ends of both pipes. When that process ends for any reason, the input ends,
and the worker exits, even in the middle of a task.
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
"""The header of each message: the length of its body in bytes."""


def read_frame(source: BinaryIO) -> bytes | None:
    """Read the next message; None at the end of the input, or if it ends within a message."""
    head = source.read(LENGTH.size)
    if len(head) != LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    body = source.read(size)
    return body if len(body) == size else None


def serve_tasks() -> None:
    """Serve tasks until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a task's prints go to standard error, or they would corrupt the answers
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
    os._exit(0)  # the pool's owner is gone, so no answer is needed
