"""The card that a report opens with: what could each party read of each other's data, at worst?

A table of parties by parties, features and labels apart, and a column for membership: who learns which rows are common.
It is computed from what the messages of a run declare (findings, and the sights they are made of), so that every
algorithm under every protection has one. What attacks measured stands beside it, and can make a cell worse, never
better. What answers give away is a number of numbers for each row: how much that is depends on the owner's table, which
only the owner has (`securevfl.report.own_share`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich import box
from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

__all__ = ["LEGEND", "STANDINGS", "Card", "CardCell", "Column", "Group", "Standing", "card_table"]

Standing = Literal["reads it", "not known yet", "bounded", "by design", "nothing found", "its own"]
STANDINGS: tuple[Standing, ...] = ("reads it", "not known yet", "bounded", "by design", "nothing found")
"""From the worst on; see `LEGEND`. A number of answers is *not known yet* to bound anything while the columns of the
party that they are about are not counted: in a card before a run, where no table is at hand."""

LEGEND: Mapping[Standing, str] = {
    "reads it": "exactly or nearly, or nothing bounds how well",
    "bounded": "by an ε, by a number of answers, or because little is revealed",
    "by design": "which rows are common, as the parties agree when they align",
    "nothing found": "in any message",
}
"""Standing → what it means."""


@dataclass(frozen=True, slots=True)
class Group:
    """Parties that share a row, and a column of each kind.

    Attributes:
        names: of them.
        role: ``"active"``, ``"passive"`` or ``"coordinator"``.
    """

    names: tuple[str, ...]
    role: str

    @property
    def title(self) -> str:
        """The party's name, or how many there are."""
        return self.names[0] if len(self.names) == 1 else f"{len(self.names)} {self.role} parties"


@dataclass(frozen=True, slots=True)
class Column:
    """Whose data of which kind.

    Attributes:
        owner: whose.
        of: ``"features"`` or ``"labels"``.
    """

    owner: Group
    of: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CardCell:
    """What one party, or each of a group, could read of another's data of one kind.

    Attributes:
        reader: who reads: the row's title.
        about: whose data: the column's title.
        of: ``"features"``, ``"labels"`` or ``"membership"``.
        standing: of `STANDINGS`, or ``"its own"``.
        says: what reveals it, in a few words.
        figure: what attacks got or what ε permits; empty where there is neither.
        source: where the figure is from.
    """

    reader: str
    about: str
    of: str
    standing: Standing
    says: str = ""
    figure: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Card:
    """What each party could read of each other's data in one run, at worst.

    Attributes:
        title: of the run.
        assumes: what has to hold besides, after "if"; empty where nothing does.
        rows: who reads.
        columns: whose data.
        cells: one row after the other.
        rows_told: who learns which rows train or are known, and of whom, in words.
        members: what each row's reader learns of who is whose customer; empty for a record that does not tell.
    """

    title: str
    assumes: str
    rows: tuple[Group, ...]
    columns: tuple[Column, ...]
    cells: tuple[tuple[CardCell, ...], ...]
    rows_told: tuple[str, ...] = ()
    members: tuple[CardCell, ...] = ()

    def __iter__(self) -> Iterator[CardCell]:
        """All cells but a party's own."""
        yield from (cell for row in self.cells for cell in row if cell.standing != "its own")
        yield from self.members

    @property
    def read_cells(self) -> tuple[CardCell, ...]:
        """The cells *reads it*: what a job between organisations runs with only if it accepts leaks."""
        return tuple(cell for cell in self if cell.standing == "reads it")

    @property
    def worst_standing(self) -> Standing:
        """The worst standing of any cell."""
        found = {cell.standing for cell in self}
        return next((one for one in STANDINGS if one in found), "nothing found")

    def cell(self, reader: str, about: str, of: str = "features") -> CardCell:
        """One cell, by the names of parties; a group answers for each of its parties.

        Args:
            reader: who reads.
            about: whose data; of membership, any party's.
            of: ``"features"``, ``"labels"`` or ``"membership"``.

        Raises:
            KeyError: no such row or column.
        """
        for group, member in zip(self.rows, self.members, strict=False):
            if of == "membership" and reader in group.names:
                return member
        for group, row in zip(self.rows, self.cells, strict=True):
            for column, cell in zip(self.columns, row, strict=True):
                if reader in group.names and about in column.owner.names and column.of == of:
                    return cell
        raise KeyError(f"{reader!r} about the {of} of {about!r}")

    @property
    def asks(self) -> str:
        """What the job asks for between organisations; empty where no cell is *reads it*."""
        if not self.read_cells:
            return ""
        return "Between organisations this job needs accept_leak, because of the cells 'reads it'."

    def standing_counts(self) -> Mapping[Standing, int]:
        """Standing → cells."""
        found = {one: sum(cell.standing == one for cell in self) for one in STANDINGS}
        return {one: count for one, count in found.items() if count or one != "not known yet"}

    def summary(self) -> str:
        """``2 cells of 9: reads it; 7: nothing found``."""
        return "; ".join(f"{standing}: {count}" for standing, count in self.standing_counts().items() if count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "title": self.title,
            "assumes": self.assumes,
            "worst": self.worst_standing,
            "parties": [{"names": list(group.names), "role": group.role} for group in self.rows],
            "cells": [asdict(cell) for cell in self],
            "rows_told": list(self.rows_told),
        }

    def __repr__(self) -> str:
        console = Console(width=100, file=io.StringIO(), no_color=True, record=True, force_jupyter=False)
        console.print(card_table(self))
        return console.export_text(styles=False).rstrip()


