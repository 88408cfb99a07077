"""Python in a process of its own, forked from one that has loaded the libraries: see `support.forking`.

Only for what a test asks of a running command. What a start loads, or does with options of Python, needs a fresh one:
`subprocess`.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

__all__ = ["PythonProcess", "run_python"]


@functools.cache
def _forker() -> socket.socket:
    """The end of this test worker; the program ends when it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, str(Path(__file__).with_name("forking.py")), str(theirs.fileno())]
        paths = os.pathsep.join(path for path in sys.path if path)
        program = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(program.wait)
    atexit.register(ours.close)  # before, which ends it
    return ours


class PythonProcess:
    """As `subprocess.Popen` of ``python ARGUMENTS``, where this can be forked; its output is text.

    Args:
        arguments: ``-m MODULE …``, ``-c CODE …`` or a script's path and its own.
        cwd: the folder; this one unless given.
        env: the environment; this one unless given.
        output: an open file for both standard outputs; two pipes unless given.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        request = {
            "arguments": arguments,
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
        }
        nothing = os.open(os.devnull, os.O_RDONLY)
        opened = [nothing]
        if output is None:
            (out, child_out), (err, child_err) = os.pipe(), os.pipe()
            self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
            opened += [child_out, child_err]
        else:
            child_out = child_err = output.fileno()
        status, child_status = os.pipe()
        opened.append(child_status)
        self._status = os.fdopen(status, "rb", buffering=0)
        socket.send_fds(_forker(), [json.dumps(request).encode()], [nothing, child_out, child_err, child_status])
        for one in opened:
            os.close(one)
        self.pid = int(self._read_line())

    def _read_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            piece = self._status.read(1)
            if not piece:
                raise RuntimeError("the process that forks is gone: see what it wrote to standard error")
            line += piece
        return line

    def poll(self) -> int | None:
        return self._wait_for(0)

    def _wait_for(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = int(self._read_line())
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait_for(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("python", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still writes on its two pipes until it ends."""
        until = None if timeout is None else time.monotonic() + timeout
        said: dict[int, str] = {}
        readers = [
            threading.Thread(target=lambda at=at, pipe=pipe: said.update({at: pipe.read()}), daemon=True)
            for at, pipe in enumerate([self.stdout, self.stderr])
            if pipe is not None and not pipe.closed
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(None if until is None else max(until - time.monotonic(), 1))
            if reader.is_alive():
                raise subprocess.TimeoutExpired("python", timeout or 0)
        self._close_pipes()
        return said.get(0, ""), said.get(1, "")

    def _close_pipes(self) -> None:
        for pipe in (self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_pipes()
        self.wait()


def run_python(
    arguments: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of ``python ARGUMENTS``, with what it wrote on both outputs."""
    process = PythonProcess(arguments, cwd=cwd, env=env)
    try:
        out, err = process.communicate(timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess(arguments, process.wait(), out, err)
