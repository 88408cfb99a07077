"""A party's process as the child of a node: it takes callers from the node, and ends in good order with it."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import threading

from securevfl.errors import InputError

__all__ = ["follow_node"]


def follow_node(door: int | None) -> int | None:
    """Stop this process as SIGTERM does when the node at the other end of `door` is gone, killed or not.

    Nothing is read from it: the gate takes callers there.

    Args:
        door: a descriptor that the node passed on; None without a node.

    Returns:
        `door`.

    Raises:
        InputError: it is no socket.
    """
    if door is None:
        return None
    try:
        is_socket = stat.S_ISSOCK(os.fstat(door).st_mode)
    except OSError:
        is_socket = False
    if not is_socket:
        raise InputError(f"--door is {door}, which is no socket here: only `securevfl node` gives it")
    threading.Thread(target=_wait_for_end, args=(os.dup(door),), daemon=True).start()
    return door


def _wait_for_end(door: int) -> None:
    with socket.socket(fileno=door):
        watch = select.poll()
        watch.register(door, 0)  # only that the other end is closed
        watch.poll()
        os.kill(os.getpid(), signal.SIGTERM)
