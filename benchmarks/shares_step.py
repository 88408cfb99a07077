"""One training step on shares, all three computing parties together, beside the sealed cut's in the same minutes.

    python -m benchmarks.shares_step [--quick] [--peers-python PATH]

A perceptron: forward, backward and the weights' step; weights, activations, gradients and labels are shares throughout,
with exact truncation, AES streams and party 2's masks included. Parties run by turns in one process, over memory wires,
so that the time is the sum of the three; CPU time stands beside it, because other processes disturb it less.

- B = 256, d = 32, h = 16, top 16, one logit, sigmoid; after each repetition a step of the sealed cut (BFV and CKKS:
  forward and backward of the block d × h alone, one passive party) on the same core.
- MNIST halves' shape, 784-128-64-10, softmax, B = 128, on one core as well, though two are allowed.
- SecretFlow's SPU, ABY3 in its simulator, the same small perceptron with a three-piece sigmoid, on all cores, in
  the peers' environment (see `benchmarks.psi_peers`).
- python-paillier value by value is cited: its ratio to our BFV step in `results/cut-2048.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.replicated import SLOPE_BITS, Computing, Dealt, Product, Share, deal_shares, run_three
from securevfl_crypto.ring import FRACTION, decode_words, encode_words

from benchmarks.common import RESULTS, write
from benchmarks.cut import Shape, Step
from benchmarks.psi_peers import _run, peers_python

RATE_BITS = 9  # the gradient's sum over the batch is divided by 2^9


class Network:
    """Rows, labels and weights of a perceptron, dealt to three parties."""

    def __init__(self, rows: int, widths: tuple[int, ...], batches: int = 4) -> None:
        rng = np.random.default_rng(0)
        self.rows, self.widths = rows, widths
        x = rng.normal(size=(rows * batches, widths[0]))
        teacher = rng.normal(size=(widths[0], max(2, widths[-1])))
        labels = np.argmax(x @ teacher, axis=1)
        self.x, self.y = x, labels[:, None].astype(float) if widths[-1] == 1 else np.eye(widths[-1])[labels]
        self.weights = [rng.normal(size=shape) / shape[0] ** 0.5 for shape in pairwise(widths)]

    def dealt(self) -> list[tuple[Dealt, Dealt, Dealt]]:
        """Inputs, labels and weights, each in three parts."""
        return [deal_shares(encode_words(values)) for values in (self.x, self.y, *self.weights)]


async def step(party: Computing, x: Share, y: Share, weights: list[Share]) -> list[Share]:
    """The weights after one step of gradient descent."""
    layers, gates = [x], []
    for w in weights[:-1]:
        ((value, gate),) = await party.compute_products([Product(layers[-1], w, shift=FRACTION, then="relu")])  # type: ignore[misc]
        layers.append(value)
        gates.append(gate)
    last = Product(layers[-1], weights[-1], shift=FRACTION, then="sigmoid" if y.shape[1] == 1 else None)
    (out,) = await party.compute_products([last])
    if y.shape[1] == 1:
        gradient, bits = out - y * (1 << SLOPE_BITS), FRACTION + SLOPE_BITS
    else:
        gradient, bits = await party.softmax(out) - y, FRACTION
    fresh = list(weights)
    for k in reversed(range(len(weights))):
        jobs = [Product(layers[k].T, gradient, shift=bits + RATE_BITS)]
        if k:
            jobs.append(Product(gradient, weights[k].T, shift=bits, gate=gates[k - 1]))
        change, *before = await party.compute_products(jobs)
        fresh[k] = weights[k] - change
        if before:
            gradient, bits = before[0], FRACTION
    return fresh


class Steps:
    """Runs of some steps, with the time of each."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.milliseconds: list[float] = []
        self.cpu: list[float] = []
        self.rounds = self.sent = 0
        self.loss: list[float] = []

    def run(self, count: int) -> None:
        """`count` steps at three parties by turns; the time of the first, which warms the kernels, is dropped."""
        dealt, rows = self.network.dealt(), self.network.rows
        marks: list[tuple[float, float]] = []

        async def program(party: Computing) -> list[np.ndarray]:
            x, y, *weights = (party.read_dealt(parts[party.index]) for parts in dealt)
            begun, sent = party.rounds, party.sent
            for number in range(count + 1):
                if party.index == 0:
                    marks.append((time.perf_counter(), time.process_time()))
                chosen = slice(number % 4 * rows, (number % 4 + 1) * rows)
                weights = await step(party, x[chosen], y[chosen], weights)
            if party.index == 0:
                marks.append((time.perf_counter(), time.process_time()))
                self.rounds = (party.rounds - begun) // (count + 1)
            party.sent -= sent
            words = [await party.open("weights", w, (0, 1, 2)) for w in weights]
            return [np.zeros(0) if w is None else decode_words(w) for w in words]

        run = run_three(program, openings={"weights": len(self.network.weights)})
        self.sent = run.bytes_sent // (count + 1)
        wall, cpu = ([1e3 * (b - a) for a, b in pairwise(column[1:])] for column in zip(*marks, strict=True))
        self.milliseconds += wall
        self.cpu += cpu
        self.loss = [self.network_loss(self.network.weights), self.network_loss(list(run.results[0]))]

    def network_loss(self, weights: list[np.ndarray]) -> float:
        """Mean cross-entropy in the clear."""
        a = self.network.x
        for w in weights[:-1]:
            a = np.maximum(a @ w, 0)
        z, y = a @ weights[-1], self.network.y
        if y.shape[1] == 1:
            return float((np.logaddexp(0, z) - y * z).mean())
        return float((np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - (y * z).sum(1)).mean())

    def figures(self) -> dict[str, Any]:
        """Median, least, rounds and bytes; the loss before and after the steps."""
        return {
            "milliseconds, all three parties": statistics.median(self.milliseconds),
            "the quickest": min(self.milliseconds),
            "CPU milliseconds": statistics.median(self.cpu),
            "rounds": self.rounds,
            "MB, all three parties": self.sent / 1e6,
            "loss before and after": [round(loss, 4) for loss in self.loss],
        }


