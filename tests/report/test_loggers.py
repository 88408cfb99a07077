"""Loggers get the figures that a report shows, once each, and nothing of a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl.process.observers import SeveralObservers
from securevfl.report.loggers import Logger, TensorBoard, Writer, open_logger
from securevfl.testing.parties import make_parties


@dataclass
class Written:
    """A writer that keeps what it is given."""

    numbers: list[tuple[str, float, int]] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    ended: str = ""

    def write_number(self, name: str, value: float, step: int) -> None:
        self.numbers.append((name, value, step))

    def write_settings(self, settings: Mapping[str, str]) -> None:
        self.settings |= settings

    def close(self, *, failed: bool) -> None:
        self.ended = "failed" if failed else "finished"


class Full(Written):
    """A writer on a full disk."""

    def write_number(self, name: str, value: float, step: int) -> None:
        raise OSError("no space left on device")


class Kept(Logger):
    """A logger into memory."""

    def __init__(self, kind: type[Written] = Written) -> None:
        self.runs: dict[str, Written] = {}
        self.kind = kind
        super().__init__(self._keep)

    def _keep(self, name: str) -> Writer:
        assert name not in self.runs, "a run has one writer"
        self.runs[name] = self.kind()
        return self.runs[name]


@pytest.fixture(scope="module")
def logged() -> tuple[Kept, sv.Result]:
    """A logger that followed a run and a baseline."""
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Plain(), epochs=2, batch_size=32)
    with Kept() as logger:
        observer = SeveralObservers([sv.Observer(), logger])
        result = sv.simulate(job, make_parties(passive=1), baselines=("alone",), observer=observer)
        logger.log_record(result.record)
    return logger, result


def test_each_figure_of_the_report_is_written_once(logged: tuple[Kept, sv.Result]) -> None:
    logger, result = logged
    assert sorted(logger.runs) == ["SplitNN-plain", "alone"]
    for run in result.record.runs:
        written = logger.runs["alone" if run.key == "alone" else "SplitNN-plain"]
        expected = [("loss", one.train_loss, one.epoch) for one in run.epochs]
        expected += [(f"valid/{name}", value, one.epoch) for one in run.epochs for name, value in one.valid.items()]
        expected += [(f"test/{name}", value, 0) for name, value in run.test.items()]
        expected += [("seconds", run.seconds, 0), ("best epoch", run.best_epoch, 0)]
        expected += [("bytes", sum(link.bytes for link in run.links), 0)] * bool(run.links)
        assert sorted(written.numbers) == sorted(expected)
        assert (written.settings["epochs"], written.settings["algorithm.name"]) == ("2", "splitnn")
        assert written.ended == "finished"


def test_nothing_of_a_row_is_written(logged: tuple[Kept, sv.Result]) -> None:
    logger, result = logged
    text = json.dumps([[one.numbers, one.settings] for one in logger.runs.values()])
    assert not any(f'"{name}"' in text for name in result.test_ids)
    numbers = {value for one in logger.runs.values() for _, value, _ in one.numbers}
    assert not numbers & set(np.concatenate([scores.ravel() for scores in result.scores.values()]).tolist())


def test_a_record_alone_is_written_with_its_epochs(logged: tuple[Kept, sv.Result]) -> None:
    """As of a party whose run was over before."""
    live, result = logged
    with Kept() as logger:
        logger.log_record(result.record)
    assert sorted(logger.runs) == ["alone", "plain"]
    assert sorted(logger.runs["plain"].numbers) == sorted(live.runs["SplitNN-plain"].numbers)


def test_a_writer_that_fails_ends_nobodys_training(logged: tuple[Kept, sv.Result]) -> None:
    _, result = logged
    logger = Kept(Full)
    with pytest.warns(UserWarning, match="Kept logs no more: OSError: no space left"):
        logger.epoch(1, 0.5, {})
    logger.epoch(2, 0.5, {})
    logger.log_record(result.record)
    with pytest.raises(ZeroDivisionError), logger:
        raise ZeroDivisionError
    assert logger.runs["train"].ended == "failed"


def test_a_figure_that_a_party_does_not_know_is_left_out() -> None:
    with Kept() as logger:
        logger.epoch(1, float("nan"), {})
    assert logger.runs["train"].numbers == []


@pytest.mark.parametrize("where", ["tensorboard:", "tensorboard", "wandb:x", ""])
def test_an_unknown_logger_is_refused(where: str) -> None:
    with pytest.raises(sv.InputError, match="expected tensorboard:FOLDER or mlflow:URI"):
        open_logger(where)


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow"])
def test_a_logger_without_its_package_names_the_extra(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch.utils.tensorboard", "mlflow"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(sv.InputError, match=rf'pip install "securevfl\[{kind}\]"'):
        open_logger(f"{kind}:somewhere")


def test_tensorboard_reads_what_was_written(logged: tuple[Kept, sv.Result], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, result = logged
    with TensorBoard(tmp_path) as logger:
        logger.log_record(result.record)
    events = EventAccumulator(str(tmp_path / "plain"))
    events.Reload()
    assert [one.step for one in events.Scalars("loss")] == [1, 2]
    assert events.Scalars("test/auc")[0].value == pytest.approx(result.record.runs[-1].test["auc"], rel=1e-6)


def test_mlflow_reads_what_was_written(logged: tuple[Kept, sv.Result], tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    _, result = logged
    where = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with sv.loggers.MLflow(where) as logger:
        logger.log_record(result.record)
    client = mlflow.MlflowClient(tracking_uri=where)
    runs = client.search_runs([client.get_experiment_by_name("securevfl").experiment_id])
    found = {run.info.run_name: run for run in runs}
    assert sorted(found) == ["alone", "plain"]
    assert found["plain"].data.metrics["test/auc"] == pytest.approx(result.record.runs[-1].test["auc"])
    assert found["plain"].data.params["epochs"] == "2"
