"""Sentences of docs/few-rows.md and of the tutorial about it that follow from the sweep's record.

Each returns Markdown, which `sweep_pages` writes into the page: a figure in such a sentence is never typed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from sweep_levels import ALONE, CONTROL, MARGIN, OURS, Levels
from sweep_places import BOOSTED, RULE, Compared, compare_places, is_of_images

from securevfl.experiments import read_sweep
from securevfl.report import SweepRecord
from securevfl.report.sweep_record import Rows, dataset_names, format_tick, list_positions, summarise_cells

__all__ = ["advice", "alone_losses", "costs", "parts_of", "scope", "short"]

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "experiments"
RESULTS = ROOT / "benchmarks" / "results"
COSTS = RESULTS / "best_cost.json"
BESIDE = "few-rows-beside"
_BEST, _RESIDUAL, _LASER = OURS


def _join_names(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def _format_duration(seconds: float) -> str:
    if seconds < 90 * 60:
        return f"{max(1, round(seconds / 60))} minutes"
    return f"{seconds / 3600:.1f} hours"


@cache
def _read_cells(name: str) -> frozenset[tuple[str, str, float, int]]:
    file = FILES / f"{name}.toml"
    if not file.exists():
        return frozenset()
    cells = read_sweep(file).cells
    return frozenset((cell.data, cell.method, cell.x, cell.seed) for cell in cells)


def scope(record: SweepRecord) -> str:
    """How much of the sweep's file has run, at which positions, and which methods only on some data."""
    wanted = _read_cells(record.name)
    done = {(cell.data, cell.method, cell.x, cell.seed) for cell in record.cells}
    lines = [f"The file configures {len(wanted):,} runs."]
    missing = wanted - done
    if missing and record.cells:
        seconds = len(missing) * fmean(cell.seconds for cell in record.cells)
        lines[0] += (
            f" {len(missing):,} of them have no figures yet; if they take as long as the others, they take "
            f"{_format_duration(seconds)} on one core."
        )
    positions = sorted({x for _, _, x, _ in wanted})
    groups: dict[tuple[float, ...], list[str]] = {}
    for data in dataset_names(record):
        here = tuple(list_positions(record, data))
        if any(x not in here for x in positions):
            groups.setdefault(here, []).append(data)
    lines += [
        f"At {_join_names([format_tick(record, x) for x in xs])} only: {_join_names(names)}."
        for xs, names in groups.items()
    ]
    ran: dict[tuple[str, ...], list[str]] = {}
    for method in dict.fromkeys(cell.method for cell in record.cells):
        of_file = {data for data, name, _, _ in wanted if name == method}
        here = tuple(name for name in dataset_names(record) if any(one[:2] == (name, method) for one in done))
        if of_file - set(here):
            ran.setdefault(here, []).append(method)
    lines += [f"On {_join_names(data)} only: {_join_names(names)}." for data, names in ran.items()]
    never = sorted({method for _, method, _, _ in wanted} - {method for _, method, _, _ in done})
    lines += [f"Not run: {_join_names(never)}."] if never else []
    if not (RESULTS / f"sweep-{BESIDE}.json").exists():
        lines.append(f"`{BESIDE}.toml` has not run.")
    return "\n".join(lines)


def _ratio_range(what: str, method: str, overlap: float | None = None) -> tuple[float, float]:
    cells: list[dict[str, Any]] = json.loads(COSTS.read_text(encoding="utf-8"))["cells"]
    found = [
        cell["methods"]["best"][what] / cell["methods"][method][what]
        for cell in cells
        if overlap is None or cell["overlap"] == overlap
    ]
    return min(found), max(found)


def _format_factors(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.0f}" if end >= 9.5 else f"{end:.1f}" for end in ends)
    return low if low == high else f"{low} to {high}"


def cost_sentence() -> str:
    """What Best costs beside its two methods that exchange messages: messages, bytes each way, processor time."""
    parts = []
    for method, words in (("laser", "LASER-VFL"), ("residual", "the residual")):
        messages, active, passive = (
            _format_factors(_ratio_range(what, method)) for what in ("messages", "bytes, active", "bytes, passive")
        )
        parts.append(
            f"{messages} times the messages of {words}, {active} times its bytes from the active party and {passive} "
            "times those from the passive party"
        )
    return f"It sends {parts[0]}; and {parts[1]}"


