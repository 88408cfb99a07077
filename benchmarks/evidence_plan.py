"""Which cells of the pages' sweeps have run, which are missing, and which of these serve most claims a minute.

The store is the sweeps' records, benchmarks/results/sweep-<name>.json. A record keeps the settings of its cells, so a
cell counts as run only if today's file asks for it with the same settings. Sweeps that ask for the same cell share it.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.claim_bounds import BOUND, ClaimJudgement, judge_claims
from benchmarks.claim_tests import (
    Differences,
    Place,
    average_places,
    find_differences,
    find_largest_ratio,
    list_pairs,
    strip_calibration,
)
from securevfl.experiments.cells import Cell, CellError, Sweep, make_record
from securevfl.experiments.sweep_file import list_recorded_cells, read_sweep
from securevfl.report import CellFigures, Claim, SweepRecord
from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import FEWEST, LEVEL, Judgement, Paired, judge_family, run_paired_test

__all__ = ["CLAIMS", "FILES", "RESULTS", "SWEEPS", "Evidence", "Line", "Table"]

ROOT = Path(__file__).parents[1]
FILES = ROOT / "examples" / "experiments"
RESULTS = ROOT / "benchmarks" / "results"
CLAIMS = ROOT / "benchmarks" / "claims.toml"
SWEEPS = (
    "claims",
    "few-rows",
    "few-rows-beside",
    "risa-ablation",
    "fedcvt-ablation",
    "fedcvt-similarity",
    "ssl-fedda",
    "entity-augmentation",
    "entity-augmentation-few-shot",
    "multi-vfl",
    "multi-vfl-long",
    "multi-vfl-500",
    "multi-vfl-rates",
    "multi-vfl-convolution",
    "best-ablation",
    "laser-ablation",
    "residual-ablation",
    "protected",
)
"""The sweeps that docs/few-rows.md, docs/algorithms/claims.md, docs/figures.md and the methods' pages rest on."""
UNKNOWN_SECONDS = 10.0
"""Estimated seconds of a cell if no cell of its algorithm has run."""
_PAPERS_CLAIM, _OWN_CLAIM = 4.0, 0.1
"""Weights of a claim of a paper, decided or not, and of a sweep's own one."""


@dataclass
class Table:
    """One sweep: its cells, and the figures of those that have run."""

    name: str
    sweep: Sweep
    command: str
    figures: dict[str, CellFigures] = field(default_factory=dict)
    errors: dict[str, CellError] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str, *, files: Path = FILES, results: Path = RESULTS) -> Table:
        """Read the sweep's file, and from its record the cells that have today's settings.

        Raises:
            InputError: a file is not a valid sweep, or a record not a valid sweep record.
        """
        file, stored = files / f"{name}.toml", results / f"sweep-{name}.json"
        sweep = read_sweep(file)
        table = cls(name, sweep, f"securevfl sweep examples/experiments/{name}.toml")
        if stored.exists():
            record = SweepRecord.read(stored)
            axis = tomllib.loads(file.read_text("utf-8")).get("axis", {})
            digests = {(c.data, c.method, c.x, c.seed): c.digest for c in list_recorded_cells(record.job, axis)}
            ran = {digests.get((f.data, f.method, f.x, f.seed), ""): f for f in record.cells}
            table.figures = {cell.digest: ran[cell.digest] for cell in sweep.cells if cell.digest in ran}
            table.command = record.command or table.command
        return table

    def record(self) -> SweepRecord:
        """The record of the cells that have run."""
        return make_record(self.sweep, self.figures, self.errors, self.command)

    @cached_property
    def cells_at(self) -> Mapping[Place, Mapping[int, Cell]]:
        """Place → seed → cell."""
        found: dict[Place, dict[int, Cell]] = {}
        for cell in self.sweep.cells:
            found.setdefault((cell.data, cell.method, cell.x), {})[cell.seed] = cell
        return found

    def find_pairs(self, claim: Mapping[str, Any]) -> list[tuple[Place, Place]]:
        """The comparison that a claim makes here, if the sweep has both sides."""
        places = [(data, x) for data, _, x in self.cells_at if data in claim.get("data", [data])]
        return [pair for pair in list_pairs(claim, places) if all(side in self.cells_at for side in pair)]

    def list_missing(self) -> list[Cell]:
        """Cells that have not run, in order."""
        return [cell for cell in self.sweep.cells if cell.digest not in self.figures]


