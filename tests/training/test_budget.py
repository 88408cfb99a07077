"""A budget fits the table: enough steps for few rows, stopping by the loss, a word where training ended too early."""

from __future__ import annotations

import asyncio
import math
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification, make_friedman1
from sklearn.linear_model import LinearRegression
from support.helpers import make_parties

import securevfl as sv
from securevfl.jobfile.drafting import MOST_VALIDATIONS, SHARES_RATE, draft_job
from securevfl.shares import NetworkShape, OptimiserConstants
from securevfl.shares.least_rows import MOST_METRICS
from securevfl.testing.shared_reference import SharedReference
from securevfl.training import ActiveProgram, find_algorithm
from securevfl.training.active_program import Progress
from securevfl.training.outcome import ended_early, went_nowhere
from securevfl.training.plan import Plan, network_budget, tree_budget
from securevfl.training.rows import Epoch, Trained
from securevfl.training.task import Task


@pytest.mark.parametrize("rows", [40, 100, 560, 2_000, 20_000, 100_000, 1_000_000])
def test_few_rows_get_as_many_steps_as_many(rows: int) -> None:
    budget = network_budget(rows)
    assert budget.batch_size is not None
    steps = budget.epochs * math.ceil(rows / budget.batch_size)
    assert steps >= 2_900 or budget.epochs == 200
    assert 32 <= budget.batch_size <= 256
    assert 20 <= budget.epochs <= 200
    assert 5 <= budget.patience <= budget.epochs // 4
    assert tree_budget(rows).epochs == 300


