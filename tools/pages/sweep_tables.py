"""Markdown tables of a sweep's record."""

from __future__ import annotations

from collections.abc import Sequence

from sweep_levels import ALONE, CONTROL, OTHER_LABELS, OURS, Levels, Line

from securevfl.report import SweepRecord
from securevfl.report.statistics import Judgement, Paired
from securevfl.report.sweep import counts_text, failures_text, find_best, mean_text
from securevfl.report.sweep_record import (
    Rows,
    dataset_names,
    format_tick,
    list_positions,
    method_names,
    summarise_cells,
)

__all__ = ["across", "claims", "failed", "labelled", "levels", "means", "papers", "run", "tallies"]

_MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "·"}
_ROWS: dict[Rows, str] = {"common": "all columns", "alone": "without the partner"}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _points(fraction: float) -> str:
    text = f"{100 * fraction:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def _tested(sample: Paired) -> str:
    half = "" if sample.half_width is None else f" ± {100 * sample.half_width:.1f}"
    return _points(sample.mean) + half


def _sees(found: Judgement) -> str:
    return "" if found.seen is None else f" (sees {100 * found.seen:.1f})"


def means(record: SweepRecord, data: str, rows: Rows = "common") -> str:
    """One row a method, mean ± deviation; bold: the best of those that know no more than the others."""
    entries = [entry for entry in summarise_cells(record, rows) if entry.data == data]
    if not entries:
        return f"*No run of {data} yet.*"
    at = {(entry.method, entry.x): entry for entry in entries}
    best = find_best([entry for entry in entries if entry.method not in OTHER_LABELS])
    names = [name for name in method_names(record, data) if any(entry.method == name for entry in entries)]
    xs = list_positions(record, data)
    lines = []
    for name in sorted(names, key=lambda name: name in OTHER_LABELS):
        shown = [mean_text(at.get((name, x))) for x in xs]
        bold = [f"**{text}**" if (name, x) in best else text for x, text in zip(xs, shown, strict=True)]
        lines.append([f"*{name}*" if name in OTHER_LABELS else name, *bold])
    return _table(["", *(format_tick(record, x) for x in xs)], lines)


def across(record: SweepRecord, rows: Rows = "common") -> str:
    """One row a method, one column a data set, of a sweep with one position for each."""
    entries = summarise_cells(record, rows)
    at = {(entry.data, entry.method): entry for entry in entries}
    best = {data: find_best([entry for entry in entries if entry.data == data]) for data in dataset_names(record)}
    lines = []
    for name in method_names(record):
        found = [(at.get((data, name)), best[data]) for data in dataset_names(record)]
        texts = [mean_text(entry) for entry, _ in found]
        firsts = [entry is not None and (name, entry.x) in top for entry, top in found]
        lines.append([name, *(f"**{text}**" if first else text for text, first in zip(texts, firsts, strict=True))])
    places = [f"{data}, {format_tick(record, list_positions(record, data)[0])}" for data in dataset_names(record)]
    return _table(["", *places], lines)


def labelled(record: SweepRecord) -> str:
    """Rows that self-training labelled and dropped, of the methods that label."""
    rows = []
    xs = sorted({x for data in dataset_names(record) for x in list_positions(record, data)})
    for data in dataset_names(record):
        for name in method_names(record, data):
            counts = [counts_text(record, data, name, x) for x in xs]
            if any(counts):
                rows.append([data, name, *(count or "–" for count in counts)])
    if not rows:
        return "*No method of this sweep counts labelled rows.*"
    return _table(["data", "method", *(format_tick(record, x) for x in xs)], rows)


def _against_first(line: Line | None) -> str:
    if line is None:
        return "–"
    if line.behind is None:
        return "**first**"
    sample, found = line.behind
    return f"{_tested(sample)} {'level' if line.level else 'behind'}{_sees(found)}"


def _against_alone(line: Line | None) -> str:
    if line is None:
        return "–"
    mark = "✗" if line.below else "✓" if line.no_worse[1].verdict == "holds" else "·"
    return f"{_tested(line.above[0])} {mark}"


