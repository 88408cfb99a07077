"""What `securevfl_psi` promises by itself: documented errors, no torch, examples that run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from securevfl_crypto import errors as crypto_errors
from securevfl_psi import errors
from securevfl_psi_cli.app import exit_code
from securevfl_psi_cli.party import Watch
from securevfl_psi_cli.summary import format_bytes

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
    assert [format_bytes(n) for n in (0, 999, 1500, 25_165_824, 3 * 10**9)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "25.2 MB",
        "3.0 GB",
    ]


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, securevfl_psi, securevfl_psi_cli.driver, securevfl_psi_cli, securevfl_psi.linkage\n"
        "import securevfl_psi.multiparty, securevfl_psi.unbalanced\n"
        "heavy = {'torch', 'scipy', 'sklearn', 'pyarrow', 'tenseal', 'securevfl', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("script", ["psi_two_processes.py", "reverse_salted_hash.py --space 20000 --customers 300"])
def test_examples_run(script: str, tmp_path: Path) -> None:
    name, *options = script.split()
    command = [sys.executable, str(ROOT / "examples" / name), *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert ("proved each of the common rows" if "two" in name else "0 of 300 tokens match") in done.stdout
