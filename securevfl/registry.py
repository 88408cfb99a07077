"""Classes that job files name: each is an entry point of its group, so that an installed package can add one.

Nothing is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from securevfl.errors import InputError, UnknownNameError

__all__ = ["FoundByName", "Registry"]

T = TypeVar("T")


class Registry:
    """The entry points of one group.

    Args:
        noun: what they are, for messages: ``"algorithm"``.
        group: the group that packages register in: ``"securevfl.algorithms"``.
    """

    def __init__(self, noun: str, group: str) -> None:
        self.noun = noun
        self.group = group

    @cached_property
    def entries(self) -> Mapping[str, EntryPoint]:
        """Name in job files → where the class lives, sorted by name; nothing is imported yet.

        Raises:
            InputError: two installed packages give the same name to different classes.
        """
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if found.setdefault(entry.name, entry).value != entry.value:
                raise InputError(
                    f"two {self.noun}s are called {entry.name!r}: {found[entry.name].value} and {entry.value}; "
                    "uninstall one"
                )
        return dict(sorted(found.items()))

    def load(self, name: str) -> Any:
        """Whatever is registered under this name, unchecked.

        Raises:
            UnknownNameError: no installed package has one.
            InputError: it cannot be imported.
        """
        if name not in self.entries:
            raise UnknownNameError(self.noun, name, self.entries)
        try:
            return self.entries[name].load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"{self.noun} {name!r} is registered as {self.entries[name].value} and does not load: {error}"
            ) from error


class FoundByName(Mapping[str, T], Generic[T]):
    """Name → class, where looking a class up imports it: a job file that names one algorithm loads no other.

    Args:
        names: all names.
        find: gives the class of a name.
    """

    def __init__(self, names: Iterable[str], find: Callable[[str], T]) -> None:
        self._names = dict.fromkeys(names)
        self._find = find

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._find(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
