"""What `auto` takes beside what was faster: `dh` and `ot` by size and by line, on each class of CPU that runs here.

python -m benchmarks.psi_auto [--quick]

Two processes, CSV to CSV, as in `psi_two_processes`; over a line, the forwarder of `shaping` stands between them. Each
class is forced by ``SECUREVFL_ENGINE`` in all processes, calibration included, so its figures and the choice made from
them belong together. Processes use one thread each: two of them share this machine's cores, which two parties would
not.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

from benchmarks.psi_party import run_party, run_transfer
from benchmarks.psi_two_processes import run_two_processes
from benchmarks.shaping import shaped

SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
LINES = (200.0, 100.0, 50.0, 20.0, 10.0)
"""Megabits a second each way, for sets of `LINED`."""
LINED = 1 << 16


def measure_case(n: int, megabits: float | None, turns: int) -> dict[str, Any]:
    """Seconds of both protocols, the least of some turns, and what `auto` takes."""
    from securevfl_psi.choosing import choose_protocol
    from securevfl_psi_cli.calibration import load_speed

    line = None if megabits is None else partial(shaped, megabits=megabits, delay_ms=0.0)
    seconds = {
        name: min(run_two_processes(party, n, line=line)["seconds"] for _ in range(turns))
        for name, party in (("dh", run_party), ("ot", run_transfer))
    }
    speed = load_speed()
    choice = choose_protocol(n, n, megabits, speeds=(speed, speed))
    return {"n": n, "megabits": megabits, "seconds": seconds, "auto takes": choice.protocol, "why": choice.why}


def main() -> None:
    """Measure all cases on all classes, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="few identifiers, to see that it works")
    quick = parser.parse_args().quick
    os.environ["SECUREVFL_THREADS"] = "1"
    from securevfl_crypto.engine.cpu import paths_of_this_cpu
    from securevfl_psi_cli.calibration import calibrate, load_speed

    from benchmarks.common import write

    found = {}
    for path in paths_of_this_cpu():
        os.environ["SECUREVFL_ENGINE"] = path.name
        for _ in range(1 if quick else 5):
            calibrate()
        load_speed.cache_clear()
        cases: list[tuple[int, float | None]] = [(n, None) for n in SIZES[: 2 if quick else None]]
        cases += [] if quick else [(LINED, line) for line in LINES]
        found[path.cpu_class] = {
            "speed": load_speed().to_json(),
            "cases": [measure_case(*case, turns=1 if quick else 2) for case in cases],
        }
    write("psi_auto", found)


if __name__ == "__main__":
    main()
