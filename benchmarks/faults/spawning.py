"""Copies of this process that do something beside the parties."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

__all__ = ["run_copy"]


def run_copy(work: Callable[[], int]) -> int:
    """Start a copy of this process that does `work` and ends with its code; its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.closerange(3, 1 << 12)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        code = work()
    except BaseException:  # a copy may not go on as this process: the code tells, standard error says why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
