"""The tables of docs/algorithms/best.md, from best_members.json, best_cost.json and pooled_opinions.json in
benchmarks/results.

python tools/pages/best_page.py    writes them into the page; a test holds that the page has them.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep_sentences import costs

__all__ = ["PAGE", "block", "tabulate_opinions", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "algorithms" / "best.md"
RESULTS = ROOT / "benchmarks" / "results" / "best_members.json"
OPINIONS = ROOT / "benchmarks" / "results" / "pooled_opinions.json"

_BLOCK = re.compile(r"(<!-- best members -->).*?(<!-- end -->)", flags=re.DOTALL)
_COSTS = re.compile(r"(<!-- best costs -->).*?(<!-- end -->)", flags=re.DOTALL)
_OPINIONS = re.compile(r"(<!-- opinions: (ways|alone) -->).*?(<!-- end -->)", flags=re.DOTALL)
_SHORT = {
    "Default of credit, 2 parties": "credit, weak",
    "Default of credit, network active": "credit, strong",
    "Parkinson's speech": "speech",
    "Parkinson's speech, lab active": "speech, lab",
}
_AS_IT_IS = "weighted mean"

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


def tabulate_opinions(cells: Sequence[Mapping[str, Any]], what: str) -> str:
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
    page = _BLOCK.sub(lambda found: f"{found[1]}\n\n{block()}\n\n{found[2]}", page)
    page = _COSTS.sub(lambda found: f"{found[1]}\n\n{costs()}\n\n{found[2]}", page)
    cells = json.loads(OPINIONS.read_text(encoding="utf-8"))["cells"]
    return _OPINIONS.sub(lambda found: f"{found[1]}\n\n{tabulate_opinions(cells, found[2])}\n\n{found[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
