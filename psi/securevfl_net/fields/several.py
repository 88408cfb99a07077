"""Fields with several values, or with one of several kinds: tuples, sets, mappings, unions."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from securevfl_net.fields.single import Accepts, Bounds, Mistakes, format_value

__all__ = ["AcceptsList", "AcceptsTuple", "Either", "Named"]


class AcceptsList:
    """A tuple of any length, or a set; accepts any sequence or set except a text."""

    def __init__(self, item: Accepts, build: Callable[[Iterable[Any]], object], length: Bounds) -> None:
        self._item = item
        self._build = build
        self._length = length
        self.expected = (
            f"a list of {length.describe_count('values') + ', each ' if length.is_bounded else ''}{item.expected}"
        )

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        return isinstance(value, Sequence | Set) and not isinstance(value, str | bytes | bytearray)

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        if not self.has_type(value, plain=plain) or not isinstance(value, Sequence | Set):
            found.append(f"{path} is {format_value(value)}; {self.expected} was expected")
            return value
        before = len(found)
        if not self._length.allows_value(len(value)):
            found.append(f"{path} has {len(value)} values; {self.expected} was expected")
        where = (f"{path}[{i}]" if isinstance(value, Sequence) else path for i in range(len(value)))
        items = [self._item.convert_value(v, at, found, plain=plain) for v, at in zip(value, where, strict=True)]
        return self._build(items) if len(found) == before else value  # what is refused may not fit into a set


class AcceptsTuple:
    """A tuple of fixed length with a kind per position."""

    def __init__(self, items: Sequence[Accepts]) -> None:
        self._items = items
        self.expected = f"a list of {len(items)} values: {', '.join(item.expected for item in items)}"

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        return isinstance(value, list | tuple)

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        if not isinstance(value, list | tuple) or len(value) != len(self._items):
            found.append(f"{path} is {format_value(value)}; {self.expected} was expected")
            return value
        pairs = enumerate(zip(self._items, value, strict=True))
        return tuple(item.convert_value(v, f"{path}[{i}]", found, plain=plain) for i, (item, v) in pairs)


class Named:
    """A mapping from names to values of one kind; stored as a read-only copy."""

    def __init__(self, item: Accepts) -> None:
        self._item = item
        self.expected = f"names with {item.expected} for each"

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        return isinstance(value, Mapping)

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        if not isinstance(value, Mapping):
            found.append(f"{path} is {format_value(value)}; {self.expected} was expected")
            return value
        taken = {}
        for name, content in value.items():
            if not isinstance(name, str):
                found.append(f"{path} has the key {format_value(name)}; a text was expected")
                continue
            taken[name] = self._item.convert_value(content, f"{path}.{name}", found, plain=plain)
        return types.MappingProxyType(taken)


class Either:
    """A union: the first member that accepts the value wins; if none does, the first of the right type reports the
    mistake.
    """

    def __init__(self, members: Sequence[Accepts]) -> None:
        self._members = members
        self.expected = " or ".join(member.expected for member in members)

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        return any(member.has_type(value, plain=plain) for member in self._members)

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        best: Mistakes | None = None
        for member in self._members:
            if not member.has_type(value, plain=plain):
                continue
            attempt: Mistakes = []
            taken = member.convert_value(value, path, attempt, plain=plain)
            if not attempt:
                return taken
            best = best or attempt
        found.extend(best or [f"{path} is {format_value(value)}; {self.expected} was expected"])
        return value
