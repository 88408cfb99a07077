"""The tables on ways to combine opinions in docs/algorithms/best.md, from benchmarks/results/pooled_opinions.json.

python tools/pages/opinions_page.py    writes them into the page; a test holds that the page has them.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "tabulate", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "algorithms" / "best.md"
RESULTS = ROOT / "benchmarks" / "results" / "pooled_opinions.json"
_BLOCK = re.compile(r"(<!-- opinions: (ways|alone) -->).*?(<!-- end -->)", flags=re.DOTALL)
_SHORT = {
    "Default of credit, 2 parties": "credit, weak",
    "Default of credit, network active": "credit, strong",
    "Parkinson's speech": "speech",
    "Parkinson's speech, lab active": "speech, lab",
}
_AS_IT_IS = "weighted mean"

Cell = Mapping[str, Any]


def tabulate(cells: Sequence[Cell], what: str) -> str:
    """One row a way: its mean AUC × 100 at each place, over all places, and how far it is behind the best way at worst.

    Args:
        cells: of the benchmark.
        what: ``"ways"`` for rows of all parties, ``"alone"`` for rows without the partner.
    """
    places = sorted(
        {(cell["data"], cell["overlap"]) for cell in cells}, key=lambda one: (list(_SHORT).index(one[0]), one)
    )
    at = {place: [cell for cell in cells if (cell["data"], cell["overlap"]) == place] for place in places}
    names = list(cells[0][what])
    means = {
        name: [100 * statistics.fmean(cell[what][name] for cell in at[place]) for place in places] for name in names
    }
    combined = [name for name in names if name not in ("best", "trees", "own trees")]
    best = [max(means[name][k] for name in combined) for k in range(len(places))]
    counts = {place: len(found) for place, found in at.items()}
    head = [f"{_SHORT[data]} {100 * x:g} % ({at[data, x][0]['rows']:,})" for data, x in places]
    lines = [["", *head, "mean", "behind the best combination, at worst"]]
    lines.append(["---"] * len(lines[0]))
    for name in names:
        shown = f"**{name}**" if name == _AS_IT_IS else name
        behind = f"{max(b - m for b, m in zip(best, means[name], strict=True)):.1f}" if name in combined else "–"
        lines.append([shown, *(f"{one:.1f}" for one in means[name]), f"{statistics.fmean(means[name]):.1f}", behind])
    seeds = sorted(set(counts.values()))
    told = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    note = f"*{told} seeds each. In brackets: common rows that no scoring member trained on.*"
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", note])


def written(page: str) -> str:
    """The page with its tables as they have to be."""
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))["cells"]
    return _BLOCK.sub(lambda found: f"{found[1]}\n\n{tabulate(cells, found[2])}\n\n{found[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
