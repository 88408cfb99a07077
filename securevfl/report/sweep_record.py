"""What a sweep measured: the data behind `sweep.json`, and the figures that its tables, plots and page derive from it.

Values and differences are fractions (0.931, shown as 93.1 %), times are seconds.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Literal

import msgspec

from securevfl.config import Config
from securevfl.errors import InputError
from securevfl.report.record_files import read_record

__all__ = [
    "SWEEP_FORMAT",
    "CellFigures",
    "Claim",
    "Failed",
    "PaperFigure",
    "Rows",
    "Summary",
    "SweepRecord",
    "by_seed",
    "dataset_names",
    "format_tick",
    "list_positions",
    "method_names",
    "summarise_cells",
]

SWEEP_FORMAT = 1

Rows = Literal["common", "alone"]
"""Which test rows a figure is of: those that every party holds, or the same rows scored by the active party alone."""


class CellFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the grid.

    Raises:
        InputError: the test metric is no fraction (R² no number up to 1), the validation metric no number, or the
            ratio negative. Numbers in `extra` and `test` that are not finite are left out: JSON cannot hold them.
    """

    data: str
    """name of the data set"""
    method: str
    """as shown: "RISA", "FedCVT, no attention" """
    x: float
    """position on the swept axis"""
    seed: int
    value: float
    """the metric on the test rows, 0 to 1; R² may be below 0"""
    valid: float
    """the metric on the validation rows, at the best epoch; 0 where they have none, as rows of one class no AUC"""
    metric: str
    """"accuracy", "auc", or of a number "r2" """
    epochs: int
    best_epoch: int
    seconds: float
    alone: float | None = None
    """the metric on the test rows, scored by the active party alone, 0 to 1; None where the algorithm has no way to"""
    uncalibrated: float | None = None
    """the metric on the test rows before scores were calibrated, 0 to 1; None in older
    records"""
    extra: dict[str, float] = {}
    """what else was counted, e.g. the precision of pseudo-labels"""
    history: list[float] = []
    """the metric on the validation rows after each epoch"""
    test: dict[str, float] = {}
    """all metrics on the test rows"""
    test_ratio: float | None = None
    """test rows over the other rows that seeds draw them from; 0 where seeds share no test row or all of them; None in
    records of version 0.2 and before, see `securevfl.report.split_ratio`"""

    def __post_init__(self) -> None:
        where = f"{self.data}, {self.method}, {self.x:g}, seed {self.seed}"
        figures = {"": self.value, " without the partner": self.alone, " before calibration": self.uncalibrated}
        for what, value in figures.items():
            lowest = -math.inf if self.metric == "r2" else 0
            if value is not None and not (lowest <= value <= 1 and math.isfinite(value)):
                bounds = "number up to 1" if self.metric == "r2" else "fraction from 0 to 1"
                raise InputError(f"the test {self.metric} of {where}{what} is {value}: give a {bounds}")
        if self.test_ratio is not None and not 0 <= self.test_ratio < math.inf:
            raise InputError(f"the ratio of test rows to other rows of {where} is {self.test_ratio}: give one from 0")
        if not math.isfinite(self.valid):
            raise InputError(f"the validation {self.metric} of {where} is {self.valid}: give a number")
        for name, numbers in (("extra", self.extra), ("test", self.test)):
            if not all(math.isfinite(number) for number in numbers.values()):
                finite = {key: number for key, number in numbers.items() if math.isfinite(number)}
                msgspec.structs.force_setattr(self, name, finite)


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the grid that ended with an error."""

    data: str
    method: str
    x: float
    seed: int
    error: str


class PaperFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a paper prints, to be held against ours."""

    data: str
    method: str
    x: float
    value: float
    """a fraction, as in `CellFigures`"""
    source: str
    """paper and table: "RISA, Table I" """


