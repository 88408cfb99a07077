"""Residues modulo 67 and a training step on shares, on every compiled path, with and without BMI2's ``pext``.

    python -m benchmarks.residues [--quick]

Paths without AVX-512 VBMI2 have two kernels that drop octets and close the gaps: octet by octet, and eight at a time by
``pext``. The engine takes the second where the CPU is not known for a slow ``pext``; here both run. CPU time of one
core; ways take turns, and of each figure the least counts, because other work on the machine only adds. The step is
that of `benchmarks.shares_step`: 256 rows, 32 columns, hidden layers of 16 and 16, all three parties.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from unittest import mock

import numpy as np
from securevfl_crypto.engine.compiled_ring import ring_kernels
from securevfl_crypto.engine.cpu import paths_of_this_cpu
from securevfl_crypto.inspection import inspect_engine
from securevfl_crypto.ring import MODULUS, paths
from securevfl_crypto.ring.compiled import CompiledRingLoops
from securevfl_crypto.ring.portable import PortableRingLoops

from benchmarks.common import write
from benchmarks.shares_step import Network, Steps

OCTETS = 1 << 16
"""Of one call: raw octets and residues stay in the second cache, as in a layer's messages."""


def ways() -> dict[str, CompiledRingLoops]:
    """The loops of every compiled path of this CPU; two for those with two kernels."""
    found = {}
    for path in paths_of_this_cpu():
        kernels = ring_kernels(path)
        if kernels.ifma:
            found[path.name] = CompiledRingLoops(kernels)
        else:
            found[f"{path.name}, octet by octet"] = CompiledRingLoops(kernels, pext=False)
            found[f"{path.name}, pext"] = CompiledRingLoops(kernels, pext=True)
    return found


def residues(all_ways: dict[str, CompiledRingLoops], turns: int) -> dict[str, float]:
    """Nanoseconds an octet of raw input, the least of all turns."""
    raw = np.frombuffer(os.urandom(OCTETS), dtype=np.uint8)
    right, out = np.empty_like(raw), np.empty_like(raw)
    count = PortableRingLoops().residues(raw, MODULUS, right)
    least = dict.fromkeys(all_ways, float("inf"))
    for _ in range(turns):
        for name, loops in all_ways.items():
            start = time.process_time_ns()
            found = loops.residues(raw, MODULUS, out)
            least[name] = min(least[name], (time.process_time_ns() - start) / OCTETS)
            if found != count or not np.array_equal(out[:count], right[:count]):
                raise ValueError(f"{name} computes residues wrongly")
    return {name: round(value, 3) for name, value in least.items()}


def steps(all_ways: dict[str, CompiledRingLoops], turns: int, count: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds of a step of all three parties: the least and the median of all steps of all turns."""
    runs = {name: Steps(Network(256, (32, 16, 16, 1))) for name in all_ways}
    for _ in range(turns):
        for name, loops in all_ways.items():
            with mock.patch.object(paths, "_chosen", lambda loops=loops: loops):
                runs[name].run(count)
    return {
        name: {"least": round(min(run.cpu), 2), "median": round(statistics.median(run.cpu), 2)}
        for name, run in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns")
    quick = parser.parse_args().quick
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["SECUREVFL_THREADS"] = "1"
    all_ways = ways()
    content = {
        "cores": 1,
        "cpu class": dict(inspect_engine())["CPU class"],
        "load at the start": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "nanoseconds an octet, modulo 67": residues(all_ways, 20 if quick else 400),
        "CPU milliseconds of a step on shares": steps(all_ways, 1 if quick else 7, 3 if quick else 12),
    }
    write("residues-quick" if quick else "residues", content)


if __name__ == "__main__":
    main()
