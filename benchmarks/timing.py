"""Whether the ladder's time tells its scalar, by measured times; and how small a planted leak such a measurement finds.

    python -m benchmarks.timing [--quick]

Each measure is one ladder, by the CPU's time stamp counter, of a fixed scalar or of a random one, as a coin says.
Welch's t compares the two classes, after the slowest measures were left out, at several shares; the largest |t| counts
(dudect: Reparaz, Balasch, Verbauwhede, 2017). A leak is planted beside it: a loop of some turns, for random scalars
alone. The smallest that is found in every repetition is what this machine and its other work let such a harness find. A
leak below it stays unseen, so equal times prove little: `tools/branch_traces.py` does not depend on the machine.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
from dataclasses import replace

import numpy as np
from securevfl_crypto.engine.compiled import curve_part
from securevfl_crypto.engine.cpu import VectorPath, paths_of_this_cpu
from securevfl_crypto.engine.llvm import compile_in_memory
from securevfl_crypto.inspection import inspect_engine

from benchmarks import skip
from benchmarks.common import write

TURNS = (0, 10, 30, 100, 300, 1000, 3000, 10000)
"""Turns of the planted loop, each a few cycles; 0 is the ladder as it is."""
KEPT = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)
"""Shares of the measures that are kept, the fastest first."""
FEW = 50
"""Measures of a class below which a share is left out."""
FOUND = 10.0
"""|t| from which a difference counts as found; below 4.5 it counts as none."""
_MEASURE = """
declare i64 @llvm.readcyclecounter()
define void @measure(ptr %in, i64 %stride, ptr %swaps, ptr %num, ptr %den, ptr %turns, ptr %times, i64 %n) nounwind {
entry:
  %place = alloca i64
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %in1, %done ]
  %from = mul i64 %i, 255
  %own = getelementptr i8, ptr %swaps, i64 %from
  %tp = getelementptr i64, ptr %turns, i64 %i
  %count = load i64, ptr %tp
  %begun = call i64 @llvm.readcyclecounter()
  call void @ladder(ptr %in, i64 %stride, ptr %own, ptr %num, ptr %den, i64 1)
  %any = icmp ne i64 %count, 0
  br i1 %any, label %spin, label %done
spin:
  %k = phi i64 [ 0, %each ], [ %k1, %spin ]
  %k1 = add i64 %k, 1
  store volatile i64 %k1, ptr %place
  %more = icmp ult i64 %k1, %count
  br i1 %more, label %spin, label %done
done:
  %ended = call i64 @llvm.readcyclecounter()
  %took = sub i64 %ended, %begun
  %out = getelementptr i64, ptr %times, i64 %i
  store i64 %took, ptr %out
  %in1 = add i64 %i, 1
  %next = icmp ult i64 %in1, %n
  br i1 %next, label %each, label %end
end:
  ret void
}
"""


class Ladder:
    """The ladder of a path in a loop that measures it.

    Args:
        path: the path.
    """

    def __init__(self, path: VectorPath) -> None:
        part = curve_part(path)
        text = part.text() + _MEASURE
        types = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 5, ctypes.c_int64]
        loaded = compile_in_memory(replace(part, text=lambda: text, kernels={"measure": types}), path)
        self._measure, self._owner, self._lanes = loaded.functions["measure"], loaded, path.lanes

    def times(self, swaps: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """Cycles of the time stamp counter, one for each row of swaps; after it, as many turns of the planted loop."""
        points = np.random.default_rng(1).integers(0, 1 << 63, (4, self._lanes), dtype=np.uint64)
        num, den = np.zeros((2, 10, self._lanes), dtype=np.uint64)
        out = np.empty(len(swaps), dtype=np.uint64)
        arrays = swaps, num, den, turns, out
        self._measure(points.ctypes.data, self._lanes, *(one.ctypes.data for one in arrays), len(swaps))
        return out.astype(np.float64)


def welch(times: np.ndarray, classes: np.ndarray) -> float:
    """The largest |t| between two classes over the shares of `KEPT`."""
    found = 0.0
    order = np.argsort(times, kind="stable")
    for share in KEPT:
        kept = order[: int(share * len(order))]
        one, other = (times[kept][classes[kept] == k] for k in (0, 1))
        if min(len(one), len(other)) < FEW:
            continue  # the larger shares have shown the difference
        spread = one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)
        found = max(found, float(abs(one.mean() - other.mean()) / np.sqrt(max(spread, 1e-9))))
    return found


def measure(ladder: Ladder, count: int, turns: int, seed: int) -> tuple[float, float, float]:
    """|t| of one repetition, the difference of the two classes' medians, and the first one's, in cycles."""
    draw = np.random.default_rng(seed)
    classes = draw.integers(0, 2, count, dtype=np.uint8)
    swaps = draw.integers(0, 2, (count, 255), dtype=np.uint8)
    swaps[classes == 0] = draw.integers(0, 2, 255, dtype=np.uint8)
    times = ladder.times(swaps, classes.astype(np.uint64) * np.uint64(turns))
    medians = [float(np.median(times[classes == k])) for k in (0, 1)]
    return welch(times, classes), medians[1] - medians[0], medians[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few measures")
    quick = parser.parse_args().quick
    if platform.machine() != "x86_64" or not paths_of_this_cpu():
        skip.skip("the ladder's times", "this CPU runs no kernels, or programs may not read its cycle counter")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    count, repeats = (1000, 2) if quick else (10_000, 5)
    ladder = Ladder(paths_of_this_cpu()[0])
    rows = {}
    for turns in TURNS:
        found = [measure(ladder, count, turns, seed) for seed in range(repeats)]
        rows[turns] = {
            "largest |t|, each repetition": [round(t, 1) for t, *_ in found],
            "difference of medians, cycles": round(float(np.median([difference for _, difference, _ in found]))),
            "median of a ladder, cycles": round(float(np.median([own for *_, own in found]))),
        }
    least = {turns: min(row["largest |t|, each repetition"]) for turns, row in rows.items()}
    seen = [turns for turns in TURNS if turns and least[turns] >= FOUND]
    missed = [turns for turns in TURNS if seen and turns > seen[0] and turns not in seen]
    content = {
        "cpu class": dict(inspect_engine())["CPU class"],
        "load at the start": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "measures of a repetition": count,
        "repetitions": repeats,
        "turns of the planted loop": rows,
        "smallest planted loop found in every repetition": seen[0] if seen else "none",
        "larger ones that a repetition missed": missed,
        "largest |t| without a planted loop": max(rows[0]["largest |t|, each repetition"]),
    }
    write("timing-quick" if quick else "timing", content)


if __name__ == "__main__":
    main()
