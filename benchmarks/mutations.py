"""Deliberate breaks of the code: which test notices each; see `tests/mutations`.

    python -m benchmarks.mutations [--only TEXT] [--quick]

Exit status 1 where a break survives. Minutes: each break runs the tests that have to notice it on a copy of the code.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.common import write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from mutations.base import attempt
from mutations.breaks import BREAKS


def main() -> int:
    """Try the breaks that were asked for, a line each, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="breaks whose name or file contains this")
    parser.add_argument("--quick", action="store_true", help="every twelfth break")
    given = parser.parse_args()
    chosen = [one for one in BREAKS if given.only in one.name or given.only in one.file]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for one in chosen[:: 12 if given.quick else 1]:
            outcome = attempt(one, Path(folder))
            print(f"{'caught  ' if outcome.caught else 'SURVIVES'} {one.name} ({one.file}): {outcome.by}", flush=True)
            found.append({"break": one.name, "file": one.file, **asdict(outcome)})
    survivors = [entry["break"] for entry in found if not entry["caught"]]
    if given.only:
        print(f"{len(found) - len(survivors)} of {len(found)} breaks caught")
    else:
        write("mutations", {"tried": len(found), "survivors": survivors, "breaks": found})
    return 1 if survivors or not found else 0


if __name__ == "__main__":
    sys.exit(main())
