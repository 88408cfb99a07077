"""The gate of constant time: neither branches nor addresses of the kernels depend on secrets, in the machine code.

    python tools/branch_traces.py                  # x86_64_v3 and aarch64
    python tools/branch_traces.py --path avx2      # one of them
    python tools/branch_traces.py --json FILE      # the counts, too

1. qemu's user mode runs each kernel on three secrets; the sequences of blocks that run must be equal.
2. valgrind's memcheck takes the secrets for undefined and must report nothing (x86_64_v3; memcheck knows no AVX-512).
3. Both must find what they can find of three mistakes planted into the ladder.

The exit code is 1 if one of these fails. AVX-512's classes run under neither tool. A missing tool is named and skipped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from emulated.contracts import parameter_names
from emulated.jobs import Job, list_jobs
from emulated.machine import build_driver, missing_tool
from emulated.traces import PLANTS, block_trace, count_reports, plant
from securevfl_crypto.engine.build import build_library, list_parts
from securevfl_crypto.engine.compiled import curve_part
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath

__all__ = ["SEEDS", "Gate", "main"]

SEEDS = (0, 1, 2)
"""Secrets that each kernel runs with: zeros, and two that are random."""
_PATHS = {path.name: path for path in VECTOR_PATHS if path.name in ("avx2", "neon")}


class Gate:
    """The checks of one path.

    Args:
        path: the path.
        driver: the driver for its architecture.

    Attributes:
        problems: what failed, a line each.
    """

    def __init__(self, path: VectorPath, driver: Path) -> None:
        self.path, self._driver = path, driver
        self._traces = missing_tool(f"qemu-{path.machine}") is None
        self._memory = path.name == "avx2" and missing_tool("valgrind") is None
        self._texts = {part.name: part.text() for part in list_parts(path)}
        self.problems: list[str] = []

    def check(self, job: Job, library: bytes) -> dict[str, Any]:
        """One kernel: its blocks, how many sequences of them, and memcheck's reports."""
        found: dict[str, Any] = {"claimed": job.claimed}
        names = parameter_names(self._texts[job.part], job.kernel)
        if self._traces:
            machine, runs = self.path.machine, [job.arguments(names, seed) for seed in SEEDS]
            traces = {block_trace(machine, self._driver, library, job.symbol, run) for run in runs}
            found |= {
                "blocks": sorted({blocks for blocks, _ in traces}),
                "hashes": sorted(one[:16] for _, one in traces),
            }
            if len(traces) > 1:
                self.problems.append(f"{self.path.name}: {job.symbol} runs other blocks for other secrets")
        if self._memory:
            reports = count_reports(self._driver, library, job.symbol, job.arguments(names, 1), tuple(job.secrets))
            found |= dataclasses.asdict(reports)
            if reports.branches or (reports.addresses and job.claimed):
                self.problems.append(f"{self.path.name}: memcheck reports {job.symbol}: {reports}")
            if not reports.addresses and not job.claimed:
                self.problems.append(f"{self.path.name}: memcheck does not see the addresses of {job.symbol}")
        return found

    def check_plants(self, job: Job) -> dict[str, Any]:
        """The ladder with each mistake: what each tool sees of it."""
        found = {}
        for what in PLANTS:
            text = plant(self._texts[job.part], what)
            part = dataclasses.replace(curve_part(self.path), text=partial(str, text))
            before, self.problems = self.problems, []
            found[what] = self.check(job, build_library(self.path, [part]))
            self.problems = before
            # a sequence of blocks shows a branch that is taken; memcheck each branch and each address
            if self._traces and (len(found[what]["hashes"]) > 1) != (what == "a branch"):
                self.problems.append(f"{self.path.name}: the traces of {what} are not as expected: {found[what]}")
            if self._memory and not found[what]["branches" if "branch" in what else "addresses"]:
                self.problems.append(f"{self.path.name}: memcheck does not find {what}")
        return found


def _describe(found: dict[str, Any]) -> str:
    parts = []
    if "blocks" in found:
        blocks = " or ".join(f"{one:,}" for one in found["blocks"])
        parts.append(f"{blocks} blocks, {len(found['hashes'])} sequence(s) for {len(SEEDS)} secrets")
    if "branches" in found:
        parts.append(f"memcheck: {found['branches']} branches, {found['addresses']} addresses")
    return "; ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", choices=_PATHS, action="append", help="repeat for several; by default all")
    parser.add_argument("--json", type=Path, help="write the counts here")
    given = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    problems = []
    for name in given.path or _PATHS:
        path = _PATHS[name]
        missing = [
            tool for tool in (f"qemu-{path.machine}", "valgrind")[: 2 if name == "avx2" else 1] if missing_tool(tool)
        ]
        for tool in missing:
            print(f"skipped: a part of {path.cpu_class}, because {tool} is not installed", file=sys.stderr)
        library = build_library(path, list_parts(path))
        with tempfile.TemporaryDirectory() as folder:
            gate = Gate(path, build_driver(path.machine, Path(folder)))
            jobs = list_jobs(path)
            kernels = {}
            for job in jobs:
                kernels[job.symbol] = gate.check(job, library)
                print(f"{path.cpu_class}  {job.symbol}: {_describe(kernels[job.symbol])}", flush=True)
            planted = gate.check_plants(jobs[0])
            for what, found in planted.items():
                print(f"{path.cpu_class}  {jobs[0].symbol} with {what}: {_describe(found)}", flush=True)
        results[path.cpu_class] = {"kernels": kernels, "planted": planted}
        problems += gate.problems
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n".join(problems) or "nothing depends on secrets but what is not claimed, and what was planted was found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
