"""A step of logistic regression between two parties, in one run with three parties' and with SecretFlow's SPU.

    python -m benchmarks.two_parties [--quick] [--peers-python PATH]

256 rows of 32 columns, 16 at each party, one logit; all parties in one process, by turns, so that CPU is the sum of
them all, a helper included. It is the least of some repetitions, which the ways take in turns. What comes once a job
(keys, base transfers, the hidden rows of a helper's job) stands apart; what serves several epochs counts with its share
of a step. Bytes are of arrays, in all directions.

- pair: two and nobody else, random numbers made for 8 and for 32 epochs at once.
- helper: a third deals them, and its messages and its CPU count.
- three: replicated shares of three parties (`benchmarks.shares_step`).
- SPU's CHEETAH (two), SEMI2K (two, with randomness that one of them or a third makes) and ABY3 (three), in the peers'
  environment (`benchmarks/peers/spu_two.py`).
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Awaitable
from typing import Any

import numpy as np
from securevfl_crypto.two.correlations import Correlations, LinearTask
from securevfl_crypto.two.curves import SIGMOID
from securevfl_crypto.two.dealing import Ask, MemoryHelper, Request
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import StepRule, TwoLinear, encode_rows
from securevfl_crypto.two.pair import PairCorrelations
from securevfl_crypto.two.wire import MemoryWires

from benchmarks.common import before, write
from benchmarks.psi_peers import _run, peers_python
from benchmarks.shares_step import Network, Steps

ROWS, COLUMNS, BATCHES = 256, 16, 16
WIDE = {"rows": 400_000, "columns of a party": 450, "batch": 1024}
"""A table that users of SecretFlow reported on (its issue 148): 1,646 seconds an epoch under CHEETAH."""
PEERS = {
    "CHEETAH, three pieces": ("CHEETAH", "--steps", "17", "--repeat", "2"),
    "CHEETAH, true sigmoid": ("CHEETAH", "--steps", "3", "--repeat", "2", "--sigmoid", "true"),
    "SEMI2K, three pieces": ("SEMI2K", "--steps", "21"),
    "ABY3, three pieces": ("ABY3", "--steps", "21"),
}


class TwoSteps:
    """Steps of two parties, with what they cost.

    Args:
        epochs: for which random numbers are made at once.
        batches: steps of an epoch.
        helped: whether a helper deals.
        rows: of a batch.
        columns: of each party.
    """

    def __init__(self, epochs: int, batches: int, *, helped: bool, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self.epochs, self.batches, self.shape = epochs, batches, (batches, rows, columns)
        self.rule = StepRule(SIGMOID, 2.0 / rows)
        self.cpu: dict[str, list[float]] = {"ahead": [], "steps": []}
        self.wires, self.dealt = MemoryWires(), 0
        ends = self.wires.pair()
        begun = time.process_time()
        self.sources: list[Correlations]
        if helped:
            helper = MemoryHelper()
            self.sources = [
                DealtCorrelations(end, helper.dealer.seeds[end.me], self._count_dealt(helper.ask_as(end.me)))
                for end in ends
            ]
        else:
            self.sources = [PairCorrelations(end, b"benchmark") for end in ends]
        self._run(*(source.setup() for source in self.sources))
        self.models = [
            TwoLinear(end, source, (columns, columns), 1) for end, source in zip(ends, self.sources, strict=True)
        ]
        rng = np.random.default_rng(0)
        self.rows = [encode_rows(rng.normal(size=self.shape).clip(-4, 4)) for _ in ends]
        self.labels = rng.integers(0, 2, (batches, rows, 1)).astype(float)
        self._run_once()  # keys of this size, and hidden rows
        self.before = time.process_time() - begun
        self.hidden = self.wires.octets["ahead rows"]

    def _run(self, *parties: Awaitable[Any]) -> list[Any]:
        return list(self.wires.run(*parties))  # type: ignore[arg-type]

    def _count_dealt(self, ask: Ask) -> Ask:
        async def counted(request: Request) -> list[np.ndarray]:
            dealt = await ask(request)
            self.dealt += sum(array.nbytes for array in dealt)
            return dealt

        return counted

    def _tasks(self, me: int) -> list[LinearTask]:
        return [LinearTask(key, rows, self.shape[2], 1, backward=True) for key, rows in enumerate(self.rows[me])]

    async def _train(self, me: int, uses: list[Any]) -> None:
        model = self.models[me]
        for _ in range(self.epochs):
            await model.begin_epoch([use.popleft() for use in uses])
            for rows, label in zip(self.rows[me], self.labels, strict=True):
                await model.train_batch(rows, label if me == 0 else None, self.rule)

    def _run_once(self) -> None:
        start = time.process_time()
        uses = self._run(*(model.prepare(self._tasks(me), self.epochs) for me, model in enumerate(self.models)))
        middle = time.process_time()
        self._run(*(self._train(me, uses[me]) for me in (0, 1)))
        steps = self.epochs * self.batches
        self.cpu["ahead"].append(1e3 * (middle - start) / steps)
        self.cpu["steps"].append(1e3 * (time.process_time() - middle) / steps)

    def run(self) -> None:
        """Make random numbers and train for so many epochs; note what it takes."""
        self.wires.octets.clear()
        self.wires.messages.clear()
        self.dealt = 0
        self._run_once()

    def figures(self) -> dict[str, Any]:
        """Of a step."""
        steps = self.epochs * self.batches
        octets = {label: count / steps for label, count in self.wires.octets.items()} | {"dealt": self.dealt / steps}
        least = {part: min(found[1:]) for part, found in self.cpu.items()}
        ahead = sum(n for label, n in self.wires.messages.items() if not label.startswith("step "))
        during = sum(n for label, n in self.wires.messages.items() if label.startswith("step "))
        return {
            "CPU milliseconds": min(a + b for a, b in zip(*(found[1:] for found in self.cpu.values()), strict=True)),
            "CPU milliseconds, products ahead": least["ahead"],
            "CPU milliseconds, waves and steps": least["steps"],
            "bytes, all parties": sum(octets.values()),
            "bytes by message": {label: round(count) for label, count in octets.items() if count},
            "messages that a party sends in a step": (during / self.epochs - 2) / 2 / self.batches,
            "and ahead of it": ahead / 2 / steps,
            "bytes a batch, once a job": self.hidden / self.batches,
            "CPU seconds before the first step": self.before,
        }


def compare(figures: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """The ratios of the goals; None where a peer is not there."""

    def ratio(way: str, other: str, what: str = "CPU milliseconds") -> float | None:
        mine, theirs = figures[way].get(what), figures[other].get(what)
        return theirs / mine if mine and theirs else None

    octets = "bytes, all parties"
    cheetah = "CHEETAH, three pieces"
    return {
        "CPU, CHEETAH to pair of 8 epochs (goals 3 and 8)": ratio("pair, 8 epochs", cheetah),
        "CPU, CHEETAH to pair of 32 epochs (goal 6)": ratio("pair, 32 epochs", cheetah),
        "CPU, CHEETAH with its true sigmoid to pair of 8 epochs": ratio("pair, 8 epochs", "CHEETAH, true sigmoid"),
        "bytes, pair of 8 epochs to CHEETAH (goal 1)": ratio(cheetah, "pair, 8 epochs", octets),
        "CPU, helper to three parties (goal 0.5)": ratio("three parties", "helper, 8 epochs"),
        "bytes, helper to three parties (goal 0.1)": ratio("three parties", "helper, 8 epochs", octets),
        "CPU, SEMI2K to helper (goal 40)": ratio("helper, 8 epochs", "SEMI2K, three pieces"),
        "CPU, ABY3 to three parties": ratio("three parties", "ABY3, three pieces"),
    }


def measure_steps(repeat: int, *, quick: bool) -> dict[str, dict[str, Any]]:
    """Our own ways, by turns."""
    batches = 2 if quick else BATCHES
    ways = {
        "pair, 8 epochs": TwoSteps(8, batches, helped=False),
        "pair, 32 epochs": TwoSteps(32, max(batches // 4, 1), helped=False),
        "helper, 8 epochs": TwoSteps(8, batches, helped=True),
    }
    three = Steps(Network(ROWS, (2 * COLUMNS, 1)))
    for _ in range(1 if quick else repeat):
        for way in ways.values():
            way.run()
        three.run(4 if quick else 24)
    figures = {name: way.figures() for name, way in ways.items()}
    figures["three parties"] = {
        "CPU milliseconds": min(three.cpu),
        "bytes, all parties": three.sent,
        "messages that a party sends in a step": three.rounds,
    }
    return figures


def reckon_wide(*, quick: bool) -> dict[str, Any]:
    """An epoch of the wide table, from two batches: CPU of both parties, bytes, and memory of one of them."""
    found: dict[str, Any] = dict(WIDE)
    steps, width = -(-WIDE["rows"] // WIDE["batch"]), WIDE["columns of a party"]
    for name, helped in (("pair", False), ("helper", True)):
        way = TwoSteps(2 if quick else 8, 2, helped=helped, rows=WIDE["batch"], columns=width)
        for _ in range(1 if quick else 2):
            way.run()
        step = way.figures()
        # Of a use: masks and shares of a value for each row, and of a weight for each column; pads of both.
        uses = 8 * steps * 8 * (3 * WIDE["batch"] + 3 * width)
        found[name] = {
            "CPU milliseconds of a step": step["CPU milliseconds"],
            "of it, products ahead": step["CPU milliseconds, products ahead"],
            "MB of a step": step["bytes, all parties"] / 1e6,
            "reckoned: CPU seconds of an epoch, all parties": step["CPU milliseconds"] * steps / 1e3,
            "reckoned: GB of an epoch, all parties": step["bytes, all parties"] * steps / 1e9,
            "reckoned: GB once a job": step["bytes a batch, once a job"] * steps / 1e9,
            "reckoned: GB of memory of a party": (
                WIDE["rows"] * width * (2 + 8 * helped) + uses  # rows as int16, and the other's hidden ones as words
            )
            / 1e9,
        }
    found["most memory of this process, GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return found


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, and none of the peers")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peers-python", help="the interpreter that has SPU; see benchmarks/peers-requirements.txt")
    parser.add_argument("--only", choices=("step", "wide"))
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    figures = before("two_parties") | {"rows": ROWS, "columns": 2 * COLUMNS, "load": os.getloadavg()[0]}
    os.sched_setaffinity(0, {min(cores)})
    step = {} if options.only == "wide" else measure_steps(options.repeat, quick=options.quick)
    if options.only != "step":
        figures["wide table"] = reckon_wide(quick=options.quick)
    os.sched_setaffinity(0, cores)
    if options.only != "wide":
        for name, arguments in PEERS.items():
            step[name] = (
                {"reason": "left out"}
                if options.quick
                else _run(peers_python(options.peers_python), "spu", ["spu_two.py", *arguments], 400.0)
            )
        figures |= {"step": step, "ratios": compare(step)}
    write("two_parties", figures)


if __name__ == "__main__":
    main()
