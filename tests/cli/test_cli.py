"""The command line as a person or a script meets it: output, files, exit codes, and never a traceback."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import run_python

from securevfl import cli
from securevfl.report import Record

JOB = """
name = "tiny"
baselines = ["alone"]
protection = "plain"
[job]
epochs = 2
batch_size = 64
[data]
name = "breast_cancer"
"""


def _securevfl(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    return run_python(["-c", "from securevfl.cli import main; main()", *arguments], cwd=folder, env=environment)


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The same without a process: each one loads torch again. Every command is run in one of its own below, too."""

    def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        monkeypatch.delenv("COLUMNS", raising=False)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        said = capsys.readouterr()
        return subprocess.CompletedProcess(list(arguments), int(ended.value.code or 0), said.out, said.err)

    return command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    return folder, _securevfl("run", "job.toml", folder=folder)


def test_the_engine_is_shown(here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = here("engine", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = dict(line.strip().split(maxsplit=1) for line in done.stdout.splitlines()[1:])
    assert lines["shares"].endswith("self-test passed")
    assert "manifest.json" in lines
    for name, text in lines.items():
        if name.endswith(".so"):
            assert hashlib.sha256((Path(lines["folder"]) / name).read_bytes()).hexdigest() == text
    monkeypatch.setenv("SECUREVFL_ENGINE", "abacus")
    wrong = here("engine", folder=tmp_path)
    assert wrong.returncode == 2
    assert "SECUREVFL_ENGINE='abacus'" in wrong.stderr


def test_a_run_prints_one_screen_and_writes_its_report(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = run
    assert done.returncode == 0, done.stderr
    for words in ("clinic alone", "SplitNN, plain", "Protection receipt: SplitNN, plain: ", "carry data without"):
        assert words in done.stdout
    assert len(done.stdout.splitlines()) < 40
    assert "Who learned what" not in done.stdout, "that table is in the report"
    assert "Report: runs/tiny/report.html" in done.stdout
    assert sorted(p.name for p in (folder / "runs" / "tiny").iterdir()) == [
        "ledgers",
        "metrics.json",
        "model",
        "report.html",
        "scores.csv",
    ]
    record = Record.read(folder / "runs" / "tiny" / "metrics.json")
    assert [r.key for r in record.runs] == ["alone", "plain"]
    scores = (folder / "runs" / "tiny" / "scores.csv").read_text().splitlines()
    assert scores[0] == "id,alone: malignant,alone: benign,plain: malignant,plain: benign"
    assert len(scores) == 1 + record.alignment.test
    figures = [[float(value) for value in line.split(",")[1:]] for line in scores[1:]]
    assert all(abs(line[0] + line[1] - 1) < 1e-5 and abs(line[2] + line[3] - 1) < 1e-5 for line in figures)
    if os.name == "posix":
        assert (folder / "runs" / "tiny" / "scores.csv").stat().st_mode & 0o077 == 0  # rows' scores are its owner's


def test_report_and_audit_read_it_again(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = run
    again = _securevfl("report", "runs/tiny", folder=folder)
    assert again.returncode == 0
    assert "SplitNN, plain" in again.stdout
    checked = _securevfl("audit", "runs/tiny", folder=folder)
    assert checked.returncode == 0
    assert "6 ledgers verified" in checked.stdout
    assert "the gradient at the" in " ".join(checked.stdout.split())  # a forked process cannot widen its tables


def test_a_page_is_written_before_anything_is_printed(
    run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when `head` reads what `report` prints, and closes it."""
    shutil.copytree(run[0] / "runs" / "tiny", tmp_path / "tiny")
    (tmp_path / "tiny" / "report.html").unlink()

    def closed(*_: object, **__: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(cli.terminal.out, "print", closed)
    with pytest.raises(SystemExit):
        cli.main(["report", str(tmp_path / "tiny")])
    assert (tmp_path / "tiny" / "report.html").exists()


def test_a_changed_ledger_fails_the_audit(run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    folder, _ = run
    shutil.copytree(folder / "runs" / "tiny", tmp_path / "tiny")
    path = tmp_path / "tiny" / "ledgers" / "lab.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"bytes":', '"bytes":1', 1))
    done = _securevfl("audit", str(tmp_path / "tiny"), folder=folder)
    assert done.returncode == 8
    line = text[: text.index('"bytes":')].count("\n") + 1
    assert f"ledgers/lab.jsonl:{line}: 'lab': the line was changed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "job", "code", "words"),
    [
        (["run", "none.toml"], "", 2, "none.toml does not exist"),
        (["run", "job.toml"], JOB.replace("epochs", "epoch"), 2, "did you mean 'epochs'"),
        (["check", "none.toml"], "", 2, ""),
        (["check", "job.toml"], JOB.replace("epochs", "epoch"), 2, ""),
        (["check", "job.toml"], JOB + "[policy.lab]\nsealed = true", 3, ""),
        (["run", "job.toml"], JOB.replace('"plain"', '"palier"'), 2, "did you mean 'paillier'"),
        (["run", "job.toml"], JOB + "[policy.lab]\nsealed = true", 3, "demands them sealed"),
        (["run", "job.toml"], JOB + "[policy.lab]\nmin_intersection = 9999", 3, "the policy demands at least 9999"),
        (["report", "nowhere"], "", 2, "nowhere/metrics.json does not exist"),
        (["audit", "nowhere"], "", 2, "nowhere/ledgers contains no ledger"),
        (["demo", "--bits", "1024"], "", 2, "InputError: paillier.bits is 1024; a whole number from 2048 to 8192"),
        (["run"], "", 2, "Missing argument"),
        (["trian"], "", 2, "No such command"),
    ],
)
def test_mistakes_end_with_a_message_and_a_code(
    tmp_path: Path, here: Command, arguments: list[str], job: str, code: int, words: str
) -> None:
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    alone = arguments in (["check", "none.toml"], ["demo", "--bits", "1024"], ["trian"])
    done = (_securevfl if alone else here)(*arguments, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert (tmp_path / "runs").exists() == (
        code == 3 and arguments[0] == "run"
    )  # what left before a refusal is written down, and nothing else


def test_tables_without_common_rows_end_with_their_own_code(tmp_path: Path, here: Command) -> None:
    for name, first in (("a", 0), ("b", 1000)):
        rows = "\n".join(f"{first + i},{i},{i % 2}" for i in range(30))
        (tmp_path / f"{name}.csv").write_text(f"k,x,y\n{rows}\n", encoding="utf-8")
    (tmp_path / "job.toml").write_text(
        'protection = "plain"\n[[party]]\nname = "a"\nfile = "a.csv"\nid = "k"\nlabel = "y"\n'
        '[[party]]\nname = "b"\nfile = "b.csv"\nid = "k"\n',
        encoding="utf-8",
    )
    done = here("run", "job.toml", folder=tmp_path)
    assert done.returncode == 4
    assert "no row is common to all parties" in done.stderr


def test_a_failing_party_ends_the_run_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from securevfl.algorithms import splitnn

    async def breaks(self: object, rows: object) -> float:
        raise MemoryError("no room for the batch")

    monkeypatch.setattr(splitnn.Passive, "train_batch", breaks)
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(JOB, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "job.toml"])
    assert ended.value.code == 6
    said = capsys.readouterr().err
    assert "party 'lab' failed: MemoryError: no room for the batch" in said
    assert "what left before is in runs/tiny/failed/ledgers" in said
    left = [p.relative_to("runs/tiny/failed/ledgers").name for p in Path("runs/tiny").rglob("*.*")]
    assert sorted(left) == ["clinic.jsonl", "lab.jsonl"]
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", "runs/tiny/failed"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "plain: lab ended with: failed: MemoryError: no room for the batch" in said
    assert "plain: clinic ended with: cancelled: another party failed" in said


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("securevfl 0.")
