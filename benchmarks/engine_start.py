"""What a fresh process pays before its kernels run: compiled ahead, and compiled in memory.

    python -m benchmarks.engine_start [--old TREE] [--quick]

CPU-seconds of a process of its own, imports left out: all groups of kernels with their self-tests; a first intersection
by `ot` of 2^12 identifiers a side, both parties in the process, and a second one. The ways take turns; of each figure
the least counts, because other work on the machine only adds. ``--old`` measures a checkout of another version, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from securevfl_crypto.inspection import inspect_engine

from benchmarks.common import write

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "psi", "crypto")
KERNELS = """
import json, time
from securevfl_crypto.bits import bit_loops
from securevfl_crypto.engine import choose_engine
from securevfl_crypto.modular import modular_arithmetic
from securevfl_crypto.ring.paths import ring_loops
begun = time.process_time()
prime = 2**1279 - 1
choose_engine(), bit_loops(), ring_loops(), modular_arithmetic(prime), modular_arithmetic(prime**2, root=prime)
print(json.dumps({"all groups of kernels": time.process_time() - begun}))
"""
INTERSECTION = """
import json, time
import securevfl_psi as psi

def intersect(size):
    begun = time.process_time()
    ends = [
        psi.Endpoint(ids, psi.Terms(name=names[0], peer=names[1], role=names[0], protocol="ot"))
        for ids, names in (
            ([f"id {k}" for k in range(size)], ("receiver", "sender")),
            ([f"id {k}" for k in range(size // 2, size + size // 2)], ("sender", "receiver")),
        )
    ]
    run = getattr(psi, "run_in_process", None) or psi.in_process  # what older versions call it
    run(*ends)
    assert len(ends[0].result.rows) == size // 2
    return time.process_time() - begun

print(json.dumps({"first ot at 2^12": intersect(4096), "second ot at 2^12": intersect(4096)}))
"""


def measure(tree: Path, setting: str | None) -> dict[str, float]:
    """CPU-seconds of both programs, each in a fresh process.

    Args:
        tree: the checkout to measure.
        setting: ``SECUREVFL_ENGINE``; None: not set.
    """
    kept = {name: value for name, value in os.environ.items() if name != "SECUREVFL_ENGINE"}
    kept |= {"PYTHONPATH": os.pathsep.join(str(tree / name) for name in FOLDERS), "SECUREVFL_THREADS": "1"}
    if setting is not None:
        kept["SECUREVFL_ENGINE"] = setting
    found: dict[str, float] = {}
    for code in (KERNELS, INTERSECTION):
        done = subprocess.run([sys.executable, "-c", code], env=kept, cwd=tree, stdout=subprocess.PIPE, check=True)
        found |= json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="a checkout of another version")
    parser.add_argument("--quick", action="store_true", help="each figure once")
    options = parser.parse_args()
    ways: dict[str, tuple[Path, str | None]] = {"ahead": (ROOT, None), "in memory": (ROOT, "jit")}
    if options.old is not None:
        ways["other version"] = (options.old.resolve(), None)
    best: dict[str, dict[str, float]] = {name: {} for name in ways}
    for _ in range(1 if options.quick else 5):
        for name, (tree, setting) in ways.items():
            for what, value in measure(tree, setting).items():
                best[name][what] = min(value, best[name].get(what, value))
    rounded = {name: {what: round(value, 3) for what, value in found.items()} for name, found in best.items()}
    write("engine_start", {"cpu class": dict(inspect_engine())["CPU class"], "CPU-seconds": rounded})


if __name__ == "__main__":
    main()
