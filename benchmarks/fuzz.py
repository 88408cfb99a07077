"""Changed inputs for everything that reads bytes or files: only the project's errors, little memory, no long wait.

    python -m benchmarks.fuzz [--quick] [--inputs N] [--only NAME …] [--seconds S] [--seed N]

Takes N inputs for each decoder of `tests/fuzz/decoders.py` (slow ones a share, as `Decoder.weight` says), each decoder
in a process of its own whose resident memory may grow by 64 MB and twice the largest input. An input is late
after two seconds of this process. The exit status is 1 where a decoder failed; the first such inputs are in the
figures, in hexadecimal. `--seconds` ends a decoder early, and the figures say how many inputs it had.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

LATE = 2.0
MEMORY = 65 << 20  # 64 MB, and what the interpreter itself takes
_WARM = 30  # inputs after which memory is looked at: libraries are loaded by then


def fuzzed(name: str, inputs: int, seconds: float, seed: int) -> dict[str, Any]:
    """One decoder's figures."""
    from fuzz.decoders import decoder

    one = decoder(name)
    corpus, decode = one.make()
    for data in corpus if one.exact else ():
        decode(data)
    luck = random.Random(f"{name} {seed}")  # noqa: S311
    counts: collections.Counter[str] = collections.Counter()
    failed: list[dict[str, str]] = []
    slowest, largest, before = 0.0, 0, 0
    begun = time.perf_counter()
    done = 0
    for done in range(1, max(8, int(inputs * one.weight)) + 1):
        data = one.change(luck.choice(corpus), luck)
        largest = max(largest, len(data))
        start = time.process_time()
        try:
            decode(data)
            counts["accepted"] += 1
        except one.errors:
            counts["refused"] += 1
        except Exception as error:
            counts[f"foreign {type(error).__name__}"] += 1
            if len(failed) < 5:
                failed.append({"error": f"{type(error).__name__}: {error}"[:200], "input": data.hex()})
        took = time.process_time() - start
        if took > LATE:
            counts["late"] += 1
            if len(failed) < 5:
                failed.append({"error": f"{took:.1f} s", "input": data.hex()})
        slowest = max(slowest, took)
        if done == _WARM:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if time.perf_counter() - begun > seconds:
            break
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 if before else 0
    held = grown <= MEMORY + 2 * largest
    return {
        "inputs": done,
        "accepted": counts.pop("accepted", 0),
        "refused": counts.pop("refused", 0),
        "failed": dict(counts) | ({} if held else {"memory": grown}),
        "slowest_ms": round(1000 * slowest, 1),
        "memory_grown_mb": round(grown / 1e6, 1),
        "largest_input": largest,
        "examples": failed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    inputs = 2_000 if given.quick else given.inputs
    if given.one:
        print(json.dumps(fuzzed(given.one, inputs, given.seconds, given.seed)))
        return 0
    from fuzz.decoders import DECODERS

    from benchmarks.common import write

    figures: dict[str, Any] = {}
    for one in DECODERS:
        if given.only and one.name not in given.only:
            continue
        words = ["--one", one.name, "--inputs", str(inputs), "--seed", str(given.seed), "--seconds", str(given.seconds)]
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.fuzz", *words], capture_output=True, text=True, check=False
        )
        lines = ran.stdout.splitlines()
        figures[one.name] = (
            json.loads(lines[-1])
            if ran.returncode == 0 and lines
            else {
                "failed": {f"ended with {ran.returncode}": 1},
                "examples": [{"error": ran.stderr[-400:], "input": ""}],
            }
        )
        found = figures[one.name]
        print(f"{one.name}: {found.get('inputs', 0):,} inputs, failed: {found['failed'] or 'none'}", flush=True)
    write("fuzz", {"inputs": inputs, "seed": given.seed, "decoders": figures})
    return int(any(found["failed"] for found in figures.values()))


if __name__ == "__main__":
    raise SystemExit(main())
