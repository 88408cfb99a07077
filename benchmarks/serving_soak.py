"""Questions to `securevfl serve` for long, with a partner that is killed and started again in between.

    python -m benchmarks.serving_soak [--questions 100000] [--kills 10] [--protection shares] [--clients 16]

Three parties, each with a program and a gate of its own, over TLS on this machine. Clients ask over HTTP, each for one
customer at a time; one question of twenty is about a customer that was asked about before. A customer who cannot be
scored for now is asked about again until an answer comes. `shop2` is killed (SIGKILL) while questions are on their way:
in turn its program alone, and with its gate. The bank and `shop1` live from the first question to the last.

What is checked, besides that each question has an answer:

- each answer against the score that `securevfl.predict` computes with the same model in one process;
- each partner's result book, and each party's counts of the day: no customer was counted less often than answered
  anew, and none more often, but for those whose question a kill cut off;
- the resident memory of each process that lived all the time: what it grows after the first tenth, for each customer
  that the party has to remember.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks import serving, skip
from benchmarks.common import write
from securevfl.agreement import ServingTerms
from securevfl.privacy import ResultBook
from securevfl.testing.parties import make_parties

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.companies import Companies
from support.servers import unlabelled

KILLED = "shop2"
NEAR = {"shares": 0.016, "plain": 1e-5, "bfv": 1e-5, "boosting": 1e-5}
"""Largest difference between an answer and the model's score: on shares a logit is rounded at 2^-4."""
AGAIN = 0.05
"""Share of the questions about customers that were asked about before."""
PER_CUSTOMER = 2048
"""Bytes by which a process may grow for each customer answered after the first tenth: kept answers and counts."""
BASE = 32 << 20
"""Bytes by which it may grow besides: the lines of a session's ledger that are in memory."""
SAMPLES = 10


@dataclass
class Asked:
    """What the clients saw.

    Attributes:
        expected: customer → its score.
        near: largest difference that is no error.
        answered: customers that were answered.
        cut: customers whose question was refused for a while, at least once.
        questions: that were answered.
        refused: answers that told to ask again.
        worst: largest difference from a score.
        times: seconds of answers at the first try.
    """

    expected: dict[str, float]
    near: float
    answered: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    questions: int = 0
    refused: int = 0
    worst: float = 0.0
    times: list[float] = field(default_factory=list)

    def take(self, name: str, probability: float) -> None:
        """Check and count an answer.

        Raises:
            RuntimeError: it is wrong.
        """
        away = abs(probability - self.expected[name])
        if away > self.near:
            raise RuntimeError(f"a score is {away:.4f} away from the model's; at most {self.near} is rounding")
        self.worst = max(self.worst, away)
        self.answered.add(name)
        self.questions += 1


async def ask_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> tuple[int, dict[str, Any]]:
    """Ask for one customer: the status and the content of the answer."""
    body = json.dumps({"customer": name}).encode()
    head = b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
    return int(lines[0].split(b" ")[1]), json.loads(await reader.readexactly(length))


async def keep_asking(port: int, names: Iterator[str], asked: Asked) -> None:
    """Ask until the names are used up, over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for name in names:
        began, first = time.perf_counter(), True
        while True:
            status, content = await ask_one(reader, writer, name)
            if status == 200:
                break
            if status != 503:
                raise RuntimeError(f"an answer has the status {status}: {content}")
            asked.cut.add(name)
            asked.refused += 1
            first = False
            await asyncio.sleep(0.2)
        if first:
            asked.times.append(time.perf_counter() - began)
        asked.take(name, float(content["probabilities"][1]))
    writer.close()


def children_of(process: int) -> list[int]:
    """The processes that a process started."""
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def resident_bytes(process: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sample_memory(started: dict[str, subprocess.Popen[str]]) -> dict[str, int]:
    """Resident memory of each party's program, and of the processes that it started, in bytes."""
    found = {}
    for name, one in started.items():
        found[name] = resident_bytes(one.pid)
        found[f"{name}, gate"] = sum(resident_bytes(child) for child in children_of(one.pid))
    return found


