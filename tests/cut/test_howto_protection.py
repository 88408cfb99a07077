"""The page "Add a protection": its files do what it shows."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import run_python

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/add-a-protection.md"
BLOCKS = re.compile(r'```(?:python|toml|ini) title="([\w.]+)"\n(.*?)```', re.DOTALL)
FILES = dict(BLOCKS.findall(PAGE.read_text(encoding="utf-8")))
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


def run_job_file(folder: Path) -> subprocess.CompletedProcess[str]:
    """``securevfl run job.toml`` where the folder is on the path, as an installed package is."""
    paths = [str(folder), *(os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(ROOT)]
    return run_python(
        ["-c", "from securevfl.cli import main; main()", "run", "job.toml"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


def install(folder: Path) -> None:
    """Write what an installer writes of a distribution."""
    installed = folder / "rounded-0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: rounded\nVersion: 0.1\n", encoding="utf-8")
    (folder / "entry_points.txt").rename(installed / "entry_points.txt")


def test_a_job_file_finds_it_by_its_entry_point(tmp_path: Path) -> None:
    install(tmp_path)
    done = run_job_file(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rounded to 2^-6" in " ".join(done.stdout.split())


def test_a_job_file_checks_its_fields(tmp_path: Path) -> None:
    install(tmp_path)
    Path("job.toml").write_text(FILES["job.toml"].replace("digits = 6", "digits = 60"), encoding="utf-8")
    done = run_job_file(tmp_path)
    assert done.returncode == 2
    assert re.search(r"protection\.digits is 60", done.stderr), done.stderr


def test_a_job_file_cannot_name_it_where_no_package_has_it(tmp_path: Path) -> None:
    done = run_job_file(tmp_path)
    assert done.returncode == 2
    assert re.search(r"protection\.name is 'rounded'; known: 'auto'", done.stderr), done.stderr


def test_all_files_of_the_page_were_run() -> None:
    python = {"rounded.py", "check_rounded.py", "check_strictly.py", "train_rounded.py"}
    assert set(FILES) == python | {"entry_points.txt", "job.toml"}
