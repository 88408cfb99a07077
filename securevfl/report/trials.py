"""Trials of a search: a table, best first, and their values on matplotlib's axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from securevfl.errors import InputError
from securevfl.report.axes import METRIC_NAMES, label_axes, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["trials_axes", "trials_table"]


def trials_table(
    trials: Sequence[tuple[int, str, float | None, int | None, Mapping[str, Any]]], metric: str, most: int = 20
) -> Table:
    """One row a trial, best first; of more than `most`, the best.

    Args:
        trials: number, state, value, epochs and settings of each.
        metric: the value's name.
        most: rows.
    """
    ordered = sorted(trials, key=lambda one: (one[2] is None, -(one[2] or 0.0), one[0]))
    names = list(dict.fromkeys(name for one in trials for name in one[4]))
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", caption_justify="left", pad_edge=False, show_edge=False)
    for name in ("trial", "state", f"{METRIC_NAMES.get(metric, metric)} (validation)", "epochs run"):
        table.add_column(name, justify="left" if name == "state" else "right")
    for name in names:
        table.add_column(Text(name), justify="right", overflow="fold")
    for number, state, value, epochs, settings in ordered[:most]:
        table.add_row(
            str(number),
            state,
            "–" if value is None else f"{value:.4f}",
            "–" if epochs is None else str(epochs),
            *(Text(_shown(settings[name]) if name in settings else "–") for name in names),
        )
    if len(trials) > most:
        table.caption = Text(f"The best {most} of {len(trials)} trials.")
    return table


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def trials_axes(trials: Sequence[tuple[int, float | None]], metric: str, ax: Axes | None = None) -> Axes:
    """Each trial's value, and the best so far.

    Args:
        trials: number and value of each.
        metric: the value's name.
        ax: axes to draw on; new ones unless given.

    Raises:
        InputError: no trial has a value.
    """
    found = [(number, value) for number, value in trials if value is not None]
    if not found:
        raise InputError("no trial ended well, so there is nothing to draw")
    axes = new_axes(ax)
    numbers, values = zip(*found, strict=True)
    axes.plot(numbers, values, "o", ms=4, label="trial")
    axes.step(numbers, list(accumulate(values, max)), where="post", label="best so far")
    return label_axes(axes, "trial", f"{METRIC_NAMES.get(metric, metric)} on validation rows")
