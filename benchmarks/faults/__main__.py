"""Faults at every phase of every job, with real processes and mutual TLS on loopback.

    python -m benchmarks.faults [--quick] [--only TEXT] [--minutes N] [--part I/N] [--keep FOLDER]

The whole size writes ``results/faults.json`` after each cell, and goes on where an earlier call ended. The exit status
is 1 where a cell is broken that `remains.toml` does not list.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.known import find_remaining, read_remains


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 where nothing is broken but what is known to remain."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description="Faults, by rule.")
    parser.add_argument("--quick", action="store_true", help="ten cells and the controls, a minute of CPU time")
    parser.add_argument("--controls", action="store_true", help="known bugs put back alone")
    parser.add_argument("--only", default="", help="cells whose name contains all of a+b+c")
    parser.add_argument("--minutes", type=float, default=600, help="begin no cell after this time")
    parser.add_argument("--part", default="1/1", help="every n-th cell, from the i-th")
    parser.add_argument("--merge", action="store_true", help="put the results of all parts into one file")
    parser.add_argument("--again", action="store_true", help="run the broken cells of the last time again")
    parser.add_argument("--keep", default="", help="keep the folders of broken cells here")
    asked = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    if asked.quick:
        os.environ.setdefault("SECUREVFL_BENCHMARKS", str(Path("runs") / "benchmarks-quick"))
    from benchmarks.faults.cells import cells, quick_cells
    from benchmarks.faults.runs import Runs, load_everything

    load_everything()
    chosen = quick_cells() if asked.quick else cells()
    chosen = [cell for cell in chosen if all(word in cell.name for word in asked.only.split("+"))]
    part, parts = map(int, asked.part.split("/"))
    results = Results(asked.part)
    if asked.merge:
        results.merge()
        return 0
    remains = read_remains()
    until = time.monotonic() + 60 * asked.minutes
    fresh = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        runs = Runs(Path(folder))
        if not asked.controls:
            for cell in chosen[part - 1 :: parts]:
                if time.monotonic() > until:
                    break
                if not asked.quick and results.has(cell.name, again=asked.again):
                    continue
                found = runs.run_cell(cell)
                fresh.append(found)
                results.add(found)
                print(describe(found, remains), flush=True)
                if found["broken"] and asked.keep and "codes" in found:
                    _keep(Path(folder) / "cell", Path(asked.keep), cell.name)
        missed = []
        if asked.quick or asked.controls:
            from benchmarks.faults.controls import run_controls

            missed = run_controls(runs)
    unknown = [one for one in fresh if one["broken"] and find_remaining(one, remains) is None]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(fresh)} cells, {sum(one['happened'] for one in fresh)} faults, {len(unknown)} broken, "
        f"{sum(bool(one['broken']) for one in fresh) - len(unknown)} known to remain, {len(missed)} controls missed, "
        f"{used.ru_utime + used.ru_stime + time.process_time():.0f} CPU-s"
    )
    return 1 if unknown or missed else 0


class Results:
    """The results so far; calls that run parts of the matrix at once have a file each, until `merge`.

    Args:
        part: of this call.
    """

    def __init__(self, part: str) -> None:
        from benchmarks.folders import RESULTS

        more = "" if part == "1/1" else f"-{part.replace('/', '-of-')}"
        self._path = RESULTS / f"faults{more}.json"
        self._files = sorted(RESULTS.glob("faults*.json"))
        self._cells = {} if not self._path.exists() else _read_cells(self._path)
        self._all = {name: one for file in self._files for name, one in _read_cells(file).items()} | self._cells

    def has(self, name: str, *, again: bool) -> bool:
        """Whether a cell ran; with `again`, whether it ran and was not broken."""
        return name in self._all and not (again and self._all[name]["broken"])

    def add(self, found: dict[str, Any]) -> None:
        """Write one cell's result."""
        self._cells[found["name"]] = found
        self._write()

    def merge(self) -> None:
        """Put all parts into one file; of a cell that ran twice, the result of the file that was written last."""
        written = sorted(self._files, key=lambda file: file.stat().st_mtime)
        self._cells = {name: one for file in written for name, one in _read_cells(file).items()}
        self._write()
        for file in self._files:
            if file != self._path:
                file.unlink()

    def _write(self) -> None:
        from benchmarks.faults.cells import impossible
        from securevfl.run.machine import describe_machine, package_versions

        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "machine": describe_machine(),
            "versions": package_versions(),
            "impossible": dict(impossible()),
            "cells": sorted(self._cells.values(), key=lambda one: one["name"]),
        }
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=None) + "\n", encoding="utf-8")
        temporary.replace(self._path)


def _read_cells(path: Path) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(path.read_text(encoding="utf-8"))["cells"]}


def describe(found: dict[str, Any], remains: Sequence[dict[str, str]]) -> str:
    """One line about a cell."""
    if not found["broken"]:
        state = "ok" if found["happened"] else "did not happen"
    else:
        state = "broken" if find_remaining(found, remains) is None else "remains"
    more = "".join(f"\n    {line}" for line in found["broken"])
    return f"{found.get('seconds', 0):6.1f} s {found.get('cpu', 0):5.1f} CPU-s  {state:14} {found['name']}{more}"


def _keep(folder: Path, target: Path, name: str) -> None:
    place = target / name.replace(", ", "--").replace(" ", "-")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)


if __name__ == "__main__":
    sys.exit(main())
