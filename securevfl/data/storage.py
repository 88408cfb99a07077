"""Where a party's columns and encoded features are stored: in memory, or above a size in an unlinked, memory-mapped
file.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.errors import InputError

__all__ = ["DEFAULT_STORAGE", "IN_MEMORY", "Storage", "release_memory"]

IN_MEMORY = 1 << 30
"""Default maximum size of an array in memory, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Storage of the large arrays of one party's table.

    A mapped file is unlinked when it is created, with mode 0600: no other process can find it, nothing has to be
    deleted, and its space is freed when the process ends, even if it is killed. The system can reclaim the file's
    memory at any time.

    Attributes:
        above: size in bytes above which an array is mapped.
        folder: folder of the files; if empty, the system's temporary folder (``TMPDIR``).

    Raises:
        InputError: `above` is not a whole number from 0 up.
    """

    above: int = IN_MEMORY
    folder: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.above, int) or isinstance(self.above, bool) or self.above < 0:
            raise InputError(f"spill_above is {self.above!r}; a whole number of bytes from 0 was expected")

    def is_mapped(self, shape: Sequence[int], dtype: Any) -> bool:
        """Return True if an array of this shape and dtype is mapped."""
        return bool(math.prod(shape) * np.dtype(dtype).itemsize > self.above)

    def allocate(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Allocate an uninitialised, writable array, in memory or mapped.

        Raises:
            InputError: there is not enough space for it.
        """
        if self.is_mapped(shape, dtype):
            return self._allocate_mapped(shape, dtype)
        return np.empty(shape, dtype=dtype)

    def _allocate_mapped(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        folder = self.folder or tempfile.gettempdir()
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk says so now, and not by SIGBUS later
                area = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise InputError(
                f"{folder} has no room for {size:,} bytes of a table that is larger than {self.above:,} "
                f"({error.strerror}): name another folder in spill_folder or TMPDIR, or raise spill_above"
            ) from None
        return np.frombuffer(area, dtype=dtype).reshape(shape)


DEFAULT_STORAGE = Storage()


def release_memory(array: object) -> None:
    """Release the memory of a mapped array, whose contents stay in the file, after a full pass over it. Does nothing
    for other arrays.
    """
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if base is not None:
        base.madvise(mmap.MADV_DONTNEED)
