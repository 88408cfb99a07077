"""What `securevfl_psi` promises by itself: documented errors, no torch, a wheel of its own, examples that run."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from securevfl_crypto import errors as crypto_errors
from securevfl_psi import errors
from securevfl_psi.command.app import exit_code
from securevfl_psi.command.party import Watch
from securevfl_psi.command.summary import sized

ROOT = Path(__file__).parents[2]


# what is promised


def test_every_error_is_in_the_reference_with_its_exit_code() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    section = page[page.index("## Private set intersection") :]
    for module in (errors, crypto_errors):
        for name in module.__all__:
            assert re.search(rf"^\| `(securevfl_\w+\.)?{name}` \|", section, re.MULTILINE), (
                f"{name} is not in errors.md"
            )
    for name in errors.__all__:
        code = exit_code(getattr(errors, name)("x"), Watch(peer_rows=3))
        row = re.search(rf"^\| `{name}` \| ([^|]*) \|", section, re.MULTILINE)
        assert row is not None
        assert str(code) in row[1] or row[1].strip() == "–", f"{name} ends with {code}; errors.md says {row[1]}"


def test_exit_codes_that_depend_on_the_moment() -> None:
    size, small = errors.SetSizeError("x"), errors.SmallIntersectionError("x")
    assert exit_code(size, Watch()) == 3
    assert exit_code(size, Watch(peer_rows=3)) == 5
    assert exit_code(small, Watch(least=1)) == 4
    assert exit_code(small, Watch(least=2)) == 3


def test_bytes_for_people() -> None:
    assert [sized(n) for n in (0, 999, 1500, 25_165_824, 3 * 10**9)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "25.2 MB",
        "3.0 GB",
    ]


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, securevfl_psi, securevfl_psi.net, securevfl_psi.command, securevfl_psi.linkage\n"
        "import securevfl_psi.multiparty, securevfl_psi.unbalanced\n"
        "heavy = {'torch', 'scipy', 'sklearn', 'pyarrow', 'tenseal', 'securevfl', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_wheel_of_its_own(tmp_path: Path) -> None:
    import zipfile

    from hatchling.builders.wheel import WheelBuilder

    wheel = zipfile.ZipFile(next(WheelBuilder(str(ROOT / "psi")).build(directory=str(tmp_path), versions=["standard"])))
    names = set(wheel.namelist())
    sources = {
        path.relative_to(folder).as_posix()
        for folder in (ROOT / "psi", ROOT / "crypto")
        for path in folder.rglob("securevfl_*/**/*.py")
    }
    assert sources
    assert sources <= names
    assert {"securevfl_psi/py.typed", "securevfl_crypto/py.typed", "securevfl_psi/LICENSE"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"securevfl_psi", "securevfl_crypto"}
    info = next(name for name in names if name.endswith("/METADATA"))
    about = wheel.read(info).decode()
    needs = {line.split()[1].split(">")[0] for line in about.splitlines() if line.startswith("Requires-Dist:")}
    assert needs == {"cryptography", "gmpy2", "llvmlite", "numpy", "pyarrow", "pynacl", "rich", "scipy", "typer"}
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = tomllib.loads((ROOT / "psi/pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(own["dependencies"]) <= set(whole["dependencies"]), "the two ask for different versions"
    scripts = wheel.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert "securevfl-psi = securevfl_psi.command:main" in scripts
    from securevfl import __version__

    assert f"\nVersion: {__version__}\n" in about


@pytest.mark.parametrize("script", ["psi_two_processes.py", "reverse_salted_hash.py --space 20000 --customers 300"])
def test_examples_run(script: str, tmp_path: Path) -> None:
    name, *options = script.split()
    command = [sys.executable, str(ROOT / "examples" / name), *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert ("proved each of the common rows" if "two" in name else "0 of 300 tokens match") in done.stdout