@dataclass
class Line:
    """One test: a claim of a paper over all its places, or a sweep's own claim at one place.

    Attributes:
        claim: which claim of claims.toml it tests, by its number; None for a sweep's own claim.
        says: the claim.
        table: the sweep.
        pairs: data set, method and position of each side, place by place.
        differences: by place and seed.
        sample: of the average over places with five seeds; None if there is none.
        judgement: within its family; None without a sample.
        wanted: missing cells of the seeds that its file names.
    """

    claim: int | None
    says: Mapping[str, Any]
    table: Table
    pairs: list[tuple[Place, Place]]
    differences: Differences = field(default_factory=dict)
    sample: Paired | None = None
    judgement: Judgement | None = None
    wanted: list[Cell] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """In a word; "not tried" without five seeds anywhere."""
        return "not tried" if self.judgement is None else self.judgement.verdict

    @property
    def seeds(self) -> int | None:
        """How many seeds would decide, by the sign or by the bound."""
        found = self.judgement
        return found.fewest_seeds if isinstance(found, ClaimJudgement) else found.seeds if found else None


class Evidence:
    """All sweeps, what they have shown, and what to run next.

    Args:
        names: of the sweeps.
        files: folder of their files.
        results: folder of their records.
        claims: file of the papers' claims.
    """

    def __init__(
        self, names: Sequence[str] = SWEEPS, *, files: Path = FILES, results: Path = RESULTS, claims: Path = CLAIMS
    ) -> None:
        self.results = results
        self.tables = [Table.read(name, files=files, results=results) for name in names]
        self.claims = tomllib.loads(claims.read_text("utf-8"))["claim"]
        self._share_figures()

    def _share_figures(self) -> None:
        """Give every sweep the figures that another one has of the same cell."""
        known = {digest: figures for table in self.tables for digest, figures in table.figures.items()}
        for table in self.tables:
            table.figures = {cell.digest: known[cell.digest] for cell in table.sweep.cells if cell.digest in known}

    def add(self, cell: Cell, ended: CellFigures | CellError) -> None:
        """Keep what a cell ended with, and write the records of all sweeps that have it."""
        for table in self.tables:
            if all(cell.digest != one.digest for one in table.sweep.cells):
                continue
            if isinstance(ended, CellError):
                table.errors[cell.digest] = ended
            else:
                table.figures[cell.digest] = ended
                table.errors.pop(cell.digest, None)
            self.write(table)

    def write(self, table: Table) -> None:
        """Write a sweep's record in place of the old one."""
        file = self.results / f"sweep-{table.name}.json"
        fresh = file.with_suffix(".new")
        fresh.write_bytes(table.record().to_json() + b"\n")
        fresh.replace(file)

    def list_lines(self) -> list[Line]:
        """Every test of the claims page and of the sweeps' own claims, with what the runs say."""
        by_name = {table.name: table for table in self.tables}
        page = [
            Line(number, claim, table, table.find_pairs(claim))
            for number, claim in enumerate(self.claims)
            if (table := by_name.get(claim.get("sweep", ""))) is not None
        ]
        own = [
            [
                Line(None, says, table, [pair])
                for says in map(_own_claim, table.sweep.claims)
                for pair in table.find_pairs(says)
            ]
            for table in self.tables
        ]
        for family in (page, *own):
            _judge_family(family)
        lines = [line for line in (*page, *(line for family in own for line in family)) if line.pairs]
        for line in lines:
            line.wanted = _find_wanted(line)
        return lines

    def plan(self) -> list[Cell]:
        """Missing cells: those of tests first, the cheapest tests before others; then all that no test waits for.

        What the tests say so far does not matter. Seeds from the sixth on are left out where no test has them.
        """
        lines = [line for line in self.list_lines() if line.wanted]
        shared: dict[str, int] = {}
        for line in lines:
            for cell in line.wanted:
                shared[cell.digest] = shared.get(cell.digest, 0) + 1
        reckon = self.reckoner()
        worth = []
        for i, line in enumerate(lines):
            weight = _OWN_CLAIM if line.claim is None else _PAPERS_CLAIM
            cost = sum(reckon(cell) / shared[cell.digest] for cell in line.wanted)
            worth.append((-weight / cost, i))
        order = [cell for _, i in sorted(worth) for cell in lines[i].wanted]
        for table in self.tables:
            first = sorted({cell.seed for cell in table.sweep.cells})[:FEWEST]
            order += [cell for cell in table.list_missing() if cell.seed in first]
        failed = {digest for table in self.tables for digest in table.errors}
        return list({cell.digest: cell for cell in order if cell.digest not in failed}.values())

    def reckoner(self) -> Callable[[Cell], float]:
        """A function from a cell to its seconds: the epochs times what one takes with the same data and method, with
        the method, or with the algorithm (medians)."""
        kinds: dict[tuple[str, ...], list[float]] = {}
        for table in self.tables:
            for cell in table.sweep.cells:
                figures = table.figures.get(cell.digest)
                if figures is not None:
                    for key in _list_cost_keys(cell):
                        kinds.setdefault(key, []).append(figures.seconds / _count_epochs(cell))
        medians = {key: statistics.median(seconds) for key, seconds in kinds.items()}

        def reckon(cell: Cell) -> float:
            each = next((medians[key] for key in _list_cost_keys(cell) if key in medians), None)
            return UNKNOWN_SECONDS if each is None else each * _count_epochs(cell)

        return reckon


