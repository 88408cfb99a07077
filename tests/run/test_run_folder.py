"""Run folders: one run at a time, nothing replaced by accident, and a full disk loses as little as it can."""

from __future__ import annotations

import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from securevfl_net import durable
from support.helpers import make_parties
from support.processes import PythonProcess

import securevfl as sv
from securevfl.report import Record
from securevfl.run import run_folder as folders
from securevfl.run.run_folder import RunFolder

JOB = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=()), epochs=1, batch_size=32)


@cache
def result() -> sv.Result:
    return sv.simulate(JOB, make_parties(rows=60))


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class DiskFull:
    """Syncing a file whose path ends so fails, as it does on a full disk: its content was written in part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *endings: str) -> None:
        self.endings = endings
        self._sync = durable.flush_to_disk
        monkeypatch.setattr(durable, "flush_to_disk", self)

    def __call__(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if any(ending in path for ending in self.endings):
            os.ftruncate(handle, 7)
            raise OSError(errno.ENOSPC, "No space left on device", path)
        self._sync(handle)


ALL = ["ledgers", "metrics.json", "model", "report.html", "scores.csv"]


def test_a_folder_is_locked_while_a_run_writes_there_and_says_by_whom(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from securevfl.run.run_folder import RunFolder\n"
        "with RunFolder.lock(Path(sys.argv[1])): print('ready', flush=True); sys.stdin.read()"
    )
    place = tmp_path / "run"
    with PythonProcess(["-c", code, str(place)], speaks=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(sv.InputError, match=rf"run is in use by process {other.pid}: wait for it"):
            RunFolder.lock(place).__enter__()
        with RunFolder.lock(place, numbered=True) as second:
            assert second.path == tmp_path / "run-2"
        other.kill()
        other.wait()
    with RunFolder.lock(place) as again:  # a process that was killed holds nothing
        assert again.path == place
    assert _names(tmp_path) == ["run"]  # the killed one could not remove it


def test_a_finished_run_is_not_replaced_by_accident(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with RunFolder.lock(place) as folder:
        folder.write_result(result())
    assert _names(place) == ALL
    with pytest.raises(sv.InputError, match="contains a finished run: give another folder with --out, or --overwrite"):
        RunFolder.lock(place).__enter__()
    with RunFolder.lock(place, numbered=True) as folder:
        assert folder.path.name == "run-2"
        folder.write_result(result())
    with RunFolder.lock(place, numbered=True) as folder:
        assert folder.path.name == "run-3"
    assert _names(tmp_path) == ["run", "run-2"]  # nothing was written to the third


def test_an_overwritten_run_stays_until_the_new_one_has_ended(tmp_path: Path) -> None:
    with RunFolder.lock(tmp_path / "run") as folder:
        folder.write_result(result())
    (folder.model / "nobody.model.safetensors").write_bytes(b"of a party that is no more")
    before = (folder.path / "metrics.json").read_bytes()
    with pytest.raises(sv.InputError, match="on purpose"), RunFolder.lock(folder.path, overwrite=True):
        raise sv.InputError("on purpose")
    assert (folder.path / "metrics.json").read_bytes() == before
    with RunFolder.lock(folder.path, overwrite=True) as again:
        again.write_result(result())
    assert _names(again.path) == ALL
    assert "nobody.model.safetensors" not in _names(again.model)
    sv.Model.load(again.model, JOB)


def test_a_folder_that_cannot_be_used_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(sv.InputError, match="cannot be a folder"):
        RunFolder.lock(tmp_path / "file" / "run").__enter__()
    monkeypatch.setattr(folders, "LEAST_FREE", 1 << 62)
    with pytest.raises(sv.InputError, match=r"on a disk with \d+ MiB left; a run begins with at least .* MiB"):
        RunFolder.lock(tmp_path / "run").__enter__()
    assert _names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("full", "left"),
    [
        (["report.html"], [name for name in ALL if name != "report.html"]),
        (["metrics.json"], ["ledgers", "model", "scores.csv"]),
        (["scores.csv"], ["ledgers", "model"]),
        (["shop2.model"], []),
    ],
)
def test_a_full_disk_loses_what_comes_after_and_leaves_no_half_file(
    full: list[str], left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskFull(monkeypatch, *full)
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises((sv.InputError, OSError), match="No space left"), RunFolder.lock(run) as folder:
        folder.write_result(result())
    assert _names(run) == left
    if "model" in left:
        sv.Model.load(tmp_path / "run" / "model", JOB)
    if "metrics.json" in left:
        Record.read(tmp_path / "run" / "metrics.json")


def test_a_full_disk_leaves_the_model_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder.lock(tmp_path) as folder:
        folder.write_result(result())
    DiskFull(monkeypatch, "shop2.model")
    with pytest.raises(OSError, match="No space left"), RunFolder.lock(tmp_path, overwrite=True) as folder:
        folder.write_result(result())
    assert _names(tmp_path) == ALL
    sv.Model.load(tmp_path / "model", JOB)


def test_ledgers_of_every_failure_stay(tmp_path: Path) -> None:
    class Breaks(sv.Observer):
        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            raise OSError("the lights went out")

    for name in ("failed", "failed-2"):
        with pytest.raises(sv.PartyFailed) as caught, RunFolder.lock(tmp_path / "run"):
            sv.simulate(JOB, make_parties(rows=60), observer=Breaks())
        assert f"what left before is in {tmp_path / 'run' / name / 'ledgers'}" in caught.value.__notes__
    assert _names(tmp_path / "run") == ["failed", "failed-2"]
    assert {chain.party for chain in sv.audit(tmp_path / "run" / "failed-2").chains} == {"bank", "shop1", "shop2"}


def test_a_failure_keeps_ledgers_that_its_error_does_not_carry(tmp_path: Path) -> None:
    def run() -> None:
        with RunFolder.lock(tmp_path) as folder:
            sv.simulate(JOB, make_parties(rows=60), ledgers=folder.ledgers)
            raise sv.InputError("after the run")

    with pytest.raises(sv.InputError) as caught:
        run()
    assert caught.value.__notes__ == [f"what left before is in {tmp_path / 'failed/ledgers'}"]
    assert _names(tmp_path) == ["failed"]
    assert [chain.outcome for chain in sv.audit(tmp_path / "failed").chains] == ["done"] * 6


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    durable.write_atomic(file, b"first", private=True)
    assert file.stat().st_mode & 0o777 == 0o600
    order: list[str] = []
    sync, replace = durable.flush_to_disk, os.replace

    def synced(handle: int) -> None:
        order.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{handle}")).split(".")[-1])
        sync(handle)

    def replaced(*paths: Any) -> None:
        order.append("replace")
        replace(*paths)

    monkeypatch.setattr(durable, "flush_to_disk", synced)
    monkeypatch.setattr(os, "replace", replaced)
    durable.write_atomic(file, b"second")
    assert order == ["sync tmp", "replace", f"sync {tmp_path.name}"]  # the content before the name
    DiskFull(monkeypatch, "file")
    with pytest.raises(OSError, match="No space left"):
        durable.write_atomic(file, b"third")
    assert file.read_bytes() == b"second"
    assert _names(tmp_path) == ["file"]
