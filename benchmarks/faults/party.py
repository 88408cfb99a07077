"""One party's process in a run of the matrix: a copy of this one, which has loaded everything, that runs a command.

The gate is a copy too. A copy closes all that it inherits but its control socket, so locks and connections belong to
whom they should. At its moment the party either harms itself or asks the run to harm it, and waits until that is done.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from securevfl_net import durable
from securevfl_net.gate import loop as gate_loop

from benchmarks.faults.expected import GONE
from benchmarks.faults.spawning import keep_own_files, open_files
from securevfl import cli
from securevfl.ledger import chain as ledger_chain
from securevfl.party import superseded
from securevfl.privacy import ResultBook
from securevfl.privacy.rows import RowRelease
from securevfl.process import party_process
from securevfl.process.logs import LogNews, LogObserver
from securevfl.process.state_folder import StateFolder
from securevfl.run import runner
from securevfl.run.checkpoint import FolderKeeper
from securevfl.serving import serving_sessions
from securevfl.transport import network_mesh

__all__ = ["ANSWERS", "Moment", "Orders", "run_party"]

ANSWERS = "answers"
"""The key of releases that predictions and servers make, where a process writes down what it did."""

_KEPT: set[int] = set()
"""File descriptors of libraries, in a party's process: for its gate."""
_PHASES = {"consent": "consent", "alignment": "alignment", "setup": "training", "training": "training"}
_PHASES |= {"test": "training", "heads": "finish"}


@dataclass(frozen=True)
class Moment:
    """When a fault happens: at the `at`-th point (from 1) that a party reaches in a phase. A point is a message that
    the party wrote into its ledger and did not send yet, a step of a checkpoint's write, or a step of the end.
    """

    phase: str
    at: int


@dataclass(frozen=True)
class Orders:
    """What a party's process does.

    Attributes:
        name: the party.
        words: arguments of the command line.
        phase: of the command: training finds its own, prediction and serving have one.
        moment: of the fault; None where nothing happens here.
        fault: what happens then.
        files: where the process writes down what it did, and what it prints.
        clock: seconds by which its clock is off.
        patch: called first: puts a known bug back.
    """

    name: str
    words: Sequence[str]
    files: Path
    phase: str = ""
    moment: Moment | None = None
    fault: str = ""
    clock: float = 0.0
    patch: Callable[[], None] | None = None


class _Gate:
    """A gate's process, with what `NetworkMesh` asks of one."""

    newest = 0

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        type(self).newest = pid

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("the gate", timeout or 0.0)
            time.sleep(0.002)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    terminate = kill


def _fork_gate(door: int | None = None) -> tuple[_Gate, socket.socket]:
    if door is not None:
        raise ValueError("no party of the matrix runs under a node")
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    pid = os.fork()
    if not pid:
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            keep_own_files([*_KEPT, theirs.fileno()])
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            code = gate_loop.serve(theirs)
        except BaseException:  # a copy may not go on as the program: the code tells, standard error says why
            traceback.print_exc()
        finally:
            os._exit(code)
    theirs.close()
    ours.setblocking(False)
    return _Gate(pid), ours


@dataclass
class _Watcher:
    """Counts the points that this process reaches, and acts at one of them."""

    orders: Orders
    control: socket.socket
    phase: str = ""
    points: Counter[str] = field(default_factory=Counter)
    ledger: Path | None = None
    peer: str = ""

    def reach(self, phase: str, *, before: bool | None = None) -> None:
        """A point of `phase`; `before` and after a line's write are two halves of one point."""
        if before is not False:
            self.points[phase] += 1
        moment = self.orders.moment
        if moment is None or (phase, self.points[phase]) != (moment.phase, moment.at):
            return
        if before is not None and before != self.orders.fault.startswith("disk"):
            return
        self._act(self.orders.fault)

    def _act(self, fault: str) -> None:
        if fault == "program killed":
            self._tell("done itself")
            os.kill(os.getpid(), signal.SIGKILL)
        if fault in ("gate killed", "both killed"):
            self._tell("done itself")
            with suppress(ProcessLookupError):  # at the last points of the end the gate is gone
                os.kill(_Gate.newest, signal.SIGKILL)
            if fault == "both killed":
                os.kill(os.getpid(), signal.SIGKILL)
            return
        if fault.startswith("clock"):
            self._tell("done itself")
            _shift_clock(self.orders.clock)
            return
        if fault.startswith("disk"):
            size = self.ledger.stat().st_size + 40 if self.ledger is not None and self.ledger.exists() else 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        self._tell(fault)
        self.control.recv(1)  # until it is done

    def _tell(self, what: str) -> None:
        self.control.sendall(json.dumps({"what": what, "gate": _Gate.newest, "peer": self.peer}).encode() + b"\n")


