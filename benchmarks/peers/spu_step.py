"""SecretFlow's SPU: a perceptron's training step under ABY3, three parties in its simulator. Prints a line of JSON.

Run by the peers' interpreter (see benchmarks/peers-requirements.txt); imports nothing of this project:

    .venv-peers/bin/python benchmarks/peers/spu_step.py

B = 256, d = 32, two hidden layers of 16 with ReLU, one logit, SecureML's three-piece sigmoid, gradient descent; ring of
64 bits with 16 fractional bits, SPU's defaults otherwise, its kind of truncation among them. Timed: the mean
of five further steps of one compiled program, which is what its runs of six steps and of one differ by; inputs go
in and weights come out in both. SPU's three parties are threads of one process that talk over memory.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import statistics
import time

import jax.numpy as jnp
import numpy as np
import spu
from spu.utils import simulation

ROWS, WIDTHS = 256, (32, 16, 16, 1)


class Timed(simulation.Simulator):
    """A simulator that notes what the last run took, without compiling: `sim_jax` compiles at each call."""

    wall = cpu = 0.0

    def __call__(self, executable, *arguments):
        """Run a program."""
        start, used = time.perf_counter(), time.process_time()
        found = super().__call__(executable, *arguments)
        self.wall, self.cpu = time.perf_counter() - start, time.process_time() - used
        return found


def step(x, y, w1, w2, w3):
    """The weights after one step."""
    z1 = x @ w1
    p1 = z1 > 0
    a1 = z1 * p1
    z2 = a1 @ w2
    p2 = z2 > 0
    a2 = z2 * p2
    z3 = a2 @ w3
    p = jnp.where(z3 > 0.5, 1.0, jnp.where(z3 < -0.5, 0.0, z3 + 0.5))
    g3 = (p - y) * (0.5 / ROWS)
    g2 = (g3 @ w3.T) * p2
    g1 = (g2 @ w2.T) * p1
    return w1 - x.T @ g1, w2 - a1.T @ g2, w3 - a2.T @ g3


def steps(count):
    """A program of `count` steps."""

    def program(x, y, *weights):
        for _ in range(count):
            weights = step(x, y, *weights)
        return weights

    return program


def main():
    config = spu.RuntimeConfig(protocol=spu.ProtocolKind.ABY3, field=spu.FieldType.FM64, fxp_fraction_bits=16)
    simulator = Timed(3, config)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, WIDTHS[0])).astype(np.float32)
    y = (rng.random((ROWS, 1)) > 0.5).astype(np.float32)
    weights = [(rng.normal(size=s) / s[0] ** 0.5).astype(np.float32) for s in itertools.pairwise(WIDTHS)]
    wall, cpu, found = {}, {}, {}
    for count in (1, 6):
        run = simulation.sim_jax(simulator, steps(count))
        run(x, y, *weights)
        walls, cpus = [], []
        for _ in range(5):
            found[count] = run(x, y, *weights)
            walls.append(simulator.wall)
            cpus.append(simulator.cpu)
        wall[count], cpu[count] = statistics.median(walls), statistics.median(cpus)
    true = steps(6)(x, y, *weights)
    print(
        json.dumps(
            {
                "seconds": (wall[6] - wall[1]) / 5,
                "CPU seconds": (cpu[6] - cpu[1]) / 5,
                "largest error of the weights": max(
                    float(np.abs(a - b).max()) for a, b in zip(found[6], true, strict=True)
                ),
                "version": importlib.metadata.version("spu"),
            }
        )
    )


if __name__ == "__main__":
    main()