def names_to_ask(customers: list[str], questions: int, seed: int = 0) -> tuple[list[str], int]:
    """The questions in their order, and how many are about a new customer."""
    rng = np.random.default_rng(seed)
    fresh = min(len(customers), questions - int(questions * AGAIN))
    new = iter(customers[:fresh])
    asked: list[str] = []
    again = set(rng.choice(np.arange(1, questions), questions - fresh, replace=False).tolist()) if fresh else set()
    for place in range(questions):
        asked.append(asked[int(rng.integers(len(asked)))] if place in again else next(new))
    return asked, fresh


def count_days(folder: Path) -> Counter[str]:
    """How often each person was counted, over the files of a party's counts of the day."""
    found: Counter[str] = Counter()
    for file in sorted(folder.glob("counts-*.jsonl")):
        for line in file.read_text().splitlines():
            one = json.loads(line)
            (found.subtract if "back" in one else found.update)(one["scored"])
    return +found


def check_budgets(where: Companies, asked: Asked) -> dict[str, object]:
    """Compare counts with what was answered.

    Raises:
        RuntimeError: somebody was counted too seldom, or too often without a kill.
    """
    answered, found = len(asked.answered), {}
    for name in where.names:
        days = count_days(where.folder / name / f"{name}.results.days")
        found[f"counts of the day, {name}"] = {"customers": len(days), "rows": days.total()}
        if name != "bank":
            book = ResultBook(where.folder / name / f"{name}.results.jsonl", party=name)
            (asker,) = book.askers
            several = sorted(asked.answered | asked.cut)
            counts = dict(zip(several, book.count_opened(several, asker).tolist(), strict=True))
            short = sum(counts[one] < 1 for one in asked.answered)
            over = sum(counts[one] > 1 and one not in asked.cut for one in several)
            if short or over:
                raise RuntimeError(f"{name}: {short} customers counted too seldom, {over} too often")
            numbers = sum(counts.values())
            if numbers != book.running(asker):
                raise RuntimeError(f"{name}: {book.running(asker)} numbers in the book; {numbers} of those asked about")
            found[f"result book, {name}"] = {
                "customers": sum(count > 0 for count in counts.values()),
                "numbers": numbers,
                "counted again after a kill": numbers - answered,
            }
        again = days.total() - answered
        if len(days) != answered or not 0 <= again <= asked.refused:
            raise RuntimeError(f"{name}: {len(days)} customers and {days.total()} rows counted; {answered} answered")
    return found


