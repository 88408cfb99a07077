"""Ten parties that train for a long time as processes, while parties are killed and started again.

    python -m benchmarks.long_run [--quick] [--parties 10] [--steps 8640] [--kills 20]

8,640 steps are 72 hours of a job whose step takes thirty seconds; here a step takes what it takes. Every party is a
process with its own files, certificate, state folder and gate, connected to all others by TLS on loopback. At even
distances a party is killed, another one each time, and started again as its exit code says. Resident memory of each
program, bytes of each ledger, and of each state folder are read along the way.

At the end every party must have ended with 0, the parts of the model must be those of a simulation bit for bit, and an
audit of all ledgers must convict nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import securevfl as sv
from benchmarks.common import write
from securevfl.party_context import Observer, PartySecret
from securevfl.process.launch import read_start
from securevfl.run.model_parts import model_part
from securevfl.run.store import read_tree, tree_digest
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

ROWS, BATCH, STEPS_AN_EPOCH = 2_400, 16, 90
"""60 % of the rows train: 1,440 rows, 90 steps an epoch."""
SAMPLES = 12


def main() -> None:
    """Run it, and write what came of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four parties, 360 steps, two kills")
    parser.add_argument("--parties", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8_640)
    parser.add_argument("--kills", type=int, default=20)
    asked = parser.parse_args()
    if asked.quick:
        asked.parties, asked.steps, asked.kills = 4, 360, 2
    with tempfile.TemporaryDirectory(prefix="long-run-") as folder:
        found = run_long(Path(folder), asked.parties, max(1, asked.steps // STEPS_AN_EPOCH), asked.kills)
    write("long_run", found)
    print(json.dumps({name: value for name, value in found.items() if name != "samples"}, indent=1))
    sys.exit(bool(found["wrong"]))


def run_long(folder: Path, parties: int, epochs: int, kills: int) -> dict[str, Any]:
    """Train a job of so many epochs, with so many kills.

    Args:
        folder: for the parties' files.
        parties: how many.
        epochs: of `STEPS_AN_EPOCH` steps.
        kills: how many.
    """
    job = sv.Job(
        algorithm=sv.LogisticRegression(),
        protection=sv.Plain(),
        epochs=epochs,
        batch_size=BATCH,
        seed=3,
        valid=0.2,
        test=0.2,
    )
    people = make_parties(passive=parties - 1, rows=ROWS)
    company = create_company(folder, people, job, attempts=1000, reconnect=60, gather=86_400)
    secrets = {name: PartySecret.from_seed(7, name) for name in company.names}
    company.store_secrets(secrets)
    watch = Watch(company, epochs)
    began = time.monotonic()
    watch.run(kills)
    seconds = time.monotonic() - began
    wrong = watch.wrong or check_end(company, job, secrets)
    steps = epochs * STEPS_AN_EPOCH
    return {
        "parties": parties,
        "steps": steps,
        "kills": watch.killed,
        "starts": watch.starts,
        "seconds": round(seconds, 1),
        "steps a second": round(steps / seconds, 2),
        "bytes of a ledger": max(watch.measure()["ledger"].values()),
        "lines of the longest ledger": max(_count_lines(_ledger(company, name)) for name in company.names),
        "growth of memory after the first quarter, MB": watch.growth(),
        "samples": watch.samples,
        "wrong": wrong,
    }


class Watch:
    """The parties' processes: starts, kills and measures them."""

    def __init__(self, company: Company, epochs: int) -> None:
        self.company, self.epochs = company, epochs
        self.running: dict[int, str] = {}
        self.starts = dict.fromkeys(company.names, 0)
        self.samples: list[dict[str, Any]] = []
        self.killed = 0
        self.wrong: list[str] = []

    def run(self, kills: int) -> None:
        """Until all have ended with 0, or one with a code that says *not again*."""
        for name in self.company.names:
            self._start(name)
        due = [(number + 1) * self.epochs / (kills + 1) for number in range(kills)]
        marks = [(number + 1) * self.epochs / SAMPLES for number in range(SAMPLES)]
        while self.running and not self.wrong:
            self._reap()
            epoch = self._epoch()
            if due and epoch >= due[0]:
                due.pop(0)
                victim = self.company.names[self.killed % len(self.company.names)]
                self.killed += 1
                os.kill(next(pid for pid, name in self.running.items() if name == victim), signal.SIGKILL)
            if marks and epoch >= marks[0]:
                marks.pop(0)
                self.samples.append({"epoch": epoch, **self.measure()})
                print(f"epoch {epoch} of {self.epochs}, {self.killed} kills", file=sys.stderr, flush=True)
            time.sleep(0.2)
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)

    def measure(self) -> dict[str, dict[str, int]]:
        """Of each party: megabytes of resident memory, bytes of its ledger, bytes of its state folder."""
        names = self.company.names
        folders = {name: self.company.state_folder(name) for name in names}
        return {
            "memory": {name: _resident(pid) for pid, name in sorted(self.running.items(), key=lambda one: one[1])},
            "ledger": {name: file.stat().st_size for name in names if (file := _ledger(self.company, name)).exists()},
            "state": {
                name: sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                for name, folder in folders.items()
            },
        }

    def growth(self) -> dict[str, int]:
        """Party → most megabytes that a process of it had after a quarter of the run, less what it had then."""
        first = self.samples[len(self.samples) // 4]["memory"] if self.samples else {}
        later = self.samples[len(self.samples) // 4 :]
        return {name: max(one["memory"].get(name, 0) for one in later) - was for name, was in first.items()}

    def _start(self, name: str) -> None:
        self.starts[name] += 1
        self.running[_fork_party(self.company, name)] = name

    def _reap(self) -> None:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid not in self.running:
            return
        name, code = self.running.pop(pid), os.waitstatus_to_exitcode(status)
        if code in (-signal.SIGKILL, 75):
            self._start(name)
        elif code:
            self.wrong.append(
                f"{name} ended with {code}: {(self.company.folder / f'{name}.output').read_text()[-500:]}"
            )

    def _epoch(self) -> int:
        file = self.company.folder / "epoch"
        return int(file.read_text() or 0) if file.exists() else 0


class EpochFile(Observer):
    """Writes the epoch into a file, for the watch.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def step(self, epoch: int, done: int, total: int) -> None:
        """See `Observer.step`."""
        if done == 1:
            self._path.write_text(str(epoch))


def _fork_party(company: Company, name: str) -> int:
    """A process of one party: a copy of this one, which has loaded the libraries. Returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        return child
    code = 70
    try:
        output = os.open(company.folder / f"{name}.output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        hearers = [EpochFile(company.folder / "epoch")] if name == company.names[0] else []
        read_start(company.agreement_file, name).run(wait=3600.0, hearers=hearers)
        code = 0
    except sv.SecureVFLError as error:
        traceback.print_exc()
        code = error.exit_code
    except BaseException:  # a copy of this process may not go on as this one: the code tells, the file says why
        traceback.print_exc()
    finally:
        os._exit(code)


def check_end(company: Company, job: sv.Job, secrets: dict[str, PartySecret]) -> list[str]:
    """What is wrong at the end; empty where nothing is."""
    wrong = []
    simulated = sv.simulate(job, company.people, secrets=secrets).model()
    for name in company.names:
        part = company.state_folder(name) / "model" / f"{name}.model.safetensors"
        if tree_digest(read_tree(part)) != tree_digest(model_part(job, name, simulated.parts[name])):
            wrong.append(f"the part of {name} is not the simulation's")
    collected = company.folder / "collected"
    collected.mkdir()
    for name in company.names:
        shutil.copy(_ledger(company, name), collected / f"{name}.jsonl")
    try:
        sv.audit(collected)
    except sv.SecureVFLError as error:
        wrong.append(f"audit: {error}")
    return wrong


def _ledger(company: Company, name: str) -> Path:
    return company.state_folder(name) / "ledgers" / f"{name}.jsonl"


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _resident(pid: int) -> int:
    """Megabytes."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000


if __name__ == "__main__":
    main()
