"""The tables and sentences about trees for few common rows, from benchmarks/results/few_trees.json.

python tools/pages/trees_page.py    writes them into docs/few-rows.md; a test holds that the page has them.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import securevfl as sv  # noqa: F401 - the report room comes through it
from securevfl.report.statistics import run_paired_test

__all__ = ["PAGE", "blocks", "read_cells", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "few-rows.md"
RESULTS = ROOT / "benchmarks" / "results" / "few_trees.json"
TEST = 0.2
"""Share of the clients that test; each seed draws others, so tests are corrected by TEST / (1 − TEST)."""
POOLED, ALONE = "best with trees", "own trees, four models"
"""The recommended method, and what it must not fall behind."""

_BLOCK = re.compile(r"(<!-- trees: ([^>]*?) -->).*?(<!-- end -->)", flags=re.DOTALL)
Cell = Mapping[str, Any]
_OWN = "boosted_residual, partner"
_PICKS: Mapping[str, tuple[str, Callable[[Cell], float]]] = {
    "own trees": (_OWN, lambda cell: cell["alone"]),
    ALONE: ("best_with_trees", lambda cell: cell["ways"]["own trees, four"]),
    "boosting on common rows": ("boosting", lambda cell: cell["auc"]),
    "HybridTree": ("hybrid_tree", lambda cell: cell["auc"]),
    "own trees, corrected": (_OWN, lambda cell: cell["auc"]),
    "own trees, corrected, four models": ("best_with_trees", lambda cell: cell["ways"]["trees, four"]),
    "`best`": ("best_with_trees", lambda cell: cell["ways"]["best"]),
    POOLED: ("best_with_trees", lambda cell: cell["auc"]),
    "mean of `best` and corrected trees": ("best_with_trees", lambda cell: cell["ways"]["mean of best and trees"]),
    "mean of all three": ("best_with_trees", lambda cell: cell["ways"]["mean of all three"]),
    "log-odds of all three, equal weights": (
        "best_with_trees",
        lambda cell: cell["ways"]["log-odds with equal weights"],
    ),
}
"""Row of the table → the method of its cells, and its AUC in a cell."""


def read_cells(file: Path = RESULTS) -> list[dict[str, Any]]:
    """The benchmark's cells."""
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return found


def _list_places(cells: Sequence[Cell]) -> list[tuple[str, float]]:
    return sorted({(cell["side"], cell["overlap"]) for cell in cells}, key=lambda place: (place[0] != "weak", place[1]))


def _by_seed(cells: Sequence[Cell], row: str, place: tuple[str, float]) -> dict[int, float]:
    """Seed → AUC × 100 of a row of the table at a place."""
    method, pick = _PICKS[row]
    return {
        cell["seed"]: 100 * pick(cell)
        for cell in cells
        if (cell["side"], cell["overlap"]) == place and cell["method"] == method
    }


def _format_heads(cells: Sequence[Cell]) -> list[str]:
    return [f"{side}, {100 * overlap:g} %" for side, overlap in _list_places(cells)]


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _format_signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def differences(cells: Sequence[Cell], better: str, worse: str, place: tuple[str, float]) -> list[float]:
    """Differences in points of the seeds that have both."""
    one, other = _by_seed(cells, better, place), _by_seed(cells, worse, place)
    return [one[seed] - other[seed] for seed in sorted(one) if seed in other]


def means(cells: Sequence[Cell]) -> str:
    """AUC × 100 by place, mean ± deviation, with the number of seeds where they are not five."""
    rows = []
    for name in _PICKS:
        shown = []
        for place in _list_places(cells):
            found = list(_by_seed(cells, name, place).values())
            if not found:
                shown.append("–")
                continue
            spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
            count = "" if len(found) >= 5 else f" ({len(found)})"
            shown.append(f"{statistics.fmean(found):.1f}{spread}{count}")
        rows.append([name, *shown])
    told = "*In brackets: seeds, where they are fewer than five.*"
    return f"{_format_table(['', *_format_heads(cells)], rows)}\n\n{told}"


def _format_interval(found: Sequence[float]) -> str:
    if not found:
        return "–"
    sample = run_paired_test(found, ratio=TEST / (1 - TEST))
    if sample.low is None or sample.high is None:
        return f"{_format_signed(sample.mean)} (1)"
    return f"{_format_signed(sample.mean)} ± {(sample.high - sample.low) / 2:.1f}" + (
        f" ({len(found)})" if len(found) < 5 else ""
    )


def against(cells: Sequence[Cell]) -> str:
    """Differences of the recommended method from others, in points, with corrected 95 % intervals."""
    rows = [
        [f"less {name}", *(_format_interval(differences(cells, POOLED, name, place)) for place in _list_places(cells))]
        for name in _PICKS
        if name != POOLED
    ]
    return _format_table([POOLED, *_format_heads(cells)], rows)


def costs(cells: Sequence[Cell]) -> str:
    """Bytes and processor seconds of one job of each method, means over the places and seeds."""
    found: dict[str, list[Mapping[str, float]]] = {}
    words = {
        "boosting": "boosting on common rows",
        "hybrid_tree": "HybridTree",
        _OWN: "own trees, corrected",
        "best_with_trees": POOLED,
    }
    for cell in cells:
        if cell["method"] in words:
            found.setdefault(words[cell["method"]], []).append(cell)
        for kind, cost in cell.get("members", {}).items():
            name = "`best`, its members alone" if kind == "best" else "own trees, corrected, four models"
            found.setdefault(name, []).append(cost)
    rows = [
        [
            name,
            *(
                f"{statistics.fmean(one[what] for one in each) / 1e6:.2f}"
                for what in ("bytes, active", "bytes, passive")
            ),
            "part of it" if "method" not in each[0] else f"{statistics.fmean(one['seconds'] for one in each):.1f}",
        ]
        for name, each in found.items()
    ]
    return _format_table(["", "MB from the active party", "MB from the passive party", "processor seconds"], rows)


def worst(cells: Sequence[Cell]) -> str:
    """How far the recommended method, and plainer ways to combine, fall below the own trees alone at worst."""
    parts = []
    for name in (POOLED, "mean of all three", "mean of `best` and corrected trees", "own trees, corrected"):
        gaps = {
            place: statistics.fmean(found)
            for place in _list_places(cells)
            if (found := differences(cells, name, ALONE, place))
        }
        if not gaps:
            continue
        place = min(gaps, key=lambda one: gaps[one])
        parts.append(f"{name} {_format_signed(gaps[place])} ({place[0]}, {100 * place[1]:g} %)")
    seeds = sorted({cell["seed"] for cell in cells if cell["method"] == "best_with_trees"})
    return (
        f"Against the own trees alone (four models), the worst mean over seeds of a place is, in points: "
        f"{'; '.join(parts)}. Seeds of these rows: {', '.join(map(str, seeds))}."
    )


_KINDS: Mapping[str, Callable[[Sequence[Cell]], str]] = {
    "means": means,
    "against": against,
    "costs": costs,
    "worst": worst,
}


def blocks() -> dict[str, str]:
    """Name → block, as the page should have it."""
    cells = read_cells()
    return {name: make(cells) for name, make in _KINDS.items()}


def written(page: str) -> str:
    """The page with its blocks as they have to be."""
    made = blocks()
    return _BLOCK.sub(lambda found: f"{found[1]}\n\n{made[found[2].strip()]}\n\n{found[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
