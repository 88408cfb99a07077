"""SecretFlow's SPU: one boosted tree under ABY3, three parties in its simulator. Prints a line of JSON.

Run by the peers' interpreter (see benchmarks/peers-requirements.txt); imports nothing of this project:

    .venv-peers/bin/python benchmarks/peers/spu_tree.py WORK.npz [--depth 5]

WORK.npz is what `benchmarks.shares_trees` writes: codes uint8 (rows, columns), bins, and g and h of each row, float32.
The program grows one tree level by level: sums of g and h by bin and node as a product of matrices, XGBoost's gain by
division, the best split by argmax, rows sent to both children; then the leaves. It has no least sum of h, no missing
values and no candidate *no split*. Ring of 64 bits with 16 fractional bits, SPU's defaults otherwise. The first run
compiles; the second is the figure. SPU's three parties are threads of one process: seconds of CPU are those of all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import resource
import time

import jax.numpy as jnp
import numpy as np
import spu
from spu.utils import simulation

L2 = 1.0


class Timed(simulation.Simulator):
    """A simulator that notes what the last run took, without compiling: `sim_jax` compiles at each call."""

    wall = cpu = 0.0

    def __call__(self, executable, *arguments):
        """Run a program."""
        start, used = time.perf_counter(), time.process_time()
        found = super().__call__(executable, *arguments)
        self.wall, self.cpu = time.perf_counter() - start, time.process_time() - used
        return found


def grow(depth):
    """The program of one tree: below (rows, candidates) says which rows are left of each candidate."""

    def program(below, g, h):
        members = jnp.ones((below.shape[0], 1))
        for level in range(depth):
            nodes = 1 << level
            in_g, in_h = members * g[:, None], members * h[:, None]
            left_g, left_h = (below.T @ in_g).T, (below.T @ in_h).T
            all_g, all_h = in_g.sum(0)[:, None], in_h.sum(0)[:, None]
            right_g, right_h = all_g - left_g, all_h - left_h
            gain = left_g * left_g / (left_h + L2) + right_g * right_g / (right_h + L2)
            best = jnp.argmax(gain, axis=1)
            chosen = (jnp.arange(below.shape[1])[None, :] == best[:, None]).astype(jnp.float32)
            left = members * (below @ chosen.T)
            members = jnp.stack([left, members - left], 2).reshape(below.shape[0], 2 * nodes)
        leaves = -(g @ members) / ((h @ members) + L2)
        return members @ leaves

    return program


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--depth", type=int, default=5)
    told = parser.parse_args()
    work = np.load(told.work)
    codes, bins = work["codes"], int(work["bins"])
    below = (codes[:, :, None] <= np.arange(bins - 1)[None, None, :]).reshape(len(codes), -1).astype(np.float32)
    config = spu.RuntimeConfig(protocol=spu.ProtocolKind.ABY3, field=spu.FieldType.FM64, fxp_fraction_bits=16)
    program = grow(told.depth)
    simulator = Timed(3, config)
    run = simulation.sim_jax(simulator, program)
    walls, cpus = [], []
    for _ in range(2):
        found = np.asarray(run(below, work["g"], work["h"]))
        walls.append(simulator.wall)
        cpus.append(simulator.cpu)
    true = np.asarray(program(below, work["g"], work["h"]))
    print(
        json.dumps(
            {
                "seconds": walls[1],
                "CPU seconds": cpus[1],
                "CPU seconds, first run": cpus[0],
                "rows whose leaf differs by more than 0.01": float((np.abs(found - true) > 0.01).mean()),
                "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "version": importlib.metadata.version("spu"),
            }
        )
    )


if __name__ == "__main__":
    main()
