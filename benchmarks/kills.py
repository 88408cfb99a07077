"""SIGKILL at random moments: what a killed run leaves, and what the run that goes on makes of it.

    python -m benchmarks.kills [--quick] [--runs 200] [--minutes 60]

Each run trains on small tables in a process of its own, which is killed once, twice or three times at a random moment
of the time that a whole run takes, and goes on each time. In every third run one checkpoint is truncated or has one bit
flipped before the run goes on. Asked of each:

- in the clear and in exact integers, the test scores are those of a run that was not interrupted, bit for bit;
- the ledgers on the disk after a kill are whole lines, and nobody read a message that its sender did not write down;
- ε counts at least as many releases of the most-released row as the processes wrote down, each after it was made, in a
  file of their own beside the package's counting. By how many more it counts is told.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import write
from benchmarks.kills_run import work

ALGORITHMS = ("splitnn", "logistic_regression", "fedcvt", "risa", "fedda", "entity_augmentation", "multi_vfl")
PROTECTIONS = ("plain", "fixed", "bfv", "plain-dp", "z-dp")
SEALED_FOR = ("splitnn", "risa")
Z_FOR = ("splitnn",)


def cells() -> list[tuple[str, str]]:
    """Algorithm and protection of each kind of run."""
    found = []
    for algorithm in ALGORITHMS:
        for protection in PROTECTIONS:
            if protection == "bfv" and algorithm not in SEALED_FOR:
                continue
            if protection == "z-dp" and algorithm not in Z_FOR:
                continue
            found.append((algorithm, protection))
    return found


class Workplace:
    """One run's folders.

    Args:
        folder: of the run.
        cell: algorithm and protection.
    """

    def __init__(self, folder: Path, cell: tuple[str, str]) -> None:
        self.folder = folder
        self.cell = cell
        folder.mkdir(parents=True)

    def start(self, attempt: int) -> int:
        """A process that runs, or goes on: a copy of this one, which has loaded the libraries. Returns its id."""
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            return child
        code = 70
        try:
            output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = work(*self.cell, self.folder, attempt)
        except BaseException:  # a copy of this process may not go on as this one: the code tells, the file says why
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def result(self) -> dict[str, Any]:
        """What the last process wrote."""
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def made(self) -> dict[str, int]:
        """Party and what is released → releases of the most-released row, as the processes wrote them down."""
        counts: dict[str, dict[int, int]] = {}
        for file in self.folder.glob("made-*.jsonl"):
            text = file.read_text()
            for line in text[: text.rfind("\n") + 1].splitlines():  # a last line that the kill cut off is not counted
                key, rows = json.loads(line)
                for row in rows:
                    counts.setdefault(key, {})[row] = counts.setdefault(key, {}).get(row, 0) + 1
        return {key: max(rows.values()) for key, rows in counts.items() if rows}


def _code(child: int) -> int:
    """The exit code of a child, when it ends; negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def whole(place: Workplace) -> dict[str, Any]:
    """Run to the end."""
    if _code(place.start(0)) != 0:
        raise RuntimeError(f"{place.cell} fails: {(place.folder / 'output').read_text()[-2000:]}")
    return place.result()


def killed(place: Workplace, seconds: float, rng: random.Random, damage: bool) -> dict[str, Any]:
    """Kill a run one to three times, and let it go on to its end."""
    notes: dict[str, Any] = {"kills": 0, "ledgers": 0}
    for attempt in range(rng.randint(1, 3)):
        child = place.start(attempt)
        time.sleep(rng.random() * seconds)
        os.kill(child, signal.SIGKILL)  # a child that has ended is there until it is waited for
        code = _code(child)
        if code not in (0, -signal.SIGKILL):
            raise AssertionError(f"attempt {attempt} ended with {code}: {(place.folder / 'output').read_text()[-400:]}")
        notes["kills"] += code == -signal.SIGKILL
        notes["ledgers"] += check_ledgers(place.folder / f"ledgers-{attempt}")
    if damage:
        notes["damaged"] = _damage(place.folder / "kept", rng)
    notes["code"] = _code(place.start(99))
    return notes


