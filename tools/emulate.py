"""Runs a library of kernels for another CPU under qemu: the self-tests, and the vectors in `crypto/vectors`.

    python tools/emulate.py                        # builds the library for aarch64, and runs it by qemu-aarch64
    python tools/emulate.py --library FILE         # this file, for example of a release
    python tools/emulate.py --path avx2            # a library of x86-64, by qemu-x86_64, which has AVX2 and no AVX-512
    python tools/emulate.py --path ifma --native   # on this CPU: each array ends at a page that must not be touched

The engine's own code computes, on this machine; each call of a kernel goes to a process that has the library alone. The
exit code is 1 if a vector differs or a kernel leaves its arrays. ``--quick`` leaves out the 1,000 iterations of X25519.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from emulated.contracts import emulated_part
from emulated.machine import EMULATORS, KernelProcess, build_driver, missing_tool
from make_vectors import COMPUTE, FOLDER, as_json
from securevfl_crypto.bits import bit_loops
from securevfl_crypto.engine import choose_engine, compiled, compiled_bits, compiled_ring, cpu
from securevfl_crypto.engine.build import build_library, list_parts
from securevfl_crypto.engine.transforms import compiled as compiled_transforms
from securevfl_crypto.ring.paths import ring_loops
from securevfl_crypto.transforms import transform_loops

__all__ = ["FILES", "main", "run_vectors"]

FILES = ("x25519", "hash_to_curve", "sha512", "blake2s", "oprf", "ot_rows", "ring", "masked")
"""The files whose groups have kernels in the parts `curve`, `bits` and `ring`; Paillier's are of long numbers."""
_MANY = 10


def use_process(path: cpu.VectorPath, process: KernelProcess) -> None:
    """Let this Python process take the kernels of a path from another process, whatever its own CPU is."""
    cpu.host_features = lambda: frozenset(path.needs)
    for module in (compiled, compiled_bits, compiled_ring, compiled_transforms):
        vars(module)["load_part"] = lambda part, path: emulated_part(process, part, path)


def run_vectors(path: str, *, most: int | None = None) -> tuple[dict[str, int], list[str]]:
    """How many vectors of each file a path computes, and what differs.

    Args:
        path: its name.
        most: iterations of X25519 above which a vector is left out; None: none.
    """
    counts, differ = {}, []
    for name in FILES:
        content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        counts[name] = 0
        for group in content["testGroups"]:
            for test in group["tests"]:
                if most is not None and test.get("iterations", 0) > most:
                    continue
                counts[name] += 1
                found = as_json(COMPUTE[group["type"]](path, group, test))
                differ += [
                    f"{name}.json: {group['type']}, test {test['tcId']}: {field}"
                    for field, value in found.items()
                    if value != test[field]
                ]
    return counts, differ


def print_calls(calls: Counter[str]) -> None:
    """Which kernels ran, and how often."""
    print(f"{len(calls)} kernels, {calls.total()} calls: {', '.join(f'{k} {n}' for k, n in sorted(calls.items()))}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the library; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", default="neon", choices=[path.name for path in cpu.VECTOR_PATHS])
    parser.add_argument("--library", type=Path, help="a shared object of the path's class; by default it is built")
    parser.add_argument("--native", action="store_true", help="on this CPU, without qemu")
    parser.add_argument("--quick", action="store_true", help="without the 1,000 iterations of X25519")
    given = parser.parse_args(arguments)
    path = next(one for one in cpu.VECTOR_PATHS if one.name == given.path)
    command = [] if given.native else EMULATORS[path.machine]
    reason = missing_tool(*command[:1])
    if reason is not None:
        print(f"skipped: {reason}", file=sys.stderr)
        return 0
    begun = time.process_time()
    data = given.library.read_bytes() if given.library else build_library(path, list_parts(path))
    with tempfile.TemporaryDirectory() as folder:
        driver = build_driver(path.machine, Path(folder))
        with KernelProcess(data, [*command, driver]) as process:
            use_process(path, process)
            for choose in (choose_engine, bit_loops, ring_loops, transform_loops):
                choose(path.name)  # fails if the self-test does
            print(f"{path.name}: the self-tests of four groups passed")
            counts, differ = run_vectors(path.name, most=_MANY if given.quick else None)
            for name, count in counts.items():
                wrong = sum(line.startswith(f"{name}.json") for line in differ)
                print(f"{'WRONG' if wrong else 'right'}  {name}.json: {count - wrong} of {count} vectors")
            print_calls(process.calls)
    seconds = time.process_time() - begun
    print("\n".join(differ) or f"all {sum(counts.values())} vectors are right; {seconds:.1f} CPU-s here")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
