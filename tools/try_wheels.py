"""Builds the three wheels, installs each in a fresh environment, and runs what it is for.

    python tools/try_wheels.py                               # downloads everything, torch included
    python tools/try_wheels.py --packages SITE_PACKAGES      # the last wheel over packages that are here already

Wheels are built, and packages fetched, as pip is configured. With ``--packages`` (a ``site-packages`` folder that has
torch and the other dependencies, but none of the three wheels) the environment of `securevfl` sees that folder and
installs the three wheels alone; the environments of the other two are fresh in any case.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("crypto", "psi", ".")
_SECONDS = 1200

_CRYPTO = """
import securevfl_crypto as crypto
print(type(crypto.generate_keypair(2048)).__name__)
"""
_ENGINE = """
from securevfl_crypto.inspection import inspect_engine
for line in inspect_engine():
    print(*line)
"""
_TRAINS = """
import securevfl as sv
parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=400)
job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Shares(), epochs=1, seed=0)
print(sv.simulate(job, parties).table())
"""


class Environment:
    """A virtual environment with one of the wheels.

    Args:
        folder: where it is made.
        packages: a ``site-packages`` folder whose packages it sees, if any.
    """

    def __init__(self, folder: Path, packages: Path | None = None) -> None:
        self.folder = folder
        venv.create(folder, with_pip=True)
        if packages is not None:
            (site,) = folder.glob("lib/python*/site-packages")
            (site / "packages.pth").write_text(f"{packages.resolve()}\n", encoding="utf-8")

    def install(self, wheels: Path, *names: str, alone: bool = False) -> None:
        """Install distributions; `alone`, without what they depend on."""
        more = ["--no-deps", "--ignore-installed"] if alone else []
        self.run("python", "-m", "pip", "install", "--quiet", "--find-links", str(wheels), *more, *names)

    def run(self, program: str, *arguments: str, at: Path | None = None) -> str:
        """What a program of the environment prints.

        Raises:
            SystemExit: it failed.
        """
        done = subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=at or self.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise SystemExit(
                f"{program} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def has(self, module: str) -> bool:
        """Whether a module can be imported."""
        code = f"import importlib.util; print(importlib.util.find_spec({module!r}) is not None)"
        return self.run("python", "-c", code).strip() == "True"


def clean_environment() -> dict[str, str]:
    """This process's environment, without what would lead an interpreter to this repository."""
    return {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}
    }


def build(folder: Path) -> None:
    """The three wheels."""
    sources = [str((ROOT / name).resolve()) for name in FOLDERS]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), *sources]
    subprocess.run(command, check=True, timeout=_SECONDS, env=clean_environment())
    found = sorted(path.name for path in folder.glob("*.whl"))
    expect([name.split("-")[0] for name in found] == ["securevfl", "securevfl_crypto", "securevfl_psi"], str(found))


def expect(condition: bool, what: str) -> None:
    """Do nothing where a condition is true.

    Raises:
        SystemExit: it is false.
    """
    if not condition:
        raise SystemExit(f"not as expected: {what}")


def try_crypto(folder: Path, wheels: Path) -> None:
    """Cryptography alone: neither torch nor protocols."""
    made = Environment(folder / "crypto")
    made.install(wheels, "securevfl-crypto")
    expect(made.run("python", "-c", _CRYPTO).strip() == "PaillierPrivateKey", "a Paillier key")
    for module in ("torch", "securevfl", "securevfl_psi", "securevfl_net", "llvmlite", "ziglang"):
        expect(not made.has(module), f"{module} is there")
    built = [path.name for path in wheels.glob("securevfl_crypto-*-manylinux_2_28_x86_64.whl")]
    described = made.run("python", "-W", "error", "-c", _ENGINE)
    expect(bool(built) == ("svfl_x86_64_v3.so" in described), described)


def try_psi(folder: Path, wheels: Path) -> None:
    """Intersections alone: two tables here, and two parties over TLS."""
    made = Environment(folder / "psi")
    made.install(wheels, "securevfl-psi")
    for module in ("torch", "securevfl", "scipy", "tenseal", "llvmlite"):
        expect(not made.has(module), f"{module} is there")
    expect("self-test passed" in made.run("securevfl-psi", "engine"), "the engine's self-test")
    expect("listen" in made.run("securevfl-psi", "--help"), "the help names `listen`")
    compare_tables(made, "securevfl-psi")
    meet_over_tls(made)


