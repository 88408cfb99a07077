"""Markdown table of all methods over all places of a sweep, on both sides: how far from the first and from boosting.

The rule that docs/few-rows.md recommends has a row of its own: trees and networks on tables, networks alone on images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean

from sweep_levels import ALONE, MARGIN, OTHER_LABELS

from securevfl.report import SweepRecord
from securevfl.report.split_ratio import find_ratios
from securevfl.report.statistics import FEWEST, Paired, judge_family, run_paired_test
from securevfl.report.sweep_record import Rows, by_seed, dataset_names, list_positions, method_names

__all__ = ["BOOSTED", "RECOMMENDED", "RULE", "SLACK", "Compared", "compare_places", "is_of_images", "tabulate_places"]

COSTS = Path(__file__).parents[2] / "benchmarks" / "results" / "best_cost.json"
BOOSTED = "boosting alone"
"""What a company has without a partner, by trees."""
RECOMMENDED = ("best with trees", "best")
"""What the page recommends on tables, and on images."""
SLACK = 0.005
"""How far below `BOOSTED` the recommended method may be."""
_COST_NAMES = {
    "best": "best",
    "best with trees": "best_with_trees",
    "residual": "residual",
    "LASER-VFL": "laser",
    "corrected trees": "boosted_residual",
    "HybridTree": "hybrid_tree",
}
_PLACE = ("Default of credit, 2 parties", 0.05)
"""Where costs are counted: data set and overlap."""
RULE = "recommended"
"""Name of the rule among the methods."""
_SHARE = 0.75
"""Of the places a method needs so many to be in the table."""

Place = tuple[str, float]


def is_of_images(data: str) -> bool:
    """Whether a data set contains images, of which parties have halves."""
    return "halves" in data


class Compared:
    """A method over the places of one kind of rows.

    Attributes:
        gaps: at each place, how far its mean is behind the best one; 0 where it is the best.
        samples: at each place, its differences from boosting alone, tested against `SLACK` below.
        shown: how many of these tests show that it is further below than that.
        seconds: mean of its cells.
    """

    def __init__(self, gaps: Mapping[Place, float], samples: Mapping[Place, Paired], seconds: float) -> None:
        self.gaps, self.samples, self.seconds = gaps, samples, seconds
        self.shown = 0

    @property
    def near(self) -> int:
        """Places where it is within a point of the first."""
        return sum(gap <= MARGIN for gap in self.gaps.values())

    @property
    def below(self) -> int:
        """Places where its mean is further below boosting alone than that, whatever a test can show."""
        return sum(one.mean < -SLACK for one in self.samples.values())

    @property
    def worst_place(self) -> tuple[Place, Paired] | None:
        """Where it is furthest below boosting alone by mean."""
        return min(self.samples.items(), key=lambda one: one[1].mean) if self.samples else None


def compare_places(record: SweepRecord, rows: Rows) -> dict[str, Compared]:
    """Method → how it stands; the recommended rule first. Places have five seeds of `ALONE` and of `BOOSTED`.

    Args:
        record: of the sweep.
        rows: which test rows.
    """
    seeds, ratios = by_seed(record, rows), find_ratios(record)
    trees = by_seed(record, "common") if rows == "alone" else seeds  # boosting alone is a job of one party
    found: dict[str, tuple[dict[Place, float], dict[Place, Paired]]] = {}
    for data in dataset_names(record):
        for x in list_positions(record, data):
            here = _find_whole(record, seeds, data, x)
            boosted = trees.get((data, BOOSTED, x), {})
            if ALONE not in here or len(boosted) < FEWEST:
                continue
            means = {method: fmean(one.values()) for method, one in {**here, BOOSTED: boosted}.items()}
            first = max(means.values())
            for method, one in here.items():
                gaps, samples = found.setdefault(method, ({}, {}))
                gaps[data, x] = first - means[method]
                pairs = [one[seed] - boosted[seed] for seed in one if seed in boosted]
                if method != BOOSTED and len(pairs) >= FEWEST:
                    samples[data, x] = run_paired_test(pairs, -SLACK, ratio=ratios[data, x])
    rule = {
        place: RECOMMENDED[is_of_images(place[0])]
        for place in dict.fromkeys(place for gaps, _ in found.values() for place in gaps)
    }
    held = {place: method for place, method in rule.items() if place in found.get(method, ({}, {}))[0]}
    if held:
        gaps = {place: found[method][0][place] for place, method in held.items()}
        samples = {place: found[method][1][place] for place, method in held.items() if place in found[method][1]}
        found = {RULE: (gaps, samples), **found}
    compared = {
        method: Compared(*parts, _find_seconds(record, held if method == RULE else dict.fromkeys(parts[0], method)))
        for method, parts in found.items()
    }
    _judge_tests(compared)
    return compared


def _find_whole(
    record: SweepRecord, seeds: Mapping[tuple[str, str, float], Mapping[int, float]], data: str, x: float
) -> dict[str, Mapping[int, float]]:
    """The methods with at least five seeds at a place that know no more labels or rows than the others."""
    found = {method: seeds.get((data, method, x), {}) for method in method_names(record, data)}
    return {method: one for method, one in found.items() if len(one) >= FEWEST and method not in OTHER_LABELS}


def _find_seconds(record: SweepRecord, method_at: Mapping[Place, str]) -> float:
    spent = [cell.seconds for cell in record.cells if method_at.get((cell.data, cell.x)) == cell.method]
    return fmean(spent) if spent else 0.0


def _judge_tests(compared: Mapping[str, Compared]) -> None:
    """All tests against boosting alone are one family; those of the rule are tests of its methods, counted once."""
    tests = [(method, sample) for method, one in compared.items() if method != RULE for sample in one.samples.values()]
    said = judge_family([sample for _, sample in tests])
    below = {id(sample) for (_, sample), one in zip(tests, said, strict=True) if one.verdict == "does not hold"}
    for one in compared.values():
        one.shown = sum(id(sample) in below for sample in one.samples.values())


@cache
def _read_costs() -> Mapping[str, Mapping[str, float]]:
    cells = json.loads(COSTS.read_text(encoding="utf-8"))["cells"]
    found: Mapping[str, Mapping[str, float]] = next(
        cell["methods"] for cell in cells if (cell["data"], cell["overlap"]) == _PLACE
    )
    return found


def _format_points(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def _list_cost(method: str, seconds: float) -> list[str]:
    found = _read_costs().get(_COST_NAMES.get(method, ""))
    sizes = (
        ["–", "–"] if found is None else [f"{found[what] / 1e6:.1f}" for what in ("bytes, active", "bytes, passive")]
    )
    return [*sizes, f"{seconds:.1f}"]


def _describe_worst(one: Compared) -> list[str]:
    if one.worst_place is None:
        return ["–", "–", "–"]
    (data, x), sample = one.worst_place
    half = "" if sample.low is None else f" ± {100 * (sample.mean - sample.low):.1f}"
    return [
        f"{_format_points(sample.mean)}{half} ({data}, {100 * x:g} %)",
        f"{one.below} of {len(one.samples)}",
        str(one.shown),
    ]


def tabulate_places(record: SweepRecord, rows: Rows = "common") -> str:
    """One row a method, those within a point of the first in most places above.

    Args:
        record: of the sweep.
        rows: which test rows.
    """
    compared = compare_places(record, rows)
    if not compared:
        return f"*No place has five seeds of {ALONE} and {BOOSTED} yet.*"
    most = max(len(one.gaps) for one in compared.values())
    wide = {name for name, one in compared.items() if name in (RULE, *RECOMMENDED) or len(one.gaps) >= _SHARE * most}
    order = sorted(wide, key=lambda name: (name != RULE, -compared[name].near / len(compared[name].gaps), name))
    head = [
        "", "places", "within a point of the first", "furthest behind", f"least against {BOOSTED}",
        "mean more than ½ point below it", "shown", "MB from the active party", "MB from the passive party", "seconds",
    ]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for name in order:
        one, count = compared[name], len(compared[name].gaps)
        near, worst = f"{one.near} ({100 * one.near / count:.0f} %)", _format_points(-max(one.gaps.values()))
        shown = f"**{name}**" if name == RULE else name
        cost = ["–", "–", f"{one.seconds:.1f}"] if name == RULE else _list_cost(name, one.seconds)
        lines.append([shown, str(count), near, worst, *_describe_worst(one), *cost])
    tests = sum(len(one.samples) for name, one in compared.items() if name != RULE)
    notes = [f"{tests} tests against {BOOSTED}, one family under Holm's correction."]
    if few := sorted(compared.keys() - wide):
        notes.append(f"Left out, as they ran at less than {100 * _SHARE:.0f} % of the places: {', '.join(few)}.")
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", f"*{' '.join(notes)}*"])