def _write_tables(folder: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_friedman1(rows, 10, noise=1.0, random_state=0)
    for name, columns in (("bank", range(5)), ("shop", range(5, 10))):
        head = ["id", *(f"c{j}" for j in columns), *(["label"] if name == "bank" else [])]
        lines = [
            [f"k{i:05d}", *map(str, x[i, list(columns)]), *([str(y[i])] if name == "bank" else [])] for i in range(rows)
        ]
        (folder / f"{name}.csv").write_text("\n".join(",".join(line) for line in [head, *lines]) + "\n")
    return x, y


def _draft(folder: Path, rows: int, **options: Any) -> str:
    _write_tables(folder, rows)
    return draft_job([folder / "bank.csv", folder / "shop.csv"], folder, label="label", **options).text


def test_a_draft_has_steps_by_its_rows_and_trees_of_their_own(tmp_path: Path) -> None:
    job = tomllib.loads(_draft(tmp_path, 800))
    assert job["job"] | {"task": ""} == {"epochs": 167, "patience": 20, "batch_size": 32, "task": ""}
    assert job["protection"]["name"] == "bfv"
    trees = tomllib.loads(_draft(tmp_path, 800, algorithm="boosting"))
    assert trees["job"] | {"task": ""} == {"epochs": 300, "patience": 30, "task": ""}
    assert (trees["algorithm"]["name"], trees["protection"]["name"]) == ("boosting", "paillier")
    with pytest.raises(sv.errors.UnknownNameError, match="boosting"):
        _draft(tmp_path, 100, algorithm="bosting")
    assert find_algorithm("splitnn")().fit_budget(560) == network_budget(560)


def test_eight_hundred_rows_are_learned_by_the_drafted_budget(tmp_path: Path) -> None:
    """By 60 steps, the budget of any table before, the network was no better than a straight line."""
    x, y = _write_tables(tmp_path, 800)
    text = draft_job([tmp_path / "bank.csv", tmp_path / "shop.csv"], tmp_path, label="label").text
    (tmp_path / "job.toml").write_text(text.replace('"bfv"', '"plain"'), encoding="utf-8")
    file = sv.read_job(tmp_path / "job.toml")
    result = sv.simulate(file.job, file.parties)
    run = result.run("plain")
    tested = {int(name[1:]) for name in result.test_ids}
    train, test = np.array([i for i in range(800) if i not in tested]), np.array(sorted(tested))
    line = LinearRegression().fit(x[train], y[train])
    assert run.test["rmse"] < 0.75 * np.sqrt(np.mean((line.predict(x[test]) - y[test]) ** 2))
    assert run.stopped.startswith("no gain")
    assert run.warnings == []


def test_three_parties_draft_a_rate_on_shares_for_small_batches(tmp_path: Path) -> None:
    _write_tables(tmp_path, 60)
    (tmp_path / "tele.csv").write_text("id,d\n" + "".join(f"k{i:05d},{i % 7}.5\n" for i in range(60)))
    tables = [tmp_path / f"{name}.csv" for name in ("bank", "shop", "tele")]
    drafted = tomllib.loads(draft_job(tables, tmp_path, label="label").text)
    assert drafted["protection"] == {"name": "shares", "lr": SHARES_RATE}
    trees = tomllib.loads(draft_job(tables, tmp_path, label="label", algorithm="boosting").text)
    assert "protection" not in trees
    two = tomllib.loads(_draft(tmp_path, 100, algorithm="logistic_regression"))
    assert two["protection"] == {"name": "shares", "computing": 2, "lr": SHARES_RATE}
    for shared in (drafted["job"], trees["job"], two["job"]):  # more validations than a job on shares may open
        assert shared["epochs"] > MOST_VALIDATIONS == MOST_METRICS
        assert shared["epochs"] / shared["valid_every"] <= MOST_METRICS
    assert "valid_every" not in tomllib.loads(_draft(tmp_path, 100, algorithm="splitnn"))["job"]


def _train_on_shares(rate: float, epochs: int, size: int) -> tuple[float, float]:
    """Fifteen classes, 560 rows that train, by the steps of shares in floating point: the least log-loss of 240 other
    rows after an epoch, and the largest norm of a layer over its bound."""
    x, y = make_classification(
        800, 20, n_informative=12, n_redundant=4, n_classes=15, n_clusters_per_class=1, class_sep=2.0, random_state=0
    )
    rows = torch.from_numpy((x - x.mean(axis=0)) / x.std(axis=0)).clamp(-5, 5)
    wanted, shape = torch.eye(15, dtype=torch.float64)[y], NetworkShape((10, 10), (), (16,), 15)
    model = SharedReference(shape, OptimiserConstants(rate, 0.9, 0.0), size, 0)
    order, losses, norms = np.random.default_rng(0), [], [0.0]
    layers = [*[one for level in shape.bottom_layers() for one in level], *shape.top_layers()]
    for _ in range(epochs):
        for part in np.array_split(order.permutation(560), -(-560 // size)):
            model.step((rows[part, :10], rows[part, 10:]), wanted[part])
        with torch.no_grad():
            scores = model((rows[560:, :10], rows[560:, 10:])).log_softmax(dim=1)
            losses.append(-float((scores * wanted[560:]).sum(dim=1).mean()))
            found = [float(weight.norm()) for weight in model.weights.values()]
            norms += [norm / layer.max_norm for norm, layer in zip(found, layers, strict=True)]
    return min(losses), max(norms)


def test_fifteen_classes_are_learned_on_shares_by_the_drafted_budget() -> None:
    """At the default rate a drafted budget was worse than the twenty epochs of before, and left the range."""
    budget = network_budget(560)
    assert budget.batch_size == 32
    epochs = 18  # the weights leave the range after thirteen to sixteen
    before, _ = _train_on_shares(0.2, 20, 256)
    drafted, norm = _train_on_shares(SHARES_RATE, epochs, budget.batch_size)
    usual, left = _train_on_shares(0.2, epochs, budget.batch_size)
    assert drafted < before < usual
    assert norm < 1 < left


def test_many_classes_choose_by_log_loss() -> None:
    task = Task(15)
    worse, better = ({"accuracy": 0.6, "log_loss": loss} for loss in (1.2, 1.1))
    assert task.selection_score(better) > task.selection_score(worse)
    assert Task(2).selection_score({"auc": 0.8, "log_loss": 0.5}) == 0.8


def test_training_goes_on_while_the_loss_falls() -> None:
    """Patience of three epochs: the AUC of few rows stays the same, and the log-loss falls in eight epochs."""
    program = ActiveProgram.__new__(ActiveProgram)
    plan = Plan(epochs=100, batch_size=8, patience=3, keep="best")
    books, releases = SimpleNamespace(snapshot=lambda: None), SimpleNamespace(end_of_plan="")
    role: Any = SimpleNamespace(
        task=Task(2),
        plan=plan,
        config=SimpleNamespace(least_epochs=1, chooses_by_loss=False),
        books=books,
        releases=releases,
        site=SimpleNamespace(other_links=[]),
        table=SimpleNamespace(split=SimpleNamespace(valid=np.arange(60))),
    )
    program.role, program.trained, program._valid_scores = role, Trained(), np.empty((0, 0))
    progress = Progress(kept=None)
    losses = [0.70 - 0.01 * min(epoch, 8) for epoch in range(1, 30)]
    for loss in losses:
        progress.epoch += 1
        asyncio.run(program.decide_epoch(progress, {"auc": 0.75, "log_loss": loss}))
        if progress.stop:
            break
    assert progress.epoch == 8 + 3
    assert program.trained.best_epoch == 1
    assert program.trained.stopped == "no gain on validation rows for 3 epochs"


def test_a_best_epoch_that_is_the_last_is_told() -> None:
    people = make_parties(rows=600)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, lr=0.003), protection=sv.Plain(), epochs=2, batch_size=64)
    run = sv.simulate(job, people).run("plain")
    assert run.best_epoch == 2
    (told,) = [warning for warning in run.warnings if "still falling" in warning and "best epoch" in warning]
    assert "the best epoch is the last of 2" in told
    assert "epochs = 8 with patience = 5" in told
    last = sv.simulate(job.replace(keep="last"), people).run("plain")
    assert not any("best epoch" in warning for warning in last.warnings)


@pytest.mark.parametrize(
    ("losses", "best", "planned", "warned"),
    [
        ([0.7, 0.6, 0.5], 3, 3, True),
        ([0.7, 0.6, 0.5], 3, 9, False),  # stopped early
        ([0.7, 0.5, 0.6], 2, 3, False),
        ([0.7, 0.5, 0.6], 3, 3, False),  # the best by AUC; its loss rises
        ([0.7], 1, 1, False),
    ],
)
def test_when_more_epochs_are_asked_for(losses: list[float], best: int, planned: int, warned: bool) -> None:
    epochs = [Epoch(one, {"log_loss": one}) for one in losses]
    assert bool(ended_early(epochs, best, planned)) is warned


def test_a_loss_that_still_falls_is_not_called_divergence() -> None:
    constant = {"log_loss": 0.5}
    falling, rising = ([Epoch(one, {"log_loss": one}) for one in losses] for losses in ((0.9, 0.8), (0.8, 0.9)))
    (told,) = went_nowhere(falling, constant, {}, {})
    assert re.search("still falling: train more epochs", told)
    (told,) = went_nowhere(rising, constant, {}, {})
    assert "diverged or overfitted" in told