def _shift_clock(seconds: float) -> None:
    """Let this process's clock read another time from here on."""
    clock, fine = time.time, time.time_ns
    time.time = lambda: clock() + seconds
    time.time_ns = lambda: fine() + int(seconds * 1e9)
    import datetime as standard

    class Shifted(standard.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return standard.datetime.fromtimestamp(time.time(), tz)

    for module in list(sys.modules.values()):
        if (
            getattr(module, "__name__", "").startswith("securevfl")
            and getattr(module, "datetime", 0) is standard.datetime
        ):
            module.datetime = Shifted  # type: ignore[attr-defined]


def _append(path: Path, line: object) -> None:
    """Write a line past the process's file size limit: what the process did is not on its disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def _around(owner: Any, name: str, before: Callable[..., None] | None, after: Callable[..., None] | None) -> None:
    call = getattr(owner, name)

    @wraps(call)
    def wrapped(*given: Any, **named: Any) -> Any:
        if before is not None:
            before(*given)
        found = call(*given, **named)
        if after is not None:
            after(*given)
        return found

    setattr(owner, name, wrapped)


def _install(watcher: _Watcher) -> None:
    """Put the points into this process."""
    lines = "consent", "alignment", "training", "finish", "prediction", "serving"

    def line(half: bool) -> Callable[..., None]:
        def reach(ledger: Any, number: int, when: int, way: str, peer: str, *_: Any, **__: Any) -> None:
            if watcher.phase in lines:
                watcher.ledger, watcher.peer = ledger._path, peer
                if not half:
                    ledger.commit()  # lines of messages that leave together may wait until then
                watcher.reach(watcher.phase, before=half)

        return reach

    def phase(_: Any, name: str) -> None:
        watcher.phase = _PHASES.get(name, watcher.phase)

    saving = [False]

    def begin_save(*_: Any) -> None:
        saving[0] = True
        watcher.reach("checkpoint")

    def end_save(*_: Any) -> None:
        saving[0] = False
        watcher.reach("checkpoint")

    def event(_: Any, what: str, *__: Any) -> None:
        if what in ("finished", "done"):
            watcher.reach("finish")

    def finish(*_: Any) -> None:
        if watcher.phase == "finish":
            watcher.reach("finish")

    _around(ledger_chain.Ledger, "_append_entry", line(True), line(False))
    _around(LogObserver, "phase", phase, None)
    _around(FolderKeeper, "save", begin_save, end_save)
    _around(durable, "flush_to_disk", None, lambda *_: watcher.reach("checkpoint") if saving[0] else None)
    _around(LogNews, "report_event", event, event)
    _around(party_process.JobProcess, "_write_report", finish, finish)
    _around(StateFolder, "store_outcome", finish, finish)
    _around(network_mesh.NetworkMesh, "close", finish, None)
    if watcher.orders.phase:
        watcher.phase = watcher.orders.phase


def _count_answers(path: Path) -> None:
    """Write down each number that the result book let out, beside the book."""

    def numbers(book: ResultBook, run: str, places: Any, number: int) -> None:
        _append(path, ["numbers", book._mine[run][0], len(places) * number])

    def metrics(_: ResultBook, asker: str) -> None:
        _append(path, ["metrics", asker, 1])

    _around(ResultBook, "add", None, numbers)
    _around(ResultBook, "add_metrics", None, metrics)


def _count_releases(path: Path) -> None:
    """Write down each noisy release of rows after it was made, beside the package's own journal."""
    call = RowRelease.__call__

    def released(self: RowRelease, values: Any, rows: Any, **more: Any) -> Any:
        fresh = rows[self.counts_as_release(rows)] if self.once else rows
        sent = call(self, values, rows, **more)
        reserve: Any = self.counts._reserve
        # In training a journal counts, by the party's name and the release's; predictions and servers count people.
        key = ANSWERS if reserve is None else f"{reserve.func.__self__.party} {reserve.args[0]}"
        _append(path, [key, fresh.tolist()])
        return sent

    RowRelease.__call__ = released  # type: ignore[method-assign]


def run_party(orders: Orders, control: socket.socket, kept: Iterable[int]) -> int:
    """Start a copy of this process that runs a party's command; its process id.

    Args:
        orders: what it does.
        control: its end of the control socket.
        kept: file descriptors that libraries have open; see `keep_own_files`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setpgid(0, 0)
        kept = open_files() & set(kept)  # what a library closed at the fork gives its number to something else
        output = os.open(orders.files / f"{orders.name}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _KEPT.update(kept)
        keep_own_files([*kept, control.fileno()])
        os.chdir(orders.files)
        code = _work(orders, control)
    except BaseException:  # a copy may not go on as this process: the code tells, the file says why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _work(orders: Orders, control: socket.socket) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)
    network_mesh.spawn_gate = _fork_gate  # type: ignore[assignment]
    if orders.patch is not None:
        orders.patch()
    _count_releases(orders.files / f"{orders.name}.made.jsonl")
    _count_answers(orders.files / f"{orders.name}.answered.jsonl")
    watcher = _Watcher(orders, control)
    _install(watcher)
    runner._GONE = serving_sessions._GONE = GONE
    if orders.fault == "certificate revoked":
        network_mesh.Timing = partial(network_mesh.Timing, reload=0.5)  # type: ignore[misc,assignment]
        superseded._TWO_PROCESSES = 8.0
    if orders.fault == "clock off from the start":
        _shift_clock(orders.clock)
    code: Any = 0
    print(f"--- start {time.time():.2f} {' '.join(orders.words)}", flush=True)
    try:
        cli.main(list(orders.words))
    except SystemExit as ended:
        code = ended.code or 0
    print(f"--- exit {code}", flush=True)
    _append(orders.files / f"{orders.name}.points.jsonl", watcher.points)
    return code if isinstance(code, int) else 1
