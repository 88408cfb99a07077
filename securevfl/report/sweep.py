"""A sweep in the terminal: quality by method and position, and which of the papers' claims hold."""

from __future__ import annotations

import textwrap

from rich import box
from rich.table import Table
from rich.text import Text

from securevfl.errors import UnknownNameError
from securevfl.report.sweep_record import (
    Summary,
    SweepRecord,
    Verdict,
    datasets,
    methods,
    positions,
    summary,
    tick,
    verdicts_of,
)

__all__ = ["best_of", "difference_text", "mean_text", "measured", "sweep_table", "verdict_table"]

_COLOURS = {"seems to hold": "green", "seems not to hold": "red", "undecided": "yellow", "not tried": "dim"}
_NAMES = {"auc": "AUC"}


def mean_text(entry: Summary | None) -> str:
    """``93.1 ± 0.4``, in per cent; without ± for one seed; – for none."""
    if entry is None:
        return "–"
    return f"{100 * entry.mean:.1f} ± {100 * entry.std:.1f}" if entry.n > 1 else f"{100 * entry.mean:.1f}"


def difference_text(verdict: Verdict) -> str:
    """``+1.2 ± 0.3``, in points, with its standard error and a true minus sign; – where nothing was compared."""
    if verdict.difference is None:
        return "–"
    text = f"{100 * verdict.difference:+.1f}".replace("-", "−")
    text = text[1:] if not float(text[1:]) else text
    return text if verdict.error is None else f"{text} ± {100 * verdict.error:.1f}"


def best_of(entries: list[Summary]) -> set[tuple[str, float]]:
    """(method, x) of the best mean at each x; several where they are equal."""
    top: dict[float, float] = {}
    for entry in entries:
        top[entry.x] = max(entry.mean, top.get(entry.x, 0.0))
    return {(entry.method, entry.x) for entry in entries if entry.mean >= top[entry.x] - 1e-12}


def measured(record: SweepRecord, data: str) -> str:
    """What the figures of a data set are, in words: ``accuracy on the test rows in %, mean ± … of 3 seeds``."""
    metrics = dict.fromkeys(_NAMES.get(cell.metric, cell.metric) for cell in record.cells if cell.data == data)
    counts = [entry.n for entry in summary(record) if entry.data == data]
    fewest, most = min(counts), max(counts)
    seeds = f"{most} seed{'s' if most > 1 else ''}" if fewest == most else f"{fewest} to {most} seeds"
    spread = "mean ± standard deviation" if most > 1 else "mean"
    return f"{' or '.join(metrics)} on the test rows in %, {spread} of {seeds}"


def _lines(text: str, width: int) -> str:
    """The text in lines of this many characters."""
    return "\n".join(textwrap.wrap(text, width)) or text


def sweep_table(record: SweepRecord, data: str) -> Table:
    """One row a method, one column a position: ``93.1 ± 0.4`` in per cent, the best mean of a column bold.

    Whole from 80 columns on where there are at most four positions.

    Raises:
        UnknownNameError: no run of this data set.
    """
    if data not in datasets(record):
        raise UnknownNameError("data set of this sweep", data, datasets(record))
    entries = [entry for entry in summary(record) if entry.data == data]
    table = Table(
        title=Text(data, "bold"),
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    table.add_column(Text("method"), overflow="fold", min_width=8)
    xs = positions(record, data)
    for i, x in enumerate(xs):
        title = f"{_lines(record.axis, 11)}\n" if record.axis and not i else "\n" if record.axis else ""
        table.add_column(Text(title + _lines(tick(record, x), 11)), justify="right", no_wrap=True)
    at = {(entry.method, entry.x): entry for entry in entries}
    best = best_of(entries)
    for method in methods(record, data):
        cells = [Text(mean_text(at.get((method, x))), "bold" if (method, x) in best else "") for x in xs]
        table.add_row(Text(method), *cells)
    table.caption = Text(f"{measured(record, data)[0].upper()}{measured(record, data)[1:]}; bold: best of its column.")
    table.caption_justify = "left"
    return table


def verdict_table(record: SweepRecord) -> Table:
    """One row a claim, one line in it a data set and position: the difference in points and what it points to."""
    table = Table(
        title=Text("What the papers claim", "bold"),
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
        show_lines=True,
    )
    table.add_column("claim", overflow="fold", min_width=20)
    table.add_column("data", no_wrap=True, max_width=14)
    table.add_column(Text(_lines(record.axis, 10)), justify="right", no_wrap=True, max_width=10)
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("indication", no_wrap=True)
    for claim in record.claims:
        lines = verdicts_of(record, claim)
        names = ["" if i and lines[i - 1].data == line.data else line.data for i, line in enumerate(lines)]
        words = Text("\n").join(Text(line.verdict, _COLOURS[line.verdict]) for line in lines)
        table.add_row(
            Text.assemble(Text(claim.text), Text(f" ({claim.source})" if claim.source else "", "dim")),
            Text("\n".join("all" if name == "*" else " ".join(name.split()) for name in names)),
            Text("\n".join("–" if line.x is None else " ".join(tick(record, line.x).split()) for line in lines)),
            Text("\n".join(difference_text(line) for line in lines)),
            words,
        )
    table.caption = Text(
        "Difference: points, mean over the seeds that both methods ran with ± its standard error. Undecided: within "
        "two standard errors of the claim's margin, or fewer than two seeds. Indications until run again with more "
        "seeds: with three, chance alone passes two standard errors in about one of six comparisons."
    )
    table.caption_justify = "left"
    return table
