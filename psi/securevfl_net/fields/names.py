"""Valid party names."""

from __future__ import annotations

import re

__all__ = ["explain_bad_name"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def explain_bad_name(name: str) -> str:
    """Explain why a party name is invalid; empty if it is valid."""
    if _NAME.fullmatch(name):
        return ""
    return f"a party is named {name!r}; names are lower-case words of up to 32 letters, digits, - and _"
