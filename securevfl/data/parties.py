"""The parties of a simulation, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from securevfl.data.table import PartyTable
from securevfl.errors import InputError, UnknownNameError

__all__ = ["Parties"]


class Parties(Mapping[str, PartyTable]):
    """Tables of all parties; exactly one has labels.

    Args:
        tables: the parties' tables, each under its name.
        description: what the data is, and its licence.

    Raises:
        InputError: no table, a name twice, no labels, or labels at two parties.
    """

    def __init__(self, tables: Mapping[str, PartyTable], *, description: str = "") -> None:
        self._tables = dict(tables)
        self.description = description
        labelled = [name for name, table in self._tables.items() if table.label is not None]
        if len(labelled) != 1:
            found = ", ".join(labelled) or "none"
            raise InputError(
                f"of {len(self._tables)} parties, {found} own labels; exactly one has to: give label=… for one "
                "table only"
            )
        self._active = labelled[0]

    @classmethod
    def of(cls, *tables: PartyTable, description: str = "") -> Parties:
        """Parties from their tables."""
        names = [table.name for table in tables]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise InputError(f"two parties are called {doubled[0]!r}; give each its own name")
        return cls({table.name: table for table in tables}, description=description)

    @property
    def active(self) -> PartyTable:
        """The party with the labels."""
        return self._tables[self._active]

    @property
    def passive(self) -> list[PartyTable]:
        """The other parties."""
        return [table for name, table in self._tables.items() if name != self._active]

    def __getitem__(self, name: str) -> PartyTable:
        if name not in self._tables:
            raise UnknownNameError("party", name, self._tables)
        return self._tables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        lines = [f"{len(self)} parties" + (f": {self.description}" if self.description else "")]
        for table in self._tables.values():
            label = f", label {table.label_name}" if table.label is not None else ""
            columns = ", ".join(table.feature_names[:6]) + (", …" if len(table.feature_names) > 6 else "")
            lines.append(
                f"  {table.name:<12} {table.role:<8} {table.rows:>7,} rows, {len(table.columns):>3} columns "
                f"({columns}){label}"
            )
        return "\n".join(lines)
