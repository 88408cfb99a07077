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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Self

__all__ = ["PythonProcess", "find_forker", "fork_workers", "run_python"]


@functools.cache
def find_forker() -> socket.socket:
    """The end at which to ask for processes, of this test worker; the program ends when it is closed."""
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
        speaks: it has pipes of bytes for standard input and output, and writes errors where this process does.
        passed: descriptors that it gets; ``{0}`` among the arguments becomes the number of the first one there.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
        speaks: bool = False,
        passed: Sequence[int] = (),
    ) -> None:
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[str] | None = None
        request = {
            "arguments": arguments,
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
        }
        status, child_status = os.pipe()
        self._status = os.fdopen(status, "rb", buffering=0)
        if speaks:
            (child_in, into), (out, child_out) = os.pipe(), os.pipe()
            self.stdin, self.stdout, child_err = os.fdopen(into, "wb"), os.fdopen(out, "rb"), os.dup(2)
        elif output is None:
            (out, child_out), (err, child_err), child_in = os.pipe(), os.pipe(), os.open(os.devnull, os.O_RDONLY)
            self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
        else:
            child_in, child_out = os.open(os.devnull, os.O_RDONLY), os.dup(output.fileno())
            child_err = os.dup(child_out)
        given = [child_in, child_out, child_err, child_status]
        socket.send_fds(find_forker(), [json.dumps(request).encode()], [*given, *passed])
        for one in given:
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
        for pipe in (self.stdin, self.stdout, self.stderr):
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


def fork_workers(monkeypatch: Any) -> None:
    """Let pools of processes fork their workers; what a worker inherits is a matter of the tests of pools."""

    def start(command: list[str], *, env: Mapping[str, str], **_: object) -> PythonProcess:
        return PythonProcess(command[1:], env=env, speaks=True)

    stand_in = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr("securevfl_crypto.pools.process.subprocess", stand_in)
