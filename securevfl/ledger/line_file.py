"""The file of a ledger: whole lines are appended to it, or nothing is.

A write to a full disk may store a part of a line and report how much. The file goes on writing until the line is
complete; if that fails, it removes the part again and raises `DiskFull`. So the file always ends with a whole line
while its process lives, and the message that the line was for does not leave.

`LineFile.append` hands a line to the operating system: it outlasts a killed process. `LineFile.put` keeps a line until
`commit`, which hands over all that wait with one write: nothing that needs them may happen before. `LineFile.sync`
waits for the disk: what was appended or put before outlasts a power loss, too.
"""

from __future__ import annotations

import os
from pathlib import Path

from securevfl_net.durable import flush_to_disk, sync_folder

from securevfl.errors import AuditError, DiskFull

__all__ = ["LineFile"]

_GROUP = 64 << 10
"""Most bytes of lines that wait for `commit`."""


class LineFile:
    """A private file (mode 0600), open for appending. New files are made.

    Args:
        path: of the file.

    Attributes:
        end: bytes of the whole lines in it.
        waiting: bytes of lines that wait for `commit`.

    Raises:
        DiskFull: no room for a new file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unknown = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        new = not path.exists()
        try:
            # Unbuffered: each line reaches the operating system before its message leaves, even if the process is
            # killed.
            self._handle = os.open(path, flags, 0o600)
        except OSError as error:
            raise DiskFull.convert(error, path) from error
        self._named = not new
        self.end = os.fstat(self._handle).st_size
        self._torn = False
        self._group: list[bytes] = []
        self.waiting = 0

    def append(self, line: bytes) -> None:
        """Append a line with its line feed, behind those that wait, completely or not at all.

        Raises:
            DiskFull: no room for it; the file is as before.
            AuditError: the disk lost lines that were written before.
        """
        self._check_known()
        self._store(b"".join((*self._group, line)) if self._group else line)

    def put(self, line: bytes) -> None:
        """Append a line with its line feed once `commit` is called, or another line is appended.

        Raises:
            DiskFull: no room for lines that wait; this one was not taken.
            AuditError: the disk lost lines that were written before.
        """
        self._check_known()
        if self.waiting + len(line) > _GROUP:
            self.commit()
        self._group.append(line)
        self.waiting += len(line)

    def commit(self) -> None:
        """Hand the lines that wait to the operating system, all or none of them.

        Raises:
            DiskFull: no room; the file is as before, and the lines go on waiting.
            AuditError: the disk lost lines that were written before.
        """
        if self._group:
            self._check_known()
            self._store(b"".join(self._group))

    def _store(self, line: bytes) -> None:
        if self._torn:
            self._remove_part()
        done = 0
        try:
            while done < len(line):
                done += os.write(self._handle, line[done:])
        except OSError as error:
            self._torn = done > 0
            if self._torn:
                self._remove_part()
            raise DiskFull.convert(error, self.path) from error
        self.end += done
        self._group.clear()
        self.waiting = 0

    def _remove_part(self) -> None:
        """Remove the part of a line at the end of the file."""
        try:
            os.ftruncate(self._handle, self.end)
        except OSError as error:
            raise DiskFull.convert(error, self.path) from error
        self._torn = False

    def sync(self) -> None:
        """Return once all lines, and the file's name, are on the disk.

        Raises:
            DiskFull, OSError: they may not be; nothing is appended after that.
        """
        self.commit()
        self._check_known()
        try:
            flush_to_disk(self._handle)
            if not self._named:
                sync_folder(self.path.parent)
                self._named = True
        except OSError as error:
            self._unknown = True
            raise DiskFull.convert(error, self.path) from error

    def _check_known(self) -> None:
        # After a failed fsync the system may forget the pages: a second fsync would succeed without having written.
        if self._unknown:
            raise AuditError(
                f"{self.path} could not be written to the disk before, so its last lines may be lost: start the party "
                "again, which reads the file from the disk"
            )

    def close(self) -> None:
        """Close the file; doing it twice does nothing. Lines that still wait are lost: commit them before."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
