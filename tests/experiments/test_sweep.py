"""Sweeps: what a file asks for, what a cell gives, going on where it broke off."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from securevfl_crypto.errors import WorkerLost
from securevfl_crypto.pools import Argument, ProcessPool

import securevfl as sv
from securevfl.cli import main
from securevfl.experiments import pool as module
from securevfl.experiments.cells import Cell
from securevfl.experiments.pool import run_cell
from securevfl.experiments.sweep import run_sweep
from securevfl.experiments.sweep_file import read_sweep
from securevfl.report import SweepRecord, failures_text
from securevfl.training.active_program import ActiveProgram

SWEEP = """
name = "tiny"
seeds = [0, 1]

[axis]
values = [0.1, 0.5]

[job]
epochs = 2
steps = 3
batch_size = 32

[[data]]
name = "digits"
algorithm = { bottom = [6], hidden = 5, top = [5] }

[[data]]
name = "limited_credit"
label = "credit"
options = { rows = 400, parties = 2 }
only = ["vanilla"]

[[method]]
label = "vanilla"
algorithm = "splitnn"

[[method]]
label = "FedCVT"
algorithm = "fedcvt"
settings = { confidence = 0.7 }
values = [0.5]

[[claim]]
text = "FedCVT is better"
source = "a test"
data = "*"
better = "FedCVT"
worse = "vanilla"

