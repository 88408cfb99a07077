"""Which method is first at each place of a sweep, which are level with it, and which fall below the active party alone.

A place is a data set, a position and a kind of test rows. *First* is the best mean of the methods that may be compared.
A method is *near* where a test shows that it is less than a point behind the best other one. It is *level* with the
first where the test of their differences by seed decides nothing, *behind* where it does. All tests of a page, its
claims included, are one family under Holm's correction. To be level is no proof of being equal, and nearly every method
is level in most places: the power stands beside it, and a method that nobody recommends (`CONTROL`) goes through the
same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from securevfl.report import SweepRecord
from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import FEWEST, Judgement, Paired, judge_family, run_paired_test
from securevfl.report.sweep_record import Rows, by_seed, dataset_names, list_positions, method_names
from securevfl.report.sweep_verdicts import tests_of

__all__ = ["ALONE", "CONTROL", "MARGIN", "OTHER_LABELS", "OURS", "Levels", "Line", "Place", "Tally"]

OURS = ("best", "residual", "LASER-VFL")
"""The methods that are held against the first and against the active party alone."""
CONTROL = "vanilla VFL"
"""A method that is known to be bad with few common rows: what a rule says of it shows what the rule cannot see."""
ALONE = "local"
OTHER_LABELS = ("all aligned", "all labels", "Entity Augmentation")
"""Methods that know more rows or labels than the others: in the tables, and never first."""
MARGIN = 0.01
"""How far below the active party alone counts as no worse."""


@dataclass(frozen=True)
class Place:
    """Where methods are compared."""

    data: str
    x: float
    rows: Rows


@dataclass(frozen=True)
class Line:
    """One of our methods at one place.

    Attributes:
        place: where.
        method: which.
        first: the method with the best mean.
        behind: its differences from the first, and what the test says; None where it is the first.
        near: its differences from the best other method against the margin, and what the test says.
        above: its differences from the active party alone, and what the test says.
        no_worse: the same differences against the margin.
    """

    place: Place
    method: str
    first: str
    behind: tuple[Paired, Judgement] | None
    near: tuple[Paired, Judgement]
    above: tuple[Paired, Judgement]
    no_worse: tuple[Paired, Judgement]

    @property
    def level(self) -> bool:
        """First, or not decided to be behind."""
        return self.behind is None or self.behind[1].verdict == "undecided"

    @property
    def shown_near(self) -> bool:
        """Shown to be less than the margin behind every other method, the best of them by mean."""
        return self.near[1].verdict == "holds"

    @property
    def below(self) -> bool:
        """Decided to be below the active party alone."""
        return self.above[1].verdict == "does not hold"


@dataclass(frozen=True)
class Tally:
    """Of one method, over the places of one kind of rows.

    Attributes:
        places: compared, five seeds at least.
        first: places where it has the best mean.
        near: at most a point behind the first, in the mean.
        shown_near: shown to be less than a point behind the best other method.
        level: first or level.
        below: decided to be below the active party alone.
        below_mean: with a lower mean than the active party alone.
        no_worse: shown to be less than a point below it.
        sees: median over the places of what the test against the first would have seen, a fraction; None without one.
        worst: its largest distance from the first, a fraction.
    """

    places: int
    first: int
    near: int
    shown_near: int
    level: int
    below: int
    below_mean: int
    no_worse: int
    sees: float | None
    worst: float


class Levels:
    """All comparisons of a page.

    Args:
        record: of the sweep.
        methods: that are held against the first and against the active party alone.
    """

    def __init__(self, record: SweepRecord, methods: Sequence[str] = OURS) -> None:
        self.record = record
        self.methods = tuple(methods)

    @cached_property
    def _compared(self) -> list[tuple[Place, str, str, dict[str, Paired]]]:
        """Place, first, method, and the samples behind its line."""
        found, ratios = [], find_ratios(self.record)
        for rows in ("common", "alone"):
            seeds = by_seed(self.record, rows)
            for data in dataset_names(self.record):
                for x in list_positions(self.record, data):
                    at = {m: seeds[data, m, x] for m in method_names(self.record, data) if (data, m, x) in seeds}
                    if at:
                        found += _samples(Place(data, x, rows), at, self.methods, ratios[data, x])
        return found

    @cached_property
    def _family(self) -> tuple[list[Judgement], list[list[Judgement]]]:
        """What the tests say: of the lines, sample by sample, and of the record's claims."""
        lines = [sample for *_, samples in self._compared for sample in samples.values()]
        claims = [[sample for *_, sample in tests_of(self.record, claim)] for claim in self.record.claims]
        said = iter(judge_family([*lines, *(sample for tests in claims for sample in tests)]))
        return [next(said) for _ in lines], [[next(said) for _ in tests] for tests in claims]

    @property
    def size(self) -> int:
        """How many tests the page makes."""
        lines, claims = self._family
        return len(lines) + sum(map(len, claims))

    @cached_property
    def lines(self) -> list[Line]:
        """Every method of ours at every place that has five seeds, in order."""
        said = iter(self._family[0])
        found = []
        for place, first, method, samples in self._compared:
            got = {name: (sample, next(said)) for name, sample in samples.items()}
            found.append(
                Line(
                    place,
                    method,
                    first,
                    behind=got.get("first"),
                    near=got["near"],
                    above=got["alone"],
                    no_worse=got["margin"],
                )
            )
        return found

    def claims(self) -> list[list[tuple[str, float, Paired, Judgement]]]:
        """For each claim of the record: data set, position, sample and judgement, within the page's family."""
        return [
            [(*test, judgement) for test, judgement in zip(tests_of(self.record, claim), said, strict=True)]
            for claim, said in zip(self.record.claims, self._family[1], strict=True)
        ]

    def tally(self, method: str, rows: Rows) -> Tally:
        """Counts of one method."""
        lines = [line for line in self.lines if (line.method, line.place.rows) == (method, rows)]
        behind = [0.0 if line.behind is None else -line.behind[0].mean for line in lines]
        sees = [line.behind[1].seen for line in lines if line.behind and line.behind[1].seen is not None]
        return Tally(
            places=len(lines),
            first=sum(line.behind is None for line in lines),
            near=sum(gap <= MARGIN for gap in behind),
            shown_near=sum(line.shown_near for line in lines),
            level=sum(line.level for line in lines),
            below=sum(line.below for line in lines),
            below_mean=sum(line.above[0].mean < 0 for line in lines),
            no_worse=sum(line.no_worse[1].verdict == "holds" for line in lines),
            sees=median(sees) if sees else None,
            worst=max(behind, default=0.0),
        )


