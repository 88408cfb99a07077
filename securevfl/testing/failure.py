"""What a check raises."""

from __future__ import annotations

__all__ = ["CheckFailed"]


class CheckFailed(AssertionError):
    """A part of the toolkit breaks its contract; the message says which rule, where, and what was seen."""
