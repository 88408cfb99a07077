"""A pool on a Ray cluster: many machines of one party. The extra ``securevfl[ray]``.

Ray transports a task's arguments and answer, and pickles one function of this package, `run_on_ray`, and no other code.
A task that loses its worker or machine runs again elsewhere. The cluster must belong to one party: it receives that
party's task arguments, which include keys. `cluster` checks who can reach it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Self

from securevfl_crypto.errors import PoolError, WorkerLost
from securevfl_crypto.pools.base import Argument, check_arguments, check_cpus
from securevfl_crypto.pools.cluster import check_access, check_closed, has_token, on_this_machine
from securevfl_crypto.pools.messages import answer_task, read_answer
from securevfl_crypto.pools.process import RETRIES, worker_environment

__all__ = ["RayPool", "run_on_ray"]

_LARGE = 100_000
"""Arguments of at least this many bytes are put into Ray's store once, for all tasks that receive them."""
_KEPT = 64
"""The number of arguments kept in Ray's store."""
_LOST = ("WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError", "LocalRayletDiedError")
_SOCKET_PATH = 107 - len("/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store.12")
"""The longest allowed name of the folder, in bytes: Linux limits names of sockets to 107 bytes."""
_one = threading.Lock()
_log = logging.getLogger("securevfl.pools")


def run_on_ray(cpus: int, task: str, *arguments: Argument) -> bytes:
    """Run a task in a Ray worker; returns its encoded result or error."""
    os.environ["SECUREVFL_THREADS"] = str(cpus)
    return answer_task(task, arguments)


