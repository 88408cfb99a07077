"""Copies of this process, each with what a new process would have: nothing of a run's files, locks or connections."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable

__all__ = ["keep_own_files", "open_files", "run_copy"]


def open_files() -> frozenset[int]:
    """File descriptors of this process."""
    return frozenset(
        fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{fd}") or fd < 3
    )


def keep_own_files(kept: Iterable[int]) -> None:
    """Close all file descriptors but the standard ones and `kept`; files in memory become this process's own, as
    libraries that were loaded before the copy write into them.

    Args:
        kept: what libraries have open, and what this copy was made for.
    """
    mine = {0, 1, 2, *kept}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the listing's own
            continue
        if fd not in mine:
            os.close(fd)
        elif target.startswith("/memfd:"):
            fresh = os.memfd_create(target.removeprefix("/memfd:").removesuffix(" (deleted)"))
            os.dup2(fresh, fd, inheritable=False)
            os.close(fresh)


def run_copy(work: Callable[[], int], kept: Iterable[int]) -> int:
    """Start a copy of this process that does `work` and ends with its code; its process id.

    Args:
        work: what it does.
        kept: see `keep_own_files`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        keep_own_files(kept)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        code = work()
    except BaseException:  # a copy may not go on as this process: the code tells, standard error says why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
