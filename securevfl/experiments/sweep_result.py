"""What a sweep over own tables measured: mean ± deviation as table, frame and plot, the best, and differences."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from securevfl.errors import InputError
from securevfl.experiments.grid import Point
from securevfl.experiments.sweep_differences import Difference, compared
from securevfl.report import (
    Cell,
    Shown,
    SweepRecord,
    failures_text,
    render_text,
    sweep_axes,
    sweep_table,
    table_html,
    write_sweep,
)
from securevfl.run.frames import frame_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["SweepResult", "plus_minus"]

_WENT = ("epochs run", "best epoch", "seconds")
_SHOWN = 5


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepResult:
    """What a sweep over own tables measured.

    Attributes:
        record: every cell, as in `sweep.json`.
        points: the combinations of settings, in order.
        overlap: test rows over all other common rows, where each seed draws its own; 0 where all seeds have one split.
    """

    record: SweepRecord = field(repr=False)
    points: tuple[Point, ...] = field(repr=False)
    overlap: float = 0.0

    def cells(self, point: Point) -> list[Cell]:
        """The runs of a point, one a seed."""
        return [cell for cell in self.record.cells if (cell.method, cell.x) == (point.method, point.x)]

    @property
    def best(self) -> Point:
        """The point whose mean on the *validation* rows is highest; the test rows have no say in it.

        Raises:
            InputError: no point ran.
        """
        ran = [point for point in self.points if self.cells(point)]
        if not ran:
            raise InputError(f"no cell ran: {'; '.join(failures_text(self.record)) or 'there was none'}")
        return max(ran, key=lambda point: statistics.fmean(cell.valid for cell in self.cells(point)))

    def table(self, width: int = 110) -> Shown:
        """Mean ± deviation over the seeds as text; a table where a notebook shows it."""
        names = dict.fromkeys(cell.data for cell in self.record.cells)
        tables = [sweep_table(self.record, name) for name in names]
        text = "\n".join([*(render_text(one, width=width) for one in tables), *failures_text(self.record)])
        return Shown(text, "".join(table_html(one) for one in tables))

    def to_pandas(self, what: Literal["points", "runs"] = "points") -> DataFrame:
        """The figures as a DataFrame.

        Args:
            what: ``"points"``, one row a combination of settings with mean and standard deviation (n − 1) over its
                seeds, of the test rows' metrics and of the validation rows'; ``"runs"``, one row for each seed.

        Raises:
            InputError: another word, or pandas is not installed.
        """
        if what not in ("points", "runs"):
            raise InputError(f"what is {what!r}; give 'points' or 'runs'")
        rows = []
        for point in self.points:
            cells = self.cells(point)
            if what == "runs":
                rows += [{**point.settings, "seed": cell.seed, **_figures(cell)} for cell in cells]
            elif cells:
                each = [_figures(cell) for cell in cells]
                found: dict[str, object] = {**point.settings, "seeds": len(cells)}
                for name in each[0]:
                    values = [figures[name] for figures in each if name in figures]
                    found[name] = statistics.fmean(values)
                    if len(values) > 1 and name not in _WENT:
                        found[f"{name} deviation"] = statistics.stdev(values)
                rows.append(found)
        return frame_of(rows)

    def differences(self, to: Point | None = None) -> DataFrame:
        """Each point against one of them, seed by seed, on the test rows: is it more than chance?

        One row a point: the mean difference, the ends of its 95 % interval, p after Holm's correction over all rows,
        and a verdict: ``"better"``, ``"worse"``, or ``"undecided"``, always so with fewer than five seeds. Where seeds
        have one split, a verdict is about these test rows.

        Args:
            to: what points are compared with; the best on the validation rows unless given.

        Raises:
            InputError: no point ran, or pandas is not installed.
        """
        metric = self.record.cells[0].metric if self.record.cells else ""
        return frame_of(
            [
                {
                    **one.point.settings,
                    "seeds": one.seeds,
                    f"{metric} difference": one.test.mean,
                    "low": None if one.test.half is None else one.test.mean - one.test.half,
                    "high": None if one.test.half is None else one.test.mean + one.test.half,
                    "p": one.adjusted,
                    "verdict": one.verdict,
                }
                for one in self._compared(to or self.best)
            ]
        )

    def in_words(self) -> str:
        """Which points are better or worse than the best on the validation rows by more than chance; empty where fewer
        than five seeds, or a single point, ran."""
        ran = [point for point in self.points if self.cells(point)]
        lines = self._compared(self.best) if len(ran) > 1 else []
        if not any(line.adjusted is not None for line in lines):
            return ""
        parts = []
        for verdict in ("better", "worse"):
            names = [f"{_named(one.point)} ({100 * one.test.mean:+.1f})" for one in lines if one.verdict == verdict]
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            parts += [f"{verdict} by more than chance: {shown}"] if names else []
        left = sum(one.verdict == "undecided" for one in lines)
        parts += [f"undecided: {'all' if left == len(lines) else left} others"] if left else []
        return (
            f"Against {_named(self.best)}, the best on the validation rows, in points on the test rows: "
            f"{'; '.join(parts)} (t test over seeds, corrected for test rows in common, after Holm)."
        )

    def _compared(self, base: Point) -> list[Difference]:
        figures = [
            (point, {cell.seed: cell.value for cell in cells}) for point in self.points if (cells := self.cells(point))
        ]
        return compared(figures, base, self.overlap)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Mean ± deviation on the test rows against the axis, a line for each of the other settings' combinations.

        Args:
            ax: axes to draw on; new ones unless given.
        """
        return sweep_axes(self.record, ax)

    def report(self, folder: str | Path) -> Path:
        """Write `sweep.json` and `report.html` to `folder`; returns the page's path."""
        return write_sweep(self.record, Path(folder))

    def __repr__(self) -> str:
        failed = f", {len(self.record.failed)} failed" if self.record.failed else ""
        lines = [f"SweepResult({len(self.points)} points, {len(self.record.cells)} runs{failed})"]
        if self.record.cells:
            best, cells = self.best, self.cells(self.best)
            lines.append(f"  best on validation rows: {_named(best)}; test {cells[0].metric} {plus_minus(cells)}")
        return "\n".join([*lines, *(f"  {line}" for line in failures_text(self.record))])

    def _repr_html_(self) -> str:
        failed = "".join(f"<div>{escape(line)}</div>" for line in failures_text(self.record))
        return f"<div>{self.table()._repr_html_()}{failed}</div>"


def _named(point: Point) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.settings.items()) or point.method


def plus_minus(cells: Sequence[Cell]) -> str:
    """``0.9312 ± 0.0040``: the mean of runs on the test rows, and their standard deviation."""
    values = [cell.value for cell in cells]
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"


def _figures(cell: Cell) -> dict[str, float]:
    """Of a run: the test metrics, the validation metric, ε, and how it went."""
    noise = {name: value for name, value in cell.extra.items() if name.startswith("ε of ")}
    went = dict(zip(_WENT, (float(cell.epochs), float(cell.best_epoch), cell.seconds), strict=True))
    return {cell.metric: cell.value, f"{cell.metric} valid": cell.valid, **cell.test, **noise, **went}
