"""Trials of a search as a table, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from securevfl.report.quality import METRIC_NAMES

__all__ = ["trials_table"]


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
