"""Whether a prediction was over when a party's process was killed.

A party writes the mark when all that is left to do is to say so: the active party has written its scores, a passive one
has heard the active one's last command. Then each sends its signed ledger head, and its process ends and takes the
mark away. A process that finds the mark was killed in between. Peers that still wait for it are met as usual; if none
is there for half a minute, they have ended, and nothing is left to do.
"""

from __future__ import annotations

import time
from pathlib import Path

from securevfl_net.durable import write_atomic

__all__ = ["EndMark"]

_VALID = 3600.0
"""Seconds after which a mark says nothing: who starts a process so much later wants a new prediction."""


class EndMark:
    """The mark of one party.

    Args:
        folder: where the party serves, ``serving/`` in its state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "prediction-over"

    def write(self) -> None:
        """The prediction is over, but for saying so."""
        write_atomic(self._file, b"", private=True)

    def clear(self) -> None:
        """The process ends in order."""
        self._file.unlink(missing_ok=True)

    @property
    def is_there(self) -> bool:
        """Whether a process was killed after it wrote the mark, within the last hour."""
        try:
            return abs(time.time() - self._file.stat().st_mtime) < _VALID
        except FileNotFoundError:
            return False
