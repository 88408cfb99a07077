"""Runs the gate: measures every cell, judges them, and writes what it measured.

    python -m benchmarks.gate [--quick | --whole] [--seeds N] [--rows N] [--only TEXT]

The exit status is 1 where a rule is broken. The whole size writes ``results/gate.json`` and
``securevfl/privacy/measured.json``, from which severities follow; the quick one writes ``runs/benchmarks-quick``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gate.cells import CELLS, QUICK, Cell
from benchmarks.gate.judge import Figures, Got, judge
from benchmarks.gate.measure import measure
from benchmarks.gate.on_asking import Asking, ask_all, judge_asking
from benchmarks.gate.power import EXCESS, LEVEL, POWER, RARE, excess_found
from securevfl.shares.exchanges import MASKED

MEASURED = Path(__file__).parents[2] / "securevfl" / "privacy" / "measured.json"
_ROWS, _QUICK_ROWS = 2600, 1300


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 where no rule is broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description="Claims against attacks.")
    parser.add_argument("--quick", action="store_true", help="about two minutes on two cores")
    parser.add_argument("--whole", action="store_true", help="all cells, the default")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the whole size")
    parser.add_argument("--rows", type=int, default=0, help="of the credit table")
    parser.add_argument("--only", default="", help="cells whose name contains one of a|b|c, again")
    asked = parser.parse_args(arguments)
    if asked.quick:
        os.environ.setdefault("SECUREVFL_BENCHMARKS", str(Path("runs") / "benchmarks-quick"))
    cells = [
        c
        for c in (QUICK if asked.quick else CELLS)
        if c.seed < asked.seeds and any(text in c.name for text in asked.only.split("|"))
    ]
    rows = asked.rows or (_QUICK_ROWS if asked.quick else _ROWS)
    found = run(cells, rows=rows, every_party=not asked.quick)
    if asked.only:
        found = _in_place(found)
    from benchmarks.card_figure import judge_quickly  # after the folder of results is chosen, which it reads at once

    asked_about = _ask_all() if not asked.only else _asked_before()
    broken = judge(found) + judge_asking(asked_about) + ([] if asked.only else judge_quickly())
    _write(found, asked_about, broken, rows)
    if not asked.quick:
        before = json.loads(MEASURED.read_text(encoding="utf-8"))
        content = json.dumps(kept_worst(before, measured(found)), indent=2, ensure_ascii=False)
        MEASURED.write_text(content + "\n", encoding="utf-8")
    for line in _power_lines(found):
        print(line)
    for line in broken:
        print(f"broken: {line}", file=sys.stderr)
    print(f"{len(found)} cells, {len(broken)} broken")
    return 1 if broken else 0


def run(cells: Sequence[Cell], *, rows: int, every_party: bool) -> list[Figures]:
    """Measure cells, one after the other.

    Args:
        cells: of the matrix.
        rows: of the credit table.
        every_party: see `measure`.
    """
    tests = 2 * sum(cell.secret for cell in cells)
    found = []
    for cell in cells:
        start = time.perf_counter()
        figures = measure(cell, rows=rows, tests=tests, every_party=every_party)
        found.append(figures)
        print(f"{time.perf_counter() - start:6.1f} s  {_line(figures)}", flush=True)
    return found


def _ask_all() -> list[Asking]:
    """What may be asked on shares."""
    found = []
    start = time.perf_counter()
    for one in ask_all():
        found.append(one)
        told = f"refused ({one.refused[:70]}…)" if one.refused else f"deviation {one.spread:.3f}"
        print(
            f"{time.perf_counter() - start:6.1f} s  asked: {one.name}: {one.answers} answers a row, {told}", flush=True
        )
        start = time.perf_counter()
    return found


def _asked_before() -> list[Asking]:
    """What the last run found of it, where only some cells are measured."""
    from benchmarks.common import RESULTS

    file = RESULTS / "gate.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return [msgspec.convert(one, Asking) for one in before.get("asked", [])]


def _in_place(again: Sequence[Figures]) -> list[Figures]:
    """The cells of the last run, with these in place of those of the same name."""
    from benchmarks.common import RESULTS

    file = RESULTS / "gate.json"
    before = json.loads(file.read_text(encoding="utf-8"))["cells"] if file.exists() else []
    new = {cell.name: cell for cell in again}
    kept = [msgspec.convert(cell, Figures) for cell in before]
    found = [new.pop(cell.name, cell) for cell in kept]
    return [*found, *new.values()]


def measured(found: Sequence[Figures]) -> dict[str, Any]:
    """What `securevfl.privacy.severity` reads: view → the worst that attacks got, over data, algorithms and seeds."""
    worst: dict[str, tuple[str, Got, Got | None, str]] = {}
    for cell in found:
        told = None if cell.predictions is msgspec.UNSET else cell.predictions
        noise = cell.features is not None and cell.features.view == MASKED  # its best attribute is weighed in `judge`
        for about, got, attribute in (
            ("labels", cell.labels, None),
            ("features", cell.features, None if noise else cell.attribute),
            ("features", told, None),
        ):
            if got is None or not got.view:
                continue
            held = worst.get(got.view)
            if held is None or _gain(got) > _gain(held[1]):
                worst[got.view] = about, got, attribute, cell.name
    views: dict[str, dict[str, object]] = {}
    for view, (about, got, attribute, name) in sorted(worst.items()):
        views[view] = {"about": about, "got": round(got.value, 4), "without": round(got.without, 4), "cell": name}
        if attribute is not None:
            views[view] |= {
                "attribute": round(attribute.value, 4),
                "attribute_without": round(attribute.without, 4),
            }
    return {"command": "python -m benchmarks.gate", "views": views}


def kept_worst(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """`now`, with the figures of `before` where they were worse: a lucky draw of noise makes no severity milder. To
    forget an attack that a mend has ended, take its view out of the file."""
    views = {
        view: max((one for one in (before["views"].get(view), figures) if one), key=_gain_of)
        for view, figures in (before["views"] | now["views"]).items()
    }
    return now | {"views": dict(sorted(views.items()))}


def _gain_of(figures: dict[str, Any]) -> float:
    return float(figures["got"]) - max(float(figures["without"]), 0.0)


def _gain(got: Got) -> float:
    return got.value - max(got.without, 0.0)


def _write(found: Sequence[Figures], asked: Sequence[Asking], broken: Sequence[str], rows: int) -> None:
    from benchmarks.common import RESULTS
    from securevfl.run.machine import describe_machine, package_versions

    RESULTS.mkdir(parents=True, exist_ok=True)
    cells = [msgspec.to_builtins(one) for one in found]
    content = {
        "machine": describe_machine(),
        "versions": package_versions(),
        "rows": rows,
        "broken": list(broken),
        "asked": [msgspec.to_builtins(one) for one in asked],
        "cells": cells,
    }
    (RESULTS / "gate.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _power_lines(found: Sequence[Figures]) -> list[str]:
    """What the tests of noise would have found, of each kind of secret the weakest."""
    ranked = [one for cell in found if not cell.control for one in cell.ranked]
    lines = []
    for kind, mine in (
        ("secrets of half of the rows", [one for one in ranked if one.share >= RARE]),
        ("secrets of few rows", [one for one in ranked if one.share < RARE]),
    ):
        if mine:
            excess = max(excess_found(one, len(ranked)) for one in mine if one.bound <= 1 - EXCESS)
            lines.append(
                f"noise, {kind}: {len(mine)} tests find an AUC that is {excess:.3f} above what ε permits with "
                f"probability {POWER:g}; an honest run fails one of {len(ranked)} with probability {LEVEL:g}"
            )
    return lines


def _line(cell: Figures) -> str:
    named = (("labels", cell.labels), ("features", cell.features), ("attribute", cell.attribute), ("order", cell.order))
    parts = [f"{what} {g.severity} {g.value:.3f} ({g.without:.3f})" for what, g in named if g is not None]
    parts += [f"ε of {a.what} {a.reported:.2f} ≥ {a.lower:.2f}" for a in cell.audits]
    told = cell.predictions
    parts += [] if told is msgspec.UNSET else [f"predictions {told.severity} {told.value:.3f} ({told.without:.3f})"]
    parts += [] if cell.uneven is msgspec.UNSET else [f"uneven {cell.uneven:.2f}"]
    parts += [] if cell.twin is None else [f"twin {cell.twin}"]
    return f"{cell.name}: {'; '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
