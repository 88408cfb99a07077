"""SIGINT and SIGTERM on the command line: ledgers, checkpoints, and the line that goes on; SIGKILL: the ledgers."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

JOB = """
name = "tiny"
[job]
epochs = {epochs}
batch_size = 64
[data]
name = "breast_cancer"
"""


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    code = "import sys; from securevfl.cli import main; sys.argv[0] = 'securevfl'; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


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
        while not list(tmp_path.glob("kept/plain/clinic.epoch-2.*")):
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