class Claim(Config):
    """One method is better than another by more than a margin."""

    text: str
    source: str
    data: str
    """a data set, or "*" for every one"""
    better: str
    worse: str
    """method labels, as in `CellFigures`"""
    at: tuple[float, ...] = ()
    """positions on the swept axis; none: all"""
    margin: float = 0.0
    """a fraction: 0.01 is one point; negative for a claim that the method is no worse than by so much"""
    rows: Rows = "common"
    """the test rows with all parties' columns, or with the active party's alone"""


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A grid of runs: data sets × methods × positions on one axis × seeds.

    Raises:
        InputError: two cells are the same run.
    """

    format: int = SWEEP_FORMAT
    name: str
    title: str
    created: str
    """UTC, ISO 8601"""
    command: str
    """what makes these figures again"""
    versions: dict[str, str]
    machine: dict[str, str]
    size: str
    """"quick" or "paper": how large the runs were"""
    axis: str
    """what x is: "overlap" """
    axis_unit: str
    """"%": x is a fraction, shown per cent; "": shown as it is; "category": the names are in `ticks`"""
    cells: list[CellFigures]
    paper: list[PaperFigure] = []
    claims: list[Claim] = []
    notes: list[str] = []
    job: dict[str, object] = {}
    """settings that all runs share"""
    ticks: dict[str, str] = {}
    """str(x) → name"""
    failed: list[Failed] = []
    """cells that ended with an error in this run of the sweep, and so have no figures"""

    def __post_init__(self) -> None:
        seen = set()
        for cell in self.cells:
            run = (cell.data, cell.method, cell.x, cell.seed)
            if run in seen:
                where = f"{cell.data}, {cell.method}, {cell.x:g}, seed {cell.seed}"
                raise InputError(f"the sweep holds two runs of {where}: leave one out")
            seen.add(run)

    def to_json(self) -> bytes:
        """UTF-8 JSON, indented."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @classmethod
    def read(cls, path: Path) -> SweepRecord:
        """Read `sweep.json`.

        Raises:
            InputError: no such file, or not a record of a sweep of this format.
        """
        missing, again = "name the folder of a finished sweep", "run the sweep again"
        return read_record(path, cls, format=SWEEP_FORMAT, what="a sweep", missing=missing, again=again)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One method at one position, over its seeds."""

    data: str
    method: str
    x: float
    n: int
    """seeds"""
    mean: float
    std: float
    """sample standard deviation (n − 1 below the line); 0 for one seed"""


def dataset_names(record: SweepRecord) -> list[str]:
    """The data sets that ran, in order of first appearance."""
    return list(dict.fromkeys(cell.data for cell in record.cells))


def method_names(record: SweepRecord, data: str | None = None) -> list[str]:
    """The methods that ran (on this data set), in order of first appearance."""
    return list(dict.fromkeys(cell.method for cell in record.cells if data in (None, cell.data)))


def list_positions(record: SweepRecord, data: str) -> list[float]:
    """The positions that ran on this data set, ascending."""
    return sorted({cell.x for cell in record.cells if cell.data == data})


def format_tick(record: SweepRecord, x: float) -> str:
    """How a position is shown: its name, or its number with the unit."""
    name = record.ticks.get(str(x)) or record.ticks.get(f"{x:g}")
    return name or (f"{100 * x:g} %" if record.axis_unit == "%" else f"{x:g}")


def by_seed(record: SweepRecord, rows: Rows = "common") -> dict[tuple[str, str, float], dict[int, float]]:
    """(data, method, x) → seed → the metric on these rows, where there is one."""
    found: dict[tuple[str, str, float], dict[int, float]] = {}
    for cell in record.cells:
        value = cell.value if rows == "common" else cell.alone
        if value is not None:
            found.setdefault((cell.data, cell.method, cell.x), {})[cell.seed] = value
    return found


def summarise_cells(record: SweepRecord, rows: Rows = "common") -> list[Summary]:
    """Mean and standard deviation over the seeds; data sets and methods in order of first appearance, x ascending."""
    seeds = by_seed(record, rows)
    return [
        Summary(
            data=data,
            method=method,
            x=x,
            n=len(values),
            mean=statistics.fmean(values),
            std=statistics.stdev(values) if len(values) > 1 else 0.0,
        )
        for data in dataset_names(record)
        for method in method_names(record, data)
        for x in list_positions(record, data)
        if (values := list(seeds.get((data, method, x), {}).values()))
    ]
