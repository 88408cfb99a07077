"""Run the missing cells of the pages' sweeps, for so many minutes; those that serve most claims come first.

    python -m benchmarks.evidence --list [--only NAME …]
    python -m benchmarks.evidence --minutes 60 [--only NAME …] [--methods LABEL …] [--data LABEL …] [--workers 2]
    python -m benchmarks.evidence --again 5 [--only NAME …]

Each finished cell is in benchmarks/results/sweep-<name>.json before the next one starts, so it can be interrupted, and
goes on where it was. `--again` runs cells that have figures once more, and says whether the figures are the same.
Afterwards: `claims_page.py`, `papers_page.py` and `sweep_pages.py` of tools/pages write the pages again.
"""

from __future__ import annotations

import argparse
import difflib
import random
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks import skip
from benchmarks.evidence_plan import SWEEPS, Evidence
from securevfl.errors import InputError
from securevfl.experiments.cells import Cell, CellError
from securevfl.experiments.pool import choose_pool, run_cells
from securevfl.report.statistics import FEWEST

__all__ = ["compare_again", "list_missing", "main", "run_for"]

AFRESH = 600.0
"""Seconds after which the order is made again: verdicts change with each cell."""


def list_missing(evidence: Evidence) -> str:
    """A line a sweep and a line a claim: what is missing, and reckoned CPU-hours."""
    reckon, found = evidence.reckoner(), []
    found.append(f"{'sweep':30} {'cells':>6} {'ran':>6} {'to run':>6} {'CPU-hours':>9}")
    planned = evidence.plan()
    left = {cell.digest: cell for cell in planned}
    for table in evidence.tables:
        missing = [cell for cell in table.sweep.cells if cell.digest in left]
        hours = sum(map(reckon, missing)) / 3600
        cells = len(table.sweep.cells)
        found.append(f"{table.name:30} {cells:6} {len(table.figures):6} {len(missing):6} {hours:9.2f}")
    found.append(f"all, each cell once: {len(planned)} cells, {sum(map(reckon, planned)) / 3600:.2f} CPU-hours")
    found += ["", "claims of the papers"]
    for line in evidence.list_lines():
        if line.claim is None:
            continue
        ran = sum(len(by_seed) >= FEWEST for by_seed in line.differences.values())
        cost = sum(map(reckon, line.wanted)) / 3600
        need = f"; {len(line.wanted)} cells, {cost:.2f} h would say more" if line.wanted else ""
        if line.judgement is not None and line.judgement.verdict == "undecided":
            need += f"; {line.seeds or 'no number of'} seeds would decide"
        claim = evidence.claims[line.claim]
        text = f"{line.verdict}, {ran} of {len(line.pairs)} places"
        found.append(f"  {claim['paper']}, {claim['where']}: {text}{need}")
    return "\n".join(found)


def run_for(
    evidence: Evidence,
    minutes: float,
    *,
    workers: int = 1,
    limit: int | None = None,
    methods: Collection[str] = (),
    data: Collection[str] = (),
) -> int:
    """Run missing cells until the time is over; those that run then end. Returns how many ran.

    Args:
        evidence: the sweeps.
        minutes: wall time.
        workers: processes, one thread each; 1 runs all cells in this process.
        limit: at most so many cells.
        methods: labels of the methods whose cells run; empty for all.
        data: labels of the data sets whose cells run; empty for all.

    Raises:
        InputError: no sweep has such a method or such a data set.
    """
    _check_known("methods", methods, {cell.method for table in evidence.tables for cell in table.sweep.cells})
    _check_known("data", data, {cell.data for table in evidence.tables for cell in table.sweep.cells})
    end, done, absent = time.monotonic() + 60 * minutes, 0, set[str]()
    while time.monotonic() < end and (limit is None or done < limit):
        batch_end = min(end, time.monotonic() + AFRESH)
        possible = [
            cell
            for cell in evidence.plan()
            if cell.source.get("name") not in absent
            and (not methods or cell.method in methods)
            and (not data or cell.data in data)
        ]
        batch = _take_cells(evidence, possible, workers * (batch_end - time.monotonic()))
        if not batch:
            break
        with tempfile.TemporaryDirectory(prefix="securevfl-evidence-") as folder:
            cells = run_cells(batch[:limit], choose_pool("", workers), None, Path(folder))
            for cell, ended in cells:
                if isinstance(ended, CellError) and "is not here" in ended.message:
                    absent.add(str(cell.source["name"]))
                    skip.note(cell.data, ended.message)
                    break
                evidence.add(cell, ended)
                done += 1
                said = (
                    ended.message if isinstance(ended, CellError) else f"{ended.value:.4f} after {ended.seconds:.1f} s"
                )
                print(f"{cell.data}, {cell.method}, {cell.x:g}, seed {cell.seed}: {said}", flush=True)
                if workers == 1 and time.monotonic() >= batch_end:
                    break
            cells.close()  # type: ignore[attr-defined]
    return done


def _check_known(option: str, given: Collection[str], known: Collection[str]) -> None:
    for label in given:
        if label not in known:
            near = difflib.get_close_matches(label, known, 3, 0.0)
            raise InputError(f"--{option} names {label!r}, which no chosen sweep has; near it are {', '.join(near)}")


def _take_cells(evidence: Evidence, cells: Sequence[Cell], seconds: float) -> list[Cell]:
    """The first cells, as many as the time is for, one at least."""
    reckon, found, spent = evidence.reckoner(), [], 0.0
    for cell in cells:
        if found and spent >= seconds:
            break
        found.append(cell)
        spent += reckon(cell)
    return found


def compare_again(evidence: Evidence, count: int, seed: int = 0) -> list[str]:
    """Run cells that have figures again; those whose figures are others now, a line each."""
    ran = {c.digest: (c, t.figures[c.digest]) for t in evidence.tables for c in t.sweep.cells if c.digest in t.figures}
    chosen = random.Random(seed).sample(sorted(ran), min(count, len(ran)))  # noqa: S311 - no secret
    found = []
    with tempfile.TemporaryDirectory(prefix="securevfl-evidence-") as folder:
        for cell, ended in run_cells([ran[digest][0] for digest in chosen], "", None, Path(folder)):
            before = ran[cell.digest][1].value
            now = None if isinstance(ended, CellError) else ended.value
            where = f"{cell.data}, {cell.method}, {cell.x:g}, seed {cell.seed}"
            print(f"{where}: {before:.4f}, now {now if now is None else round(now, 4)}", flush=True)
            if now is None or abs(now - before) > 1e-9:
                found.append(where)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SWEEPS, default=SWEEPS, metavar="NAME", help=", ".join(SWEEPS))
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--methods", nargs="+", default=(), metavar="LABEL", help="of the methods to run; else all")
    parser.add_argument("--data", nargs="+", default=(), metavar="LABEL", help="of the data sets to run; else all")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="what is missing, and its reckoned CPU-hours")
    what.add_argument("--minutes", type=float, help="run for so long")
    what.add_argument("--again", type=int, metavar="CELLS", help="run so many finished cells again, and compare")
    given = parser.parse_args(arguments)
    try:
        evidence = Evidence(given.only)
        if given.list:
            print(list_missing(evidence))
        elif given.again is not None:
            return int(bool(compare_again(evidence, given.again)))
        else:
            ran = run_for(evidence, given.minutes, workers=given.workers, methods=given.methods, data=given.data)
            print(f"{ran} cells ran")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