_STANDINGS = {
    "reads it": "bold red",
    "not known yet": "yellow",
    "bounded": "yellow",
    "by design": "cyan",
    "nothing found": "green",
    "its own": "dim",
}
_MARKS = {"reads it": "●", "not known yet": "?", "bounded": "◐", "by design": "◇", "nothing found": "○"}


def card_table(card: Card, *, brief: bool = False) -> RenderableType:
    """What each party could read of each other's data, at worst: a row for who reads, a column for whose data.

    Args:
        card: what to show.
        brief: a line for each reader, and below one for each cell that is read or bounded, without figures.
    """
    title = Text.assemble(("What could each party read, at worst? ", "bold"), card.title)
    if brief:
        return _brief_card(card, title)
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SQUARE, show_lines=True)
    table.add_column("who reads")
    for column in card.columns:
        table.add_column(Text(f"{column.of} of\n{column.owner.title}"), overflow="fold", ratio=1)
    if card.members:
        table.add_column(Text("membership:\na customer of all"), overflow="fold", ratio=1)
    for i, (group, row) in enumerate(zip(card.rows, card.cells, strict=True)):
        cells = (*row, *card.members[i : i + 1])
        table.add_row(Text(group.title), *map(_card_cell, cells))
    below = [Text(f"This holds if {card.assumes}.", "bold")] if card.assumes else []
    below += [Text(f"{told}.", "dim") for told in card.rows_told]
    below += [Text(card.asks, "dim")] if card.asks else []
    return Lines(table, *below)


def _brief_card(card: Card, title: Text) -> RenderableType:
    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    table.show_edge, table.pad_edge, table.padding = False, False, (0, 1, 0, 0)  # four columns in 80 characters
    table.add_column("who reads")
    for column in card.columns:
        table.add_column(Text(f"{column.of} of\n{column.owner.title}"), overflow="fold")
    for group, row in zip(card.rows, card.cells, strict=True):
        table.add_row(Text(group.title), *map(_describe_standing, row))
    owners = {column.owner.title for column in card.columns if column.of == "labels"}  # they have two columns each
    reasons = [
        Text(
            f"{_MARKS[cell.standing]} {cell.reader} of {f'{cell.of} of ' if cell.about in owners else ''}{cell.about}: "
            f"{cell.says.split(';')[0]}"
        )
        for cell in card
        if cell.standing in {"reads it", "not known yet", "bounded"}
    ]
    below = [Text(f"This holds if {card.assumes}.", "bold")] if card.assumes else []
    return Lines(title, table, *reasons, *below)


def _describe_standing(cell: CardCell) -> Text:
    mark = f"{_MARKS[cell.standing]} " if cell.standing in _MARKS else ""
    return Text(f"{mark}{cell.standing}", _STANDINGS[cell.standing])


def _card_cell(cell: CardCell) -> Text:
    found = _describe_standing(cell)
    if cell.standing == "its own":
        return found
    found.append(f"\n{cell.says}", "not bold default")
    return found.append(f"\n{cell.figure}", "default") if cell.figure else found