def _samples(
    place: Place, at: dict[str, dict[int, float]], methods: Sequence[str], ratio: float | None
) -> Sequence[tuple[Place, str, str, dict[str, Paired]]]:
    """Of the methods with at least five seeds here: what each of those in question is tested by."""
    full = {method: seeds for method, seeds in at.items() if len(seeds) >= FEWEST and method not in OTHER_LABELS}
    if ALONE not in full:
        return []
    order = sorted(full, key=lambda method: fmean(full[method].values()), reverse=True)
    first = order[0]
    found = []
    for method in methods:
        pairs = _by_seed(full.get(method, {}), full[ALONE])
        rival = next((other for other in order if other != method), "")
        if len(pairs) < FEWEST or not rival:
            continue
        samples = {
            "alone": run_paired_test(pairs, ratio=ratio),
            "margin": run_paired_test(pairs, -MARGIN, ratio=ratio),
            "near": run_paired_test(_by_seed(full[method], full[rival]), -MARGIN, ratio=ratio),
        }
        if method != first:
            samples["first"] = run_paired_test(_by_seed(full[method], full[first]), ratio=ratio)
        found.append((place, first, method, samples))
    return found


def _by_seed(better: dict[int, float], worse: dict[int, float]) -> list[float]:
    return [better[seed] - worse[seed] for seed in better if seed in worse]
