"""SIGINT and SIGTERM on the command line: ledgers, checkpoints, and the line that goes on; SIGKILL: the ledgers."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import PythonProcess

import securevfl as sv
from securevfl.cli import main

JOB = """
name = "tiny"
protection = "plain"
baselines = []
[job]
epochs = {epochs}
batch_size = 64
[data]
name = "breast_cancer"
"""


@contextlib.contextmanager
def _start(folder: Path, *arguments: str) -> Iterator[PythonProcess]:
    """A command in a process of its own, which is gone at the end, however that comes."""
    code = "import sys; from securevfl.cli import main; sys.argv[0] = 'securevfl'; main()"
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = PythonProcess(["-c", code, *arguments], cwd=folder, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _epochs(folder: Path) -> int:
    """The epoch of a party's newest checkpoint; older ones are deleted in no time."""
    names = [path.name.split("-")[-1].split(".")[0] for path in folder.glob("kept/plain/clinic.epoch-*.safetensors")]
    return max(map(int, names), default=0)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_run_that_is_stopped_leaves_its_ledgers_and_says_how_it_goes_on(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(epochs=5_000), encoding="utf-8")
    arguments = ["run", "job.toml", "--checkpoints", "kept"]
    with _start(tmp_path, *arguments) as process:
        deadline = time.monotonic() + 100
        while _epochs(tmp_path) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    left = tmp_path / "runs" / "tiny" / ("unfinished" if number == signal.SIGKILL else "failed")
    lines = [line for file in (left / "ledgers").glob("*.jsonl") for line in file.read_bytes().splitlines()]
    assert sum(b"cut/forward" in line for line in lines) > 4
    if number != signal.SIGKILL:
        assert "Traceback" not in said
        assert f"resume with: {shlex.join(['securevfl', *arguments])}" in said
        assert "what left before is in runs/tiny/failed/ledgers" in said
        assert not (tmp_path / "runs" / "tiny" / "unfinished").exists()
    assert not (tmp_path / "runs" / "tiny" / "metrics.json").exists()


SWEEP = """
name = "long"
seeds = [0, 1, 2, 3]
[axis]
values = [0.1]
[job]
epochs = 5_000
batch_size = 64
[[data]]
name = "limited_credit"
label = "credit"
options = { rows = 400, parties = 2 }
[[method]]
label = "vanilla"
algorithm = "splitnn"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_sweep_that_is_terminated_leaves_no_workers(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    arguments = ["sweep", "sweep.toml", "--workers", "2"]
    with _start(tmp_path, *arguments) as process:
        threads = Path(f"/proc/{process.pid}/task")  # a worker is the child of the thread that started it
        deadline = time.monotonic() + 100
        while len(workers := [child for child in _children(threads) if _computes(child)]) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert f"resume with: {shlex.join(['securevfl', *arguments])}" in said
    assert "Traceback" not in said
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]


def _children(threads: Path) -> list[str]:
    """Processes that a process has started, by any of its threads."""
    found: list[str] = []
    for file in threads.glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found += file.read_text().split()
    return found


def _computes(child: str) -> bool:
    """Whether a worker has loaded torch, which it does for its first cell."""
    try:
        return "libtorch" in Path(f"/proc/{child}/maps").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("predict", ["predict", "job.toml", "model"], "nothing to resume from: no predictions were written"),
        ("attack", ["attack", "job.toml"], "nothing to resume from: attack results are saved only at the end"),
    ],
)
def test_every_command_ends_alike_at_sigterm(
    name: str,
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def terminated(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(JOB.format(epochs=1), encoding="utf-8")
    monkeypatch.setattr(sv, name, terminated)
    monkeypatch.setattr(sv.Model, "load", lambda *_: None)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 143
    assert says in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
