"""The page "Add a protection": its files do what it shows."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/howto/add-a-protection.md"
FILES = dict(re.findall(r'```python title="([\w.]+)"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL))
SAID = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rounded", raising=False)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")


def test_the_protection_passes_its_check() -> None:
    runpy.run_path("check_rounded.py")


def test_a_stricter_check_says_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("check_strictly.py")
    (shown,) = SAID
    assert re.fullmatch(re.escape(shown).replace("…", r"[\d.e-]+"), capsys.readouterr().out)


def test_a_job_trains_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("train_rounded.py")
    assert float(capsys.readouterr().out) > 0.6


def test_all_files_of_the_page_were_run() -> None:
    assert set(FILES) == {"rounded.py", "check_rounded.py", "check_strictly.py", "train_rounded.py"}
