"""What a first job in a fresh process costs beside torch's own import, and beside another version.

    python -m benchmarks.first_job [--old TREE] [--quick]

CPU-seconds of whole processes: importing torch; a simulation of SplitNN over 569 rows, two epochs, in the clear; the
same with Gaussian noise, whose ε two accountants count; and the command ``securevfl check`` of the job. The ways take
turns; of each figure the least counts, because other work on the machine only adds. Byte code is written before.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import write

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "psi", "crypto")
_JOB = "import securevfl as sv; sv.simulate(sv.Job(algorithm=sv.SplitNN(), protection=sv.Plain({}), epochs=2), "
_JOB += "sv.datasets.breast_cancer())"
PROGRAMS = {
    "import torch": "import torch",
    "a first simulation": _JOB.format(""),
    "the same with noise": _JOB.format("dp=sv.DP(features=sv.Gaussian(epsilon=4.0))"),
    "securevfl check": "from securevfl.cli import main; main(['check', 'job.toml'])",
}
TOML = 'name = "first"\nprotection = "plain"\n[job]\nepochs = 2\n[data]\nname = "breast_cancer"\n'


def measure_program(tree: Path, code: str, folder: Path) -> float:
    """CPU-seconds of a process that runs `code` with the packages of a checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept |= {"PYTHONPATH": os.pathsep.join(str(tree / name) for name in FOLDERS), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=kept, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure all programs of all versions by turns, and write the least of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--old", type=Path, help="a checkout of another version, with its kernels built")
    parser.add_argument("--quick", action="store_true", help="each figure once")
    options = parser.parse_args()
    trees = {"this version": ROOT} | ({} if options.old is None else {"other version": options.old.resolve()})
    best: dict[str, dict[str, float]] = {name: {} for name in trees}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.toml").write_text(TOML, encoding="utf-8")
        for turn in range(2 if options.quick else 4):  # the first one writes byte code
            for name, tree in trees.items():
                for what, code in PROGRAMS.items():
                    value = measure_program(tree, code, Path(folder))
                    if turn:
                        best[name][what] = round(min(value, best[name].get(what, value)), 2)
    write("first_job", {"CPU-seconds": best})


if __name__ == "__main__":
    main()
