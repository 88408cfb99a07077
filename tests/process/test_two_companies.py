"""The page "Two companies in ten minutes": its files and commands, in two folders, as two companies would type them."""

from __future__ import annotations

import csv
import io
import re
import shlex
import socket
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support.processes import PythonProcess

from securevfl.cli import main

PAGE = Path(__file__).parents[2] / "docs/tutorials/two-companies.md"
BLOCK = re.compile(r'^```(python|toml|console)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
TOGETHER = ("party", "predict")
"""Commands that both type at the same time."""
PATIENCE = 400


def _port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _typed(folder: Path, words: list[str]) -> str:
    """A command in a folder, in this process; what it said."""
    if words[0] != "securevfl":
        subprocess.run(words, cwd=folder, check=True)
        return ""
    said = io.StringIO()
    with chdir(folder), redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert not ended.value.code, said.getvalue()
    return said.getvalue()


def _started(folder: Path, words: list[str]) -> PythonProcess:
    with (folder / "said.txt").open("wb") as file:
        return PythonProcess(["-m", *words], cwd=folder, output=file)


def _ended(running: dict[str, PythonProcess], root: Path) -> dict[str, str]:
    """What each said, when both are done."""
    deadline = time.monotonic() + PATIENCE
    while any(process.poll() is None for process in running.values()):
        if time.monotonic() > deadline or any(process.poll() for process in running.values()):
            break
        time.sleep(0.1)
    said = {name: (root / name / "said.txt").read_text(encoding="utf-8") for name in running}
    assert {name: process.poll() for name, process in running.items()} == dict.fromkeys(running, 0), said
    return said


def _column(file: Path, name: str) -> list[str]:
    with file.open(encoding="utf-8") as lines:
        return [row[name] for row in csv.DictReader(lines)]


@pytest.mark.skipif(sys.platform == "win32", reason="real parties run on Linux")
def test_two_companies_do_what_the_page_says(tmp_path: Path) -> None:
    port, said = str(_port()), {}
    waiting: dict[str, PythonProcess] = {}
    try:
        for kind, title, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            content = text.replace("7443", port)
            if kind == "toml":
                (tmp_path / title).write_text(content, encoding="utf-8")
            elif kind == "python":
                with chdir(tmp_path):
                    exec(compile(content, str(PAGE), "exec"), {})  # noqa: S102 - this page
            else:
                for line in content.splitlines():
                    where, _, command = line.partition("$ ")
                    words = shlex.split(command)
                    if words[0] != "securevfl" or words[1] not in TOGETHER:
                        said[line] = _typed(tmp_path / where, words)
                        continue
                    waiting[where] = _started(tmp_path / where, words)
                    if len(waiting) == 2:
                        for name, words_of in _ended(waiting, tmp_path).items():
                            said[f"{name} {words[1]}"] = words_of
                        waiting.clear()
    finally:
        for process in waiting.values():
            process.kill()
            process.wait()
    assert "Test: " in said["bank party"]
    assert "Test: " not in said["shop party"]
    assert "done" in said["bank$ securevfl status state"]
    ledgers = [(tmp_path / name / f"state/ledgers/{name}.jsonl").read_text("utf-8") for name in ("bank", "shop")]
    one, other = (text.count('"line":"message"') for text in ledgers)
    assert one == other > 20
    scored = set(_column(tmp_path / "bank" / "scores.csv", "id"))
    known = [set(_column(tmp_path / name / "customers.csv", "ref")) for name in ("bank", "shop")]
    assert scored == known[0] & known[1]
    assert {path.name for path in (tmp_path / "shop").glob("*.csv")} == {"customers.csv"}
