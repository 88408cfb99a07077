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
]


class CryptoError(Exception):
    """Base of all errors of this package."""


class EngineError(CryptoError, RuntimeError):
    """The requested code path is unknown, cannot run on this machine, or failed its self-test."""


class WeakKeyError(CryptoError, ValueError):
    """A key is weaker than the least accepted strength."""


class OverflowRefused(CryptoError, ValueError):
    """Values exceed the range of the plaintexts; nothing was encrypted, or nothing that was opened is returned."""


class MalformedError(CryptoError, ValueError):
    """An argument or a message has a shape, type, length or content that the protocol does not allow."""


class ReusedError(CryptoError, ValueError):
    """Randomness that serves once was asked for again; to give it twice would show differences of secrets."""


class DisagreementError(CryptoError):
    """Two parties do not hold the same part of a sharing, or are not at the same step; nothing was opened."""


class UndeclaredOpening(CryptoError):
    """A value would be opened that was not declared, or more often, larger or to others than declared."""


class PoolError(CryptoError, RuntimeError):
    """A pool of workers that cannot be opened or used as asked, or a task that it refuses to run."""


class TaskFailed(PoolError):
    """A task ended with an error that is none of ours; the message names the task and holds the error's own words."""


class WorkerLost(PoolError):
    """A task's worker ended without an answer, as often as the task was tried."""
