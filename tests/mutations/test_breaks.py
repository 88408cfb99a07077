"""Every break still fits the code, and the script that tries them notices both outcomes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mutations.base import ROOT, Break, Outcome, broken
from mutations.breaks import BREAKS


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one.name)
def test_a_break_fits_the_code(one: Break) -> None:
    text = (ROOT / one.file).read_text(encoding="utf-8")
    assert broken(one, text) != text
    compile(broken(one, text), one.file, "exec")
    for name in one.tests:
        file, _, test = name.partition("::")
        assert (ROOT / file).exists(), f"{name} is no test"
        # pytest ends with an error of its own where a test has another name, and the break would seem to survive.
        assert not test or re.search(rf"def {test.partition('[')[0]}\b", (ROOT / file).read_text(encoding="utf-8")), (
            name
        )


def test_breaks_have_names_of_their_own() -> None:
    assert len({one.name for one in BREAKS}) == len(BREAKS)


def test_a_break_of_text_that_the_code_lost_is_told() -> None:
    gone = Break(name="gone", file="README.md", old="no such line", new="", tests=())
    with pytest.raises(ValueError, match="0 times"):
        broken(gone, "some text")


def test_the_benchmark_goes_on_where_it_stopped_and_tries_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import common, mutations

    first, second = (replace(one, name=f"made {k}") for k, one in enumerate(BREAKS[:2]))
    tried: list[str] = []

    def attempt(one: Break, folder: Path) -> Outcome:
        tried.append(one.name)
        return Outcome(caught=one.name != "made 1", by="FAILED", seconds=1.0)

    def run(*breaks: Break) -> tuple[int, dict[str, object]]:
        tried.clear()
        monkeypatch.setattr(mutations, "BREAKS", breaks)
        status = mutations.main()
        return status, json.loads((tmp_path / "mutations.json").read_text(encoding="utf-8"))

    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(mutations, "attempt", attempt)
    monkeypatch.setattr("sys.argv", ["mutations"])
    status, _ = run(first)
    assert (status, tried) == (0, ["made 0"])
    status, found = run(first, second)
    assert (status, tried) == (1, ["made 1"])  # what was tried before is not tried again, and a survivor is an error
    assert (found["kept"], found["tried"], found["survivors"]) == (2, 2, ["made 1"])
    status, found = run(replace(first, new=first.new + "\n"), second)
    assert (status, tried) == (1, ["made 0"])  # it changed; the survivor of before still counts
    assert found["tried"] == 2
    assert "1 of 2 breaks are caught; 1 tried now" in capsys.readouterr().out
