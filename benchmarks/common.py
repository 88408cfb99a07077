"""What all benchmarks share: timing, the machine, and where results go."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from benchmarks import skip
from benchmarks.folders import RESULTS
from securevfl.errors import InputError
from securevfl.run.machine import describe_machine, package_versions

T = TypeVar("T")


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Median seconds of `repeat` calls."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cpu_seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Median CPU-seconds of `repeat` calls, which other work on the machine changes less than their time."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def data(load: Callable[[], T], what: str) -> T | None:
    """What `load` returns; None, and a line that says so, where the files of the data set are not on this machine.

    Args:
        load: loads a named data set.
        what: the part of the benchmark that needs it.
    """
    try:
        return load()
    except InputError as error:
        if "is not here" not in str(error):
            raise
        skip.note(what, str(error))
        return None


def before(name: str) -> dict[str, object]:
    """The figures that `write` wrote last, without machine and versions; none where there are none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    kept: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return {what: value for what, value in kept.items() if what not in ("machine", "versions")}


def write(name: str, figures: dict[str, object], *, show: bool = True) -> None:
    """Write the figures with machine and versions; print them where `show`."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {"machine": describe_machine(), "versions": package_versions(), **figures}
    text = json.dumps(content, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if show:
        print(text)