async def run_questions(
    started: dict[str, subprocess.Popen[str]],
    again: Any,
    port: int,
    names: list[str],
    kills: int,
    clients: int,
    asked: Asked,
) -> tuple[list[dict[str, int]], list[float]]:
    """Ask all questions, kill and start in between; samples of memory, and seconds without answers after each kill."""
    samples, pauses = [], []
    source = iter(names)
    total = len(names)
    clients_at_work = asyncio.gather(*(keep_asking(port, source, asked) for _ in range(clients)))

    async def reach(count: int) -> bool:
        while asked.questions < count and not clients_at_work.done():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)
        return not clients_at_work.done()

    async def kill_at_times() -> None:
        for number in range(kills):
            if not await reach(total * (2 * number + 1) // (2 * kills)):
                return
            one = started[KILLED]
            gates = children_of(one.pid) if number % 2 else []
            began, before = time.perf_counter(), asked.questions
            for process in (one.pid, *gates):
                os.kill(process, signal.SIGKILL)
            await asyncio.to_thread(one.wait)
            again()
            enough = min(before + 2 * clients, total)
            while asked.questions < enough and not clients_at_work.done():  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.02)
            pauses.append(round(time.perf_counter() - began, 2))

    async def sample_at_times() -> None:
        for number in range(SAMPLES + 1):
            await reach(max(total * number // SAMPLES, clients))
            samples.append({"questions": asked.questions} | sample_memory(started))
            print(json.dumps(samples[-1]), flush=True)

    await asyncio.gather(clients_at_work, kill_at_times(), sample_at_times())
    return samples, pauses


def check_memory(samples: list[dict[str, int]], fresh: int) -> dict[str, dict[str, float]]:
    """What each process that lived all the time grew after the first tenth.

    Raises:
        RuntimeError: more than it may.
    """
    found = {}
    for name in samples[0]:
        if name == "questions" or name.startswith(KILLED):
            continue
        grown = samples[-1][name] - samples[1][name]
        share = 1 - 1 / SAMPLES
        found[name] = {
            "MiB at first": round(samples[0][name] / 2**20, 1),
            "MiB after a tenth": round(samples[1][name] / 2**20, 1),
            "MiB at last": round(samples[-1][name] / 2**20, 1),
            "bytes a customer": round(grown / (share * fresh)),
        }
        if grown > BASE + PER_CUSTOMER * share * fresh:
            raise RuntimeError(f"{name} grew by {grown / 2**20:.1f} MiB: {found[name]}")
    return found


def run_soak(folder: Path, kind: str, questions: int, kills: int, clients: int) -> dict[str, object]:
    """Figures of one run; raises where something is wrong."""
    rows = int(questions * (1 - AGAIN) / 0.85) + 200
    people = make_parties(rows=rows)
    common = set.intersection(*(set(table.ids) for table in people.values()))
    names, fresh = names_to_ask(sorted(common), questions)
    where = Companies(folder, people, serving.KINDS[kind], ServingTerms(asks=("bank",)))
    model = sv.simulate(where.proposal.job_of(), make_parties(rows=600)).model()
    where.write_models(model.parts)
    wanted = sv.predict(model, sv.Parties(unlabelled(people), active="bank"))
    asked = Asked(dict(zip(wanted.ids, wanted.probabilities[:, 1].tolist(), strict=True)), NEAR[kind])
    ports = serving.free_ports(where.names)
    with ExitStack() as held:

        def start(name: str) -> subprocess.Popen[str]:
            return held.enter_context(serving.start_process(serving.party_command(where, name, ports)))

        started = {name: start(name) for name in where.names}
        port = serving.read_port(started["bank"])
        asyncio.run(serving.wait_until_ready(port))
        began = time.perf_counter()
        samples, pauses = asyncio.run(
            run_questions(started, lambda: started.update({KILLED: start(KILLED)}), port, names, kills, clients, asked)
        )
        passed = time.perf_counter() - began
        memory = check_memory(samples, fresh)
    if asked.questions != questions or len(pauses) != kills:
        raise RuntimeError(f"{asked.questions} of {questions} questions and {len(pauses)} of {kills} kills")
    times = sorted(asked.times)
    return {
        "questions": questions,
        "of them about a new customer": fresh,
        "customers in the tables": rows,
        "clients": clients,
        "seconds": round(passed, 1),
        "questions a second": round(questions / passed, 1),
        "median ms": round(statistics.median(times) * 1000, 1),
        "99th percentile ms": round(times[int(len(times) * 0.99)] * 1000, 1),
        "kills": kills,
        "seconds until answers came again": pauses,
        "refused for a while": asked.refused,
        "largest difference from the model's score": round(asked.worst, 6),
        "budgets": check_budgets(where, asked),
        "memory": memory,
        "samples": samples,
    }


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--protection", choices=list(serving.KINDS), default="shares")
    arguments = parser.parse_args()
    skip.needed("uvicorn", "serving_soak")
    with tempfile.TemporaryDirectory() as temporary:
        found = run_soak(Path(temporary), arguments.protection, arguments.questions, arguments.kills, arguments.clients)
    print(json.dumps(found, indent=1))
    if arguments.questions >= 100_000:
        write("serving_soak", {"cores": os.cpu_count(), arguments.protection: found}, show=False)


if __name__ == "__main__":
    sys.exit(main())
