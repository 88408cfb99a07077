"""What a break is, and how it is tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Break", "Outcome", "attempt", "broken"]

ROOT = Path(__file__).parents[2]
_COPIED = ("securevfl", "psi", "crypto", "tests", "examples", "benchmarks", "docs", "tools")
_ENGINE = "crypto/securevfl_crypto/engine/"
_RIGHT = "right_kernels"
_FILES = ("pyproject.toml", "mkdocs.yml", "README.md", "Makefile", "CHANGELOG.md", "SECURITY.md")


@dataclass(frozen=True, kw_only=True)
class Break:
    """One deliberate break.

    Attributes:
        name: in words, what is wrong then.
        file: relative to the root.
        old: text that stands in the file exactly once.
        new: what it is replaced by.
        tests: files, folders or single tests; one of them has to fail.
        keywords: chooses among them, as pytest's ``-k``.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    keywords: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a break.

    Attributes:
        caught: whether a test failed.
        by: the test that failed first, or what pytest said instead.
        seconds: that the tests ran.
    """

    caught: bool
    by: str
    seconds: float


def broken(one: Break, text: str) -> str:
    """The file's text with the break in it.

    Raises:
        ValueError: `old` stands there not once, or the break changes nothing.
    """
    count = text.count(one.old)
    if count != 1:
        raise ValueError(f"{one.name}: {one.file} has its text {count} times, expected once: the code moved on")
    if one.old == one.new:
        raise ValueError(f"{one.name}: it changes nothing")
    return text.replace(one.old, one.new)


def attempt(one: Break, folder: Path, *, limit: float = 300.0) -> Outcome:
    """Run the break's tests on a copy of the code with the break in it.

    Args:
        one: the break.
        folder: an empty folder for the copy; the same one serves for all breaks in turn.
        limit: seconds after which the tests count as having noticed it by hanging.
    """
    if not (folder / "securevfl").is_dir():
        for name in _COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        for name in _FILES:
            if (ROOT / name).exists():
                shutil.copy(ROOT / name, folder / name)
    path = os.pathsep.join(str(folder / part) for part in ("", "psi", "crypto"))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    if one.file.startswith(_ENGINE):
        _keep_kernels(folder, environment)
    file = folder / one.file
    right = file.read_text(encoding="utf-8")
    file.write_text(broken(one, right), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "-rf", *one.tests]
    # Python 3.11 can fail to parse a source for pytest's own tracebacks ("AST constructor recursion depth mismatch").
    command += ["--tb=native", *(["-k", one.keywords] if one.keywords else [])]
    start = time.perf_counter()
    try:
        if one.file.startswith(_ENGINE) and not _compile_kernels(folder, environment):
            return Outcome(caught=True, by="FAILED the build of the kernels", seconds=time.perf_counter() - start)
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
        said, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired:
        said, code = "FAILED (the tests hang)", 1
    finally:
        file.write_text(right, encoding="utf-8")
        if one.file.startswith(_ENGINE):  # the next break's tests run with right kernels
            _restore_kernels(folder)
    lines = said.splitlines()
    first = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1] if lines else "nothing")
    if code not in (0, 1):
        first = f"pytest ended with {code}, so that nothing is known: {first}"
    return Outcome(caught=code == 1, by=first.split(" - ")[0], seconds=time.perf_counter() - start)


def _keep_kernels(folder: Path, environment: Mapping[str, str]) -> None:
    """Keep the copy's right kernels, compiled if there are none, for `_restore_kernels`."""
    kernels = folder / _ENGINE / "ahead"
    if not (folder / _RIGHT).is_dir():
        if not kernels.is_dir():
            _compile_kernels(folder, environment)
        shutil.copytree(kernels, folder / _RIGHT)


def _restore_kernels(folder: Path) -> None:
    """Put the right kernels in the place of broken ones."""
    shutil.rmtree(folder / _ENGINE / "ahead", ignore_errors=True)
    shutil.copytree(folder / _RIGHT, folder / _ENGINE / "ahead")


def _compile_kernels(folder: Path, environment: Mapping[str, str]) -> bool:
    """Compile the copy's kernels from its sources; returns whether that worked."""
    command = [sys.executable, "-m", "securevfl_crypto.engine.build"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode == 0
