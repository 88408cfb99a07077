"""The tables of docs/algorithms/best.md, from benchmarks/results/best_members.json and best_cost.json.

python tools/pages/best_page.py    writes them into the page; a test holds that the page has them.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from sweep_sentences import costs

__all__ = ["PAGE", "block", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "algorithms" / "best.md"
RESULTS = ROOT / "benchmarks" / "results" / "best_members.json"

_BLOCK = re.compile(r"(<!-- best members -->).*?(<!-- end -->)", flags=re.DOTALL)
_COSTS = re.compile(r"(<!-- best costs -->).*?(<!-- end -->)", flags=re.DOTALL)
_WORDS = {
    "laser, one model": "LASER-VFL",
    "residual, one model": "residual",
    "local, one model": "local",
    "laser, bagged": "LASER-VFL, four models",
    "residual, bagged": "residual, four models",
    "local, bagged": "local, four models",
    "laser and local, equal weights": "LASER-VFL and local, equal weights",
    "laser and residual, equal weights": "LASER-VFL and residual, equal weights",
    "equal weights": "all three, equal weights",
    "the method with the smallest loss": "the one with the smallest log-loss",
    "pull 0": "weights without a pull",
    "pull 1": "weights, α = 1",
    "pull 3": "weights, α = 3",
    "pull 10": "**weights, α = 10** (as it is)",
    "pull 30": "weights, α = 30",
}


def block() -> str:
    """The table: the mean of each variant at each place, and how far it is behind the best of them."""
    cells: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["cells"]
    places = list(dict.fromkeys((cell["data"], cell["overlap"]) for cell in cells))
    at = {place: [cell for cell in cells if (cell["data"], cell["overlap"]) == place] for place in places}
    means = {
        place: {name: 100 * statistics.fmean(cell["scores"][name] for cell in found) for name in _WORDS}
        for place, found in at.items()
    }
    seeds = sorted({cell["seed"] for cell in cells})
    rows = {place: max(cell["rows"] for cell in found) for place, found in at.items()}
    head = [f"{data.split(',')[0]} {overlap:.0%} ({rows[data, overlap]:,})" for data, overlap in places]
    lines = [
        f"| | {' | '.join(head)} | behind, mean | worst |",
        "|---" * (len(places) + 3) + "|",
    ]
    for name, words in _WORDS.items():
        gaps = [max(means[place].values()) - means[place][name] for place in places]
        scores = [f"{means[place][name]:.1f}" for place in places]
        lines.append(f"| {words} | {' | '.join(scores)} | {statistics.fmean(gaps):.2f} | {max(gaps):.2f} |")
    told = f"{len(seeds)} seed{'s' * (len(seeds) > 1)} ({', '.join(map(str, seeds))}), {len(cells)} runs of Best"
    return "\n".join([*lines, "", f"*{told}. In brackets: common rows that train or validate.*"])


def written(page: str) -> str:
    """The page with its tables as they have to be."""
    page = _BLOCK.sub(lambda found: f"{found[1]}\n\n{block()}\n\n{found[2]}", page)
    return _COSTS.sub(lambda found: f"{found[1]}\n\n{costs()}\n\n{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
