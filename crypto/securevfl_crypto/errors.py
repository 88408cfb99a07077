"""The exceptions of this package. Each message gives the value, the bound and the cure. Every folder may raise them."""

from __future__ import annotations

__all__ = [
    "CryptoError",
    "DisagreementError",
    "EngineError",
    "MalformedError",
    "OverflowRefused",
    "PoolError",
    "ReusedError",
    "TaskFailed",
    "UndeclaredOpening",
    "WeakKeyError",
    "WorkerLost",
    "WrongLibraryError",
]


class CryptoError(Exception):
    """Base of all errors of this package."""


class EngineError(CryptoError, RuntimeError):
    """The requested code path is unknown, cannot run on this machine, or failed its self-test."""


class WrongLibraryError(EngineError):
    """A library of compiled kernels is not the one that its manifest describes. It was not loaded."""


class WeakKeyError(CryptoError, ValueError):
    """A key is weaker than the least accepted strength."""


class OverflowRefused(CryptoError, ValueError):
    """Values exceed the range of the plaintexts; nothing was encrypted, or nothing that was opened is returned."""


class MalformedError(CryptoError, ValueError):
    """An argument or a message has a shape, type, length or content that the protocol does not allow."""


class ReusedError(CryptoError, ValueError):
    """One-time randomness was requested again; using it twice would reveal differences of secrets."""


class DisagreementError(CryptoError):
    """Two parties have different copies of one summand, or are at different steps; nothing was opened."""


class UndeclaredOpening(CryptoError):
    """A value would be opened that was not declared, or more often, larger or to others than declared."""


class PoolError(CryptoError, RuntimeError):
    """A pool of workers that cannot be opened or used as asked, or a task that it refuses to run."""


class TaskFailed(PoolError):
    """A task raised an error from outside this toolkit; the message contains the task's name and the error's text."""


class WorkerLost(PoolError):
    """A task's worker died without an answer at every attempt."""
