"""docs/images/few-rows.png: how far each method is from the active party alone, by data set and overlap."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
from sweep_levels import ALONE

from securevfl.report import SweepRecord
from securevfl.report.chart import LIGHT
from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import Paired, run_paired_test
from securevfl.report.sweep_record import by_seed, dataset_names, format_tick, list_positions, method_names

__all__ = ["differences", "digest", "draw"]

INK, MUTED, GRID = LIGHT["ink"], LIGHT["muted"], LIGHT["line"]
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#b5478a")  # Okabe and Ito's
_LEAST = -0.15
"""Methods further below are drawn at the edge."""
_COLUMNS = 4


def differences(record: SweepRecord) -> dict[str, dict[str, dict[float, Paired]]]:
    """Data set → method → position → paired differences from the active party alone."""
    seeds, ratios = by_seed(record), find_ratios(record)
    found: dict[str, dict[str, dict[float, Paired]]] = {}
    for data in dataset_names(record):
        for method in method_names(record, data):
            for x in list_positions(record, data):
                one, other = (seeds.get((data, name, x), {}) for name in (method, ALONE))
                pairs = [one[seed] - other[seed] for seed in one if seed in other]
                if method != ALONE and pairs:
                    found.setdefault(data, {}).setdefault(method, {})[x] = run_paired_test(pairs, ratio=ratios[data, x])
    return found


def digest(record: SweepRecord) -> str:
    """Of all that the picture shows, to the fourth digit; it is in the file, so that a test can compare it."""
    shown = [
        [data, method, x, *(None if value is None else round(value, 4) for value in (one.mean, one.low, one.high))]
        for data, rows in differences(record).items()
        for method, at in rows.items()
        for x, one in at.items()
    ]
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()


def _panel(axes: Any, rows: dict[str, dict[float, Paired]], names: list[str], xs: list[float]) -> None:
    for k, x in enumerate(xs):
        for i, name in enumerate(names):
            one = rows.get(name, {}).get(x)
            if one is None:
                continue
            y = i + 0.24 * (k - (len(xs) - 1) / 2)
            colour = _COLOURS[k % len(_COLOURS)]
            if one.mean < _LEAST:
                axes.plot([100 * _LEAST], [y], marker="<", ms=4, mfc="white", mec=colour, mew=0.9)
                continue
            if one.low is not None and one.high is not None:
                axes.plot([100 * max(one.low, _LEAST), 100 * one.high], [y, y], color=colour, lw=1.1, alpha=0.75)
            axes.plot([100 * one.mean], [y], marker="o", ms=3.2, color=colour)
    axes.axvline(0, color=INK, lw=0.8)


def draw(record: SweepRecord, path: Path) -> None:
    """Write the picture: a panel a data set, a row a method, its distance from the active party alone with a 95 %
    interval."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    found = differences(record)
    names = [name for name in method_names(record) if name != ALONE]
    columns = min(_COLUMNS, len(found)) or 1
    lines = -(-len(found) // columns) or 1
    figure = Figure(figsize=(2.2 + 2.6 * columns, lines * (0.9 + 0.23 * len(names))), layout="constrained")
    grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    xs = sorted({x for data in found for x in list_positions(record, data)})
    for axes, (data, rows) in zip(grid.flat, found.items(), strict=False):
        _panel(axes, rows, names, xs)  # of all panels: a position has one colour
        axes.set_title(data, loc="left", color=INK, fontsize=9)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(GRID)
        axes.tick_params(colors=MUTED, length=0, labelsize=8)
        axes.xaxis.grid(True, color=GRID, lw=0.7)
        axes.set_axisbelow(True)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(range(len(names)), names)
    figure.supxlabel(
        f"points above {ALONE} (the active party alone), mean and 95 % interval over the seeds\n"
        f"hollow: more than {-100 * _LEAST:.0f} below",
        fontsize=8.5,
        color=MUTED,
    )
    handles = [Line2D([], [], color=_COLOURS[k % len(_COLOURS)], marker="o", ms=4, lw=1.1) for k in range(len(xs))]
    figure.legend(
        handles,
        [format_tick(record, x) for x in xs],
        loc="outside upper right",
        ncols=len(xs),
        frameon=False,
        fontsize=8.5,
    )
    figure.savefig(path, dpi=110, metadata={"Description": digest(record)})
