"""The gate's view of its program: does it compute, and when did it last report?"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["ProgramWatch"]

_SHARE = 0.2
"""Share of a processor from which a program counts as computing: an idle one that only beats takes far less."""


class ProgramWatch:
    """Processor time of the program. A computing program uses time; one that hangs or was stopped uses none.

    An endless loop looks like a computation, as it would to anybody outside; the job's deadline ends it.

    Attributes:
        worked: seconds of processor time that it was seen to take in computations.
        spoke: time of its last report, on the monotonic clock.

    Args:
        process: its number.
    """

    def __init__(self, process: int) -> None:
        self.worked = 0.0
        self.spoke = time.monotonic()
        self._path = Path(f"/proc/{process}/stat")
        self._tick = os.sysconf("SC_CLK_TCK")
        self._seen = time.monotonic()
        self._taken = self._read_cpu_time()

    def sample(self, *, waits: bool) -> None:
        """Look now; call it about once a second.

        Args:
            waits: whether its last report was that it waits for a peer. If it still reports, it really does wait.
        """
        now, taken = time.monotonic(), self._read_cpu_time()
        took, passed, spoke = taken - self._taken, now - self._seen, self.spoke > self._seen
        self._seen, self._taken = now, taken
        if took > _SHARE * passed and not (waits and spoke):
            self.worked += took

    def _read_cpu_time(self) -> float:
        """User and system time of all threads; 0 without /proc: then only steps are signs of life."""
        try:
            fields = self._path.read_bytes().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / self._tick
        except (OSError, IndexError, ValueError):
            return self._taken if hasattr(self, "_taken") else 0.0
