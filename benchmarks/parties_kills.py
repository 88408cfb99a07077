"""Parties as processes over TLS on loopback: killed at random moments, cut from each other, with damaged checkpoints
and folders restored from a back-up.

    python -m benchmarks.parties_kills [--quick] [--kills 200] [--cuts 500] [--minutes 60]

Each run founds a company of parties with certificates and approvals, and trains in a process for each party. Forwarders
stand between the parties: they break connections at random. Parties are killed by SIGKILL at random moments of the time
that a run takes, and started again. In some runs a checkpoint of the killed party is cut off or has one bit flipped; in
some its whole state folder gives way to a copy that was made earlier. Asked of each:

- in the clear and in exact integers, each party's part of the model is that of a simulation, bit for bit;
- the ledgers of all parties, collected in one folder, verify against each other: in no attempt was a message read that
  was not sent, or in another order, and in the last one all that was sent was read;
- ε counts at least as many releases of the most-released row as the processes wrote down, each after it was made;
- a restored folder is refused by name, or knew all that its peers saw.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

import securevfl as sv
from benchmarks.common import write
from benchmarks.kills_run import OPTIONS, PROTECTIONS, tables, watch
from securevfl.errors import AuditError
from securevfl.party_context import PartySecret
from securevfl.process.launch import read_start
from securevfl.report import Record
from securevfl.run.model_parts import model_part
from securevfl.run.store import read_tree, tree_digest
from securevfl.testing.company import Company, found
from securevfl.training import find_algorithm

CELLS = [
    ("splitnn", "plain"),
    ("splitnn", "fixed"),
    ("splitnn", "plain-dp"),
    ("splitnn", "bfv"),
    ("logistic_regression", "plain"),
    ("entity_augmentation", "plain"),
    ("risa", "plain"),
    ("fedcvt", "plain"),
    ("multi_vfl", "plain"),
    ("logistic_regression", "plain-dp"),
]
PATIENCE = 90.0
FORK = multiprocessing.get_context("fork")


def _forward(ports: Mapping[int, int], cuts: Any, pace: float, seed: int) -> None:
    """Stand between parties and break connections at random.

    Args:
        ports: where it listens → where it leads.
        cuts: counts them.
        pace: seconds between two, on average; 0 for none.
        seed: of the moments.
    """
    rng = random.Random(seed)  # noqa: S311 - which moment, not a secret
    open_ones: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()

    async def serve(port: int, target: int) -> None:
        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                writer.close()
                return
            open_ones.append((writer, back))
            await asyncio.gather(pump(reader, back), pump(there, writer))
            open_ones.remove((writer, back))

        await asyncio.start_server(taken, "127.0.0.1", port)

    async def run() -> None:
        for port, target in ports.items():
            await serve(port, target)
        while True:
            await asyncio.sleep(rng.expovariate(1 / pace) if pace else 1.0)
            if pace and open_ones:
                for writer in rng.choice(open_ones):
                    writer.transport.abort()
                with cuts.get_lock():
                    cuts.value += 1

    asyncio.run(run())


def _through_forwarders(company: Company) -> dict[int, int]:
    """Let all parties call each other through forwarders; where those listen → where they lead."""
    ports: dict[int, int] = {}
    for name in company.names:
        path = company.folder / f"{name}.toml"

        def instead(match: re.Match[str]) -> str:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = int(free.getsockname()[1])
            ports[port] = int(match[1])
            return f'dial = "127.0.0.1:{port}"'

        path.write_text(re.sub(r'dial = "127\.0\.0\.1:(\d+)"', instead, path.read_text()))
    return ports


def _take_part(company: Company, name: str, attempt: int) -> None:
    output = os.open(company.folder / f"{name}.{attempt}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)
    watch(company.folder / f"{name}.made.jsonl")
    try:
        read_start(company.file, name).run(wait=PATIENCE)
    except sv.SecureVFLError as error:
        print(type(error).__name__, error, flush=True)
        os._exit(error.exit_code)


@dataclass
class Figures:
    """What came of all runs."""

    runs: int = 0
    kills: int = 0
    compared: int = 0
    same: int = 0
    damaged: int = 0
    restored: int = 0
    restored_refused: int = 0
    restored_knew_all: int = 0
    with_noise: int = 0
    counted_too_few: int = 0
    ledgers_agree: int = 0
    more: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Run:
    """One company, and what happens to it."""

    def __init__(self, cell: tuple[str, str], folder: Path, number: int, rng: random.Random, cuts: Any) -> None:
        self.cell, self.rng = cell, rng
        name, protection = cell
        people = tables(name, 40 if protection == "bfv" else 80)
        self.job = sv.Job(
            algorithm=find_algorithm(name).of(OPTIONS[name]),
            protection=PROTECTIONS[protection],
            epochs=2 if protection == "bfv" else 3,
            batch_size=16,
        )
        self.company = found(folder, people, self.job)
        self.secrets = {party: PartySecret.derived(1, party) for party in self.company.names}
        self.company.keep(self.secrets)
        ports = _through_forwarders(self.company)
        pace = 0.5 if number % 3 == 0 else 2.0
        self.forwarder = FORK.Process(target=_forward, args=(ports, cuts, pace, number))
        self.forwarder.start()
        self.processes: dict[str, BaseProcess] = {}
        self.starts = 0

    def start(self, name: str) -> None:
        self.starts += 1
        self.processes[name] = FORK.Process(target=_take_part, args=(self.company, name, self.starts))
        self.processes[name].start()

    def kill(self, name: str) -> bool:
        process = self.processes[name]
        process.kill()
        process.join()
        return process.exitcode == -signal.SIGKILL

    def damage(self, name: str) -> bool:
        """Cut one checkpoint off, or flip one bit of it."""
        files = sorted((self.company.state(name) / "checkpoints").glob("*.epoch-*.safetensors"))
        if not files:
            return False
        data = bytearray(files[-1].read_bytes())
        if self.rng.random() < 0.5:
            data = data[: self.rng.randrange(len(data))]
        else:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        files[-1].write_bytes(data)
        return True

    def end(self) -> dict[str, int]:
        """Exit codes, when all have ended; a party that parked is started again, for it is told to be."""
        until = time.monotonic() + 2 * PATIENCE
        while time.monotonic() < until:
            for name, process in list(self.processes.items()):
                process.join(0.05)
                if process.exitcode == 75:
                    self.start(name)
            if all(process.exitcode is not None for process in self.processes.values()):
                break
        return {name: -1 if p.exitcode is None else p.exitcode for name, p in self.processes.items()}

    def close(self) -> None:
        for process in [*self.processes.values(), self.forwarder]:
            process.kill()
            process.join()

    def words(self) -> str:
        """The last lines of what the processes printed."""
        files = sorted(self.company.folder.glob("*.out"))
        return " | ".join(f"{file.name}: {file.read_text()[-200:]}" for file in files)


def one(run: Run, number: int, seconds: float, figures: Figures) -> None:
    """Train, with kills, and hold what came of it against what should."""
    rng, company, where = run.rng, run.company, f"run {number}, {' '.join(run.cell)}"
    for name in company.names:
        run.start(name)
    older: Path | None = None
    victim = ""
    for _ in range(rng.randint(1, 3)):
        time.sleep(rng.random() * seconds)
        victim = rng.choice(company.names)
        if number % 5 == 4 and older is None:
            older = company.folder / f"{victim}.older"
            figures.kills += run.kill(victim)
            shutil.copytree(company.state(victim), older)
            run.start(victim)
            time.sleep(rng.random() * seconds)
            figures.kills += run.kill(victim)
            shutil.rmtree(company.state(victim))
            older.rename(company.state(victim))
            figures.restored += 1
            run.start(victim)
            break
        figures.kills += run.kill(victim)
        if number % 3 == 2:
            figures.damaged += run.damage(victim)
        run.start(victim)
    codes = run.end()
    if any(codes.values()):
        told = run.words()
        if older is not None and ("restored" in told or "stale" in told):
            figures.restored_refused += 1
        else:
            figures.failures.append(f"{where}: {codes}, {told}")
        return
    figures.restored_knew_all += older is not None
    _compare(run, where, figures)


def _compare(run: Run, where: str, figures: Figures) -> None:
    company = run.company
    collected = company.folder / "collected"
    collected.mkdir()
    for name in company.names:
        shutil.copy(company.state(name) / "ledgers" / f"{name}.jsonl", collected)
    try:
        audit = sv.audit(collected)
        figures.ledgers_agree += audit.complete
    except AuditError as error:
        figures.failures.append(f"{where}: {error}")
    if "dp" in run.cell[1]:
        figures.with_noise += 1
        for name in company.names:
            _releases(run, name, where, figures)
        return
    figures.compared += 1
    parts = sv.simulate(run.job, company.people, secrets=run.secrets).model().parts
    alike = run.cell[1] == "bfv" or all(
        tree_digest(read_tree(company.state(name) / "model" / f"{name}.model.safetensors"))
        == tree_digest(model_part(run.job, name, parts[name]))
        for name in parts
    )
    figures.same += alike and run.cell[1] != "bfv"
    figures.compared -= run.cell[1] == "bfv"  # fresh keys and masks: the same up to their rounding
    if not alike:
        figures.failures.append(f"{where}: another model than the simulation's")


def _releases(run: Run, name: str, where: str, figures: Figures) -> None:
    counts: dict[str, dict[int, int]] = {}
    file = run.company.folder / f"{name}.made.jsonl"
    for line in file.read_text().splitlines() if file.exists() else []:
        with suppress(ValueError):
            key, rows = json.loads(line)
            for row in rows:
                counts.setdefault(key, {})[row] = counts.setdefault(key, {}).get(row, 0) + 1
    (record,) = Record.read(run.company.state(name) / "report" / "metrics.json").runs
    for key, rows_of in counts.items():
        what = key.rsplit(" ", 1)[1]
        made = max(rows_of.values())
        told = max((e.releases for e in record.epsilon if e.party == name and e.what == what), default=0)
        figures.more.append(told - made)
        if told < made:
            figures.counted_too_few += 1
            figures.failures.append(f"{where}: {key} was released {made} times, ε counts {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 kills")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=60, help="begin no run after this time")
    parser.add_argument("--seconds", type=float, default=6, help="of a whole run, for the moments")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    most_kills, most_cuts = (3, 1) if given.quick else (given.kills, given.cuts)
    rng = random.Random(given.seed)  # noqa: S311 - which moment, not a secret
    began, figures, cuts = time.monotonic(), Figures(), FORK.Value("i", 0)
    base = Path(tempfile.mkdtemp(prefix="parties-kills-"))
    while figures.kills < most_kills or cuts.value < most_cuts:
        if time.monotonic() - began > 60 * given.minutes:
            break
        number = figures.runs
        figures.runs += 1
        run = Run(CELLS[number % len(CELLS)], base / str(number), number, rng, cuts)
        try:
            one(run, number, given.seconds, figures)
        finally:
            run.close()
        print(number, run.cell, figures.kills, cuts.value, len(figures.failures), flush=True)
        shutil.rmtree(base / str(number))
    shutil.rmtree(base)
    more = figures.more or [0]
    write(
        "parties_kills",
        {
            **{name: value for name, value in vars(figures).items() if name != "more"},
            "cuts": cuts.value,
            "counted beyond what was made": {"least": min(more), "most": max(more)},
            "minutes": round((time.monotonic() - began) / 60, 1),
        },
    )
    if figures.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
