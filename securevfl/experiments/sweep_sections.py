"""The sections of a sweep file, each with what its keys accept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from securevfl.config import Config
from securevfl.jobfile.job_file import PartySection
from securevfl.report import Claim, PaperFigure

__all__ = ["Axis", "DataSection", "MethodSection", "PaperSection", "SweepSections"]

Word = Annotated[str, Meta(min_length=1)]
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

    def number(self, position: int | float | str) -> float:
        """A position as a number: of a name, its place among the values."""
        return float(self.values.index(position)) if isinstance(position, str) else float(position)


class DataSection(Config):
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
    """``[[method]]``: an algorithm with its settings; without a protection it has the position's, or none."""

    algorithm: Word
    label: Word | None = None
    settings: Settings = msgspec.field(default_factory=dict)
    protection: str | Settings | None = None
    data: Settings = msgspec.field(default_factory=dict)
    job: Settings = msgspec.field(default_factory=dict)
    values: tuple[Position, ...] | None = None

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

    def figures(self) -> Iterator[PaperFigure]:
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
    seeds: tuple[Annotated[int, Meta(ge=0)], ...] = (0, 1, 2, 3, 4)
    axis: Axis = msgspec.field(default_factory=Axis)
    job: Settings = msgspec.field(default_factory=dict)
    data: tuple[DataSection, ...] = ()
    party: tuple[PartySection, ...] = ()
    method: tuple[MethodSection, ...] = ()
    claim: tuple[Claim, ...] = ()
    paper: tuple[PaperSection, ...] = ()
