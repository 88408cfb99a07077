"""A pool without workers: each task runs in this process, before `submit` returns."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Self

from securevfl_crypto.errors import PoolError
from securevfl_crypto.pools.base import Argument, check_arguments, check_cpus
from securevfl_crypto.pools.messages import answer_task, read_answer

__all__ = ["LocalPool"]


class LocalPool:
    """Runs each task immediately, in the thread that submits it. See `Pool`.

    Attributes:
        workers: 1.
    """

    def __init__(self) -> None:
        self.workers = 1
        self._closed = False

    def submit(self, task: str, /, *arguments: Argument, cpus: int = 1) -> Future[bytes]:
        """See `Pool.submit`; the returned future is already done."""
        if self._closed:
            raise PoolError(f"the task {task!r} was submitted to a closed pool")
        check_arguments(task, arguments)
        check_cpus(task, cpus, self.workers)
        future: Future[bytes] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(read_answer(task, answer_task(task, arguments)))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """See `Pool.close`."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
