"""Read certificate and key files with a size limit, and write new ones atomically without overwriting."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from securevfl_net.durable import sync_folder
from securevfl_net.errors import InputError

__all__ = ["read_bounded", "read_private", "write_new"]


def read_bounded(path: Path, most: int, what: str) -> bytes:
    """Read a file's content.

    Args:
        path: a regular file, or a link to one.
        most: maximum bytes; never reads more.
        what: the expected content, for the error message.

    Raises:
        InputError: it cannot be read, or is larger.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{path} is not a regular file; expected {what}")
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); expected {what}") from None
    if len(content) > most:
        raise InputError(f"{path} has more than {most} bytes; {what} has fewer")
    return content


def read_private(path: Path, most: int, what: str) -> bytes:
    """Read a file that only its owner may read.

    Raises:
        InputError: other users may read it, it belongs to another user, is a link, cannot be read, or is larger.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); expected {what}, a regular file") from None
    try:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} is not a regular file; expected {what}")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise InputError(f"{path} has mode {mode:04o}: other users could read a private key; run chmod 600 {path}")
        if found.st_uid != os.geteuid():
            raise InputError(
                f"{path} belongs to user {found.st_uid}, this process to user {os.geteuid()}: run as its owner"
            )
        content = b""
        while len(content) <= most and (more := os.read(number, most + 1 - len(content))):
            content += more
    finally:
        os.close(number)
    if len(content) > most:
        raise InputError(f"{path} has more than {most} bytes; {what} has fewer")
    return content


def write_new(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a new file atomically and synced; never overwrites an existing one.

    Args:
        path: the file; its folder must exist.
        content: the full content.
        private: True for mode 0600 whatever the umask, otherwise 0644.

    Raises:
        InputError: the file already exists, or cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    mode = 0o600 if private else 0o644
    try:
        try:
            number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
            with open(number, "wb") as file:
                os.fchmod(number, mode)
                file.write(content)
                file.flush()
                os.fsync(number)
            os.link(temporary, path)  # unlike a rename, it fails where the name is taken
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileExistsError:
        raise InputError(
            f"{path} already exists and is never overwritten: move it away, or name another folder"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
