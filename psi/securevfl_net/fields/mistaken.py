"""The error that has all mistakes of a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from securevfl_net.errors import InputError

__all__ = ["Mistaken"]


class Mistaken(InputError):
    """A configuration with mistakes.

    Args:
        where: its path.
        found: of single fields, each with `where` as the start of its path.
        rules: broken rules that concern several fields, as `Config.problems` words them.
    """

    def __init__(self, where: str, found: Sequence[str], rules: Sequence[str] = ()) -> None:
        self.where = where
        self.found = tuple(found)
        self.rules = tuple(rules)
        every = [*self.found, *self.rules]
        head = f"{where} has {len(every)} mistakes:\n  "
        super().__init__(every[0] if len(every) == 1 else head + "\n  ".join(every))

    def moved(self, where: str) -> list[str]:
        """The same mistakes of a configuration that stands at another path."""
        if where == self.where:
            return [*self.found, *self.rules]
        start = len(self.where)
        fields = [where + text[start:] if text.startswith(self.where) else text for text in self.found]
        return fields + [f"{where}: {rule}" if where else rule for rule in self.rules]
