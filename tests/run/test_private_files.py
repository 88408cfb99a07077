"""Every file of a run is its owner's alone, under the usual umask and from the moment that it is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.run.run_folder import RunFolder
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files have no such modes there")

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=2, top=()), epochs=1, batch_size=32, seed=1)


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _open_to_others(folder: Path) -> list[tuple[str, str]]:
    """Files and folders that others may read, or only may not because their folder is closed."""
    wanted = {path: 0o700 if path.is_dir() else 0o600 for path in (folder, *folder.rglob("*"))}
    return [
        (str(path), oct(path.stat().st_mode)) for path, mode in wanted.items() if path.stat().st_mode & 0o777 != mode
    ]


def test_all_files_of_a_run(tmp_path: Path) -> None:
    with RunFolder.lock(tmp_path / "run") as folder:
        result = sv.simulate(JOB, make_parties(passive=1, rows=60), observer=None)
        folder.write_result(result)
    assert (tmp_path / "run" / "report.html").is_file()
    assert _open_to_others(tmp_path / "run") == []


def test_all_files_of_a_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    company = create_company(tmp_path, make_parties(passive=1, rows=60), JOB)
    made: list[int] = []
    opened = os.open

    def open_file(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if flags & os.O_CREAT and ".state" in str(path):
            made.append(mode)
        return opened(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", open_file)
    company.over_memory()
    for name in company.names:
        assert len(list(company.state_folder(name).rglob("*"))) > 10
        assert _open_to_others(company.state_folder(name)) == []
    assert set(made) == {0o600}


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    """A person who opened it to others did so on purpose."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    sv.simulate(JOB, make_parties(passive=1, rows=60)).model().save(shared)
    assert shared.stat().st_mode & 0o777 == 0o750
