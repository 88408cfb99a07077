"""A process that takes part in one agreement: ``securevfl party`` or ``securevfl serve``, which know nothing of a node
but the door through which callers come.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from securevfl.node.node_file import NodeEntry

__all__ = ["Child", "describe_signal", "start_child"]

_LOG = 8 << 20
"""Bytes of a child's log; then it becomes the older of two."""
_TAIL = 4 << 10
_WAITING = 16 << 10
"""Bytes of callers that wait at a door, about 40: a process that takes none must not use up the descriptors that this
user may have on their way, because then nobody's callers would come through.
"""
_KILL = 60.0
"""Seconds from SIGTERM to SIGKILL, as in the systemd unit of a party."""


@dataclass(eq=False)
class Child:
    """A running process.

    Attributes:
        process: it.
        door: this end of the socket through which its gate takes callers.
        log: what it says.
        serves: whether it serves.
        written: bytes of the log before it began.
        began: on the monotonic clock.
        yields: whether it was stopped so that another agreement has its turn.
        stopping: when it was asked to stop; 0 before.
    """

    process: asyncio.subprocess.Process
    door: socket.socket
    log: Path
    serves: bool
    written: int = 0
    began: float = field(default_factory=time.monotonic)
    stopping: float = 0.0
    yields: bool = False

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.returncode

    def stop(self) -> None:
        """Ask it to stop in good order; one that does not is killed later."""
        now = time.monotonic()
        with suppress(ProcessLookupError):
            if not self.stopping:
                self.stopping = now
                self.process.send_signal(signal.SIGTERM)
            elif now - self.stopping > _KILL:
                self.process.kill()

    def limit_log(self) -> None:
        """Begin the log anew where it is long; the process appends, and does not notice."""
        with suppress(OSError):
            if self.log.stat().st_size > _LOG:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)
                self.written = 0

    def last_words(self) -> str:
        """The last error that it printed, without what a terminal would obey; empty if it printed none."""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self.written, self.log.stat().st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
            found = [line for line in lines if line.partition(":")[0].isidentifier() and ": " in line]
            return "".join(sign if sign.isprintable() else "·" for sign in found[-1]) if found else ""
        return ""


def describe_signal(code: int) -> str:
    """What ended a process that said nothing: the signal's name, for a code as Python gives it; empty for others."""
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}" if code < 0 else ""
    return f"it was ended by signal {-code}"


async def start_child(folder: Path, entry: NodeEntry, party: str, *, serves: bool) -> Child:
    """Start a process.

    Args:
        folder: of logs.
        entry: the agreement.
        party: this one's name in it.
        serves: whether it serves the model, or trains it.

    Raises:
        OSError: the machine has no room for one more.
    """
    words = ["serve", "start"] if serves else ["party"]
    words += [str(entry.agreement), "--as", party, "--file", str(entry.file)]
    if serves:
        words += [] if entry.serving is None else ["--serving", str(entry.serving)]
    else:
        words += ["--log", "json"]
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING)
    log = folder / f"{entry.name}.log"
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        written = os.fstat(output).st_size
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "securevfl", *words, "--door", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C at a terminal is for the node, which then asks each process once
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        finally:
            os.close(output)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Child(process=process, door=ours, log=log, serves=serves, written=written)