def _list_cost_keys(cell: Cell) -> tuple[tuple[str, ...], ...]:
    return (cell.data, cell.method), (cell.method,), ("algorithm", str(cell.algorithm["name"]))


def _count_epochs(cell: Cell) -> int:
    return int(cell.job.get("epochs", 1))


def _own_claim(claim: Claim) -> Mapping[str, Any]:
    """A sweep's own claim as claims.toml has the papers'."""
    says: dict[str, Any] = {"better": claim.better, "worse": claim.worse, "margin": claim.margin, "rows": claim.rows}
    says |= {"at": list(claim.at)} if claim.at else {}
    return says | ({} if claim.data == "*" else {"data": [claim.data]})


def _judge_family(family: Sequence[Line]) -> None:
    """Give each line of a family its differences, sample and judgement."""
    tables = {line.table.name: line.table for line in family}
    ratios = {name: find_ratios(table.record()) for name, table in tables.items()}
    ran: dict[tuple[str, str], list[CellFigures]] = {}
    for name, table in tables.items():
        for figures in table.figures.values():
            ran.setdefault((name, figures.method), []).append(figures)
    for line in family:
        places = [(data, x) for pair in line.pairs for data, _, x in pair]
        methods = {method for pair in line.pairs for _, method, _ in pair}
        cells = [one for method in methods for one in ran.get((line.table.name, method), [])]
        planned = () if line.claim is None else line.table.sweep.settings.get("seeds", ())
        cells = cells if line.claim is None else strip_calibration(cells)
        line.differences = find_differences(cells, line.says, places, planned)
        _, mean = average_places(line.differences)
        if mean:
            ratio = find_largest_ratio(line.differences, ratios[line.table.name])
            line.sample = run_paired_test(list(mean.values()), line.says.get("margin", 0.0), ratio=ratio)
    tried = [line for line in family if line.sample is not None]
    samples = [line.sample for line in tried if line.sample is not None]
    judged: Sequence[Judgement]
    if family and family[0].claim is None:
        judged = judge_family(samples, level=LEVEL)
    else:  # as the page has it
        bounds = [None if line.says.get("measure") == "swing" else BOUND for line in tried]
        judged = judge_claims(samples, bounds, level=LEVEL / 2)
    for line, judgement in zip(tried, judged, strict=True):
        line.judgement = judgement


def _find_wanted(line: Line) -> list[Cell]:
    """The missing cells of a line, seed by seed: all that its file names, whatever the verdict.

    To stop where a verdict is reached would test again and again, and find more than chance may. A claim of a paper
    also wants the cells whose record lacks the metric before calibration.
    """
    at, ran = line.table.cells_at, line.table.figures
    kept = ran if line.claim is None else {digest for digest, one in ran.items() if strip_calibration([one])}
    found: dict[str, Cell] = {}
    for better, worse in line.pairs:
        for seed in at[better].keys() & at[worse].keys():
            for cell in (at[better][seed], at[worse][seed]):
                if cell.digest not in kept:
                    found[cell.digest] = cell
    return sorted(found.values(), key=lambda cell: (cell.seed, cell.data))
