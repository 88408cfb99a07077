"""Files that a crash, a full disk or a second process cannot spoil: written whole or not at all, synced, locked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from securevfl_net.errors import InputError

if sys.platform != "win32":
    import fcntl

__all__ = ["InUse", "append_synced", "is_held", "locked", "make_folder", "sync_folder", "write_whole"]

RUNNING = ".running"
"""File that tells, while a folder is locked, which process holds it."""


class InUse(InputError):
    """Another process holds a folder."""


def write_whole(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` to `path`: after a crash at any moment the file holds either all of it or what it held before.

    The data goes to a file beside it, is synced to the disk, and takes the name; then the folder is synced, which holds
    the name.

    Args:
        path: of the file; its folder exists.
        data: the whole content.
        private: whether only the owner may read it (mode 0600).

    Raises:
        OSError: it could not be written, for example on a full disk; what was there before is still there, and nothing
            else was left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        mode = 0o600 if private else 0o666
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            _sync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # why it was not written counts, not why the rest of it stays there
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_synced(path: Path, data: bytes) -> None:
    """Append `data` to a private file, and return when it is on the disk.

    Raises:
        OSError: it could not be written; the file may end in a part of `data` then.
    """
    new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    with open(handle, "ab") as file:
        file.write(data)
        file.flush()
        _sync(file.fileno())
    if new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk, where the system can."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the data in the drive's own memory
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder and those above it; a private one, new or not, is its owner's alone (mode 0700).

    Raises:
        InputError: it cannot be made, or is no folder.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if private:
            path.chmod(0o700)
    except OSError as error:
        raise InputError(f"{path} cannot be a folder ({error.strerror}): choose another one") from None


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder for this process alone, as long as the block lasts; a process that is killed holds it no longer.

    Two processes on one machine exclude each other; over a network file system that is up to its locks.

    Args:
        folder: that exists.
        what: it is, and the cure, for the refusal.

    Raises:
        InUse: another process holds it, and which.
        InputError: it cannot be locked, or not be written.
    """
    if sys.platform == "win32":  # a simulation runs there without a lock: docs/installation.md says so
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"{folder} is in use by process {_holder(folder)}: {what}") from None
        except OSError as error:
            raise InputError(f"{folder} cannot be locked ({error.strerror}): choose one on a local disk") from None
        running = folder / RUNNING
        try:
            running.write_text(f"{os.getpid()}\n", encoding="ascii")
        except OSError as error:
            raise InputError(f"{folder} cannot be written ({error.strerror}): choose another folder") from None
        try:
            yield
        finally:
            with suppress(OSError):  # it only tells who holds the folder; the lock itself goes with the process
                running.unlink(missing_ok=True)
    finally:
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Whether a process on this machine holds a folder with `locked` now; changes nothing."""
    if sys.platform == "win32":
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _holder(folder: Path) -> str:
    try:
        return (folder / RUNNING).read_text(encoding="ascii").strip() or "unknown"
    except (OSError, ValueError):  # it is gone, or about to be written
        return "unknown"