def paired(repeat: int, steps: int) -> dict[str, Any]:
    """The small perceptron and the sealed cut's step, by turns on one core."""
    shares = Steps(Network(256, (32, 16, 16, 1)))
    schemes: dict[str, crypto.Scheme] = {"BFV": crypto.BFV(), "CKKS": crypto.CKKS()}
    sealed = {name: Step(scheme, Shape()) for name, scheme in schemes.items()}
    times: dict[str, list[float]] = {name: [] for name in schemes}
    ratios: dict[str, list[float]] = {name: [] for name in schemes}
    for each in sealed.values():
        each.run()
    for _ in range(repeat):
        before = len(shares.milliseconds)
        shares.run(steps)
        mine = statistics.median(shares.milliseconds[before:])
        for name, each in sealed.items():
            times[name].append(1e3 * sum(each.run()[0].values()))
            ratios[name].append(times[name][-1] / mine)
    return {
        "shares": shares.figures(),
        "sealed cut, milliseconds": {name: statistics.median(found) for name, found in times.items()},
        "sealed cut to shares, median of the pairs": {name: statistics.median(r) for name, r in ratios.items()},
    }


def cited(bfv: float) -> dict[str, Any]:
    """python-paillier's step, by the ratio to our BFV step in an earlier run of `benchmarks.cut`."""
    file = RESULTS / "cut-2048.json"
    if not file.is_file():
        return {"reason": "no results/cut-2048.json; run benchmarks.cut"}
    found = json.loads(file.read_text(encoding="utf-8"))
    ratios = {name.partition(",")[0]: ratio for name, ratio in found["ratios"]["BFV"].items()}
    return {"to our BFV step there": ratios, "seconds, scaled to BFV here": {k: r * bfv for k, r in ratios.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--peers-python", help="the interpreter that has SPU; see benchmarks/peers-requirements.txt")
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    os.environ["SECUREVFL_THREADS"] = "1"
    warnings.simplefilter("ignore")
    small = paired(2 if options.quick else 7, 3 if options.quick else 12)
    mnist = Steps(Network(128, (784, 128, 64, 10)))
    mnist.run(2 if options.quick else 12)
    os.sched_setaffinity(0, cores)
    spu = _run(peers_python(options.peers_python), "spu", ["spu_step.py"], 600.0)
    mine = float(small["shares"]["milliseconds, all three parties"])
    if spu.get("seconds"):
        spu["to shares"] = spu["seconds"] / (mine / 1e3)
        spu["CPU to shares"] = spu["CPU seconds"] / (float(small["shares"]["CPU milliseconds"]) / 1e3)
    write(
        "shares_step",
        {
            "cores": 1,
            "load average": os.getloadavg()[0],
            "B=256 d=32 h=16 top=16": small,
            "784-128-64-10 B=128": mnist.figures(),
            "SPU, ABY3 in its simulator": spu,
            "python-paillier and TenSEAL, cited": cited(small["sealed cut, milliseconds"]["BFV"] / 1e3),
        },
    )


if __name__ == "__main__":
    main()
