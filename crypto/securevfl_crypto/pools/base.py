"""The interface of a pool, and what a task is.

A pool runs named functions over bytes, paths and numbers. Nothing else crosses: no closure, no object of ours. So a
task says what it needs, a driver can be exchanged without a change to what runs on it, and a worker that is lost costs
no more than its task, which runs again somewhere else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import Protocol, Self, TypeAlias, cast

from securevfl_crypto.errors import PoolError

__all__ = ["Argument", "Pool", "Task", "check_arguments", "check_cpus", "load_task"]

Argument: TypeAlias = bytes | str | int
"""What crosses to a task: bytes, text (a path, most often), a whole number."""

Task: TypeAlias = Callable[..., bytes]
"""A function of arguments that returns bytes. It may be run twice, and then does the same again."""

_PREFIX = "securevfl"


class Pool(Protocol):
    """Workers that run tasks. A context manager: leaving it closes the pool.

    Attributes:
        workers: how many tasks of one core run at once.
    """

    @property
    def workers(self) -> int:
        """How many tasks of one core run at once."""
        ...

    def submit(self, task: str, /, *arguments: Argument, cpus: int = 1) -> Future[bytes]:
        """Hand in a task.

        The future ends with what the task returns, or with its error: one of this toolkit's own comes back as it was;
        any other as a `TaskFailed` with its words; a worker that is lost too often as a `WorkerLost`.

        Args:
            task: ``"package.module:function"`` of an installed package whose name begins with ``securevfl``. The
                function has to be idempotent: it runs again if its worker is lost.
            arguments: for the function.
            cpus: cores that the task keeps busy.

        Raises:
            PoolError: the name is not of this form, an argument has another type, the pool has fewer cores or is
                closed.
        """
        ...

    def close(self) -> None:
        """End all workers. Tasks that have not ended are given up: their futures are cancelled, or end with a
        `PoolError`."""
        ...

    def __enter__(self) -> Self:
        """The pool itself."""
        ...

    def __exit__(self, *_: object) -> None:
        """Close it."""
        ...


def check_name(task: str) -> tuple[str, str]:
    """The module and the function that a task's name stands for, without importing anything.

    Raises:
        PoolError: the name has another form, or its package is none of ours.
    """
    module, colon, function = task.partition(":") if isinstance(task, str) else ("", "", "")
    parts = module.split(".")
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in parts):
        raise PoolError(f"a task {task!r}; the form is 'package.module:function'")
    if not parts[0].startswith(_PREFIX):
        raise PoolError(
            f"a task {task!r} of the package {parts[0]!r}; pools run functions of installed packages whose names "
            f"begin with {_PREFIX!r}, and nothing else"
        )
    return module, function


def load_task(task: str) -> Task:
    """The function that a task's name stands for.

    Raises:
        PoolError: the name has another form, its package is none of ours, or it holds no such function of its own.
    """
    module, function = check_name(task)
    try:
        found = getattr(import_module(module), function, None)
    except ImportError as error:
        raise PoolError(
            f"a task {task!r} that cannot be imported here ({error}): workers need the same securevfl as the process "
            "that hands in their tasks"
        ) from None
    if not inspect.isfunction(found) or found.__module__ != module:
        raise PoolError(f"a task {task!r}; {module} defines no function {function!r}")
    return cast(Task, found)


def check_arguments(task: str, arguments: tuple[Argument, ...]) -> None:
    """Check what is handed to a task.

    Raises:
        PoolError: the name has another form, or an argument is not bytes, str or int.
    """
    check_name(task)
    for place, argument in enumerate(arguments, 1):
        if type(argument) not in (bytes, str, int):
            raise PoolError(
                f"argument {place} of the task {task!r} is a {type(argument).__name__}; bytes, str and int can cross"
            )


def check_cpus(task: str, cpus: int, workers: int) -> None:
    """Check the cores that a task asks for.

    Raises:
        PoolError: they are fewer than 1, or more than the pool has.
    """
    if not 1 <= cpus <= workers:
        raise PoolError(f"the task {task!r} asks for {cpus} cores; this pool has {workers}: ask for 1 to {workers}")
