"""The version of messages on the wire, for the codec and for the hello of a session."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = 1