def check_ledgers(folder: Path) -> int:
    """Hold the ledgers of a killed process against each other; how many lines they have.

    Raises:
        AssertionError: a line in the middle is not whole, or somebody read what its sender did not write down.
    """
    sent: dict[tuple[str, str, str], list[str]] = {}
    read: dict[tuple[str, str, str], list[str]] = {}
    count = 0
    for file in folder.glob("*.jsonl"):
        lines = file.read_bytes().split(b"\n")
        run = ""
        for number, raw in enumerate(lines):
            try:
                line = json.loads(raw)
            except ValueError:
                if number != len(lines) - 1:
                    raise AssertionError(f"{file}, line {number + 1} of {len(lines)} is not whole") from None
                continue
            count += 1
            run = line.get("run", run)
            if line["line"] == "message":
                mine = (run, file.stem, line["peer"])
                target = sent if line["way"] == "sent" else read
                key = mine if line["way"] == "sent" else (run, line["peer"], file.stem)
                target.setdefault(key, []).append(line["what"])
    for key, messages in read.items():
        if sent.get(key, [])[: len(messages)] != messages:
            raise AssertionError(f"{folder}: in {key} more was read than was written down as sent")
    return count


def _damage(folder: Path, rng: random.Random) -> str:
    """Truncate one checkpoint, or flip one bit of it."""
    files = sorted(folder.glob("*/*.epoch-*.safetensors"))
    if not files:
        return ""
    file = rng.choice(files)
    data = bytearray(file.read_bytes())
    if rng.random() < 0.5:
        data = data[: rng.randrange(len(data))]
        what = "truncated"
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        what = "flipped"
    file.write_bytes(data)
    return what


class Count:
    """What came of all runs."""

    def __init__(self) -> None:
        self.figures = dict.fromkeys(
            ("runs", "kills", "compared", "same", "with noise", "counted too few", "damaged", "refused"), 0
        )
        self.failures: list[str] = []
        self.more: list[int] = []
        self.lines = 0

    def add(self, where: str, place: Workplace, notes: dict[str, Any], reference: dict[str, Any]) -> None:
        """One run that was killed and went on."""
        figures = self.figures
        figures["kills"] += notes["kills"]
        figures["damaged"] += bool(notes.get("damaged"))
        self.lines += notes["ledgers"]
        if notes["code"] == 2 and notes.get("damaged"):
            figures["refused"] += 1  # no common epoch was left whole: said, and not gone on from
        elif notes["code"] != 0:
            self.failures.append(f"{where}: {notes}, {(place.folder / 'output').read_text()[-400:]}")
        elif "dp" in place.cell[1]:
            figures["with noise"] += 1
            self._releases(where, place)
        else:
            figures["compared"] += 1
            if np.array_equal(np.array(place.result()["scores"]), np.array(reference["scores"])):
                figures["same"] += 1
            else:
                self.failures.append(f"{where}: {notes}, another result than without a kill")

    def _releases(self, where: str, place: Workplace) -> None:
        times = place.result()["times"]
        for key, made in place.made().items():
            told = times.get(key, 0)
            self.more.append(told - made)
            if told < made:
                self.figures["counted too few"] += 1
                self.failures.append(f"{where}: {key} was released {made} times, ε counts {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 runs")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60, help="begin no run after this time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)  # noqa: S311 - which moment, not a secret
    every = cells()
    rng.shuffle(every)
    began = time.monotonic()
    base = Path(tempfile.mkdtemp(prefix="kills-"))
    references: dict[tuple[str, str], tuple[dict[str, Any], float]] = {}
    count = Count()
    for number in range(10 if given.quick else given.runs):
        if time.monotonic() - began > 60 * given.minutes:
            break
        cell = every[number % len(every)]
        if cell not in references:
            start = time.monotonic()
            found = whole(Workplace(base / f"whole {'-'.join(cell)}", cell))
            references[cell] = (found, time.monotonic() - start)
        reference, seconds = references[cell]
        place, where = Workplace(base / str(number), cell), f"run {number}, {' '.join(cell)}"
        count.figures["runs"] += 1
        try:
            count.add(where, place, killed(place, seconds, rng, damage=number % 3 == 2), reference)
        except AssertionError as error:
            count.failures.append(f"{where}: {error}")
        shutil.rmtree(place.folder)
    shutil.rmtree(base)
    write(
        "kills",
        {
            **count.figures,
            "cells": len(references),
            "ledger lines after kills": count.lines,
            "counted beyond what was made": {"least": min(count.more, default=0), "most": max(count.more, default=0)},
            "failures": count.failures,
            "minutes": round((time.monotonic() - began) / 60, 1),
        },
    )
    if count.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
