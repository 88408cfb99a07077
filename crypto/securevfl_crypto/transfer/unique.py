"""State that exists once: it refuses to be copied, stored, or used in a process made by a fork."""

from __future__ import annotations

import os
from typing import NoReturn

from securevfl_crypto.errors import ReusedError

__all__ = ["Unique"]

_forks = 0
"""How many forks lie between the first process and this one."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - a fact of the process
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Unique:
    """Base of objects whose randomness serves once. Two copies would use the same masks for different secrets."""

    def __init__(self) -> None:
        self._made_after = _forks

    def _require_process(self) -> None:
        """Raise ReusedError in a process other than the one that made this object."""
        if self._made_after != _forks:
            raise ReusedError(
                f"a {type(self).__name__} was copied by a fork; each process runs a set-up of its own with its peer"
            )

    def __reduce__(self) -> NoReturn:
        raise ReusedError(
            f"a {type(self).__name__} cannot be copied or stored: the copy would use the same randomness again"
        )
