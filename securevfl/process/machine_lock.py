"""Lock one party of an agreement on one machine: a copy of its state folder is another folder, which its own lock does
not know.

The lock is a file in a folder of the user's in the system's place for temporary files, held as long as the process
lives. A copy on another machine, or in a container with other temporary files, is found by the peers instead.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from securevfl_net.durable import InUse

if sys.platform != "win32":
    import fcntl

__all__ = ["lock_party"]

_ENDING = 5.0
_LOOK = 0.02
"""Seconds for which a process that has left the very same folder may still hold the party, and between two looks."""


@contextmanager
def lock_party(agreement: str, party: str, folder: Path) -> Iterator[None]:
    """Lock a party for the duration of the block; does nothing where the system has no place for such locks.

    Call it with the folder locked. A process that ends lets go of the folder and of the party one after the other: if
    it was on this very folder, wait for it.

    Args:
        agreement: SHA-256 of the proposal, hexadecimal.
        party: whose process this is.
        folder: its state folder, which others are told of.

    Raises:
        InUse: another process of the party runs on this machine, on another folder.
    """
    handle = _open_lock(hashlib.sha256(f"{agreement}\n{party}".encode()).hexdigest())
    if handle is None:
        yield
        return
    try:
        until = time.monotonic() + _ENDING
        while not _take_lock(handle):
            other = os.pread(handle, 4096, 0).decode(errors="replace")
            if other == str(folder.resolve()) and time.monotonic() < until:
                time.sleep(_LOOK)
                continue
            raise InUse(
                f"{party!r} runs already on this machine, on {other or 'another folder'}: {folder} is a copy, which "
                "must not run beside it: delete it, or end the other process and move its newest state here"
            )
        with suppress(OSError):  # it only tells others which folder it is
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(folder.resolve()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _take_lock(handle: int) -> bool:
    """Whether it is free. No error of the system leaves this function: what is chained to one counts as passing."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_lock(name: str) -> int | None:
    """A lock file in a folder that only this user can have made; None without one."""
    if sys.platform == "win32":
        return None
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"securevfl-{user}"
    with suppress(OSError):
        folder.mkdir(0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid == user and found.st_mode & 0o077 == 0 and not folder.is_symlink():
            return os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return None
