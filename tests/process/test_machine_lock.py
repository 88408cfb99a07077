"""The lock of a party on one machine: a copy is refused at once, a process that is about to end is waited for."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from securevfl_net import durable
from securevfl_net.durable import InUse, is_held, lock_folder

from securevfl.process import machine_lock
from securevfl.process.machine_lock import lock_party

fcntl = pytest.importorskip("fcntl")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the system has no such locks")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_copy_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_lock, "_ENDING", 60.0)
    with lock_party("00", "bank", tmp_path / "state"):
        began = time.monotonic()
        with pytest.raises(InUse, match="copy, which must not run beside it"), lock_party("00", "bank", tmp_path / "b"):
            pass
        assert time.monotonic() - began < 30
        with lock_party("01", "bank", tmp_path / "b"), lock_party("00", "shop", tmp_path / "b"):
            pass


def test_a_process_that_has_left_the_same_folder_is_waited_for(tmp_path: Path) -> None:
    """It releases the folder first, or the system does: who waits for the folder must not take it for a copy."""
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock_party("00", "bank", tmp_path / "state"):
            held.set()
            leave.wait(10)
            time.sleep(0.3)

    ending = threading.Thread(target=hold)
    ending.start()
    assert held.wait(10)
    leave.set()
    with lock_party("00", "bank", tmp_path / "state"):
        pass
    ending.join()


def test_it_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_lock, "_ENDING", 0.1)
    with (
        lock_party("00", "bank", tmp_path / "state"),
        pytest.raises(InUse),
        lock_party("00", "bank", tmp_path / "state"),
    ):
        pass


def test_who_only_looks_at_a_folder_refuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node and `securevfl status` look by sharing its lock for a moment, in which a party may start."""
    monkeypatch.setattr(durable, "_LOOKS", 6000)  # a minute
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, [looking]).start()
    with lock_folder(tmp_path, "a test"):
        assert is_held(tmp_path)
        began = time.monotonic()
        with pytest.raises(InUse), lock_folder(tmp_path, "a test"):
            pass
        assert time.monotonic() - began < 30
