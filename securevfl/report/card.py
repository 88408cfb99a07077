"""The card that a report opens with: what could each party read of each other's data, at worst?

A table of parties by parties, features and labels apart, in three standings. It is computed from what the messages of a
run declare (findings, and the sights they are made of), so that every algorithm under every protection has one. What
attacks measured stands beside it, and can make a cell worse, never better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from securevfl.privacy import OTHER_OWNERS
from securevfl.privacy.attacks.verdict import measures_as_leak
from securevfl.privacy.severity import READ_AUC
from securevfl.report.attack_record import AttackRecord, Line, lines
from securevfl.report.record import FigureRecord, LearnedRecord, PartyRecord, RunRecord, SightRecord

__all__ = ["LEGEND", "STANDINGS", "Card", "Cell", "Column", "Group", "Standing", "card_of", "make_card"]

Standing = Literal["reads it", "bounded", "nothing found", "its own"]
STANDINGS: tuple[Standing, ...] = ("reads it", "bounded", "nothing found")
"""From the worst on; see `LEGEND`."""

LEGEND: Mapping[Standing, str] = {
    "reads it": "exactly or nearly, or nothing bounds how well",
    "bounded": "by an ε, by a budget, or by how little is told: the figure says how far",
    "nothing found": "in any message, beyond what the result itself tells",
}
"""Standing → what it means."""

_MOST = 4
"""More parties of one role share a row and a column."""

_SAYS = 60
"""Most characters of a cell's sentence that comes from the words of a finding."""


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
class Cell:
    """What one party, or each of a group, could read of another's data of one kind.

    Attributes:
        reader: who reads: the row's title.
        about: whose data: the column's title.
        of: ``"features"`` or ``"labels"``.
        standing: of `STANDINGS`, or ``"its own"``.
        says: what tells it, in a few words.
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
    """

    title: str
    assumes: str
    rows: tuple[Group, ...]
    columns: tuple[Column, ...]
    cells: tuple[tuple[Cell, ...], ...]
    rows_told: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Cell]:
        """All cells but a party's own."""
        return (cell for row in self.cells for cell in row if cell.standing != "its own")

    @property
    def worst(self) -> Standing:
        """The worst standing of any cell."""
        found = {cell.standing for cell in self}
        return next((one for one in STANDINGS if one in found), "nothing found")

    def cell(self, reader: str, about: str, of: str = "features") -> Cell:
        """One cell, by the names of parties; a group answers for each of its parties.

        Raises:
            KeyError: no such row or column.
        """
        for group, row in zip(self.rows, self.cells, strict=True):
            for column, cell in zip(self.columns, row, strict=True):
                if reader in group.names and about in column.owner.names and column.of == of:
                    return cell
        raise KeyError(f"{reader!r} about the {of} of {about!r}")

    def counts(self) -> Mapping[Standing, int]:
        """Standing → cells."""
        return {one: sum(cell.standing == one for cell in self) for one in STANDINGS}

    def summary(self) -> str:
        """``2 cells of 9: reads it; 7: nothing found``."""
        return "; ".join(f"{standing}: {count}" for standing, count in self.counts().items() if count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "title": self.title,
            "assumes": self.assumes,
            "worst": self.worst,
            "parties": [{"names": list(group.names), "role": group.role} for group in self.rows],
            "cells": [asdict(cell) for cell in self],
            "rows_told": list(self.rows_told),
        }

    def __repr__(self) -> str:
        from securevfl.report.terminal import card_table, render_text

        return render_text(card_table(self), width=100).rstrip()


def card_of(
    run: RunRecord, parties: Sequence[PartyRecord], attacked: AttackRecord | None = None, *, title: str = ""
) -> Card | None:
    """The card of one run; None where nobody could read of anybody, as in a run of one party.

    Args:
        run: with what its messages tell.
        parties: of the record.
        attacked: attacks on the same job, whose figures stand in the place of those from elsewhere.
        title: as shown; the run's unless given.
    """
    return make_card(run.learned, parties, attacked, title=title or run.title, assumes=run.assumes)


