"""A pool of processes on this machine.

Each worker is a fresh interpreter (see `worker`). It neither imports the script that opened the pool nor inherits its
memory. BLAS and torch use one thread in it, so that one worker for each core does not oversubscribe the machine.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import BinaryIO, Self, cast

from securevfl_crypto.errors import PoolError, WorkerLost
from securevfl_crypto.pools.base import Argument, check_arguments, check_cpus
from securevfl_crypto.pools.messages import pack_arguments, read_answer
from securevfl_crypto.pools.worker import LENGTH, read_frame

__all__ = ["MOST_WORKERS", "RETRIES", "ProcessPool", "worker_environment"]

MOST_WORKERS = 1024
"""The largest number of processes in one pool."""
RETRIES = 2
"""How often a task runs again after it lost its worker."""
_PATIENCE = 5.0
"""Seconds that a worker has to exit after it closed its pipe."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def worker_environment() -> dict[str, str]:
    """The environment of a worker: this process's variables, its module path, and one thread for each library."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "SECUREVFL_THREADS": "1", "PYTHONPATH": path}


@dataclass
class _Work:
    """A submitted task, waiting or running."""

    task: str
    message: bytes = field(repr=False)
    cpus: int
    future: Future[bytes] = field(default_factory=Future, repr=False)


class _Worker:
    """One process and its pipes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # this interpreter, and a constant program
            [sys.executable, "-c", "from securevfl_crypto.pools.worker import serve_tasks; serve_tasks()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worker_environment(),
            start_new_session=True,  # Ctrl-C must reach only the process that owns the pool
        )
        self._tasks = cast(BinaryIO, self._process.stdin)
        self._answers = cast(BinaryIO, self._process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def run_message(self, message: bytes) -> bytes | None:
        """Send a task and wait for its answer; None if the process ended first."""
        try:
            self._tasks.write(LENGTH.pack(len(message)))
            self._tasks.write(message)
            self._tasks.flush()
            return read_frame(self._answers)
        except (OSError, ValueError):  # the pipe broke, or another thread closed it
            return None

    def kill(self) -> None:
        """Kill the process; a thread that waits for its answer receives None."""
        self._process.kill()

    def terminate(self, *, patience: float = 0.0) -> str:
        """End the process and close its pipes; returns the signal or exit status that ended it.

        Args:
            patience: seconds to wait before killing a process that closed its pipe, so that its exit status is known.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._tasks, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"


class ProcessPool:
    """Runs tasks in processes on this machine. See `Pool`.

    The pool replaces a worker that ends for any reason, and runs its task again, at most `retries` times.

    Args:
        workers: the number of processes. They start when tasks need them, and live as long as the pool.
        retries: how often a task runs again after it lost its worker.

    Attributes:
        workers: the number of processes.

    Raises:
        PoolError: fewer than 1 process, or more than `MOST_WORKERS`.
    """

    def __init__(self, workers: int, *, retries: int = RETRIES) -> None:
        if not 1 <= workers <= MOST_WORKERS:
            raise PoolError(f"a pool of {workers} processes; expected 1 to {MOST_WORKERS}")
        self.workers = workers
        self._retries = retries
        self._state = threading.Condition()
        self._waiting: deque[_Work] = deque()
        self._free = workers
        self._idle = 0
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._processes: set[_Worker] = set()
        atexit.register(self.close)

    def submit(self, task: str, /, *arguments: Argument, cpus: int = 1) -> Future[bytes]:
        """See `Pool.submit`; tasks begin in the order in which they were submitted."""
        check_arguments(task, arguments)
        check_cpus(task, cpus, self.workers)
        work = _Work(task, pack_arguments([cpus, task, *arguments]), cpus)
        with self._state:
            if self._closed:
                raise PoolError(f"the task {task!r} was submitted to a closed pool")
            self._waiting.append(work)
            if self._idle < len(self._waiting) and len(self._threads) < self.workers:
                thread = threading.Thread(target=self._serve, name="securevfl-pool", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._state.notify_all()
        return work.future

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        with self._state:
            return sorted(worker.pid for worker in self._processes)

    def close(self) -> None:
        """See `Pool.close`; returns when all processes have ended."""
        with self._state:
            self._closed = True
            given_up, self._waiting = list(self._waiting), deque()
            for worker in self._processes:
                worker.kill()
            self._state.notify_all()
        for work in given_up:
            work.future.cancel()
        for thread in self._threads:
            if thread is not threading.current_thread():  # a callback of a future may close its pool
                thread.join()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        """The loop of one thread: run tasks, one after another, in one worker process."""
        worker: _Worker | None = None
        try:
            while (work := self._next()) is not None:
                if work.future.set_running_or_notify_cancel():
                    worker = self._run(work, worker)
                with self._state:
                    self._free += work.cpus
                    self._state.notify_all()
        finally:
            if worker is not None:
                self._end(worker)

    def _next(self) -> _Work | None:
        """Wait for the next task and for cores to run it; None when the pool is closed."""
        with self._state:
            self._idle += 1
            while not self._closed and not (self._waiting and self._waiting[0].cpus <= self._free):
                self._state.wait()
            self._idle -= 1
            if self._closed:
                return None
            work = self._waiting.popleft()
            self._free -= work.cpus
            return work

    def _run(self, work: _Work, worker: _Worker | None) -> _Worker | None:
        """Run a task, in a new process if the old one was lost; returns the process for the next task."""
        try:
            for _ in range(self._retries + 1):
                worker = worker or self._start()
                data = worker.run_message(work.message)
                if data is not None:
                    work.future.set_result(read_answer(work.task, data))
                    return worker
                how, worker = self._end(worker, patience=_PATIENCE), None
                if self._closed:
                    raise PoolError(f"the task {work.task} was cancelled: its pool was closed")
            raise WorkerLost(
                f"the task {work.task} lost its worker {self._retries + 1} times, the last one by {how}; the system "
                "kills a process that takes too much memory: use fewer workers, or smaller tasks"
            )
        except Exception as error:
            work.future.set_exception(error)
        return worker

    def _start(self) -> _Worker:
        with self._state:
            if self._closed:
                raise PoolError("no worker process can be started: the pool was closed")
            try:
                worker = _Worker()
            except OSError as error:
                raise PoolError(f"no worker process can be started: {error.strerror or error}") from error
            self._processes.add(worker)
            return worker

    def _end(self, worker: _Worker, *, patience: float = 0.0) -> str:
        with self._state:
            self._processes.discard(worker)
        return worker.terminate(patience=patience)
