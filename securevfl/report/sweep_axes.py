"""A sweep on matplotlib's axes, for notebooks: mean ± deviation against the axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from securevfl.errors import InputError
from securevfl.report.sweep_record import SweepRecord, methods, summary, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["sweep_axes"]

_NAMES = {"auc": "AUC", "r2": "R²"}


def sweep_axes(record: SweepRecord, ax: Axes | None = None) -> Axes:
    """A line with error bars for each method of the first data set: the mean over its seeds ± their standard deviation.

    Args:
        record: of the sweep.
        ax: axes to draw on; new ones unless given.

    Raises:
        InputError: no cell ran.
    """
    found = [entry for entry in summary(record) if entry.data == record.cells[0].data] if record.cells else []
    if not found:
        raise InputError("no cell of this sweep ran, so there is nothing to draw")
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=(5.2, 3.8), layout="constrained")[1]
    named = record.axis_unit == "category"
    xs = sorted({entry.x for entry in found})
    names = methods(record, found[0].data)
    for i, name in enumerate(names):
        mine = [entry for entry in found if entry.method == name]
        shift = 0.12 * (i - (len(names) - 1) / 2) / max(len(names) - 1, 1) if named else 0.0
        ax.errorbar(
            [entry.x + shift for entry in mine],
            [entry.mean for entry in mine],
            yerr=[entry.std for entry in mine],
            label=name.replace("$", r"\$").removeprefix("_") or "run",
            marker="o",
            ms=4,
            capsize=3,
            ls="none" if named else "-",
        )
    if named:
        ax.set_xticks(xs, [tick(record, x) for x in xs], parse_math=False)
    elif xs[0] > 0 and len(xs) > 2 and math.log10(xs[-1] / xs[0]) >= 1:
        ax.set_xscale("log")
    ax.set_xlabel(record.axis, parse_math=False)
    metric = record.cells[0].metric
    ax.set_ylabel(f"{_NAMES.get(metric, metric)} on test rows")
    ax.spines[["top", "right"]].set_visible(False)
    if len(names) > 1:
        ax.legend(frameon=False, fontsize=9)
    return ax