def make_card(
    learned: Sequence[LearnedRecord],
    parties: Sequence[PartyRecord],
    attacked: AttackRecord | None = None,
    *,
    title: str = "",
    assumes: str = "",
) -> Card | None:
    """See `card_of`, for a job that has not run."""
    roles = {party.name: party.role for party in parties}
    told = dict(_pairs(learned, roles))
    readers = [*roles, *dict.fromkeys(reader for reader, _ in told if reader not in roles)]
    if not told or len(readers) < 2:
        return None
    rows = _grouped(readers, roles)
    owners = _grouped([name for name, role in roles.items() if role != "coordinator"], roles)
    columns = tuple(
        Column(owner, of)
        for owner in owners
        for of in (("features", "labels") if owner.role == "active" else ("features",))
    )
    got = _attacks(attacked)
    return Card(
        title=title,
        assumes=assumes,
        rows=tuple(rows),
        columns=columns,
        cells=tuple(tuple(_cell(row, column, told, got) for column in columns) for row in rows),
        rows_told=_rows_told(told),
    )


Told = Mapping[tuple[str, str], Sequence[LearnedRecord]]
"""(who learns, about whom) → what."""


def _pairs(learned: Sequence[LearnedRecord], roles: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], Any]]:
    found: dict[tuple[str, str], list[LearnedRecord]] = {}
    owners = [name for name, role in roles.items() if role == "active"]
    for line in learned:
        for about in line.about.split(", "):
            readers = (
                [name for name in owners if name != about] if line.party == OTHER_OWNERS else line.party.split(", ")
            )
            for reader in readers:
                found.setdefault((reader, about), []).append(line)
    yield from found.items()


def _grouped(names: Sequence[str], roles: Mapping[str, str]) -> list[Group]:
    """Each by itself, or all of one role together where they are many."""
    found: list[Group] = []
    for role in dict.fromkeys(roles.get(name, "coordinator") for name in names):
        mine = tuple(name for name in names if roles.get(name, "coordinator") == role)
        found += [Group(mine, role)] if len(mine) > _MOST else [Group((name,), role) for name in mine]
    return found


def _cell(row: Group, column: Column, told: Told, got: Mapping[tuple[str, str, str], tuple[Line, bool]]) -> Cell:
    """The worst over the parties of a group."""
    pairs = [(a, b) for a in row.names for b in column.owner.names if a != b]
    cell = Cell(reader=row.title, about=column.owner.title, of=column.of, standing="its own")
    if not pairs:
        return cell
    found = [_of_pair(cell, told.get(pair, ()), column, got.get((*pair, column.of))) for pair in pairs]
    return min(found, key=lambda one: STANDINGS.index(one.standing))


def _of_pair(cell: Cell, learned: Sequence[LearnedRecord], column: Column, attack: tuple[Line, bool] | None) -> Cell:
    labels = column.owner.role == "active"
    sights = [sight for line in learned for sight in _sights(line, labels=labels) if sight.of == column.of]
    worst = min(sights, key=_order, default=None)
    standing: Standing = "nothing found" if worst is None else _standing(worst)
    says = "no message tells of it" if worst is None else _says(worst)
    figure, source = ("", "") if worst is None else _figure(worst)
    if attack is not None:
        line, read = attack
        figure, source = _attack_figure(line), "attacks on this job"
        known = None if worst is None else worst.measured
        if known is not None and (line.metric == "AUC") == (column.of == "labels") and known.got > line.value + 0.005:
            figure += f"; {known.got:.2f} elsewhere"
        if standing == "nothing found" and read:
            standing, says = "reads it", f"an attack did: {line.attack}"
    return Cell(
        reader=cell.reader,
        about=cell.about,
        of=cell.of,
        standing=standing,
        says=says,
        figure=figure,
        source=source,
    )


def _says(sight: SightRecord) -> str:
    return f"{'only' if sight.severity == 'ok' else 'from'} {sight.through}"