def levels(found: Levels, data: str) -> str:
    """A line for each position and kind of rows: who is first, how far behind ours are, and ours against local."""
    lines = [line for line in found.lines if line.place.data == data]
    rows = []
    for place in dict.fromkeys(line.place for line in lines):
        here = {line.method: line for line in lines if line.place == place}
        first = next(iter(here.values())).first
        where = [format_tick(found.record, place.x), _ROWS[place.rows], first]
        against = [_against_first(here.get(name)) for name in OURS] + [_against_alone(here.get(name)) for name in OURS]
        rows.append([*where, *against])
    if not rows:
        return f"*Fewer than five seeds of {data} yet.*"
    return _table(["", "rows", "first", *OURS, *(f"{name} less {ALONE}" for name in OURS)], rows)


def tallies(found: Levels) -> str:
    """One line for each of our methods and kind of rows: how often first, near, level, below the active party alone.

    The control goes through the same rule in a family of its own.
    """
    rows = []
    control = Levels(found.record, (CONTROL,))
    for kind, words in _ROWS.items():
        for name, levels_of in [*((name, found) for name in found.methods), (CONTROL, control)]:
            tally = levels_of.tally(name, kind)
            if not tally.places:
                continue
            sees = "–" if tally.sees is None else f"{100 * tally.sees:.1f}"
            first, near, shown, level = (
                f"{count} ({100 * count / tally.places:.0f} %)"
                for count in (tally.first, tally.near, tally.shown_near, tally.level)
            )
            below = [str(count) for count in (tally.below_mean, tally.below, tally.no_worse)]
            shown_name = f"*{name}*" if name == CONTROL else f"`{name}`"
            worst = _points(-tally.worst)
            rows.append([shown_name, words, str(tally.places), first, near, worst, shown, level, sees, *below])
    head = [
        "", "rows", "places", "first", "within a point", "worst", "shown within a point", "first or level",
        "level cannot see less than", f"mean below {ALONE}", f"below {ALONE}", f"at most a point below {ALONE}",
    ]  # fmt: skip
    return _table(head, rows) if rows else "*No place with five seeds yet.*"


def claims(found: Levels) -> str:
    """One row a claim, a column a data set: differences by position with their verdicts, in the page's family."""
    record = found.record
    names = dataset_names(record)
    rows = []
    for claim, tests in zip(record.claims, found.claims(), strict=True):
        at: dict[str, list[str]] = {}
        for data, _, sample, judgement in tests:
            at.setdefault(data, []).append(f"{_tested(sample)} {_MARKS[judgement.verdict]}")
        undecided = [judgement.seen for *_, judgement in tests if judgement.verdict == "undecided"]
        sees = sorted(100 * seen for seen in undecided if seen is not None)
        seen = "–" if not sees else f"{sees[0]:.1f} to {sees[-1]:.1f}" if len(sees) > 1 else f"{sees[0]:.1f}"
        margin = f"; margin {_points(claim.margin)}" if claim.margin else ""
        rows.append(
            [f"{claim.text} ({claim.source}{margin})", *("<br>".join(at.get(name, ["–"])) for name in names), seen]
        )
    return _table(["claim", *names, "sees"], rows) if rows else "*The sweep makes no claim.*"


def papers(record: SweepRecord) -> str:
    """Figures that papers print beside ours, where both are of the same data and overlap."""
    ours = {(entry.data, entry.method, entry.x): entry for entry in summarise_cells(record)}
    rows = [
        [
            f.data,
            f.method,
            format_tick(record, f.x),
            mean_text(ours.get((f.data, f.method, f.x))),
            f"{100 * f.value:.1f}",
            f.source,
        ]
        for f in record.paper
    ]
    return _table(["data", "method", record.axis, "ours", "the paper's", "source"], rows)


def failed(record: SweepRecord) -> str:
    """Cells without figures, and why."""
    return "\n".join(f"- {line}" for line in failures_text(record)) or "*None.*"


def run(record: SweepRecord) -> str:
    """When, where and how much was run, in a sentence."""
    seeds = len({cell.seed for cell in record.cells})
    hours = sum(cell.seconds for cell in record.cells) / 3600
    place = ", ".join(record.machine[name] for name in ("cpu", "cores") if name in record.machine)
    return (
        f"{len(record.cells):,} runs, {seeds} seeds, {hours:.1f} hours of runs added up; the last on {place} cores, "
        f"{record.created[:10]}."
    )
