"""Where a party's columns and encoded features are: in memory, or beyond a size in a file without a name that is mapped
into it."""

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

__all__ = ["DEFAULT_STORAGE", "IN_MEMORY", "Storage", "let_go"]

IN_MEMORY = 1 << 30
"""Bytes up to which an array is in memory, unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where large arrays of one party's table are.

    A mapped file has no name from the moment that it is made, and nobody but its owner could open it (mode 0600): no
    other process finds it, nothing has to be deleted, and its space is free again when the process ends, even when it
    is killed. Memory that the system lends to such a file it takes back when it needs it.

    Attributes:
        above: bytes from which an array is mapped.
        folder: where the files are; that of the system for temporary files (``TMPDIR``) if empty.

    Raises:
        InputError: `above` is no whole number from 0.
    """

    above: int = IN_MEMORY
    folder: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.above, int) or isinstance(self.above, bool) or self.above < 0:
            raise InputError(f"spill_above is {self.above!r}; a whole number of bytes from 0 was expected")

    def maps(self, shape: Sequence[int], dtype: Any) -> bool:
        """Whether an array of this kind is mapped."""
        return bool(math.prod(shape) * np.dtype(dtype).itemsize > self.above)

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array whose contents are not set, in memory or mapped; writable either way.

        Raises:
            InputError: there is no room for it.
        """
        if self.maps(shape, dtype):
            return self._mapped(shape, dtype)
        return np.empty(shape, dtype=dtype)

    def _mapped(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
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


def let_go(array: object) -> None:
    """Gives the memory of a mapped array back to the system, which keeps its contents in the file; does nothing to
    others. For a pass over all of it that is over."""
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if base is not None:
        base.madvise(mmap.MADV_DONTNEED)
