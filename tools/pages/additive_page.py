"""The tables of docs/algorithms/additive.md and the figures of README.md's line on it, from
benchmarks/results/additive.json.

python tools/pages/additive_page.py    writes them into the pages; a test holds that the pages have them.
"""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "README", "block", "line", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "algorithms" / "additive.md"
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "additive.json"

_BLOCK = re.compile(r"(<!-- additive beside others -->).*?(<!-- end -->)", flags=re.DOTALL)
_LINE = re.compile(r"(<!-- additive at one -->).*?(<!-- end -->)", flags=re.DOTALL)
_METHODS = {
    "additive": "**additive model on shares**",
    "DP-EBM": "DP-EBM",
    "DP-SGD": "DP-SGD",
    "DP descent": "logistic regression, noisy descent",
    "DP objective": "logistic regression, objective perturbation",
    "boosted trees": "boosted trees, pooled",
    "boosted trees, active alone": "boosted trees, active party alone",
}
_EPSILONS = (None, 8.0, 3.0, 1.0, 0.5)
Cells = Sequence[Mapping[str, Any]]


def _read() -> Cells:
    found: Cells = json.loads(RESULTS.read_text(encoding="utf-8"))["cells"]
    return found


def _common(cells: Cells) -> dict[tuple[str, int], tuple[int, ...]]:
    """Table and rows → the seeds that all of its methods have at all of their ε."""
    groups: dict[tuple[str, int], dict[tuple[str, Any], set[int]]] = {}
    for cell in cells:
        own = groups.setdefault((cell["table"], cell["rows"]), {})
        own.setdefault((cell["method"], cell["epsilon"]), set()).add(cell["seed"])
    return {place: tuple(sorted(set.intersection(*own.values()))) for place, own in groups.items()}


def _mean(cells: Cells, **wanted: Any) -> tuple[float, bool] | None:
    """The mean AUC of some cells, and whether a job would be refused; None where there are none."""
    seeds = wanted.pop("seeds")
    own = [c for c in cells if c["seed"] in seeds and all(c[name] == value for name, value in wanted.items())]
    if not own:
        return None
    return statistics.fmean(c["auc"] for c in own), any(c.get("refused", False) for c in own)


def _text(found: tuple[float, bool] | None, best: bool) -> str:
    if found is None:
        return ""
    text = f"{found[0]:.3f}"
    text = f"**{text}**" if best else text
    return f"refused ({text})" if found[1] else text


def _lines(cells: Cells) -> Iterator[str]:
    seeds = _common(cells)
    for table, rows in sorted(
        seeds, key=lambda place: (list(dict.fromkeys(c["table"] for c in cells)).index(place[0]), -place[1])
    ):
        chosen = seeds[table, rows]
        ours = [cell for cell in cells if (cell["method"], cell["table"], cell["rows"]) == ("additive", table, rows)]
        if not chosen or not ours:
            continue
        at = {
            (method, epsilon): _mean(cells, table=table, rows=rows, method=method, epsilon=epsilon, seeds=chosen)
            for method in _METHODS
            for epsilon in _EPSILONS
        }
        yield f"| *{table}, {ours[0]['trained']:,} rows* | | | | | | {len(chosen)} |"
        for method, title in _METHODS.items():
            if all(at[method, epsilon] is None for epsilon in _EPSILONS):
                continue
            texts = []
            for epsilon in _EPSILONS:
                rivals = [found[0] for one in _METHODS if (found := at[one, epsilon]) is not None]
                mine = at[method, epsilon]
                best = epsilon is not None and mine is not None and mine[0] >= max(rivals) - 5e-4
                texts.append(_text(mine, best))
            yield f"| {title} | {' | '.join(texts)} | |"


def block() -> str:
    """The table of all methods, and who is ahead where."""
    cells = _read()
    head = "| | no privacy | ε = 8 | 3 | 1 | 0.5 | seeds |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *_lines(cells), "", *_standing(cells)])


def _standing(cells: Cells) -> list[str]:
    """At how many places ours is ahead of each peer, of those at which a job is not refused."""
    seeds, found = _common(cells), []
    for peer in ("DP-EBM", "DP-SGD", "DP descent", "DP objective"):
        ahead, behind = 0, []
        for (table, rows), chosen in seeds.items():
            for epsilon in _EPSILONS[1:] if chosen else ():
                place = {"table": table, "rows": rows, "epsilon": epsilon, "seeds": chosen}
                ours, other = (_mean(cells, method=method, **place) for method in ("additive", peer))
                if ours is None or other is None or ours[1]:
                    continue
                ahead += ours[0] >= other[0]
                if ours[0] < other[0]:
                    behind.append(f"{table} {rows:,} at ε = {epsilon:g} by {other[0] - ours[0]:.3f}")
        worst = f"; behind it: {', '.join(behind)}" if behind else ""
        found.append(
            f"- *{_METHODS[peer]}*: the additive model is ahead at {ahead} of {ahead + len(behind)} places{worst}."
        )
    return ["At the places where a job is not refused:", "", *(_wrap(text, "  ") for text in found)]


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def line() -> str:
    """What the README says of ε = 1."""
    cells = _read()
    seeds = _common(cells)["credit", 18_000]
    place: dict[str, Any] = {"table": "credit", "rows": 18_000, "seeds": seeds}
    ours, free, trees, alone, trusted = (
        _mean(cells, method=method, epsilon=epsilon, **place)
        for method, epsilon in (
            ("additive", 1.0),
            ("additive", None),
            ("boosted trees", None),
            ("boosted trees, active alone", None),
            ("DP-EBM", 1.0),
        )
    )
    if ours is None or free is None or trees is None or alone is None or trusted is None:
        raise SystemExit("additive.json lacks the credit table at 18,000 rows")
    return _wrap(
        "On the credit table, 18,000 training rows at three parties, an additive model trained on secret shares within "
        f"ε = 1 (δ = 1e-5) has a test AUC of {ours[0]:.3f} ({free[0]:.3f} without a budget); boosted trees on the "
        f"pooled table, without any privacy, have {trees[0]:.3f}, and on the bank's columns alone {alone[0]:.3f}; "
        f"DP-EBM, also within ε = 1 but at one place that sees the pooled table, has {trusted[0]:.3f} "
        f"(mean of {len(seeds)} seeds). ε bounds what all parties together see in training of any one client, "
        "replaced at all parties, if no two of the three computing parties collude; predictions are not covered."
    )


def written(page: str) -> str:
    """A page with its table or its line as they have to be."""
    page = _BLOCK.sub(lambda found: f"{found[1]}\n\n{block()}\n\n{found[2]}", page)
    return _LINE.sub(lambda found: f"{found[1]}\n{line()}\n{found[2]}", page)


if __name__ == "__main__":
    for file in (PAGE, README):
        file.write_text(written(file.read_text(encoding="utf-8")), encoding="utf-8")
