"""A node whose processes are forked from the program of `support.forking`: a fresh one loads torch for two seconds, and
a node starts one for each attempt of each agreement.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from support import processes
from support.processes import PythonProcess, find_forker

__all__ = ["run_node", "start_node"]


class _Forked:
    """What a node asks of a process that asyncio has started."""

    def __init__(self, process: PythonProcess) -> None:
        self._process = process
        self.pid = process.pid
        self.send_signal, self.kill = process.send_signal, process.kill

    @property
    def returncode(self) -> int | None:
        return self._process.poll()


def start_node(folder: Path, output: IO[bytes]) -> PythonProcess:
    """Start the node of a folder.

    Args:
        folder: of the node.
        output: for what it says.
    """
    words = ["-c", "import sys; from support.forked_nodes import run_node; run_node(*sys.argv[1:])", "{0}", str(folder)]
    return PythonProcess(words, output=output, passed=[find_forker().fileno()])


def run_node(forker: str, folder: str) -> None:
    """Be that node.

    Args:
        forker: descriptor of the end at which to ask for processes.
        folder: of the node.
    """
    ours = socket.socket(fileno=int(forker))
    processes.find_forker = lambda: ours  # type: ignore[assignment]

    async def start(
        *command: str, stdout: int, pass_fds: Sequence[int], env: Mapping[str, str], **_: object
    ) -> _Forked:
        with os.fdopen(os.dup(stdout), "wb") as output:
            return _Forked(PythonProcess([*command[1:-1], "{0}"], env=env, output=output, passed=pass_fds))

    changed: Any = asyncio
    changed.create_subprocess_exec = start
    sys.argv[:] = ["securevfl", "node", "run", folder]
    from securevfl.cli import main

    main(sys.argv[1:])
