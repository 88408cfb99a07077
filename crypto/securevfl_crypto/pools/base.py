"""The interface of a pool of workers, and the form of a task.

A task is the name of a function and its arguments: bytes, text and integers. Closures and objects never cross to a
worker. So any pool can run any task, and losing a worker costs no more than its current task, which runs again on
another worker.
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
"""An argument of a task: bytes, text (usually a path) or an integer."""

Task: TypeAlias = Callable[..., bytes]
"""A function that returns bytes. It must be idempotent, since a pool runs it again if its worker is lost."""

_PREFIX = "securevfl"


class Pool(Protocol):
    """Workers that run tasks. A context manager: leaving it closes the pool.

    Attributes:
        workers: the number of single-core tasks that can run at once.
    """

    @property
    def workers(self) -> int:
        """The number of single-core tasks that can run at once."""
        ...

    def submit(self, task: str, /, *arguments: Argument, cpus: int = 1) -> Future[bytes]:
        """Submit a task.

        The future receives the task's result or its error. An error class of this toolkit arrives unchanged, any other
        as a `TaskFailed` with its message. If the task lost its worker at every attempt, the error is a `WorkerLost`.

        Args:
            task: ``"package.module:function"`` of an installed package whose name begins with ``securevfl``. The
                function has to be idempotent: it runs again if its worker is lost.
            arguments: the function's arguments.
            cpus: the number of cores that the task uses.

        Raises:
            PoolError: the name is not of this form, an argument has another type, the pool has fewer cores or is
                closed.
        """
        ...

    def close(self) -> None:
        """End all workers. Futures of unfinished tasks are cancelled, or receive a `PoolError`."""
        ...

    def __enter__(self) -> Self:
        """The pool itself."""
        ...

    def __exit__(self, *_: object) -> None:
        """Close it."""
        ...


def check_name(task: str) -> tuple[str, str]:
    """Split a task's name into module and function, without importing anything.

    Raises:
        PoolError: the name has another form, or its package does not belong to this toolkit.
    """
    module, colon, function = task.partition(":") if isinstance(task, str) else ("", "", "")
    parts = module.split(".")
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in parts):
        raise PoolError(f"the task {task!r} has an unknown form; expected 'package.module:function'")
    if not parts[0].startswith(_PREFIX):
        raise PoolError(
            f"the task {task!r} belongs to the package {parts[0]!r}; pools run only functions of installed packages "
            f"whose names begin with {_PREFIX!r}"
        )
    return module, function


def load_task(task: str) -> Task:
    """Import the function that a task names.

    Raises:
        PoolError: the name has another form, its package does not belong to this toolkit, or its module does not define
            this function.
    """
    module, function = check_name(task)
    try:
        found = getattr(import_module(module), function, None)
    except ImportError as error:
        raise PoolError(
            f"the task {task!r} cannot be imported here ({error}): workers need the same version of securevfl as the "
            "process that submits their tasks"
        ) from None
    if not inspect.isfunction(found) or found.__module__ != module:
        raise PoolError(f"the task {task!r} does not exist: {module} defines no function {function!r}")
    return cast(Task, found)


def check_arguments(task: str, arguments: tuple[Argument, ...]) -> None:
    """Check a task's name and the types of its arguments.

    Raises:
        PoolError: the name has another form, or an argument is not bytes, str or int.
    """
    check_name(task)
    for place, argument in enumerate(arguments, 1):
        if type(argument) not in (bytes, str, int):
            raise PoolError(
                f"argument {place} of the task {task!r} is a {type(argument).__name__}; expected bytes, str or int"
            )


def check_cpus(task: str, cpus: int, workers: int) -> None:
    """Check the number of cores that a task requests.

    Raises:
        PoolError: it is below 1, or more than the pool has.
    """
    if not 1 <= cpus <= workers:
        raise PoolError(f"the task {task!r} requests {cpus} cores; expected 1 to {workers}, the cores of this pool")
