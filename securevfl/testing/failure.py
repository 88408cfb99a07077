"""The error that checks raise."""

from __future__ import annotations

__all__ = ["CheckFailed"]


class CheckFailed(AssertionError):
    """A part breaks its contract; the message has the rule, the place and the observed value."""
