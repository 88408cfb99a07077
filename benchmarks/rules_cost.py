"""What the rules of the result budget cost a job on shares: seconds and bytes, beside a checkout without them.

    python -m benchmarks.rules_cost --without FOLDER [--turns 3]

FOLDER is a checkout of an earlier version, with kernels of its own. Both train the same job in turns, each in a process
of its own: credit, ten epochs that all validate, logistic regression and a network. The least CPU time of each counts;
bytes are what all ledgers say. Two minutes. `benchmarks.counting` has what counting costs a prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common import write

_HERE = Path(__file__).resolve().parents[1]
_RUN = """
import json, sys, time
import securevfl as sv
network, rows = sys.argv[1] == "splitnn", int(sys.argv[2])
parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=rows)
algorithm = sv.SplitNN(hidden=8, top=(4,)) if network else sv.LogisticRegression()
job = sv.Job(algorithm=algorithm, protection=sv.Shares(), epochs=10, batch_size=128)
sv.simulate(job.replace(epochs=1), sv.datasets.default_credit(overlap=0.85, seed=0, rows=600))  # kernels, imports
start = time.process_time(), time.perf_counter()
result = sv.simulate(job, parties)
spent = time.process_time() - start[0], time.perf_counter() - start[1]
(ledgers,) = [found for key, found in result.ledgers.items() if key != "alignment"]
sent = sum(e.bytes for one in ledgers.values() for e in one.iter_entries() if e.way == "sent")
print(json.dumps({"cpu": spent[0], "wall": spent[1], "bytes": sent, "auc": result.record.runs[-1].test["auc"]}))
"""


def _run(folder: Path, algorithm: str, rows: int) -> dict[str, float]:
    path = os.pathsep.join(str(folder / part) for part in (".", "psi", "crypto"))
    done = subprocess.run(
        [sys.executable, "-c", _RUN, algorithm, str(rows)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run both in turns, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--without", type=Path, required=True, help="checkout of a version without the rules")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8000)
    options = parser.parse_args()
    found: dict[str, object] = {}
    for algorithm in ("logistic_regression", "splitnn"):
        turns = [
            (_run(options.without.resolve(), algorithm, options.rows), _run(_HERE, algorithm, options.rows))
            for _ in range(options.turns)
        ]
        least = [{key: min(turn[side][key] for turn in turns) for key in turns[0][side]} for side in (0, 1)]
        ratios = {key: round(least[1][key] / least[0][key], 3) for key in ("cpu", "wall", "bytes")}
        found[algorithm] = {"without": least[0], "with": least[1], "ratios": ratios}
        print(algorithm, ratios, "AUC", round(least[0]["auc"], 4), "→", round(least[1]["auc"], 4))
    write("rules_cost", {"rows": options.rows, "epochs": 10, "jobs": found})


if __name__ == "__main__":
    main()
