"""What has run of the sweeps that pages rest on, what is missing, and which cells would decide most claims a minute.

The store is the sweeps' records, benchmarks/results/sweep-<name>.json. A record keeps the settings of its cells, so a
cell counts as run only if today's file asks for it with the same settings. Sweeps that ask for the same cell share it.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.claim_tests import Place, list_pairs, value_by_seed
from securevfl.experiments.cells import Cell, CellError, Sweep, make_record
from securevfl.experiments.sweep_file import list_recorded_cells, read_sweep
from securevfl.report import CellFigures, SweepRecord
from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import FEWEST, Judgement, Paired, judge_family, run_paired_test

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
"""What a cell is reckoned to take if no cell of its algorithm has run."""
_OPEN_CLAIM, _MORE_PLACES, _OWN_CLAIM = 4.0, 1.0, 0.25
"""Weights of a test: of a paper's claim without a verdict yet, of its other places, of a sweep's own claim."""


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
            InputError: a file that is no sweep, or a record that is none.
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

    def list_missing(self) -> list[Cell]:
        """Cells that have not run, in order."""
        return [cell for cell in self.sweep.cells if cell.digest not in self.figures]


@dataclass
class Line:
    """One test: two methods, or one at two positions, seed by seed.

    Attributes:
        claim: which claim of claims.toml it tests, by its number; None for a sweep's own claim.
        says: the claim.
        table: the sweep.
        better, worse: data set, method and position of each side.
        sample: of the seeds that both sides have; None without any.
        judgement: within the page's family; None without a sample.
        wanted: cells that would decide it, or bring it to five seeds.
    """

    claim: int | None
    says: Mapping[str, Any]
    table: Table
    better: Place
    worse: Place
    sample: Paired | None = None
    judgement: Judgement | None = None
    wanted: list[Cell] = field(default_factory=list)


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
        self._share()

    def _share(self) -> None:
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
        page: list[Line] = []
        for number, claim in enumerate(self.claims):
            if claim.get("sweep", "") in by_name:
                page += _make_lines(number, by_name[claim["sweep"]], claim)
        own = [
            [
                line
                for claim in table.sweep.claims
                for line in _make_lines(None, table, msgspec.to_builtins(claim))
                if claim.data in ("*", line.better[0]) and (not claim.at or line.better[2] in claim.at)
            ]
            for table in self.tables
        ]
        for family in (page, *own):
            _judge(family)
        return [line for line in (*page, *(line for family in own for line in family)) if _find_wanted(line)]

    def plan(self) -> list[Cell]:
        """Missing cells, those first that decide most for their time; then all that no test waits for.

        Seeds from the sixth on are left out where no undecided test wants them.
        """
        lines = self.list_lines()
        decided = {line.claim for line in lines if line.judgement and line.judgement.verdict != "undecided"}
        shared: dict[str, int] = {}
        for line in lines:
            for cell in line.wanted:
                shared[cell.digest] = shared.get(cell.digest, 0) + 1
        reckon = self.reckoner()
        worth = []
        for i, line in enumerate(lines):
            if line.wanted:
                weight = _OWN_CLAIM if line.claim is None else _MORE_PLACES if line.claim in decided else _OPEN_CLAIM
                if line.judgement is None or line.judgement.seeds is None:
                    weight /= 2  # nothing says yet that it will decide
                cost = sum(reckon(cell) / shared[cell.digest] for cell in line.wanted)
                worth.append((-weight / cost, i))
        order = [cell for _, i in sorted(worth) for cell in sorted(lines[i].wanted, key=lambda cell: cell.seed)]
        order += [cell for table in self.tables for cell in table.list_missing() if cell.seed in _first(table)]
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
                    for key in _kinds(cell):
                        kinds.setdefault(key, []).append(figures.seconds / _epochs(cell))
        medians = {key: statistics.median(seconds) for key, seconds in kinds.items()}

        def reckon(cell: Cell) -> float:
            each = next((medians[key] for key in _kinds(cell) if key in medians), None)
            return UNKNOWN_SECONDS if each is None else each * _epochs(cell)

        return reckon


def _kinds(cell: Cell) -> tuple[tuple[str, ...], ...]:
    return (cell.data, cell.method), (cell.method,), ("algorithm", str(cell.algorithm["name"]))


def _epochs(cell: Cell) -> int:
    return int(cell.job.get("epochs", 1))


def _first(table: Table) -> set[int]:
    """The first five seeds of a sweep."""
    return set(sorted({cell.seed for cell in table.sweep.cells})[:FEWEST])


def _make_lines(number: int | None, table: Table, claim: Mapping[str, Any]) -> list[Line]:
    """A claim's tests at all places of a sweep."""
    places = ((cell.data, cell.x) for cell in table.sweep.cells)
    says = {key: value for key, value in claim.items() if key != "at" or value}
    return [Line(number, says, table, *pair) for pair in list_pairs(says, places)]


def _judge(lines: Sequence[Line]) -> None:
    """Give each line of a family its sample and judgement."""
    ratios = {line.table.name: find_ratios(line.table.record()) for line in lines}
    for line in lines:
        values = value_by_seed(line.table.figures.values(), line.says)
        better, worse = (values.get(place, {}) for place in (line.better, line.worse))
        pairs = [better[seed] - worse[seed] for seed in better if seed in worse]
        if pairs:
            ratio = ratios[line.table.name].get((line.better[0], line.better[2]))
            line.sample = run_paired_test(pairs, line.says.get("margin", 0.0), ratio=ratio)
    tried = [line for line in lines if line.sample is not None]
    judged = judge_family([line.sample for line in tried if line.sample is not None])
    for line, judgement in zip(tried, judged, strict=True):
        line.judgement = judgement


def _find_wanted(line: Line) -> bool:
    """Find the missing cells of a line; whether the sweep has its methods there at all."""
    sides = [
        [cell for cell in line.table.sweep.cells if (cell.data, cell.method, cell.x) == place]
        for place in (line.better, line.worse)
    ]
    if not all(sides):
        return False
    if line.judgement is not None and line.judgement.verdict != "undecided":
        return True
    n = 0 if line.sample is None else line.sample.n
    seeds = sorted({cell.seed for cell in sides[0]} & {cell.seed for cell in sides[1]})
    target = FEWEST if n < FEWEST else (line.judgement.seeds if line.judgement else None) or 0
    line.wanted = [
        cell
        for side in sides
        for cell in side
        if cell.seed in seeds[:target] and cell.digest not in line.table.figures
    ]
    return True