[[paper]]
data = "digits"
method = "FedCVT"
source = "a test"
percent = { "0.1" = 81.5 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(SWEEP, encoding="utf-8")
    return path


def test_a_file_says_which_cells(file: Path) -> None:
    sweep = read_sweep(file)
    cells = [(spec.data, spec.method, spec.x, spec.seed) for spec in sweep.cells]
    assert cells == [
        *(("digits", "vanilla", x, seed) for x in (0.1, 0.5) for seed in (0, 1)),
        *(("digits", "FedCVT", 0.5, seed) for seed in (0, 1)),
        *(("credit", "vanilla", x, seed) for x in (0.1, 0.5) for seed in (0, 1)),
    ]
    fedcvt = sweep.cells[4].build_job()
    assert isinstance(fedcvt.algorithm, sv.FedCVT)
    assert fedcvt.algorithm.bottom == (6,)  # what the data set says, as far as the algorithm has it
    assert fedcvt.algorithm.confidence == 0.7
    assert (fedcvt.epochs, fedcvt.steps, fedcvt.batch_size) == (2, 3, 32)
    assert sweep.cells[-1].source == {"name": "limited_credit", "overlap": 0.5, "seed": 1, "rows": 400, "parties": 2}
    assert [(figure.method, figure.x, figure.value) for figure in sweep.paper] == [("FedCVT", 0.1, 0.815)]


def test_a_method_may_have_seeds_of_its_own(file: Path) -> None:
    file.write_text(SWEEP.replace("values = [0.5]\n", "values = [0.5]\nseeds = [1, 2, 3]\n"), encoding="utf-8")
    seeds = {spec.method: spec.seed for spec in read_sweep(file).cells}
    assert seeds == {"vanilla": 1, "FedCVT": 3}
    assert [spec.seed for spec in read_sweep(file).cells if spec.method == "FedCVT"] == [1, 2, 3]
    file.write_text(SWEEP.replace("values = [0.5]\n", "seeds = [-1]\n"), encoding="utf-8")
    with pytest.raises(sv.InputError, match=r"method\[1\]\.seeds"):
        read_sweep(file)


def test_a_cell_has_the_metric_before_calibration(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = read_sweep(file).cells
    ran = [run_cell(cell) for cell in cells]
    monkeypatch.setattr(ActiveProgram, "calibrate", lambda program: None)
    plain = [run_cell(cell) for cell in cells]
    assert [one.uncalibrated for one in ran] == [one.value for one in plain] == [one.uncalibrated for one in plain]
    assert any(one.uncalibrated != one.value for one in ran)


def test_a_cell_is_that_of_simulate(file: Path) -> None:
    spec = read_sweep(file).cells[0]
    cell = run_cell(spec)
    run = sv.simulate(spec.build_job(), sv.datasets.digits(overlap=0.1, seed=0)).run("plain")
    assert cell.value == run.test["accuracy"]
    assert cell.metric == "accuracy"
    assert cell.test_ratio == pytest.approx(0.25)  # 20 % of the rows test
    assert cell.best_epoch == run.best_epoch
    assert cell.valid == run.epochs[run.best_epoch - 1].valid["accuracy"]
    assert cell.history == [round(epoch.valid["accuracy"], 4) for epoch in run.epochs]


def test_a_sweep_goes_on_where_it_broke_off(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = read_sweep(file)
    real, ran = module.run_cell, []

    def counted(spec: Cell, parties: sv.Parties) -> object:
        if len(ran) == 4:
            raise KeyboardInterrupt
        ran.append(spec.digest)
        return real(spec, parties)

    monkeypatch.setattr(module, "run_cell", counted)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep, tmp_path / "out")
    assert len(SweepRecord.read(tmp_path / "out" / "sweep.json").cells) == 4
    with (tmp_path / "out" / "cells.jsonl").open("a") as log:
        log.write('{"key": "half a li')  # the power went while it was written
    monkeypatch.setattr(module, "run_cell", lambda spec, parties: ran.append(spec.digest) or real(spec, parties))
    seen: list[int] = []
    record = run_sweep(sweep, tmp_path / "out", progress=lambda done, total, cell: seen.append(done)).record
    assert len(ran) == len(set(ran)) == 10
    assert seen == [5, 6, 7, 8, 9, 10]
    assert len(record.cells) == 10
    assert SweepRecord.read(tmp_path / "out" / "sweep.json") == record
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "FedCVT is better" in page
    again = run_sweep(sweep, tmp_path / "out").record
    assert len(ran) == 10
    assert again.cells == record.cells


class _Odd(Exception):
    """One that does not come back from another process."""

    def __init__(self, one: object, two: object) -> None:
        super().__init__("odd")


def test_a_cell_that_fails_stops_no_other(file: Path, tmp_path: Path) -> None:
    sweep = read_sweep(file)
    broken = {"method": "broken", "algorithm": {"name": "ssl", "bottom": []}}  # nothing to pretrain
    few = [sweep.cells[0], replace(sweep.cells[1], **broken), sweep.cells[2]]
    record = run_sweep(replace(sweep, cells=few), tmp_path).record
    assert [(cell.method, cell.seed) for cell in record.cells] == [("vanilla", 0), ("vanilla", 0)]
    (failed,) = record.failed
    assert (failed.method, failed.x, failed.seed) == ("broken", 0.1, 1)
    assert failed.error
    log = (tmp_path / "failures.log").read_text(encoding="utf-8")
    assert "in the cell broken on digits, 0.1, seed 1" in log
    assert "Traceback" in log
    assert SweepRecord.read(tmp_path / "sweep.json") == record
    assert "Cells that failed" in (tmp_path / "report.html").read_text(encoding="utf-8")
    again = run_sweep(replace(sweep, cells=[few[0], few[2]]), tmp_path).record
    assert not again.failed
    assert not (tmp_path / "failures.log").read_text(encoding="utf-8")


def test_errors_of_other_kinds_are_told_as_well(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(spec: Cell, parties: sv.Parties) -> object:
        raise _Odd(1, 2)

    monkeypatch.setattr(module, "run_cell", fails)
    record = run_sweep(read_sweep(file), tmp_path / "out").record
    assert not record.cells
    assert failures_text(record) == ["10 of 10 cells failed, the first vanilla on digits, 10 %, seed 0: _Odd: odd"]
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(file), "--out", str(tmp_path / "cli")])
    assert ended.value.code == 1


@pytest.mark.parametrize("vandal", [False, True])
def test_rows_are_read_once_for_all_methods_unless_one_changes_them(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vandal: bool
) -> None:
    sweep = read_sweep(file)
    real, read, ran = module._load_data, [], []

    def cell(spec: Cell, parties: sv.Parties) -> object:
        ran.append((spec.x, spec.seed, float(parties.active.columns["left"].sum())))
        if vandal:
            parties.active.columns["left"][0] += 1
        raise sv.RangeError("out of range")

    monkeypatch.setattr(module, "_load_data", lambda spec: read.append(spec.source) or real(spec))
    monkeypatch.setattr(module, "run_cell", cell)
    digits = [spec for spec in sweep.cells if spec.data == "digits"]
    run_sweep(replace(sweep, cells=digits), tmp_path)
    assert (len(read), len(ran)) == (6 if vandal else 4, 6)
    assert len(set(ran)) == 4


def test_positions_can_be_protections(file: Path) -> None:
    text = SWEEP.replace(
        "values = [0.1, 0.5]",
        """unit = "category"
values = ["none", "4"]

[axis.protection]
none = "plain"
4 = { name = "plain", dp = { features = { mechanism = "gaussian", epsilon = 4.0 } } }""",
    ).replace("values = [0.5]", 'protection = "plain"')
    file.write_text(text, encoding="utf-8")
    cells = [spec for spec in read_sweep(file).cells if spec.data == "digits" and spec.seed == 0]
    assert [(spec.method, spec.x, spec.protection.get("dp") is not None) for spec in cells] == [
        ("vanilla", 0.0, False),
        ("vanilla", 1.0, True),
        ("FedCVT", 0.0, False),  # it asks for a protection of its own
        ("FedCVT", 1.0, False),
    ]
    assert all("overlap" not in spec.source for spec in cells)
    file.write_text(text.replace('none = "plain"', ""), encoding="utf-8")
    with pytest.raises(sv.InputError, match="give each position one"):
        read_sweep(file)


def test_other_settings_are_other_cells(file: Path) -> None:
    cells = read_sweep(file).cells
    assert len({spec.digest for spec in cells}) == len(cells)
    file.write_text(SWEEP.replace("steps = 3", "steps = 4"), encoding="utf-8")
    assert not {spec.digest for spec in cells} & {spec.digest for spec in read_sweep(file).cells}


def test_processes_find_the_same(file: Path, tmp_path: Path) -> None:
    sweep = read_sweep(file)
    broken = replace(sweep.cells[2], method="broken", algorithm={"name": "ssl", "bottom": []})
    sweep = replace(sweep, cells=[*sweep.cells[:2], broken])
    one, two = (run_sweep(sweep, tmp_path / str(workers), workers=workers).record for workers in (1, 2))
    assert {(c.seed, c.value, c.valid) for c in one.cells} == {(c.seed, c.value, c.valid) for c in two.cells}
    assert len(one.cells) == 2
    assert [cell.method for cell in one.failed] == ["broken"]
    assert two.failed == one.failed


def test_a_cell_whose_worker_is_killed_runs_again(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are those of one process; a cell that kills every worker counts as failed, and the others run."""
    sweep = replace(read_sweep(file), cells=read_sweep(file).cells[:2])
    alone = run_sweep(sweep, tmp_path / "alone").record
    submit, killed = ProcessPool.submit, []

    def watched(self: ProcessPool, task: str, /, *arguments: Argument, cpus: int = 1) -> Future[bytes]:
        future = submit(self, task, *arguments, cpus=cpus)
        if not killed:
            while not self.pids:
                time.sleep(0.005)
            killed.append(self.pids[0])
            os.kill(killed[0], signal.SIGKILL)
        return future

    monkeypatch.setattr(ProcessPool, "submit", watched)
    found = run_sweep(sweep, tmp_path / "pool", pool="process:1").record
    assert killed
    assert not found.failed
    assert [structs.replace(c, seconds=0.0) for c in found.cells] == [
        structs.replace(c, seconds=0.0) for c in alone.cells
    ]
    names = {path.name for path in (tmp_path / "alone").iterdir()}
    assert {path.name for path in (tmp_path / "pool").iterdir()} == names

    def lost(*_: object, **__: object) -> Future[bytes]:
        future: Future[bytes] = Future()
        future.set_exception(WorkerLost("the task lost its worker 3 times"))
        return future

    monkeypatch.setattr(ProcessPool, "submit", lost)
    again = run_sweep(sweep, tmp_path / "lost", pool="process:1").record
    assert [failed.error for failed in again.failed] == ["the task lost its worker 3 times"] * 2
    with pytest.raises(sv.InputError, match="unknown pool 'cloud'"):
        run_sweep(sweep, tmp_path / "none", pool="cloud")


def test_errors_cross_processes_as_they_are() -> None:
    with_cause = sv.PartyFailed("bank", ValueError("x"))
    with_cause.add_note("in the cell a on b")
    for error in (
        sv.UnknownNameError("protection", "bvf", ["bfv"]),
        with_cause,
        sv.AuditError("broken", flaws=["one"]),
    ):
        error.ledgers = (object,)
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - as the pool does
        assert (type(again), str(again)) == (type(error), str(error))
        assert {**vars(again), "ledgers": error.ledgers} == vars(error)


def test_damaged_results_are_an_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cells.jsonl").write_text(json.dumps({"key": "k", "cell": {"data": 1}}) + "\n")
    with pytest.raises(sv.InputError, match=r"line 1 of .*cells\.jsonl is not a finished cell"):
        run_sweep(read_sweep(file), tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('algorithm = "splitnn"', 'algorithm = "splitn"', r"method\[0\].algorithm is 'splitn'; did you mean 'splitnn'"),
        ("values = [0.1, 0.5]", "values = []", "has no values"),
        ("values = [0.1, 0.5]", "values = [0.1, nan]", r"axis.values\[1\] is nan"),
        ("values = [0.1, 0.5]", "values = [0.1, 0.1]", "position 0.1 with seed 0 twice"),
        ("values = [0.5]", 'values = ["half"]', "'half', which is none of the axis"),
        ("epochs = 2", "epoch = 2", "method 'vanilla': job has no 'epoch'; did you mean 'epochs'"),
        ("confidence = 0.7", "confidence = 7.0", "method 'FedCVT': algorithm.confidence is 7.0; a number"),
        ('name = "digits"', 'label = "digits"', r"data\[0\].name is missing"),
        ('name = "digits"', 'name = "digit"', "data 'digit'.name is 'digit'; did you mean 'digits'"),
        ("rows = 400", 'rows = "400"', "data 'credit'.rows is '400'; a whole number"),
        ('only = ["vanilla"]', 'only = ["vanila"]', r"data\[1\].only names 'vanila'; did you mean 'vanilla'"),
        ('label = "FedCVT"', 'label = "vanilla"', "two methods are called 'vanilla'"),
        ("[[data]]\nname", "[data]\nname", "double brackets"),
        ("[[method]]", "[[methods]]", "did you mean 'method'"),
        ('better = "FedCVT"', "better = 3", r"claim\[0\].better is 3; a text was expected"),
        ('"0.1" = 81.5', "ten = 81.5", r"paper\[0\]: percent has the position 'ten'"),
        ('name = "tiny"', "name = ", "is not TOML"),
    ],
)
def test_mistakes_show_before_anything_runs(file: Path, old: str, new: str, words: str) -> None:
    assert old in SWEEP
    whole = SWEEP.split("[[data]]", maxsplit=1)[0] + "[data]\nname = 'x'\n"
    file.write_text(whole if new.startswith("[data]") else SWEEP.replace(old, new), encoding="utf-8")
    with pytest.raises(sv.InputError, match=words):
        read_sweep(file)


def test_all_mistakes_of_a_sweep_are_told_at_once(file: Path) -> None:
    text = SWEEP.replace("confidence = 0.7", "confidence = 7.0").replace("epochs = 2", "epochs = 0")
    file.write_text(text.replace("rows = 400", "rows = 0.5").replace('unit = "%"', "").replace('source = "a test"', ""))
    with pytest.raises(sv.InputError, match="has 6 mistakes") as raised:
        read_sweep(file)
    for words in ("claim[0].source", "paper[0].source", "'FedCVT': algorithm.confidence", "'vanilla': job.epochs"):
        assert words in str(raised.value)
    assert "data 'credit'.rows is 0.5" in str(raised.value)


def test_a_protection_that_a_method_cannot_have_is_a_policy_error(file: Path) -> None:
    file.write_text(SWEEP.replace('algorithm = "fedcvt"', 'algorithm = "fedcvt"\nprotection = "bfv"'), encoding="utf-8")
    with pytest.raises(sv.PolicyError, match=r"method 'FedCVT': .*cannot seal it"):
        read_sweep(file)


def test_the_experiments_of_the_papers_are_readable() -> None:
    files = sorted((Path(__file__).parents[2] / "examples" / "experiments").glob("*.toml"))
    assert len(files) >= 5
    for path in files:
        sweep = read_sweep(path)
        methods = {spec.method for spec in sweep.cells}
        for claim in sweep.claims:
            assert {claim.better, claim.worse} <= methods, (path.name, claim.text)
