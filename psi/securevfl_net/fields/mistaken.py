"""The error that lists all mistakes of a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from securevfl_net.errors import InputError

__all__ = ["Mistaken"]


class Mistaken(InputError):
    """A configuration with mistakes.

    Args:
        where: its path.
        found: mistakes of single fields; each path starts with `where`.
        rules: broken rules about several fields, as worded by `Config.problems`.
    """

    def __init__(self, where: str, found: Sequence[str], rules: Sequence[str] = ()) -> None:
        self.where = where
        self.found = tuple(found)
        self.rules = tuple(rules)
        every = [*self.found, *self.rules]
        head = f"{where} has {len(every)} mistakes:\n  "
        super().__init__(every[0] if len(every) == 1 else head + "\n  ".join(every))

    def at_path(self, where: str) -> list[str]:
        """Return the same mistakes for a configuration at another path."""
        if where == self.where:
            return [*self.found, *self.rules]
        start = len(self.where)
        fields = [where + text[start:] if text.startswith(self.where) else text for text in self.found]
        return fields + [f"{where}: {rule}" if where else rule for rule in self.rules]
