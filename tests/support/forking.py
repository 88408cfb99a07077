"""A process that has loaded the libraries and forks one child for each command: a fresh one loads them for 3 seconds.

The program of `support.processes`, on one end of a pair of sockets. A request is JSON with the descriptors of the
child's standard streams and of a pipe, on which the child's number and later its status come back. A keeper between
both waits for the child, so that no process is left that nobody has waited for.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import threading
from pathlib import Path

LOADED = """
    numpy torch pandas sklearn.ensemble pyarrow pyarrow.csv pyarrow.compute pyarrow.pandas_compat typer
    cryptography.hazmat.backends.openssl rich._emoji_codes jinja2 rich.console rich.table cryptography.x509 gmpy2
    securevfl_psi_cli.app pydantic.type_adapter numpy.ma zoneinfo sysconfig securevfl.algorithms.splitnn.roles
    securevfl.cli.application securevfl.cli.parties securevfl.cli.runs securevfl.cli.scores
    securevfl.experiments.comparison securevfl.process.launch securevfl.process.party_process securevfl.report.html
    securevfl.report.progress securevfl.run.interrupts securevfl.run.run_folder securevfl.run.runner
    securevfl.run.simulation securevfl.cut.exact securevfl.cut.observed_cut securevfl.training.networks
"""
"""What the children find loaded: libraries, and parts of the package that load them. pyarrow loads pandas, where it is
installed, for the first list that it takes: a third of a CPU-second."""
DESCRIPTORS = 4
"""Of a request: the three standard streams and the pipe. Others that come with it stay with the child."""
MOST = 8
"""Descriptors of a request."""


def load_libraries() -> None:
    """Load what children would otherwise load one by one; also for tests that fork the process they run in."""
    for module in LOADED.split():
        importlib.import_module(module)


def serve(requests: socket.socket) -> list[str]:
    """Fork a child for each request, until the other end is closed; a child returns with its arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        text, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, MOST)
        _wait_for_keepers()
        if not text:
            os._exit(0)
        if not os.fork():
            requests.close()
            return _become(json.loads(text), descriptors)
        for one in descriptors:
            os.close(one)


def _wait_for_keepers() -> None:
    """Wait for those that are done, so that their time is counted as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(request: dict[str, object], descriptors: list[int]) -> list[str]:
    """Be the child that was asked for; the keeper never returns."""
    (*streams, pipe), passed = descriptors[:DESCRIPTORS], descriptors[DESCRIPTORS:]
    child = os.fork()
    if child:
        for one in (0, 1, 2, *streams, *passed):
            os.close(one)
        with contextlib.suppress(BrokenPipeError):  # who asked may be killed before its child ends
            os.write(pipe, b"%d\n" % child)
            _, status = os.waitpid(child, 0)
            os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, one in enumerate(streams):
        os.dup2(one, number)
    for one in (*streams, pipe):
        os.close(one)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    importlib.invalidate_caches()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    return [word.format(*passed) for word in request["arguments"]] if passed else list(request["arguments"])  # type: ignore[call-overload,attr-defined]


def run_as_python(arguments: list[str]) -> None:
    """Run what `python` would with these arguments: ``-m MODULE …``, ``-c CODE …`` or a script's."""
    what, *rest = arguments
    if what == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif what == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        sys.path.insert(0, str(Path(what).parent))
        sys.argv[:] = arguments
        runpy.run_path(what, run_name="__main__")


def end_at_once(arguments: list[str]) -> None:
    """Run it, do what programs ask for at their end, and end without freeing each object of what was loaded: it takes
    a third of a CPU-second. An interrupt ends it as it ends any Python."""
    code: object = 0
    try:
        run_as_python(arguments)
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except Exception:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(int(code) & 0xFF)


if __name__ == "__main__":
    load_libraries()
    gc.collect()
    gc.freeze()  # children need not walk over what was loaded
    end_at_once(serve(socket.socket(fileno=int(sys.argv[1]))))
