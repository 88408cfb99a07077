"""A folder for files of a party that outlive an unbalanced alignment: its publications and its peers' filters."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from pathlib import Path

from securevfl_net.durable import make_folder, write_atomic

from securevfl.errors import InputError

__all__ = ["FolderShelf"]

_TIMES = struct.Struct(">QQ")
_DAY = 86_400


class FolderShelf:
    """A `securevfl_psi.publication.Shelf` in a private folder. What was agreed to be kept no longer is removed whenever
    something is looked for or kept.

    Args:
        folder: created on first use, readable by its owner only: a publication contains a key.
        days: how long a file may be used, as the parties agreed; files from another agreement must be this young as
            well.
        now: seconds since 1970.
    """

    def __init__(self, folder: Path, days: int, now: Callable[[], float] = time.time) -> None:
        self._folder, self._days, self._now = folder, days, now

    def _path_of(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.psi"

    def load(self, name: str) -> bytes | None:
        """Read a stored file, unless it is too old or from the future: then a clock was set back, and its age is
        unknown.

        Raises:
            InputError: the file is there and cannot be read.
        """
        self._remove_expired()
        path = self._path_of(name)
        data = _read_file(path)
        if data is None:
            return None
        made, _ = _TIMES.unpack_from(data)
        return data[_TIMES.size :] if 0 <= self._now() - made < self._days * _DAY else None

    def save(self, name: str, data: bytes) -> None:
        """Keep it.

        Raises:
            InputError: the folder cannot be made, or the file not be written.
        """
        make_folder(self._folder, private=True)
        self._remove_expired()
        path, now = self._path_of(name), int(self._now())
        try:
            write_atomic(path, _TIMES.pack(now, now + self._days * _DAY) + data, private=True)
        except OSError as error:
            raise InputError(
                f"{path} cannot be written ({error.strerror}): free space, or choose another folder"
            ) from None

    def drop(self, name: str) -> None:
        """Keep it no longer."""
        self._path_of(name).unlink(missing_ok=True)

    def _remove_expired(self) -> None:
        for path in self._folder.glob("*.psi"):
            times = _read_file(path, _TIMES.size)
            if times is not None and (len(times) < _TIMES.size or self._now() >= _TIMES.unpack(times)[1]):
                path.unlink(missing_ok=True)


def _read_file(path: Path, size: int = -1) -> bytes | None:
    """A file's content, or its beginning; None if there is no file.

    Raises:
        InputError: it is there and cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): mend that, or remove it") from None