def _sights(line: LearnedRecord, *, labels: bool) -> list[SightRecord]:
    """What a finding tells; where nobody took it apart, its severity holds for all that the other has."""
    if line.sights:
        return line.sights
    words = _first_words(line.learns)
    kinds = ("features", "labels") if labels else ("features",)
    return [SightRecord(of=of, severity=line.severity, through=words) for of in kinds]


def _first_words(text: str) -> str:
    """A finding's words up to where it begins to explain."""
    for mark in (":", ";", " (", ", and ", ", from ", ", which "):
        text = text.partition(mark)[0]
    return text if len(text) <= _SAYS else text[:_SAYS].rpartition(" ")[0] + " …"


def _standing(sight: SightRecord) -> Standing:
    """Colour of a sight. What nobody knows the severity of is not harmless."""
    if sight.severity == "ok":
        return "nothing found"
    if sight.severity == "note" or sight.budget:
        return "bounded"
    return "bounded" if sight.epsilon is not None and sight.auc is not None and sight.auc < READ_AUC else "reads it"


def _order(sight: SightRecord) -> tuple[int, float]:
    """The worst first; of two alike, the one of which more is permitted or was measured."""
    permits = sight.auc if sight.auc is not None else 1.0
    measured = sight.measured.got if sight.measured is not None else permits
    return STANDINGS.index(_standing(sight)), -measured


def _figure(sight: SightRecord) -> tuple[str, str]:
    """What bounds a sight or what was measured of such, and where that is from."""
    if sight.budget:
        return sight.budget, "the job's own bound"
    if sight.auc is not None:
        if sight.epsilon is None:
            return "ε grows with the looks", "the plan sets no bound"
        return f"ε = {sight.epsilon:.3g}: AUC at most {math.ceil(sight.auc * 100 - 1e-9) / 100:.2f}", "what ε permits"
    if sight.measured is None:
        return "", ""
    return _measured(sight.of, sight.measured), f"attacks on recorded runs; {sight.measured.cell}"


def _measured(of: str, found: FigureRecord) -> str:
    if of == "labels":
        return f"AUC {found.got:.2f} ({max(found.without, 0.5):.2f} without)"
    return f"R² {found.got:.2f} ({max(found.without, 0.0):.2f} without)"


def _attacks(record: AttackRecord | None) -> Mapping[tuple[str, str, str], tuple[Line, bool]]:
    """(attacker, victim, kind of data) → what gained most, and whether anything got what nobody may call nothing."""
    kinds = {"labels": "labels", "features": "features", "attribute": "features", "others' columns": "features"}
    best: dict[tuple[str, str, str], tuple[Line, bool]] = {}
    if record is None:
        return best
    leaked = {(one.attacker, one.victim, one.attack) for one in record.measured if measures_as_leak(one)}
    for line in lines(record):
        kind = next((of for start, of in kinds.items() if line.attack.startswith(start)), None)
        for victim in line.victim.split(", ") if kind is not None else ():
            key = line.attacker, victim, kind or ""
            before, read = best.get(key, (line, False))
            read = read or (line.attacker, line.victim, line.attack) in leaked
            best[key] = (line if line.gain > before.gain else before), read
    return best


def _attack_figure(line: Line) -> str:
    spread = f" ± {line.spread:.2f}" if line.spread >= 0.005 else ""
    floor = 0.5 if line.metric == "AUC" else 0.0
    return f"{line.metric} {max(line.value, 0.0):.2f}{spread} ({max(line.baseline, floor):.2f} without)"


def _rows_told(told: Told) -> tuple[str, ...]:
    """What is told of rows, and of no value in them."""
    found: dict[str, dict[str, None]] = {}
    for (reader, about), learned in told.items():
        for line in learned:
            if any(sight.of == "rows" for sight in line.sights):
                found.setdefault(f"of {about}: {line.learns}", {})[reader] = None
    return tuple(f"{', '.join(readers)} {text}" for text, readers in found.items())
