"""The tables and the picture of docs/verdicts.md, from benchmarks/results/false_verdicts.json and false_bounds.json.

python tools/pages/false_verdicts_page.py    writes them; a test holds that the page has them.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from securevfl.report.chart import LIGHT

__all__ = ["BOUNDS", "PAGE", "PICTURE", "block", "bounds_block", "digest", "draw", "read", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "verdicts.md"
PICTURE = ROOT / "docs" / "images" / "false-verdicts.png"
RESULTS = ROOT / "benchmarks" / "results" / "false_verdicts.json"
BOUNDS = ROOT / "benchmarks" / "results" / "false_bounds.json"
LOOKS = ROOT / "benchmarks" / "results" / "false_looks.json"

INK, MUTED, GRID = LIGHT["ink"], LIGHT["muted"], LIGHT["line"]
_SEEDS = (5, 10, 20)
_TESTS = {"Student": ("#d55e00", "Student's t"), "corrected": ("#0072b2", "corrected t")}  # Okabe and Ito's
_SIZES = {5: 3.5, 10: 5.0, 20: 6.5}
_BOUNDS_BLOCK = re.compile(r"(<!-- false bounds -->).*?(<!-- end -->)", flags=re.DOTALL)
_LOOKS_BLOCK = re.compile(r"(<!-- false looks -->).*?(<!-- end -->)", flags=re.DOTALL)
_BLOCK = re.compile(r"(<!-- false verdicts -->).*?(<!-- end -->)", flags=re.DOTALL)


def read(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Case → its figures."""
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {name: found for name, found in figures.items() if name not in ("machine", "versions")}


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def block() -> str:
    """One row a case: the correlation assumed and found, and how often single tests and pages decide, in %."""
    head = ["", "repetitions", "correlation, assumed", "found"]
    for words in ("Student's t", "corrected"):
        head += [f"{words}, {n} seeds" for n in _SEEDS]
    head.append("pages, corrected")
    lines = [head, ["---"] * len(head)]
    for name, found in read().items():
        correlations = [f"{found[which]:.2f}".replace("-", "−") for which in ("assumed correlation", "correlation")]
        single = [_percent(found[f"{test}, {n} seeds"]["single"]) for test in _TESTS for n in _SEEDS]
        pages = " / ".join(_percent(found[f"corrected, {n} seeds"]["pages"]) for n in _SEEDS)
        lines.append([name, str(found["repeats"]), *correlations, *single, pages])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bounds_block() -> str:
    """One row a case: how often tests at the bound are false, singly and by page, and how often equal methods are shown
    to be so, in %, for each number of seeds."""
    columns = {
        "single": "single tests",
        "equal": "pages, all equal",
        "at the bound": "pages, all at the bound",
        "mixed": "pages, mixed",
        "shown small": "equal methods shown to be so",
    }
    lines = [["", "repetitions", *columns.values()], ["---"] * (2 + len(columns))]
    for name, found in read(BOUNDS).items():
        shares = [" / ".join(_percent(found[f"{n} seeds"][key]) for n in _SEEDS) for key in columns]
        lines.append([name, str(found["repeats"]), *shares])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def looks_block() -> str:
    """One row a case: how often single tests and pages decide with all seeds, and at any look, in %."""
    lines = [["", "repetitions", "single, 20 seeds", "single, any look", "pages, 20 seeds", "pages, any look"]]
    lines.append(["---"] * len(lines[0]))
    for name, found in read(LOOKS).items():
        shares = [_percent(found[when][what]) for what in ("single", "pages") for when in ("once", "looks")]
        lines.append([name, str(found["repeats"]), *shares])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def written(page: str) -> str:
    """The page with its tables as they have to be."""
    page = _LOOKS_BLOCK.sub(lambda found: f"{found[1]}\n\n{looks_block()}\n\n{found[2]}", page)
    page = _BOUNDS_BLOCK.sub(lambda found: f"{found[1]}\n\n{bounds_block()}\n\n{found[2]}", page)
    return _BLOCK.sub(lambda found: f"{found[1]}\n\n{block()}\n\n{found[2]}", page)


def digest() -> str:
    """Of all that the picture shows; it is in the file, so that a test can compare it."""
    shown = [
        [name, test, n, round(found[f"{test}, {n} seeds"]["single"], 4)]
        for name, found in read().items()
        for test in _TESTS
        for n in _SEEDS
    ]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def draw(path: Path) -> None:
    """Write the picture: a row a case, the share of single tests that decide between equal methods, by test and
    seeds."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    cases = read()
    figure = Figure(figsize=(8.2, 1.3 + 0.34 * len(cases)), layout="constrained")
    axes = figure.subplots()
    for i, found in enumerate(cases.values()):
        for test, (colour, _) in _TESTS.items():
            shares = [100 * found[f"{test}, {n} seeds"]["single"] for n in _SEEDS]
            axes.plot(shares, [i] * len(shares), color=colour, lw=1.1, alpha=0.6)
            for n, share in zip(_SEEDS, shares, strict=True):
                axes.plot([share], [i], marker="o", ms=_SIZES[n], color=colour)
    axes.axvline(5, color=INK, lw=0.8)
    axes.text(5, -0.75, "5 %", color=INK, fontsize=8.5, ha="center")
    axes.set_ylim(len(cases) - 0.5, -0.6)
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(cases)), list(cases), fontsize=8.5)
    axes.set_xlabel("tests between equal methods that decide, in %", color=MUTED, fontsize=8.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(colors=MUTED, length=0, labelsize=8.5)
    axes.xaxis.grid(True, color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    handles = [Line2D([], [], color=colour, lw=1.5, label=words) for colour, words in _TESTS.values()]
    handles += [Line2D([], [], color=MUTED, marker="o", ms=_SIZES[n], lw=0, label=f"{n} seeds") for n in _SEEDS]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False, fontsize=8.5)
    figure.savefig(path, dpi=110, metadata={"Description": digest()})


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    draw(PICTURE)
