"""The sections of a sweep file, each with what its keys accept; and ``[[party]]`` sections of own tables, as in a job
file, in place of named data sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from securevfl.config import Config
from securevfl.jobfile.job_file import PartySection, doubled_parties
from securevfl.jobfile.job_roster import listed_roster
from securevfl.report import Claim, PaperFigure
from securevfl.run.roster import Roster

__all__ = [
    "OWN",
    "Axis",
    "MethodSection",
    "PaperSection",
    "SweepDataSection",
    "SweepSections",
    "describe_policies",
    "read_roster",
    "read_task",
    "use_own_tables",
]


OWN = "tables"
"""The key of own tables in a cell's source; its value is their digest."""
_TITLE = "own tables"

Word = Annotated[str, Meta(min_length=1)]
Seed = Annotated[int, Meta(ge=0)]
Position = int | Annotated[float, Meta(ge=-1e9, le=1e9)] | Word
Settings = Mapping[str, object]


class Axis(Config):
    """``[axis]``: what is swept.

    Attributes:
        name: of the axis.
        option: of the data sets, that takes the positions.
        unit: ``"%"``, ``"category"`` for names, or another one.
        values: the positions.
        protection: instead of an option of the data sets: each position's protection, by its name, for all methods that
            ask for none of their own.
    """

    name: str = "overlap"
    option: Word = "overlap"
    unit: str = "%"
    values: tuple[Position, ...] = ()
    protection: Mapping[str, str | Settings] = msgspec.field(default_factory=dict)

    def problems(self) -> list[str]:
        wanted, given = {str(value) for value in self.values}, set(self.protection)
        if self.protection and wanted != given:
            return [
                f"axis.protection is for {sorted(given)} and axis.values are {sorted(wanted)}: give each position one"
            ]
        return super().problems()

    def of_data(self, position: int | float | str) -> dict[str, object]:
        """What a position says to the data sets."""
        return {} if self.protection else {self.option: position}

    def position_number(self, position: int | float | str) -> float:
        """A position as a number: of a name, its place among the values."""
        return float(self.values.index(position)) if isinstance(position, str) else float(position)


class SweepDataSection(Config):
    """``[[data]]``: a named data set, with settings for all methods or for some."""

    name: Word
    label: Word | None = None
    options: Settings = msgspec.field(default_factory=dict)
    algorithm: Settings = msgspec.field(default_factory=dict)
    job: Settings = msgspec.field(default_factory=dict)
    methods: Mapping[str, Settings] = msgspec.field(default_factory=dict)
    only: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        """As shown."""
        return self.label or self.name


class MethodSection(Config):
    """``[[method]]``: an algorithm with its settings; without a protection it has the position's, or none, and without
    seeds those of the file."""

    algorithm: Word
    label: Word | None = None
    settings: Settings = msgspec.field(default_factory=dict)
    protection: str | Settings | None = None
    data: Settings = msgspec.field(default_factory=dict)
    job: Settings = msgspec.field(default_factory=dict)
    values: tuple[Position, ...] | None = None
    seeds: tuple[Seed, ...] | None = None

    @property
    def title(self) -> str:
        """As shown."""
        return self.label or self.algorithm


class PaperSection(Config):
    """``[[paper]]``: figures that a paper prints of one method on one data set, x → value in per cent."""

    data: Word
    method: Word
    source: Word
    percent: Mapping[str, float] = msgspec.field(default_factory=dict)

    def problems(self) -> list[str]:
        wrong = [x for x in self.percent if not _is_number(x)]
        return super().problems() + [f"percent has the position {x!r}; a number was expected" for x in wrong]

    def iter_figures(self) -> Iterator[PaperFigure]:
        """Each as a fraction."""
        for x, value in self.percent.items():
            yield PaperFigure(data=self.data, method=self.method, source=self.source, x=float(x), value=value / 100)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


class SweepSections(Config):
    """All sections of a sweep file.

    Attributes:
        party: own tables, as in a job file, in place of named data sets.
    """

    name: str = ""
    title: str = ""
    size: str = "quick"
    notes: tuple[str, ...] = ()
    seeds: tuple[Seed, ...] = (0, 1, 2, 3, 4)
    axis: Axis = msgspec.field(default_factory=Axis)
    job: Settings = msgspec.field(default_factory=dict)
    data: tuple[SweepDataSection, ...] = ()
    party: tuple[PartySection, ...] = ()
    method: tuple[MethodSection, ...] = ()
    claim: tuple[Claim, ...] = ()
    paper: tuple[PaperSection, ...] = ()


def read_task(sections: SweepSections) -> str:
    """The task of all jobs, from the file's ``[job]``."""
    task = sections.job.get("task", "classification")
    return task if isinstance(task, str) else "classification"


def use_own_tables(sections: SweepSections) -> SweepSections:
    """The sections with own tables as their only data set, called after the label, and with one position where the file
    has no axis."""
    labels = [party.label for party in sections.party if party.label]
    title = (labels[0] if isinstance(labels[0], str) else ", ".join(labels[0])) if labels else _TITLE
    axis = sections.axis
    if not axis.values and not axis.protection:
        axis = Axis(name="tables", unit="category", values=(_TITLE,))
    data = (SweepDataSection(name=_TITLE, label=title[:80]),) if sections.party else ()
    return sections.replace(data=data, axis=axis)


def describe_policies(parties: Sequence[PartySection]) -> Mapping[str, Any]:
    """The parties' policies in plain values, as a cell has them; empty where no party has one."""
    held = {party.name: party.policy.describe() for party in parties if party.policy is not None}
    return {"policies": held} if held else {}


def read_roster(sections: SweepSections, content: Mapping[str, Any]) -> tuple[Roster | None, list[str]]:
    """The parties of the ``[[party]]`` sections, and every mistake in them.

    Args:
        sections: of the file, as it is.
        content: of the file, as TOML.
    """
    found = doubled_parties(sections.party)
    if "data" in content:
        found.append("a sweep file has either [[data]] sections (named data sets) or [[party]] sections (own tables)")
    if sections.axis.values and not sections.axis.protection:
        found.append(
            f"axis.values are of the option {sections.axis.option!r} of named data sets, and own tables have none: "
            "give [axis.protection] a protection for each, leave [axis] out, or sweep settings of a job file: "
            "securevfl sweep job.toml --over SETTING=VALUES"
        )
    found += [
        f"method[{i}].data is for named data sets: leave it out" for i, one in enumerate(sections.method) if one.data
    ]
    found += [
        f"party[{i}].link: sweep files do not link; sweep the job file: securevfl sweep job.toml --over SETTING=VALUES"
        for i, one in enumerate(sections.party)
        if one.link
    ]
    if not isinstance(content["party"], list):
        return None, found
    roster, wrong = listed_roster(content["party"], "")
    return roster, found + wrong
