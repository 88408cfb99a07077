"""Ledgers are on the disk while a run goes: what a killed process leaves is whole up to its last line."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from support.helpers import make_parties
from support.processes import PythonProcess

import securevfl as sv
from securevfl import cli
from securevfl.ledger import Entry, decode_line
from securevfl.transport import MemoryChannel, Message, measure_message

JOB = """
name = "long"
baselines = []
[job]
epochs = 100000
batch_size = 16
[algorithm]
name = "splitnn"
hidden = 2
top = []
[protection]
name = "plain"
[data]
name = "breast_cancer"
"""


def _wait_for_lines(file: Path, lines: int, process: PythonProcess) -> None:
    end = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "the run wrote no ledger"
        time.sleep(0.05)


def test_a_killed_run_leaves_ledgers_that_are_whole_up_to_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(JOB, encoding="utf-8")
    run = Path("runs/long/unfinished")
    command = ["-c", "from securevfl.cli import main; main()", "run", "job.toml"]
    with PythonProcess(command) as process:
        try:
            _wait_for_lines(run / "ledgers/lab.jsonl", 400, process)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(sv.InputError, match=r"failed or were killed left some: name runs/long/unfinished$"):
        sv.audit("runs/long")
    found = sv.audit(run)  # what verifies: hashes, signatures, and that both ends tell the same
    steps = {chain.party: {entry.what for entry in chain.entries} for chain in found.chains if chain.run == "plain"}
    assert {"cut/forward", "cut/backward"} <= steps["clinic"] & steps["lab"]
    assert not found.alone  # both ends of every link are there, and what is missing is said
    assert not found.is_complete
    cut = [chain for chain in found.chains if not chain.is_closed]
    assert [(chain.party, chain.run) for chain in cut] == [("clinic", "plain"), ("lab", "plain")]
    ways = {
        (chain.party, way): [entry.digest for entry in chain.entries if entry.way == way]
        for chain in cut
        for way in ("sent", "received")
    }
    for sender, receiver in (("clinic", "lab"), ("lab", "clinic")):
        sent, received = ways[sender, "sent"], ways[receiver, "received"]
        assert len(received) > 100
        assert sent[: len(received)] == received  # all that arrived was written down before it left
    for chain in cut:
        assert any(f"{chain.party}.jsonl:{chain.last}:" in text for text in found.incomplete)
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", str(run)])
    assert ended.value.code == sv.AuditError.exit_code
    said = " ".join(capsys.readouterr().out.split())
    assert f"lab.jsonl:{cut[1].last}: 'lab''s chain of run 'plain' ends here without a closing line" in said


def test_a_message_is_on_the_disk_before_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send, left = MemoryChannel.send, Counter[str]()

    def written(digest: str) -> int:
        lines = [decode_line(line) for file in tmp_path.glob("*.jsonl") for line in file.read_bytes().splitlines()]
        return sum(isinstance(line, Entry) and (line.way, line.digest) == ("sent", digest) for line in lines)

    async def checked(self: MemoryChannel, message: Message) -> int:
        digest = measure_message(message)[1]
        left[digest] += 1
        assert written(digest) == left[digest], message.what
        return await send(self, message)

    monkeypatch.setattr(MemoryChannel, "send", checked)
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=2, top=()), epochs=1, batch_size=64)
    result = sv.simulate(job, make_parties(rows=60), ledgers=tmp_path)
    assert left.total() == sum(
        entry.way == "sent" for run in result.ledgers.values() for ledger in run.values() for entry in ledger.entries
    )
    for ledger in result.ledgers["plain"].values():
        assert (tmp_path / f"{ledger.party}.jsonl").read_bytes().endswith(ledger.to_jsonl())


def test_a_failed_run_s_ledger_tells_what_was_released_until_then(tmp_path: Path) -> None:
    class Breaks(sv.Observer):
        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            if epoch == 2:
                raise OSError("the lights went out")

    noise = sv.DP(features=sv.Gaussian(epsilon=6.0), labels=sv.Gaussian(epsilon=6.0))
    job = sv.Job(
        algorithm=sv.SplitNN(hidden=2, top=()), epochs=4, batch_size=64, protection=sv.Plain(dp=noise)
    )  # 4 epochs are planned, 2 begin
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, make_parties(rows=60), observer=Breaks(), ledgers=tmp_path / "ledgers")
    found = {line.party: line for line in sv.audit(tmp_path).epsilons if line.run == "plain-dp"}
    assert found.keys() == {"bank", "shop1", "shop2"}
    assert all(0 < line.epsilon < 6 for line in found.values())
