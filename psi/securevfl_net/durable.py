"""Write files that survive a crash, a full disk or a second process: atomic, synced and locked."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from securevfl_net.errors import DiskFull, InputError

if sys.platform != "win32":
    import fcntl

__all__ = [
    "InUse",
    "append_data",
    "append_synced",
    "flush_to_disk",
    "is_held",
    "lock_file",
    "lock_folder",
    "make_folder",
    "sync_file",
    "sync_folder",
    "write_atomic",
]

RUNNING = ".running"
"""File with the id of the process that has the folder locked."""
_LOOKS = 50
"""Tries to lock a folder at which others only look, a hundredth of a second apart."""


class InUse(InputError):
    """Another process has the folder locked."""


def write_atomic(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replace the content of `path` atomically: after a crash at any moment the file has either the new content or the
    old.

    The data is written to a temporary file in the same folder, synced to disk and renamed; then the folder is synced,
    because it stores the name.

    Args:
        path: the file; its folder must exist.
        data: the full content.
        private: True makes it readable only by its owner (mode 0600).

    Raises:
        DiskFull: no room for it.
        OSError: writing failed. As with a full disk, the old content is unchanged and no temporary file is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        mode = 0o600 if private else 0o666
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            flush_to_disk(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # the first error is the one to report, not a failed cleanup
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise DiskFull.convert(error, path) from error
        raise
    sync_folder(path.parent)


def append_synced(path: Path, data: bytes) -> None:
    """Append `data` to a private file and return once it is on disk.

    Raises:
        DiskFull: no room for it; the file is as before, as far as the system allows.
        OSError: writing failed; the file may then end with a part of `data`.
    """
    append_data(path, data)
    sync_file(path)


def append_data(path: Path, data: bytes) -> None:
    """Append `data` to a private file. It is on disk once `sync_file` returns: several files, or what several calls
    appended, can then be synced together.

    Raises:
        DiskFull: no room for it; the file is as before, as far as the system allows.
        OSError: writing failed; the file may then end with a part of `data`.
    """
    new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    with open(handle, "ab", buffering=0) as file:
        before, done = os.fstat(handle).st_size, 0
        try:
            while done < len(data):
                done += file.write(data[done:]) or 0
        except OSError as error:
            with suppress(OSError):  # a reader cuts a last line off that is not whole
                os.ftruncate(handle, before)
            raise DiskFull.convert(error, path) from error
    if new:
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Return once all that was appended to `path` is on disk.

    Raises:
        DiskFull: no room; file systems that allocate late say so only here.
        OSError: there is no such file, or the disk failed.
    """
    handle = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        flush_to_disk(handle)
    except OSError as error:
        raise DiskFull.convert(error, path) from error
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Sync a folder's names to disk, if the system supports it."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        flush_to_disk(handle)
    finally:
        os.close(handle)


def flush_to_disk(handle: int) -> None:
    """Return once an open file's content is on the disk."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the data in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder and its parents. A private folder, new or not, gets mode 0700, for its owner only.

    Raises:
        InputError: it cannot be made, or is not a folder.
    """
    try:
        path.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        if private:
            path.chmod(0o700)
    except OSError as error:
        raise InputError(f"{path} cannot be a folder ({error.strerror}): choose another one") from None


@contextmanager
def lock_folder(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder for this process during the block; the system releases the lock if the process is killed.

    Excludes other processes on the same machine; on a network file system this depends on its locks.

    Args:
        folder: an existing folder.
        what: its purpose and the cure, for the error message.

    Raises:
        InUse: another process has it locked; the message gives its id.
        InputError: it cannot be locked or written.
    """
    if sys.platform == "win32":  # a simulation runs there without a lock: docs/installation.md says so
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _lock_now(handle)
        except BlockingIOError:
            raise InUse(f"{folder} is in use by process {_read_holder(folder)}: {what}") from None
        except OSError as error:
            raise InputError(f"{folder} cannot be locked ({error.strerror}): choose one on a local disk") from None
        running = folder / RUNNING
        try:
            number = os.open(running, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(number, "w", encoding="ascii") as file:
                file.write(f"{os.getpid()}\n")
        except OSError as error:
            raise InputError(f"{folder} cannot be written ({error.strerror}): choose another folder") from None
        try:
            yield
        finally:
            with suppress(OSError):  # it only tells who holds the folder; the lock itself goes with the process
                running.unlink(missing_ok=True)
    finally:
        os.close(handle)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Wait until this process has the file `path` locked, and keep it locked during the block. The file is made if it
    is missing, stays empty, and must not be the one that is replaced during the block.

    Raises:
        InputError: it cannot be locked.
    """
    if sys.platform == "win32":  # as for folders
        yield
        return
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another folder") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise InputError(f"{path} cannot be locked ({error.strerror}): choose a place on a local disk") from None
        yield
    finally:
        os.close(handle)


def _lock_now(handle: int) -> None:
    """Lock an open folder. Whoever only looks, as `is_held` does, shares the lock for a moment: that is waited for.

    Raises:
        BlockingIOError: another process has it locked.
        OSError: it cannot be locked.
    """
    for _ in range(_LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # fails unless all others only look
        fcntl.flock(handle, fcntl.LOCK_UN)
        time.sleep(0.01)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(folder: Path) -> bool:
    """Return True if a process on this machine has the folder locked now. Changes nothing."""
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


def _read_holder(folder: Path) -> str:
    try:
        return (folder / RUNNING).read_text(encoding="ascii").strip() or "unknown"
    except (OSError, ValueError):  # it is gone, or about to be written
        return "unknown"
