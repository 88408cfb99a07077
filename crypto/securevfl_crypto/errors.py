"""The exceptions of this package. Each message gives the value, the bound and the cure."""

from __future__ import annotations

__all__ = ["CryptoError", "EngineError", "MalformedError", "OverflowRefused", "WeakKeyError"]


class CryptoError(Exception):
    """Base of all errors of this package."""


class EngineError(CryptoError, RuntimeError):
    """The code path that was asked for is unknown, cannot run on this machine, or failed its self-test."""


class WeakKeyError(CryptoError, ValueError):
    """A key below the least accepted strength."""


class OverflowRefused(CryptoError, ValueError):
    """Values would leave the range that the plaintexts have room for; nothing was encrypted."""


class MalformedError(CryptoError, ValueError):
    """What arrived is not what the protocol allows: wrong shape, type, length or group element."""
