"""Tasks that the tests of pools run; on the module path of the tests under a name that pools accept."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from securevfl_crypto.errors import OverflowRefused


def join(*parts: object) -> bytes:
    return repr(parts).encode()


def double(data: bytes) -> bytes:
    return data + data


def threads() -> bytes:
    return f"{os.environ['SECUREVFL_THREADS']} {os.environ['OMP_NUM_THREADS']}".encode()


def pid() -> bytes:
    return str(os.getpid()).encode()


def main_module() -> bytes:
    return str(getattr(sys.modules["__main__"], "__file__", "")).encode()


def refuse(words: str) -> bytes:
    raise OverflowRefused(words)


def divide(number: int) -> bytes:
    return str(1 // number).encode()


def leave() -> bytes:
    sys.exit("gone")


def no_bytes() -> object:
    return 5


def prints(words: str) -> bytes:
    print(words)
    os.write(1, words.encode())
    return words.encode()


def die_once(file: str) -> bytes:
    """Ends its process the first time, and is done the second."""
    if not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return b"done"


def die(file: str) -> bytes:
    with Path(file).open("ab") as log:
        log.write(b".")
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def meet(folder: str, count: int) -> bytes:
    """Ends when as many tasks run at once."""
    (Path(folder) / str(os.getpid())).touch()
    until = time.monotonic() + 30
    while len(list(Path(folder).iterdir())) < count:
        if time.monotonic() > until:
            raise TimeoutError("alone")
        time.sleep(0.005)
    return b"met"


def wait_for(started: str, file: str) -> bytes:
    """Ends when a file is there."""
    Path(started).touch()
    while not Path(file).exists():
        time.sleep(0.005)
    return b"waited"
