"""SecretFlow's SPU: a step of logistic regression under one of its protocols, in its simulator. Prints a line of JSON.

Run by the peers' interpreter (see benchmarks/peers-requirements.txt); imports nothing of this project:

    .venv-peers/bin/python benchmarks/peers/spu_two.py CHEETAH|SEMI2K|ABY3 [--sigmoid true] [--steps 9] [--repeat 3]

256 rows of 32 columns, one logit, gradient descent; ring of 64 bits with 16 fractional bits, SPU's defaults otherwise.
The sigmoid is SecureML's of three pieces, or what SPU makes of JAX's. CPU is that of all parties, which are threads of
one process that talk over memory: the least of some runs of one program of several steps, less that of one step, so
that what comes before the first step (keys, base transfers) is left out and stands apart. Compiling a program, which
the simulator does at each call, is not counted. Bytes and messages are those that SPU's profile counts at its first
party, likewise by difference.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import spu
from spu.utils import simulation

ROWS, COLUMNS, RATE = 256, 32, 0.5
_LINK = re.compile(r"Link details: total send bytes (\d+), recv bytes (\d+), send actions (\d+)")


class Timed(simulation.Simulator):
    """A simulator that notes what the last run took, without compiling."""

    wall = cpu = 0.0

    def __call__(self, executable, *arguments):
        """Run a program."""
        start, used = time.perf_counter(), time.process_time()
        found = super().__call__(executable, *arguments)
        self.wall, self.cpu = time.perf_counter() - start, time.process_time() - used
        return found


def configure(protocol, *, counts=False):
    """SPU's configuration; with its profile where messages are counted."""
    config = spu.RuntimeConfig(
        protocol=getattr(spu.ProtocolKind, protocol), field=spu.FieldType.FM64, fxp_fraction_bits=16
    )
    if counts:
        config.enable_pphlo_profile = True
    return config


def make_program(count, sigmoid):
    """A program of `count` steps."""

    def activate(z):
        if sigmoid == "true":
            return jax.nn.sigmoid(z)
        return jnp.where(z > 0.5, 1.0, jnp.where(z < -0.5, 0.0, z + 0.5))

    def program(x, y, w):
        for _ in range(count):
            w = w - x.T @ ((activate(x @ w) - y) * (RATE / ROWS))
        return w

    return program


def read_log(call):
    """What a call writes to standard output and standard error, from C++ as well."""
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            call()
        finally:
            for number, old in zip((1, 2), kept, strict=True):
                os.dup2(old, number)
                os.close(old)
        file.seek(0)
        return file.read().decode(errors="replace")


def main():
    """Measure one protocol."""
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", choices=("CHEETAH", "SEMI2K", "ABY3"))
    parser.add_argument("--sigmoid", choices=("pieces", "true"), default="pieces")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    parties = 3 if options.protocol == "ABY3" else 2
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = (rng.random((ROWS, 1)) > 0.5).astype(np.float32)
    w = (rng.normal(size=(COLUMNS, 1)) * 0.2).astype(np.float32)
    cpu, wall, found, counted = {}, {}, {}, {}
    for count in (1, options.steps):
        program = make_program(count, options.sigmoid)
        simulator = Timed(parties, configure(options.protocol))
        run = simulation.sim_jax(simulator, program)
        cpus, walls = [], []
        for _ in range(options.repeat):
            found[count] = run(x, y, w)
            cpus.append(simulator.cpu)
            walls.append(simulator.wall)
        cpu[count], wall[count] = min(cpus), min(walls)
        counting = simulation.sim_jax(simulation.Simulator(parties, configure(options.protocol, counts=True)), program)
        sent, received, actions = (int(n) for n in _LINK.findall(read_log(lambda run=counting: run(x, y, w)))[-1])
        counted[count] = np.array([sent + received if parties == 2 else parties * sent, actions])
    more = options.steps - 1
    octets, messages = (counted[options.steps] - counted[1]) / more
    true = make_program(options.steps, options.sigmoid)(x, y, w)
    print(
        json.dumps(
            {
                "CPU milliseconds": 1e3 * (cpu[options.steps] - cpu[1]) / more,
                "wall milliseconds": 1e3 * (wall[options.steps] - wall[1]) / more,
                "bytes, all parties": float(octets),
                "messages that the first party sends": float(messages),
                "CPU seconds before and with the first step": cpu[1],
                "largest error of the weights": float(np.abs(found[options.steps] - true).max()),
                "version": importlib.metadata.version("spu"),
            }
        )
    )


if __name__ == "__main__":
    main()
