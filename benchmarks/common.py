"""What all benchmarks share: timing, the machine, and where results go."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from securevfl.jobs.machine import machine, versions

RESULTS = Path(__file__).parent / "results"


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Median seconds of `repeat` calls."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def write(name: str, figures: dict[str, object]) -> None:
    """Print the figures and write them with machine and versions."""
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": machine(), "versions": versions(), **figures}
    text = json.dumps(content, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)
