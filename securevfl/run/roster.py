"""The parties of a job and their roles: the same at every party."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from securevfl.data import Parties
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, PartyRole

__all__ = ["Roster"]


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The parties of a job.

    Attributes:
        owners: parties with labels, in the job's order; the first one validates and tests.
        passive: parties with features alone, sorted.
        coordinator: the party without a table; empty if there is none.
        books: the label owners that are known to have a label book: a check of a job file reads no tables and knows
            none.
    """

    owners: tuple[str, ...]
    passive: tuple[str, ...]
    coordinator: str = ""
    books: frozenset[str] = frozenset()

    @classmethod
    def from_names(cls, names: Iterable[str], *, owners: Iterable[str], coordinator: str = "") -> Roster:
        """Build a roster from the names of all parties.

        Args:
            names: of all, the coordinator among them or not.
            owners: of those with labels, in the job's order.
            coordinator: the party without a table; empty if there is none.
        """
        labelled = tuple(owners)
        others = tuple(sorted(set(names) - set(labelled) - {coordinator}))
        return cls(owners=labelled, passive=others, coordinator=coordinator)

    @classmethod
    def from_tables(cls, parties: Parties) -> Roster:
        """Build a roster from the parties' tables."""
        return cls(
            owners=tuple(table.name for table in parties.label_owners),
            passive=tuple(table.name for table in parties.passive),
            books=frozenset(name for name, table in parties.items() if table.book is not None),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parties, sorted."""
        return tuple(sorted([*self.owners, *self.passive, *([self.coordinator] if self.coordinator else [])]))

    def drop_parties(self, gone: Iterable[str]) -> Roster:
        """The same without parties that left for good."""
        return replace(self, passive=tuple(name for name in self.passive if name not in set(gone)))

    def role_of(self, name: str) -> PartyRole:
        """A party's role."""
        if name == self.coordinator:
            return COORDINATOR
        return ACTIVE if name in self.owners else PASSIVE

    def peers_of(self, name: str) -> tuple[str, ...]:
        """All other parties, sorted."""
        return tuple(one for one in self.names if one != name)
