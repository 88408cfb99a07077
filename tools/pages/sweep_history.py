"""How fast methods get there: Markdown tables of the metric on validation rows after each epoch."""

from __future__ import annotations

import statistics
from itertools import pairwise

from securevfl.report import CellFigures, SweepRecord
from securevfl.report.sweep_record import list_positions, method_names

__all__ = ["SHARE", "first_at", "history", "roughness"]

SHARE = 0.98
"""Of what the slower method ends at in the mean: the level that all are timed to."""
_COLUMNS = 6


def first_at(history: list[float], level: float) -> int | None:
    """The first epoch at which a run reached a level; None if it never did."""
    return next((epoch for epoch, value in enumerate(history, 1) if value >= level), None)


def roughness(history: list[float]) -> float:
    """The mean change from one epoch to the next, up or down, in the second half of a run."""
    half = history[len(history) // 2 - 1 :]
    return statistics.fmean(abs(b - a) for a, b in pairwise(half)) if len(half) > 1 else 0.0


def history(record: SweepRecord, data: str) -> str:
    """One row a method at the last position: mean over the seeds after some epochs, and epochs to a common level."""
    x = list_positions(record, data)[-1]
    runs: dict[str, list[CellFigures]] = {
        name: [c for c in record.cells if (c.data, c.method, c.x) == (data, name, x) and c.history]
        for name in method_names(record, data)
    }
    runs = {name: cells for name, cells in runs.items() if cells}
    if not runs:
        return f"*No history of {data} yet.*"
    last = min(len(cell.history) for cells in runs.values() for cell in cells)
    epochs = sorted({max(1, round(last * (i + 1) / _COLUMNS)) for i in range(_COLUMNS)} | {1})
    level = SHARE * min(statistics.fmean(cell.history[last - 1] for cell in cells) for cells in runs.values())
    head = [
        "",
        *(f"epoch {epoch}" for epoch in epochs),
        f"epochs to {100 * level:.1f}",
        "change per epoch, second half",
    ]
    lines = []
    for name, cells in runs.items():
        means = [statistics.fmean(cell.history[epoch - 1] for cell in cells) for epoch in epochs]
        reached = [first_at(cell.history, level) for cell in cells]
        times = [epoch for epoch in reached if epoch is not None]
        missed = "" if len(times) == len(cells) else f" ({len(cells) - len(times)} of {len(cells)} never)"
        when = f"{statistics.fmean(times):.1f}{missed}" if times else "never"
        rough = statistics.fmean(roughness(cell.history) for cell in cells)
        lines.append([name, *(f"{100 * mean:.1f}" for mean in means), when, f"{100 * rough:.1f}"])
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
