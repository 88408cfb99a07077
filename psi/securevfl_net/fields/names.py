"""What a party may be called."""

from __future__ import annotations

import re

__all__ = ["wrong_name"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def wrong_name(name: str) -> str:
    """Why a party cannot have this name; empty where it can."""
    if _NAME.fullmatch(name):
        return ""
    return f"a party is called {name!r}; names are lower-case words of up to 32 letters, digits, - and _"
