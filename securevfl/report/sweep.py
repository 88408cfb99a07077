"""A sweep or a search in the terminal: quality by method and position, the verdict on each claim, trials best first."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from securevfl.errors import UnknownNameError
from securevfl.report.quality import METRIC_NAMES
from securevfl.report.split_ratio import unknown_text
from securevfl.report.statistics import FEWEST
from securevfl.report.sweep_record import (
    Failed,
    Rows,
    Summary,
    SweepRecord,
    dataset_names,
    format_tick,
    list_positions,
    method_names,
    summarise_cells,
)
from securevfl.report.sweep_verdicts import Verdict, judge_claims
from securevfl.report.tables import make_table, number_column, text_column

__all__ = [
    "count_table",
    "counts_text",
    "describe_figures",
    "difference_text",
    "failures_text",
    "find_best",
    "mean_text",
    "seen_text",
    "sweep_table",
    "trials_table",
    "verdict_table",
]

_COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not tried": "dim"}
_COUNTS = ("rows labelled", "rows dropped")
_ALONE = "without the partner"


def mean_text(entry: Summary | None) -> str:
    """``93.1 ± 0.4``, in per cent; without ± for one seed; – for none."""
    if entry is None:
        return "–"
    return f"{100 * entry.mean:.1f} ± {100 * entry.std:.1f}" if entry.n > 1 else f"{100 * entry.mean:.1f}"


def difference_text(verdict: Verdict) -> str:
    """``+1.2 ± 0.3``, in points, with half its 95 % interval and a true minus sign; – where nothing was compared."""
    if verdict.difference is None:
        return "–"
    text = f"{100 * verdict.difference:+.1f}".replace("-", "−")
    text = text[1:] if not float(text[1:]) else text
    return text if verdict.half_width is None else f"{text} ± {100 * verdict.half_width:.1f}"


def seen_text(verdict: Verdict) -> str:
    """``1.4``, in points: from which distance to the margin on this test would have decided; empty where unknown."""
    return "" if verdict.seen is None else f"{100 * verdict.seen:.1f}"


def counts_text(record: SweepRecord, data: str, method: str, x: float) -> str:
    """``120 / 3``: rows labelled and dropped by self-training, means over the seeds; empty without such counts."""
    runs = [cell.extra for cell in record.cells if (cell.data, cell.method, cell.x) == (data, method, x)]
    means = []
    for name in _COUNTS:
        found = [extra[name] for extra in runs if name in extra]
        means.append(f"{sum(found) / len(found):,.0f}" if found else "–")
    return "" if means == ["–", "–"] else " / ".join(means)


def find_best(entries: list[Summary]) -> set[tuple[str, float]]:
    """(method, x) of the best mean at each x; several where they are equal."""
    top: dict[float, float] = {}
    for entry in entries:
        top[entry.x] = max(entry.mean, top.get(entry.x, entry.mean))
    return {(entry.method, entry.x) for entry in entries if entry.mean >= top[entry.x] - 1e-12}


def describe_figures(record: SweepRecord, data: str, rows: Rows = "common") -> str:
    """What the figures of a data set are, in words: ``accuracy on the test rows in %, mean ± … of 3 seeds``."""
    metrics = dict.fromkeys(METRIC_NAMES.get(cell.metric, cell.metric) for cell in record.cells if cell.data == data)
    counts = [entry.n for entry in summarise_cells(record, rows) if entry.data == data]
    fewest, most = min(counts), max(counts)
    seeds = f"{most} seed{'s' if most > 1 else ''}" if fewest == most else f"{fewest} to {most} seeds"
    spread = "mean ± standard deviation" if most > 1 else "mean"
    where = "" if rows == "common" else ", scored by the active party alone,"
    return f"{' or '.join(metrics)} on the test rows{where} in %, {spread} of {seeds}"


def failures_text(record: SweepRecord) -> list[str]:
    """One line for each reason: how many cells failed with it, and the first of them."""
    groups: dict[str, list[Failed]] = {}
    for cell in record.failed:
        groups.setdefault(cell.error, []).append(cell)
    return [
        f"{len(cells)} of {len(record.failed) + len(record.cells)} cells failed, the first {cells[0].method} on "
        f"{cells[0].data}, {format_tick(record, cells[0].x)}, seed {cells[0].seed}: {error}"
        for error, cells in groups.items()
    ]


def _wrap_text(text: str, width: int) -> str:
    """The text in lines of this many characters."""
    return "\n".join(textwrap.wrap(text, width)) or text


def _methods_table(record: SweepRecord, xs: list[float], title: str) -> Table:
    """A column for methods, and one for each position."""
    columns = []
    for i, x in enumerate(xs):
        head = f"{_wrap_text(record.axis, 11)}\n" if record.axis and not i else "\n" if record.axis else ""
        columns.append(number_column(head + _wrap_text(format_tick(record, x), 11)))
    return make_table(text_column("method", min_width=8), *columns, title=title)


def sweep_table(record: SweepRecord, data: str, rows: Rows = "common") -> Table:
    """One row a method, one column a position: ``93.1 ± 0.4`` in per cent, the best mean of a column bold.

    Whole from 80 columns on where there are at most four positions.

    Args:
        record: of the sweep.
        data: the data set.
        rows: ``"alone"`` for the test rows as the active party scores them by itself, of methods that can.

    Raises:
        UnknownNameError: no run of this data set.
    """
    if data not in dataset_names(record):
        raise UnknownNameError("data set of this sweep", data, dataset_names(record))
    entries = [entry for entry in summarise_cells(record, rows) if entry.data == data]
    xs = list_positions(record, data)
    table = _methods_table(record, xs, data if rows == "common" else f"{data}, {_ALONE}")
    at = {(entry.method, entry.x): entry for entry in entries}
    best = find_best(entries)
    for method in method_names(record, data):
        cells = [Text(mean_text(at.get((method, x))), "bold" if (method, x) in best else "") for x in xs]
        if rows == "common" or any(entry.method == method for entry in entries):
            table.add_row(Text(method), *cells)
    if entries:
        words = describe_figures(record, data, rows)
        table.caption = Text(f"{words[0].upper()}{words[1:]}; bold: best of its column.")
    return table


def count_table(record: SweepRecord, data: str) -> Table | None:
    """Rows that self-training labelled and dropped, of the methods that label; None where no method of them ran."""
    xs = list_positions(record, data)
    table = _methods_table(record, xs, f"{data}, rows labelled / dropped")
    for method in method_names(record, data):
        counts = [counts_text(record, data, method, x) for x in xs]
        if any(counts):
            table.add_row(
                Text(method), *(Text(count or "–", "yellow" if count[:2] == "0 " else "") for count in counts)
            )
    table.caption = Text("Means over the seeds. Where no row was labelled, the figures show nothing of self-training.")
    return table if table.row_count else None


def verdict_table(record: SweepRecord) -> Table:
    """One row a claim, one line in it a data set and position: the difference in points, its verdict, and what the test
    could have seen."""
    columns = (
        text_column("claim", min_width=16),
        text_column("data", no_wrap=True, max_width=14),
        number_column(_wrap_text(record.axis, 8), max_width=8),
        number_column("difference"),
        text_column("verdict", no_wrap=True),
        number_column("seen"),
    )
    table = make_table(*columns, title="Claims", lines=True)
    for claim, lines in judge_claims(record):
        names = ["" if i and lines[i - 1].data == line.data else line.data for i, line in enumerate(lines)]
        words = Text("\n").join(Text(line.verdict, _COLOURS[line.verdict]) for line in lines)
        source = "; ".join(filter(None, (claim.source, _ALONE if claim.rows == "alone" else "")))
        table.add_row(
            Text.assemble(Text(claim.text), Text(f" ({source})" if source else "", "dim")),
            Text("\n".join("all" if name == "*" else " ".join(name.split()) for name in names)),
            Text("\n".join("–" if line.x is None else " ".join(format_tick(record, line.x).split()) for line in lines)),
            Text("\n".join(difference_text(line) for line in lines)),
            words,
            Text("\n".join(seen_text(line) for line in lines)),
        )
    table.caption = Text(
        "Difference: points, mean over the seeds that both methods ran with ± half its 95 % interval. Verdicts: t "
        "tests against the claim's margin, corrected for test rows that seeds share (Nadeau and Bengio), after Holm's "
        "correction over all lines, so that chance alone decides any line in at most 5 % of such tables; fewer than "
        f"{FEWEST} seeds decide nothing. Seen: points from the margin at which the test would have decided in 80 % of "
        f"the tries. {unknown_text(record)}".strip()
    )
    return table


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
    table = make_table(
        number_column("trial"),
        text_column("state"),
        number_column(f"{METRIC_NAMES.get(metric, metric)} (validation)"),
        number_column("epochs run"),
        *(text_column(name, justify="right") for name in names),
    )
    for number, state, value, epochs, settings in ordered[:most]:
        table.add_row(
            str(number),
            state,
            "–" if value is None else f"{value:.4f}",
            "–" if epochs is None else str(epochs),
            *(Text(_format_value(settings[name]) if name in settings else "–") for name in names),
        )
    if len(trials) > most:
        table.caption = Text(f"The best {most} of {len(trials)} trials.")
    return table


def _format_value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
