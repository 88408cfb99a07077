"""The figures of ten public tables in docs/figures.md and the sentences on them elsewhere, from what was measured.

python tools/pages/ten_tables_page.py    writes them into the pages; a test holds that they have them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["PAGES", "describe_way", "list_tables", "written"]

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "benchmarks" / "results" / "ten_tables.json"
PAGES = (ROOT / "docs" / "figures.md", ROOT / "docs" / "algorithms" / "boosting.md")
_SHORT = {"auc": "AUC", "accuracy": "accuracy", "r2": "R²"}
_END = "<!-- end of ten tables -->"


def list_tables(way: str, cells: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The table of one way in Markdown.

    Args:
        way: of the benchmark.
        cells: of all ways, by their keys.
        summary: of all ways.
    """
    has_like = way == "trees"
    head = ["table", "rows × columns", "metric", "seeds", "ours", "pooled boosted", "pooled linear", "gap to boosted"]
    head += ["gap to like settings"] * has_like + ["CPU minutes"]
    lines = [head, ["---"] * len(head)]
    for name, one in summary[way]["tables"].items():
        cell = next(cell for key, cell in cells.items() if key.startswith(f"{way}, {name}, "))
        line = [name, f"{cell['rows']:,} × {cell['columns']}", _SHORT[one["metric"]], str(one["seeds"])]
        line += [f"{one[what]:.4f}" for what in ("ours", "pooled boosted", "pooled linear")]
        line.append(_format_gap(one["gap"], one["error of the gap"]))
        line += [
            _format_gap(one["gap to like"], one["error of the gap to like"]) if "gap to like" in one else "–"
        ] * has_like
        lines.append([*line, f"{one['minutes']:.2f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_gap(gap: float, error: float | None) -> str:
    return f"{gap:+.4f}" + ("" if error is None else f" ± {error:.4f}")


def describe_way(way: str, summary: Mapping[str, Any]) -> str:
    """The mean gap and the worst, in a sentence."""
    found = summary[way]
    worst, name = found["tables"][found["worst"]], found["worst"]
    count = len(found["tables"])
    over = "On one table the" if count == 1 else f"Over {count} tables the mean"
    text = (
        f"{over} gap to pooled boosted trees is {found['mean gap']:+.4f}, "
        f"the worst {_format_gap(worst['gap'], worst['error of the gap'])} ({name})."
    )
    if count == 1:
        text = f"{over} gap to pooled boosted trees is {_format_gap(worst['gap'], worst['error of the gap'])} ({name})."
    if way == "trees":  # cells of some tables were measured before like settings were
        likes = {name: one["gap to like"] for name, one in found["tables"].items() if "gap to like" in one}
        least = min(likes, key=lambda name: likes[name])
        mean, worst = statistics.fmean(likes.values()), found["tables"][least]
        text += (
            f" To pooled trees of like settings, over {len(likes)} tables, the mean gap is {mean:+.4f}, the worst "
            f"{_format_gap(worst['gap to like'], worst['error of the gap to like'])} ({least})."
        )
    return text


def written(page: str) -> str:
    """The page with its blocks as they should be."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    for way in measured["summary"]:
        blocks = {
            f"<!-- ten tables: {way} -->": list_tables(way, measured["cells"], measured["summary"]),
            f"<!-- ten tables, in a sentence: {way} -->": describe_way(way, measured["summary"]),
        }
        for begin, text in blocks.items():
            if begin in page:
                before, _, rest = page.partition(begin)
                page = f"{before}{begin}\n\n{text}\n\n{_END}{rest.partition(_END)[2]}"
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
