"""The notebooks of the documentation: run as they are committed, light, and shown by a page that says the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.processes import run_python

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import notebook as tool  # noqa: E402  # of tools/

PATHS = sorted(tool.FOLDER.glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_it_was_run_and_is_light(path: Path) -> None:
    assert tool.problems(read(path), path.stat().st_size) == []
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    assert tool.cleaned(read(path)) == read(path)


def test_its_page_shows_what_it_holds(path: Path) -> None:
    text, pictures = tool.page(read(path), path.stem)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == text
    assert {file.name: file.read_bytes() for file in path.parent.glob(f"{path.stem}-*.png")} == pictures


def test_every_cell_shows_one_thing(path: Path) -> None:
    """Tables of terminals are not drawn a second time beside what a notebook shows."""
    for cell in read(path).cells:
        assert len(cell.get("outputs", [])) <= 1, cell.source


def test_what_a_notebook_must_not_be_is_said() -> None:
    cell = nbformat.v4.new_code_cell("1", execution_count=2)
    cell.outputs = [nbformat.v4.new_output("error", ename="KeyError", evalue="", traceback=["x" * 300_000])]
    found = tool.problems(nbformat.v4.new_notebook(cells=[cell]), 500_000)
    assert [text.split(";")[0] for text in found[:1]] == ["500000 bytes"]
    assert "not run once each" in found[1]
    assert "more than 200000 bytes" in found[2]
    assert "ended with KeyError" in found[3]


def test_the_cells_of_the_first_notebook_run() -> None:
    """On fewer rows and epochs, in a process of its own; the last cell's frame has a row for each common customer."""
    cells = [cell.source for cell in read(tool.FOLDER / "first.ipynb").cells if cell.cell_type == "code"]
    code = "\n".join(["import matplotlib", "matplotlib.use('agg')", *cells, "print(len(prediction.to_pandas()))"])
    for old, new in (
        ("people = 3000", "people = 500"),
        ("[:2400]", "[:400]"),
        ("epochs=10", "epochs=1"),
        ("=40", "=2"),
    ):
        assert old in code
        code = code.replace(old, new)
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "400"