def compare_tables(made: Environment, *command: str) -> None:
    """`compare` over two small tables."""
    here = made.folder / "tables"
    here.mkdir()
    (here / "bank.csv").write_text("id,age\nann,3\nbob,4\neve,5\n", encoding="utf-8")
    (here / "shop.csv").write_text("id,sum\neve,1\nzoe,2\nann,3\n", encoding="utf-8")
    made.run(*command, "compare", "bank.csv", "shop.csv", "--id", "id", "--out", "common.csv", at=here)
    rows = (here / "common.csv").read_text(encoding="utf-8").splitlines()[1:]
    expect(len(rows) == 2 and all(name in ",".join(rows) for name in ("ann", "eve")), str(rows))


def meet_over_tls(made: Environment) -> None:
    """`listen` and `connect` with certificates of both, over TLS on this machine."""
    here = made.folder / "tables"
    for party in ("bank", "shop"):
        made.run("securevfl-psi", "certificate", "--name", party, at=here)
    options = "--id id --name {0} --peer {1} --cert {0}.crt --key {0}.key --peer-cert {1}.crt --out {0}-common.csv"
    listening = subprocess.Popen(
        [
            str(made.folder / "bin/securevfl-psi"),
            *["listen", "bank.csv", "--port", "0", "--wait", "60"],
            *options.format("bank", "shop").split(),
        ],
        cwd=here,
        env=clean_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        expect(listening.stderr is not None, "a pipe")
        line = next((line for line in listening.stderr or () if line.startswith("Listening")), "")
        found = re.search(r":(\d+)\s*$", line)
        expect(found is not None, f"a port in {line!r}")
        port = found[1] if found else ""
        made.run(
            "securevfl-psi", "connect", "shop.csv", "--port", port, *options.format("shop", "bank").split(), at=here
        )
        _, complained = listening.communicate(timeout=60)
        expect(listening.returncode == 0, complained)
    finally:
        if listening.poll() is None:
            listening.kill()
    lists = [(here / f"{party}-common.csv").read_text(encoding="utf-8").splitlines()[1:] for party in ("bank", "shop")]
    names = [[row.split(",")[1] for row in rows] for rows in lists]
    expect(names[0] == names[1] and sorted(names[0]) == ["ann", "eve"], str(names))


def try_whole(folder: Path, wheels: Path, packages: Path | None) -> None:
    """The toolkit: its commands, those of the PSI below it, and the main job on a few rows."""
    made = Environment(folder / "whole", packages)
    if packages is None:
        made.install(wheels, "securevfl")
    else:
        made.install(wheels, "securevfl-crypto", "securevfl-psi", "securevfl", alone=True)
    expect(made.run("securevfl", "--version").startswith("securevfl "), "a version")
    expect("listen" in made.run("securevfl-psi", "--help"), "securevfl-psi is there, too")
    expect("self-test passed" in made.run("securevfl", "engine"), "the engine's self-test")
    compare_tables(made, "securevfl", "psi")
    origin = made.run("python", "-c", "import securevfl; print(securevfl.__file__)").strip()
    expect(origin.startswith(str(made.folder.resolve())), f"{origin} is not the wheel's")
    expect("AUC" in made.run("python", "-c", _TRAINS).upper(), "a table with the AUC")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, help="site-packages folder with torch and the other dependencies")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wheels-") as name:
        folder = Path(name).resolve()
        steps = {
            "build the three wheels": lambda: build(folder / "wheels"),
            "securevfl-crypto alone": lambda: try_crypto(folder, folder / "wheels"),
            "securevfl-psi alone, without torch": lambda: try_psi(folder, folder / "wheels"),
            "securevfl with both": lambda: try_whole(folder, folder / "wheels", options.packages),
        }
        for what, step in steps.items():
            begun = time.monotonic()
            step()
            print(f"{what}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
