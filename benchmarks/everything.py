"""All benchmarks, one after the other, each in a process of its own; `make bench`.

    python -m benchmarks.everything [--quick] [--only NAME …] [--out FOLDER]

A benchmark that lacks a file or a package is skipped, and the summary says what it lacks. The exit status is 0 unless a
benchmark broke. `--quick` takes small sizes, six minutes in all, to see that every benchmark works; its figures go to
`runs/benchmarks-quick`, so that they do not replace those of the full sizes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import folders, skip

__all__ = ["BENCHMARKS", "Benchmark", "Outcome", "main", "run"]

QUICK_RESULTS = Path("runs") / "benchmarks-quick"


@dataclass(frozen=True)
class Benchmark:
    """One process: ``python -m module arguments``.

    Attributes:
        module: what runs.
        arguments: for the figures of the documentation.
        quick: for `--quick`; None where the small size of another entry does, and this one is left out.
    """

    module: str
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None

    def words(self, *, quick: bool) -> str:
        """What a person would type after ``python -m``."""
        return " ".join([self.module, *((self.quick or ()) if quick else self.arguments)])


BENCHMARKS = (
    Benchmark("benchmarks.crypto", quick=("--quick",)),
    Benchmark("benchmarks.engine_start", quick=("--quick",)),
    Benchmark("benchmarks.first_job", quick=("--quick",)),
    Benchmark("benchmarks.long_run", quick=("--quick",)),
    Benchmark("benchmarks.wide_tables", quick=("--quick",)),
    Benchmark("benchmarks.ring", quick=("--quick",)),
    Benchmark("benchmarks.cut", quick=("--quick",)),
    Benchmark("benchmarks.cut", ("--bits", "3072", "--quick")),
    Benchmark("benchmarks.sealed_boosting", quick=("--quick",)),
    Benchmark("benchmarks.boosting", quick=("--quick",)),
    Benchmark("benchmarks.boosting_jobs", quick=("--quick",)),
    Benchmark("benchmarks.boosting_cells", quick=("--quick",)),
    Benchmark("benchmarks.scorecard", quick=("--quick",)),
    Benchmark("benchmarks.scorecard_shares", quick=("--quick",)),
    Benchmark("benchmarks.statistics", quick=("--quick",)),
    Benchmark("benchmarks.card_figure", quick=("--quick",)),
    Benchmark("benchmarks.pools", ("--again",), quick=("--quick",)),
    Benchmark("benchmarks.shares_step", quick=("--quick",)),
    Benchmark("benchmarks.two_parties", quick=("--quick",)),
    Benchmark("benchmarks.two_parties_links", quick=("--quick",)),
    Benchmark("benchmarks.shares_tables", quick=("--quick",)),
    Benchmark("benchmarks.residues", quick=("--quick",)),
    Benchmark("benchmarks.held", quick=("--quick",)),
    Benchmark("benchmarks.timing", quick=("--quick",)),
    Benchmark("benchmarks.shares_parity", quick=("--quick", "--data", "credit")),
    Benchmark("benchmarks.overhead", quick=("--quick",)),
    Benchmark("benchmarks.counting", quick=("--quick",)),
    Benchmark("benchmarks.serving", quick=("--quick", "plain")),
    Benchmark("benchmarks.serving_soak", ("--clients", "64"), quick=("--questions", "300", "--kills", "1")),
    Benchmark("benchmarks.small_messages", quick=("--quick",)),
    Benchmark("benchmarks.plain_path", quick=("--epochs", "6", "--threads", "1", "--most", "1e5")),
    Benchmark("benchmarks.growth", quick=("--quick", "--only", "psi", "plain")),
    Benchmark("benchmarks.gpu", quick=("--stand-in", "cpu", "--quick")),
    Benchmark("benchmarks.psi", quick=("--quick",)),
    Benchmark("benchmarks.psi_links", quick=("--quick",)),
    Benchmark("benchmarks.psi_auto", quick=("--quick",)),
    Benchmark("benchmarks.psi_unbalanced", quick=("--small", "64", "--large", "20000")),
    Benchmark("benchmarks.psi_shards", quick=("--ids", "20000")),
    Benchmark("benchmarks.linkage", quick=("--quick",)),
    Benchmark("benchmarks.linkage_families", quick=("--quick",)),
    Benchmark("benchmarks.linkage_few_fields", quick=("--quick",)),
    Benchmark("benchmarks.linkage_recall", quick=("--quick",)),
    Benchmark("benchmarks.linkage_weights", quick=("--quick",)),
    Benchmark("benchmarks.fuzz", quick=("--quick", "--seconds", "3")),
    Benchmark("benchmarks.unchanged"),
    Benchmark("benchmarks.mutations", quick=("--quick",)),
    Benchmark("benchmarks.kills", quick=("--quick",)),
    Benchmark("benchmarks.faults", quick=("--quick",)),
    Benchmark("benchmarks.parties", quick=("--quick",)),
    Benchmark("benchmarks.gate", quick=("--quick",)),
    Benchmark("benchmarks.asked", quick=("--quick",)),
    Benchmark("benchmarks.frozen_bottoms", quick=("--quick", "--data", "credit")),
    Benchmark("benchmarks.handed_out", quick=("--seeds", "1", "--rows", "3000", "--epochs", "2")),
    Benchmark("benchmarks.latency", quick=("--quick",)),
    Benchmark("benchmarks.shares_latency", quick=("--quick",)),
    Benchmark("benchmarks.shares_noise", quick=("--quick",)),
    Benchmark("benchmarks.shares_deviation"),
    Benchmark("benchmarks.additive", quick=("--quick",)),
    Benchmark("benchmarks.additive_number", quick=("--quick",)),
    Benchmark("benchmarks.additive_two", quick=("--only", "cost")),
    Benchmark("benchmarks.explained", quick=("--quick",)),
    Benchmark("benchmarks.false_verdicts", quick=("--quick",)),
    Benchmark("benchmarks.false_bounds", quick=("--quick",)),
    Benchmark("benchmarks.pooled_opinions", quick=("--quick",)),
    Benchmark("benchmarks.held_out_places", quick=("--quick",)),
    Benchmark("benchmarks.shares_trees", quick=("--quick",)),
    Benchmark("benchmarks.shares_trees_links", quick=("--quick",)),
    Benchmark("benchmarks.ten_tables", quick=("--quick",)),
    Benchmark("benchmarks.preparation", quick=("--quick",)),
    Benchmark("benchmarks.best_members", quick=("--quick",)),
    Benchmark("benchmarks.best_cost", quick=("--quick",)),
    Benchmark("benchmarks.fedda_images", ("mnist",), ("mnist", "--seeds", "1", "--aligned", "250", "--steps", "20")),
)


@dataclass(frozen=True)
class Outcome:
    """How one benchmark ended.

    Attributes:
        words: what ran.
        status: its exit status.
        seconds: wall time.
        skipped: what it left out and why, a line each.
    """

    words: str
    status: int
    seconds: float
    skipped: tuple[str, ...] = ()

    @property
    def broke(self) -> bool:
        """Whether it ended with an error."""
        return self.status not in (0, skip.STATUS)

    def lines(self) -> list[str]:
        """The outcome for the summary."""
        if self.status == skip.STATUS:
            return [f"{self.words}: {line}" for line in self.skipped]
        how = f"broke with exit status {self.status}" if self.broke else "done"
        return [f"{self.words}: {how} after {self.seconds:.0f} s", *(f"  {line}" for line in self.skipped)]


def run(benchmark: Benchmark, *, quick: bool, out: Path) -> Outcome:
    """Run one benchmark; its output goes to this process's.

    Args:
        benchmark: what runs.
        quick: take the small size.
        out: folder of its results.
    """
    words = benchmark.words(quick=quick)
    print(f"== {words}", flush=True)
    command = [sys.executable, "-m", *words.split()]
    environment = {**os.environ, "SECUREVFL_BENCHMARKS": str(out)}
    skipped = []
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        if process.stderr is not None:
            for line in process.stderr:
                if line.startswith(skip.PREFIX):
                    skipped.append(line.rstrip())
                print(line, end="", file=sys.stderr, flush=True)
    return Outcome(words, process.returncode, time.perf_counter() - start, tuple(skipped))


def main(arguments: Sequence[str] | None = None, benchmarks: Sequence[Benchmark] = BENCHMARKS) -> int:
    """Run the benchmarks, print the summary, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    names = sorted({benchmark.module.rpartition(".")[2] for benchmark in benchmarks})
    parser.add_argument("--only", nargs="+", choices=names, help="these benchmarks")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args(arguments)
    out = options.out or (QUICK_RESULTS if options.quick else folders.RESULTS)
    wanted = [
        benchmark
        for benchmark in benchmarks
        if (not options.only or benchmark.module.rpartition(".")[2] in options.only)
        and not (options.quick and benchmark.quick is None)
    ]
    outcomes = [run(benchmark, quick=options.quick, out=out.resolve()) for benchmark in wanted]
    print("== summary")
    for outcome in outcomes:
        print(*outcome.lines(), sep="\n")
    return int(any(outcome.broke for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