def costs() -> str:
    """The table of docs/algorithms/best.md: messages, bytes and seconds of one job of each method at each place."""
    cells: list[dict[str, Any]] = json.loads(COSTS.read_text(encoding="utf-8"))["cells"]
    head = ["", "", "messages", "MB from the active party", "MB from the passive party", "processor seconds"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell in cells:
        place = f"{cell['data'].split(',')[0]}, {100 * cell['overlap']:g} %"
        for method, found in cell["methods"].items():
            if method == "local":
                continue
            sizes = [f"{found[what] / 1e6:.2f}" for what in ("bytes, active", "bytes, passive")]
            shown = [place, f"`{method}`", f"{found['messages']:,}", *sizes, f"{found['seconds']:.1f}"]
            lines.append(f"| {' | '.join(shown)} |")
            place = ""
    return "\n".join([*lines, "", f"{cost_sentence()}."])


def _find_means(record: SweepRecord, method: str, rows: Rows = "common") -> dict[tuple[str, float], float]:
    return {(one.data, one.x): one.mean for one in summarise_cells(record, rows) if one.method == method}


def _find_gains(record: SweepRecord, method: str, wanted: Callable[[str], bool], rows: Rows = "common") -> list[float]:
    """Differences of means from the active party alone, in points, at the places of some data sets."""
    ours, alone = _find_means(record, method, rows), _find_means(record, ALONE, rows)
    return [100 * (ours[place] - alone[place]) for place in ours if place in alone and wanted(place[0])]


def _of_credit(data: str) -> bool:
    """Whether it is the credit table with the weak columns at the active party."""
    return "credit" in data and "network active" not in data


def _format_points(gains: Sequence[float]) -> str:
    """The least and the largest of some differences, in words."""
    if not gains:
        return "an unknown number of"
    ends = [f"{end:.0f}".replace("-", "−") for end in (min(gains), max(gains))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def parts_of(found: Levels) -> dict[str, bool]:
    """The judgements on which the words of `short` rest; a test demands that they hold of the page's record."""
    record = found.record
    tallies = {name: found.tally(name, "common") for name in OURS}
    return {
        "best is first most often": tallies[_BEST].first == max(one.first for one in tallies.values()),
        "best gains on credit everywhere": min(_find_gains(record, _BEST, _of_credit), default=0.0) > 0,
        "most tests of best against local are undecided": tallies[_BEST].no_worse < tallies[_BEST].places,
        "the residual gains on credit everywhere": min(_find_gains(record, _RESIDUAL, _of_credit), default=0.0) > 0,
    }


def _count_near(compared: Compared) -> str:
    """In how many places of each overlap a method is within a point of the highest."""
    found = []
    for overlap in sorted({x for _, x in compared.gaps}):
        here = [gap for (_, x), gap in compared.gaps.items() if x == overlap]
        found.append(f"{sum(gap <= MARGIN for gap in here)} of {len(here)} at {100 * overlap:g} %")
    return ", ".join(found)


def describe_rule(record: SweepRecord) -> str:
    """How the recommended methods stand over all places, for rows with all columns and without the partner."""
    parts = []
    kinds: tuple[tuple[Rows, str], ...] = (("common", "with all columns"), ("alone", "without the partner"))
    for rows, words in kinds:
        one = compare_places(record, rows).get(RULE)
        if one is None:
            continue
        shown = f"tests show it in {one.shown}" if one.shown else "no test shows it"
        parts.append(
            f"{words} its mean is within a point of the highest in {one.near} of {len(one.gaps)} places "
            f"({_count_near(one)}) and {100 * max(one.gaps.values()):.1f} points behind at worst, and more than half a "
            f"point below {BOOSTED} in {one.below} ({shown})"
        )
    if not parts:
        return "- **The rule** has no place with five seeds yet."
    return f"- **The rule** (`best_with_trees` on tables, `best` on images): {'; '.join(parts)}."


def short(found: Levels) -> str:
    """The first bullets of the page."""
    record = found.record
    best = found.tally(_BEST, "common")
    credit, others = (
        _find_gains(record, _BEST, _of_credit),
        _find_gains(record, _BEST, lambda data: not _of_credit(data)),
    )
    images = _find_gains(record, _RESIDUAL, is_of_images)
    residual = _find_gains(record, _RESIDUAL, _of_credit)
    return "\n".join(
        [
            describe_rule(record),
            f"- **`best` compared.** With all columns it has the highest mean in {best.first} of {best.places} places, "
            f"is within a point of the highest in {best.near}, and {100 * best.worst:.1f} points behind at worst. "
            f"{cost_sentence()} ([counted](algorithms/best.md#what-it-costs)).",
            "- **Against the active party alone.** On the credit table with weak columns at the bank `best` gains "
            f"{_format_points(credit)} points. Elsewhere its mean is above in "
            f"{sum(gain > 0 for gain in others)} of {len(others)} places. It is significantly below in {best.below} "
            f"places and shown to be at most a point below in {best.no_worse} of {best.places}; the other tests are "
            "undecided.",
            "- **The residual at the cut, used alone**, gains "
            f"{_format_points(residual)} points there. On images its mean is below the active party alone in "
            f"{sum(gain < 0 for gain in images)} of {len(images)} places.",
        ]
    )


def alone_losses(found: Levels) -> str:
    """How much SplitNN loses with zeros in the partner's place, against the active party alone."""
    lost = [-gain for gain in _find_gains(found.record, CONTROL, lambda _: True, "alone")]
    return (
        f"SplitNN with zeros in place of the partner scores {_format_points(lost)} points below the active party alone."
    )


def advice(found: Levels) -> str:
    """The tutorial's sentence about Best."""
    best = found.tally(_BEST, "common")
    behind = best.places - best.level
    words = (
        "no method is significantly better than it"
        if not behind
        else f"another method is significantly better than it in {behind} of {best.places} places"
    )
    return (
        f"In [the comparison](../few-rows.md) {words}, and its mean is within a point of the best in {best.near} of "
        f"{best.places} places."
    )
