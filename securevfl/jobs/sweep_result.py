"""What a sweep over own tables measured: mean ± deviation as table, frame and plot; and which differences are more than
chance.

Seeds draw splits of the same rows, so their test rows overlap, and Student's t over seeds decides too often. Here the
variance of the mean is (1/n + test rows / other rows) times that of the differences (Nadeau and Bengio 2003, "Inference
for the Generalization Error"), with Holm's correction over all lines.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from securevfl.errors import InputError
from securevfl.jobs.grid import Point
from securevfl.jobs.tables import frame_of
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
from securevfl.report.statistics import FEWEST, LEVEL, holm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Resampled", "SweepResult", "plus_minus", "resampled"]

_WENT = ("epochs run", "best epoch", "seconds")


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """Differences of two points over seeds whose test rows overlap.

    Attributes:
        mean: of the differences.
        half: half the 95 % interval of the mean; None below two seeds.
        p: of the two-sided t test of no difference; None below two seeds, 1 where all differences are equal.
    """

    mean: float
    half: float | None
    p: float | None


def resampled(differences: Sequence[float], overlap: float) -> Resampled:
    """The corrected resampled t test.

    Args:
        differences: seed by seed.
        overlap: test rows over all other common rows; 0 where the test rows of seeds have nothing in common.
    """
    n, mean = len(differences), math.fsum(differences) / len(differences)
    if n < 2:
        return Resampled(mean=mean, half=None, p=None)
    from scipy.special import stdtr, stdtrit

    error = statistics.stdev(differences) * math.sqrt(1 / n + overlap)
    if error < 1e-12:  # nothing tells of chance
        return Resampled(mean=mean, half=0.0, p=1.0)
    half = -float(stdtrit(n - 1, LEVEL / 2)) * error
    return Resampled(mean=mean, half=half, p=2 * float(stdtr(n - 1, -abs(mean) / error)))


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
        base = to or self.best
        own = {cell.seed: cell.value for cell in self.cells(base)}
        metric = self.record.cells[0].metric
        tried = []
        for point in self.points:
            pairs = [cell.value - own[cell.seed] for cell in self.cells(point) if cell.seed in own]
            if pairs and point != base:
                tried.append((point, len(pairs), resampled(pairs, self.overlap)))
        tested = [i for i, (_, n, one) in enumerate(tried) if n >= FEWEST and one.p is not None]
        adjusted = dict(zip(tested, holm([tried[i][2].p or 0.0 for i in tested]), strict=True))
        rows = []
        for i, (point, n, one) in enumerate(tried):
            decided = adjusted.get(i, 1.0) <= LEVEL
            rows.append(
                {
                    **point.settings,
                    "seeds": n,
                    f"{metric} difference": one.mean,
                    "low": None if one.half is None else one.mean - one.half,
                    "high": None if one.half is None else one.mean + one.half,
                    "p": adjusted.get(i),
                    "verdict": ("better" if one.mean > 0 else "worse") if decided else "undecided",
                }
            )
        return frame_of(rows)

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
            settings = ", ".join(f"{name} {value}" for name, value in best.settings.items()) or best.method
            lines.append(f"  best on validation rows: {settings}; test {cells[0].metric} {plus_minus(cells)}")
        return "\n".join([*lines, *(f"  {line}" for line in failures_text(self.record))])

    def _repr_html_(self) -> str:
        failed = "".join(f"<div>{escape(line)}</div>" for line in failures_text(self.record))
        return f"<div>{self.table()._repr_html_()}{failed}</div>"


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
