"""The exceptions of this package. Each message gives the value, the bound and the cure; never another party's
identifiers."""

from __future__ import annotations

__all__ = ["IdentifierError", "MalformedError", "PSIError", "SetSizeError"]


class PSIError(Exception):
    """Base of all errors of this package; raised itself when a protocol's steps are called out of order."""


class IdentifierError(PSIError, ValueError):
    """A party's own identifiers cannot be used: null, doubled, empty or of mixed types."""


class MalformedError(PSIError, ValueError):
    """What arrived is not what the protocol allows."""


class SetSizeError(MalformedError):
    """A set is larger than the limit, or not as large as announced."""
