"""The page "Frozen bottoms": its code runs and says what it shows, its figures are those that were measured."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.party.job import JobTerms
from securevfl.training import find_algorithm, registered_algorithms

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/frozen-bottoms.md"
TEXT = PAGE.read_text(encoding="utf-8")
FIGURES = ROOT / "benchmarks/results/frozen_bottoms.json"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_code_of_the_page_runs_and_says_what_it_shows(tmp_path: Path) -> None:
    said, script = io.StringIO(), tmp_path / "page.py"
    script.write_text("\n".join(blocks("python")), encoding="utf-8")
    with contextlib.redirect_stdout(said):
        names = runpy.run_path(str(script))
    (shown,) = blocks("text")
    assert said.getvalue() == shown
    assert names["bottom"] == sv.Frozen(64, learned="own rows")


def test_the_files_of_the_page_are_right() -> None:
    algorithm, job = (tomllib.loads(block) for block in blocks("toml"))
    assert sv.SplitNN.from_values(algorithm["algorithm"]).bottom == sv.Frozen(64, "fourier")
    assert JobTerms.from_values(job["job"]).valid_rows == 200


def test_the_page_names_the_algorithms_that_take_it() -> None:
    taken = set()
    for name in registered_algorithms():
        kind = find_algorithm(name)
        if "bottom" in kind.__struct_fields__:
            with contextlib.suppress(sv.InputError):
                kind.from_values({"bottom": {"width": 8}})
                taken.add(name)
    (listed,) = re.findall(r"take frozen bottoms: (.*?)\. Others", TEXT, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == taken - {"local"}


def test_the_figures_of_the_page_are_those_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.frozen_bottoms import tables

    cells = json.loads(FIGURES.read_text(encoding="utf-8"))["cells"]
    for table in tables(cells).values():
        assert table in TEXT, "run python -m benchmarks.frozen_bottoms --page"