class RayPool:
    """Runs tasks on a Ray cluster. See `Pool`.

    A process can have one such pool at a time, since Ray connects a process to one cluster.

    Args:
        address: HOST:PORT of the head of a running cluster. None starts a cluster on this machine, with a fresh token;
            it ends with the pool.
        workers: the number of cores of a cluster that this call starts; None takes all of this machine.
        retries: how often a task runs again after it lost its worker or machine.

    Attributes:
        folder: the files of a cluster that this pool started, until the pool is closed.

    Raises:
        PoolError: Ray is not installed; this process is already connected to a cluster; the cluster does not require a
            token, or `cluster` refuses it for another reason; or it cannot be reached.
    """

    def __init__(self, address: str | None = None, *, workers: int | None = None, retries: int = RETRIES) -> None:
        if address is None:
            _own_token()
        else:
            check_access(address)
        self._ray = _import_ray()
        self.folder: str | None = None
        self._state = threading.Lock()
        self._running: dict[Future[bytes], Any] = {}
        self._store: OrderedDict[bytes, Any] = OrderedDict()
        self._closed = False
        if self._ray.is_initialized() or not _one.acquire(blocking=False):
            raise PoolError("this process is connected to a Ray cluster already: close that pool first, or share it")
        try:
            if address is None:
                self._start(workers)
            else:
                if not on_this_machine(address):
                    check_closed(address)
                self._connect(address=address)
        except BaseException:
            self._leave()
            raise
        self._remote = self._ray.remote(max_retries=retries)(run_on_ray)

    @property
    def workers(self) -> int:
        """The number of cores of the cluster at this moment. It changes as nodes join and leave."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _start(self, workers: int | None) -> None:
        self.folder = _temporary_folder()
        path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = worker_environment()["PYTHONPATH"]  # so that workers can import the same modules
        try:
            self._connect(num_cpus=workers, _temp_dir=self.folder)
        finally:
            if path is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = path

    def _connect(self, **options: Any) -> None:
        try:
            _redirect_ray_output()
            self._ray.init(include_dashboard=False, log_to_driver=False, logging_level="error", **options)
        except Exception as error:
            where = options.get("address", "this machine")
            raise PoolError(f"no Ray cluster at {where}: {' '.join(str(error).split())[:400]}") from error

    def submit(self, task: str, /, *arguments: Argument, cpus: int = 1) -> Future[bytes]:
        """See `Pool.submit`."""
        check_arguments(task, arguments)
        if self._closed:
            raise PoolError(f"the task {task!r} was submitted to a closed pool")
        check_cpus(task, cpus, self.workers)
        future: Future[bytes] = Future()
        with self._state:
            handed = [self._store_argument(argument) for argument in arguments]
            reference = self._remote.options(num_cpus=cpus).remote(cpus, task, *handed)
            self._running[future] = reference
        future.set_running_or_notify_cancel()
        reference.future().add_done_callback(lambda ended: self._finish_future(task, future, ended))
        return future

    def _store_argument(self, argument: Argument) -> Any:
        """Put a large argument into Ray's store and return a reference, so that it crosses to each node only once."""
        if not isinstance(argument, bytes) or len(argument) < _LARGE:
            return argument
        name = hashlib.sha256(argument).digest()
        found = self._store.pop(name, None)
        self._store[name] = self._ray.put(argument) if found is None else found
        if len(self._store) > _KEPT:
            self._store.popitem(last=False)
        return self._store[name]

    def _finish_future(self, task: str, future: Future[bytes], ended: Future[bytes]) -> None:
        with self._state:
            if self._running.pop(future, None) is None:  # `close` already ended this future
                return
        try:
            future.set_result(read_answer(task, ended.result()))
        except Exception as error:
            future.set_exception(_translate_error(task, error))

    def close(self) -> None:
        """See `Pool.close`. A cluster that this pool started ends; one that it joined keeps running."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            given_up, self._running = list(self._running.items()), {}
            self._store.clear()
        for future, reference in given_up:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
            future.set_exception(PoolError("the task was cancelled: its pool was closed"))
        self._leave()

    def _leave(self) -> None:
        self._ray.shutdown()
        _one.release()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _redirect_ray_output() -> None:
    """Redirect Ray's messages about lost nodes from this process's standard output to the log.

    Ray's option ``log_to_driver`` does not cover them: a thread of Ray prints them directly.
    """
    with contextlib.suppress(ImportError):
        from ray._private import worker

        if hasattr(worker, "print_to_stdstream"):
            worker.print_to_stdstream = _log_output


def _log_output(data: Mapping[str, Any], *_: object, **__: object) -> None:
    for line in data.get("lines", ()):
        _log.warning("Ray: %s", " ".join(str(line).split())[:400])


def _own_token() -> None:
    """Make a cluster that starts here require a token, which only this process and its children know.

    Raises:
        PoolError: the environment turns tokens off.
    """
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token")
    if mode.lower() != "token":
        raise PoolError(
            f"RAY_AUTH_MODE={mode} would let every program on this machine run tasks on the cluster: unset it, and the "
            "cluster gets a fresh token"
        )
    if not has_token(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _import_ray() -> Any:
    """Import Ray with its usage reports turned off.

    Raises:
        PoolError: Ray is not installed.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise PoolError(
            f"this pool needs Ray, which cannot be imported ({error}): pip install 'securevfl[ray]'"
        ) from None
    raylet: Any = ray._raylet
    raylet.Config.initialize("")  # an earlier import of Ray may have read RAY_AUTH_MODE before it was set
    return ray


def _temporary_folder() -> str:
    """A folder for the files and sockets of a cluster, readable by this user alone."""
    base = tempfile.gettempdir()
    short = len(base) + len("/svfl-00000000") <= _SOCKET_PATH
    return tempfile.mkdtemp(prefix="svfl-", dir=base if short else "/tmp")  # noqa: S108  # mkdtemp makes a fresh folder, readable by this user alone


def _translate_error(task: str, error: Exception) -> Exception:
    """Translate an error of Ray into one of this package; other errors stay unchanged."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & set(_LOST):
        return WorkerLost(
            f"the task {task} lost its worker or its machine at every attempt ({type(error).__name__}); the system "
            "kills a process that takes too much memory: use smaller tasks, or nodes with more memory"
        )
    if "RayError" in names:
        return PoolError(f"Ray did not run the task {task}: {str(error).strip()[:400]}")
    return error
