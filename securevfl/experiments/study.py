"""The result of an experiment: every cell as table, frame and plot, the best point, and which differences are real."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from securevfl_net.durable import make_folder, write_atomic

from securevfl.errors import InputError
from securevfl.experiments.differences import (
    Difference,
    compare_points,
    describe_differences,
    list_differences,
    name_point,
)
from securevfl.experiments.grid import Point
from securevfl.experiments.privacy_cost import Cost
from securevfl.report import (
    CellFigures,
    Record,
    Shown,
    SweepRecord,
    comparison_table,
    failures_text,
    render_text,
    sweep_axes,
    sweep_table,
    table_html,
    trials_axes,
    trials_table,
    write_report,
    write_sweep,
)
from securevfl.run.frames import frame_of
from securevfl.run.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from optuna.study import Study as OptunaStudy
    from pandas import DataFrame
    from rich.table import Table

__all__ = ["SearchRecord", "SearchTrial", "Study"]

_EFFORT = ("epochs run", "best epoch", "seconds")


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """One trial of a search.

    Attributes:
        number: as Optuna counts.
        settings: as Optuna records them: setting → number or label.
        value: the metric on the validation rows; None where it did not end well.
        state: ``"complete"``, ``"pruned"`` or ``"fail"``.
        epochs: that its first run had.
        error: why it failed.
    """

    number: int
    settings: Mapping[str, Any]
    value: float | None
    state: str
    epochs: int | None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """How a search found its winner.

    Attributes:
        metric: compares trials, larger is better.
        value: of the winner, on the validation rows that chose it: an optimistic figure.
        trials: all of them, in order.
        spent: ``"features"``, ``"labels"`` → ε and δ of one row over all trials and the winner's runs, at most; empty
            without noise.
        stopped: why the search ended before all trials ran; empty where it did not.
        study: Optuna's, for its own plots.
    """

    metric: str
    value: float
    trials: tuple[SearchTrial, ...] = field(repr=False)
    spent: Mapping[str, Cost]
    stopped: str = ""
    study: OptunaStudy = field(repr=False)

    def table(self) -> Table:
        """Trials, best first."""
        rows = [(one.number, one.state, one.value, one.epochs, one.settings) for one in self.trials]
        return trials_table(rows, self.metric)


@dataclass(frozen=True, kw_only=True, repr=False)
class Study:
    """What an experiment measured: the result of `sweep`, `run_sweep`, `cross_validate` and `search`.

    A *point* is a job that ran once per seed, or once per fold.

    Attributes:
        record: the figures of every cell, as in `sweep.json`. Of a search, the winner's runs on the test rows.
        points: what was compared, in order.
        folds: of a cross-validation: each fold's result.
        comparison: of a cross-validation: the first fold's record with mean and deviation over the folds.
        search: of a search: how it found its winner.
    """

    record: SweepRecord = field(repr=False)
    points: tuple[Point, ...] = field(repr=False)
    folds: tuple[Result, ...] = field(default=(), repr=False)
    comparison: Record | None = field(default=None, repr=False)
    search: SearchRecord | None = field(default=None, repr=False)

    def cells(self, point: Point) -> list[CellFigures]:
        """The runs of a point, one per seed or fold."""
        return [
            cell
            for cell in self.record.cells
            if (cell.method, cell.x) == (point.method, point.x) and point.data in ("", cell.data)
        ]

    @property
    def best(self) -> Point:
        """The point with the highest mean on the *validation* rows; test rows play no part. Baselines do not count.

        Raises:
            InputError: no cell ran, or several data sets: their means do not compare.
        """
        if self.search is not None:
            return self.points[0]
        ran = [point for point in self.points if self.cells(point) and not point.baseline]
        if not ran:
            raise InputError(f"no cell ran: {'; '.join(failures_text(self.record)) or 'there was none'}")
        names = sorted({point.data for point in ran})
        if len(names) > 1:
            raise InputError(f"best is of one data set, and this study has {', '.join(names)}: use table() or record")
        return max(ran, key=lambda point: statistics.fmean(cell.valid for cell in self.cells(point)))

    @property
    def mean(self) -> Mapping[str, float]:
        """Metric → its mean over the test rows of the best point's runs, of metrics that all of them have."""
        return {name: float(np.mean(values)) for name, values in self._test_figures().items()}

    @property
    def deviation(self) -> Mapping[str, float]:
        """Metric → the standard deviation that belongs to `mean` (of a sample: n − 1); empty for a single run."""
        figures = self._test_figures()
        return {name: float(np.std(values, ddof=1)) for name, values in figures.items() if len(values) > 1}

    def _test_figures(self) -> dict[str, list[float]]:
        every = [cell.test for cell in self.cells(self.best)]
        common = [name for name in (every[0] if every else {}) if all(name in one for one in every)]
        return {name: [one[name] for one in every] for name in common}

    def table(self, width: int = 110) -> Shown:
        """The figures as text; a table where a notebook shows it.

        Mean ± deviation of every point, or, of a search, its trials, best first.

        Args:
            width: of the text, in characters.
        """
        tables = self.tables()
        failures = [] if self.search is not None else failures_text(self.record)
        text = "\n".join([*(render_text(one, width=width) for one in tables), *failures])
        return Shown(text, "".join(table_html(one) for one in tables))

    def tables(self) -> list[Table]:
        """What `table` shows, as rich tables for a terminal."""
        if self.search is not None:
            return [self.search.table()]
        if self.comparison is not None:
            return [comparison_table(self.comparison)]
        return [sweep_table(self.record, name) for name in dict.fromkeys(cell.data for cell in self.record.cells)]

    def to_pandas(self, what: Literal["points", "runs", "trials"] = "points") -> DataFrame:
        """The figures as a DataFrame.

        Args:
            what: ``"points"``, one row per point with mean and standard deviation (n − 1) over its seeds, of the test
                rows' metrics and of the validation rows'; ``"runs"``, one row per seed or fold; ``"trials"``, of a
                search, one row per trial: its state, its value on the validation rows, its epochs, its settings.

        Raises:
            InputError: another word, trials of a study without a search, or pandas is not installed.
        """
        if what == "trials" and self.search is not None:
            return frame_of(
                [
                    {
                        "state": one.state,
                        f"{self.search.metric} valid": one.value,
                        "epochs run": one.epochs,
                        **one.settings,
                    }
                    for one in self.search.trials
                ],
                [str(one.number) for one in self.search.trials],
                "trial",
            )
        if what not in ("points", "runs"):
            trials = " or 'trials'" if self.search is not None else ""
            raise InputError(f"what is {what!r}; give 'points' or 'runs'{trials}")
        rows = []
        for point in self.points:
            cells = self.cells(point)
            if what == "runs":
                rows += [{**point.settings, "seed": cell.seed, **_figures_of(cell)} for cell in cells]
            elif cells:
                each = [_figures_of(cell) for cell in cells]
                found: dict[str, object] = {**point.settings, "seeds": len(cells)}
                for name in each[0]:
                    values = [figures[name] for figures in each if name in figures]
                    found[name] = statistics.fmean(values)
                    if len(values) > 1 and name not in _EFFORT:
                        found[f"{name} deviation"] = statistics.stdev(values)
                rows.append(found)
        return frame_of(rows)

    def differences(self, to: Point | None = None) -> DataFrame:
        """Compare each point with one of them, seed by seed, on the test rows: is the difference more than chance?

        One row per point: the mean difference, the ends of its 95 % interval, p after Holm's correction over all rows,
        and a verdict: ``"better"``, ``"worse"``, or ``"undecided"``, which it always is with fewer than five seeds.
        Seeds that split the same rows share test rows, which the test is corrected for. Where seeds have one split, a
        verdict is about these test rows.

        Args:
            to: what points are compared with; the best on the validation rows unless given.

        Raises:
            InputError: no cell ran, several data sets, or pandas is not installed.
        """
        metric = self.record.cells[0].metric if self.record.cells else ""
        return frame_of(list_differences(self._compare_with(to or self.best), metric))

    def describe_differences(self) -> str:
        """Which points are better or worse than the best on the validation rows by more than chance, in a sentence;
        empty where fewer than five seeds, or a single point, ran."""
        ran = [point for point in self.points if self.cells(point)]
        lines = self._compare_with(self.best) if len(ran) > 1 else []
        return describe_differences(lines, self.best) if lines else ""

    def _compare_with(self, base: Point) -> list[Difference]:
        figures = [
            (point, {cell.seed: cell.value for cell in cells})
            for point in self.points
            if point.data == base.data and (cells := self.cells(point))
        ]
        known = {cell.test_ratio for point, _ in figures for cell in self.cells(point)}
        ratio = None if None in known else max((one for one in known if one is not None), default=0.0)
        return compare_points(figures, base, ratio)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Mean ± deviation on the test rows against the axis, a line for each method; of a search, each trial's value
        on the validation rows, and the best so far.

        Args:
            ax: axes to draw on; new ones unless given.

        Raises:
            InputError: nothing ran, so there is nothing to draw.
        """
        if self.search is not None:
            return trials_axes([(one.number, one.value) for one in self.search.trials], self.search.metric, ax)
        return sweep_axes(self.record, ax)

    def to_json(self) -> bytes:
        """The record, as in `sweep.json`: UTF-8, indented."""
        return self.record.to_json()

    def report(self, folder: str | Path) -> Path:
        """Write the figures and a page to `folder`; returns the page's path.

        A cross-validation writes each fold's report to ``fold-1/``, ``fold-2/`` …, each fold's metrics to
        ``cross-validation.json``, and a page with mean and deviation; all others `sweep.json` and `report.html`.

        Raises:
            InputError, OSError: as `Result.report`.
        """
        target = Path(folder)
        if self.comparison is None:
            return write_sweep(self.record, target)
        make_folder(target)
        for number, result in enumerate(self.folds, 1):
            result.report(target / f"fold-{number}")
        write_atomic(target / "cross-validation.json", self._folds_json(self.comparison))
        return write_report(self.comparison, target)

    def _folds_json(self, comparison: Record) -> bytes:
        runs = [
            {
                "key": run.key,
                "title": run.title,
                "mean": run.test,
                "deviation": run.deviation,
                "folds": [result.run(run.key).test for result in self.folds],
            }
            for run in comparison.runs
        ]
        content = {"format": 1, "name": comparison.name, "folds": len(self.folds), "runs": runs}
        return msgspec.json.format(msgspec.json.encode(content), indent=2)

    def __repr__(self) -> str:
        return "\n  ".join([self._format_headline(), *self.lines()])

    def _format_headline(self) -> str:
        if self.search is not None:
            best = f"{name_point(self.best)}: {self.search.metric} {self.search.value:.4f} on validation rows"
            return f"Study({len(self.search.trials)} trials; {best})"
        runs = f"{len(self.record.cells)} runs" + (f" in {len(self.folds)} folds" if self.folds else "")
        failed = f", {len(self.record.failed)} failed" if self.record.failed else ""
        return f"Study({len(self.points)} point{'s' * (len(self.points) != 1)}, {runs}{failed})"

    def lines(self) -> list[str]:
        """The best point's figure on the test rows, failures, and what a search spent of privacy, a line each."""
        found = []
        if self.record.cells and len({point.data for point in self.points}) == 1:
            cells = self.cells(self.best)
            test = f"test {cells[0].metric} {_mean_text(cells)}"
            runs = f"{len(cells)} {'fold' if self.folds else 'seed'}{'s' * (len(cells) != 1)}"
            chosen = "" if self.search is not None else f"best on validation rows: {name_point(self.best)}; "
            found.append(f"{chosen}{test} over {runs}")
        found += failures_text(self.record)
        if self.search is not None:
            found += [
                f"all runs spent at most ε = {one.epsilon:.4g} (δ = {one.delta:.2g}) of {what}"
                for what, one in self.search.spent.items()
            ]
            found += [self.search.stopped] if self.search.stopped else []
        return found

    def _repr_html_(self) -> str:
        tables = self.tables()
        if self.search is not None:
            tables += [sweep_table(self.record, name) for name in dict.fromkeys(c.data for c in self.record.cells)]
        failed = "".join(f"<div>{escape(line)}</div>" for line in failures_text(self.record))
        return f"<div>{''.join(map(table_html, tables))}{failed}</div>"


def _mean_text(cells: Sequence[CellFigures]) -> str:
    """``0.9312 ± 0.0040``: the mean of runs on the test rows, and their standard deviation."""
    values = [cell.value for cell in cells]
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"


def _figures_of(cell: CellFigures) -> dict[str, float]:
    """Of a run: the test metrics, the validation metric, ε, and its effort."""
    noise = {name: value for name, value in cell.extra.items() if name.startswith("ε of ")}
    effort = dict(zip(_EFFORT, (float(cell.epochs), float(cell.best_epoch), cell.seconds), strict=True))
    return {cell.metric: cell.value, f"{cell.metric} valid": cell.valid, **cell.test, **noise, **effort}
