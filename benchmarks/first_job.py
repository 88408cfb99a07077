"""What a first job in a fresh process costs beside torch's own import, and what agreeing on one costs.

    python -m benchmarks.first_job [--old TREE] [--quick]

CPU-seconds of whole processes: importing torch; a simulation of SplitNN over 569 rows, two epochs, in the clear; the
same with Gaussian noise, whose ε two accountants count; the command ``securevfl check`` of the job; and of an agreement
of two parties with noise ``card``, ``propose``, ``approve`` and ``policy check``. The ways take turns; of each figure
the least counts, because other work on the machine only adds. Byte code is written before. ``--old`` measures a
checkout of another version, too.
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
}
COMMANDS = (
    "check job.toml",
    "--help",
    "card bank.toml",
    "propose own.toml --card bank.card --card shop.card --purpose credit --out PID.toml",
    "approve agreement.toml --file bank.toml --yes",
    "policy check own.toml policy.toml",
)
_COMMAND = "import os; from securevfl.cli import main; main({!r}.replace('PID', str(os.getpid())).split())"
PROGRAMS |= {
    f"securevfl {'policy check' if words.startswith('policy') else words.split()[0]}": _COMMAND.format(words)
    for words in COMMANDS
}
TOML = 'name = "first"\nprotection = "plain"\n[job]\nepochs = 2\n[data]\nname = "breast_cancer"\n'
TABLES = {"bank": ("ref,age,late", "id = 'ref'\nlabel = 'late'"), "shop": ("ref,basket,visits", "id = 'ref'")}
OWN = "protection = {name = 'plain', dp = {features = {mechanism = 'gaussian', epsilon = 4.0}}}\n"
OWN += "[job]\naccept_leak = true\n"  # what the card says of the noise is not what is measured here


def prepare_agreement(folder: Path) -> None:
    """Make two parties' tables, keys, party files and cards, a proposal with noise, and a policy."""
    job = OWN
    for name, (head, columns) in TABLES.items():
        rows = "".join(f"r{k},{k}.5,{k % 2}\n" for k in range(60))
        (folder / f"{name}.csv").write_text(f"{head}\n{rows}", encoding="utf-8")
        keys = f"signing = 'keys/{name}.key'\ncertificate = 'certs/{name}.crt'\nkey = 'certs/{name}.key'"
        text = f"party = '{name}'\n[data]\nfile = '{name}.csv'\n{columns}\n[keys]\n{keys}\n"
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
        job += f"[[party]]\nname = '{name}'\nfile = '{name}.csv'\n{columns}\n"
    (folder / "own.toml").write_text(job, encoding="utf-8")
    (folder / "policy.toml").write_text("party = 'shop'\nmax_epsilon = 5.0\nmax_results = 1000\n", encoding="utf-8")
    commands = [[*words, name] for name in TABLES for words in (["keys"], ["certs", "new"])]
    commands += [["card", f"{name}.toml"] for name in TABLES]
    commands += [["propose", "own.toml", "--card", "bank.card", "--card", "shop.card", "--purpose", "credit"]]
    kept = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in FOLDERS)}
    for command in commands:
        words = [sys.executable, "-m", "securevfl", *command]
        subprocess.run(words, env=kept, cwd=folder, stdout=subprocess.DEVNULL, check=True)


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
        prepare_agreement(Path(folder))
        for turn in range(2 if options.quick else 4):  # the first one writes byte code
            for name, tree in trees.items():
                for what, code in PROGRAMS.items():
                    value = measure_program(tree, code, Path(folder))
                    if turn:
                        best[name][what] = round(min(value, best[name].get(what, value)), 2)
    write("first_job", {"CPU-seconds": best})


if __name__ == "__main__":
    main()
