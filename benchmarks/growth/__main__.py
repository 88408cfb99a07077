"""How reading, PSI, set-up, an epoch and memory grow with the rows, in this version and in 0.1.

    python -m benchmarks.growth [--rows 100000 1000000 10000000] [--only psi plain ckks bfv] [--versions new old]
                                [--limit 1800] [--again]

Three parties with 30 columns each, SplitNN with h = 16 and batches of 256, all parties in one process. Each cell is a
process of its own, held to a time limit; its peak memory is the largest resident set that the system counted, mapped
files and all. A cell that is in the results already is not run again, unless told so: a table that broke off goes on.

Training meets rows that were joined in the clear; PSI is a cell of its own. A sealed epoch of 10⁶ rows or more is
measured over 20 batches and multiplied by the number of batches: ``batches`` and ``of`` say so.

Version 0.1 is the commit before the audit of it began to be mended; its tree is made beside this one under ``--work``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, write
from benchmarks.growth.tables import write_tables

OLD = "b69923a"
"""Version 0.1: the newest commit before what the audit found was mended."""

ROOT = Path(__file__).parents[2]
CELL = Path(__file__).with_name("cell.py")
WHAT = ("psi", "plain", "ckks", "bfv")
_COUNTED = 20
_SEALED_WHOLE = 100_000


def old_tree(work: Path) -> Path | None:
    """A tree of version 0.1, made unless it is there; None where the history does not have it."""
    tree = work / f"securevfl-{OLD}"
    if not tree.exists():
        made = subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), OLD], check=False, capture_output=True
        )
        if made.returncode:
            return None
    return tree


def run_cell(tree: Path, folder: Path, what: str, steps: int, limit: float, threads: int) -> dict[str, Any]:
    """The figures of one cell; with ``ended`` where it did not come to its end, and those that it had until then."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (tree, tree / "psi", tree / "crypto"))),
        "OMP_NUM_THREADS": str(threads),
        "TMPDIR": str(folder),
    }
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(CELL), str(folder), what, str(steps)],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ended = ""
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        ended = f"more than {limit:.0f} s"
    lines = [line for line in output.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    found.pop("version", None)
    if process.returncode and not ended:
        ended = (errors.strip().splitlines() or [f"signal {-process.returncode}"])[-1][:300]
    return found | {"wall": time.perf_counter() - start} | ({"ended": ended} if ended else {})


def main() -> None:
    """Run the cells that are asked for, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--only", nargs="+", choices=WHAT, default=list(WHAT))
    parser.add_argument("--versions", nargs="+", choices=("new", "old"), default=["new", "old"])
    parser.add_argument("--limit", type=float, default=1800, help="seconds for a cell")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("/tmp/securevfl-growth"), help="for tables and the old tree")  # noqa: S108
    parser.add_argument("--again", action="store_true", help="run cells again that are in the results")
    parser.add_argument("--quick", action="store_true", help="10,000 rows, this version")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.versions = [10_000], ["new"]
    path = RESULTS / "growth.json"
    cells: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else {}
    trees = {"new": ROOT, "old": old_tree(options.work) if "old" in options.versions else None}
    for rows in options.rows:
        folder = options.work / f"rows-{rows}"
        write_tables(folder, rows)
        for what in options.only:
            for version in options.versions:
                key = f"{rows} {what} {version}"
                tree = trees[version]
                if (key in cells and not options.again) or tree is None:
                    continue
                steps = 0 if what in ("psi", "plain") else _COUNTED if rows > _SEALED_WHOLE else -1
                print(key, flush=True)
                cells[key] = run_cell(tree, folder, what, steps, options.limit, options.threads)
                figures = {"old": OLD, "columns": 30, "parties": 3, "threads": options.threads, "cells": cells}
                write("growth", figures)


if __name__ == "__main__":
    main()
