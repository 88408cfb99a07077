"""Searches on a pool: the trials of one worker, what several share, and what a lost or noisy trial may do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import optuna
import pytest
from securevfl_crypto.errors import WorkerLost
from securevfl_crypto.pools import LocalPool
from support.own_frames import frames

import securevfl as sv
from securevfl.experiments import search_loop
from securevfl.experiments.pool import Workers
from securevfl.experiments.search_budget import SearchBudget
from securevfl.experiments.search_loop import run_trials
from securevfl.experiments.search_pool import _OnPool, _Order, check_pruner, trial_task
from securevfl.experiments.search_study import make_study, spent_by
from securevfl.experiments.search_trial import Outcome, SearchRequest, with_one_split
from securevfl.experiments.table_store import store_tables
from securevfl.run.roster import Roster
from securevfl.run.simulation import Aligned

SPACE = {"algorithm.lr": {"low": 1e-5, "high": 0.1, "log": True}, "batch_size": [32, 64]}
RELEASE = {"sigma": 2.0, "rate": 1.0, "times": 1, "protects": ["features"], "delta": 1e-5}


@pytest.fixture(scope="module")
def parties() -> sv.Parties:
    return sv.Parties.from_pandas(frames(), id="id", label="good")


@pytest.fixture(scope="module")
def job() -> sv.Job:
    return sv.Job(
        algorithm=sv.SplitNN(hidden=4), protection="plain", epochs=2, batch_size=64, valid=0.2, test=0.2, seed=3
    )


@pytest.fixture(scope="module")
def alone(parties: sv.Parties, job: sv.Job) -> sv.Study:
    return sv.search(job, parties, SPACE, trials=12, seeds=1)


def test_one_worker_makes_the_trials_of_this_process(
    alone: sv.Study, parties: sv.Parties, job: sv.Job, tmp_path: Path
) -> None:
    """To the last bit, with those that the sampler suggested from others, and those that were pruned."""
    found = sv.search(job, parties, SPACE, trials=12, seeds=1, pool="process:1")
    assert found.search.trials == alone.search.trials
    assert {one.state for one in found.search.trials} == {"complete", "pruned"}
    assert (found.best.settings, found.search.value) == (alone.best.settings, alone.search.value)
    assert found.record.cells[0].test == alone.record.cells[0].test
    assert found.search.study.best_value == found.search.value  # its journal's folder is gone
    assert len(found.plot().lines) > 0


def test_two_workers_share_a_search(alone: sv.Study, parties: sv.Parties, job: sv.Job, tmp_path: Path) -> None:
    """The first ten are drawn by the seed alone, whoever ends first; nothing of the tables is left."""
    found = sv.search(job, parties, SPACE, trials=4, seeds=0, workers=2, folder=tmp_path)
    assert [(one.settings, one.value) for one in found.search.trials] == [
        (one.settings, one.value) for one in alone.search.trials[:4]
    ]
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["study.log"]
    more = sv.search(job, parties, SPACE, trials=5, seeds=0, folder=tmp_path)  # goes on here
    assert more.search.trials[:4] == found.search.trials


def test_what_a_pool_cannot_do_is_refused(parties: sv.Parties, job: sv.Job) -> None:
    for options, words in (
        ({"pool": "cloud"}, "unknown pool 'cloud'"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": 5000}, "process:5000"),
        ({"workers": 2, "study": optuna.create_study(direction="maximize")}, "NopPruner"),
    ):
        with pytest.raises(sv.InputError, match=words):
            sv.search(job, parties, SPACE, trials=1, **options)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_task_is_the_trial_in_plain_values(parties: sv.Parties, job: sv.Job, tmp_path: Path, noisy: bool) -> None:
    """A trial with noise runs once: a second worker would release the same rows again."""
    one, marked, _ = with_one_split(job.replace(epochs=1), parties)
    one = one.replace(
        protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4.0))) if noisy else "plain",
        policies={"shop": sv.Policy(min_intersection=10)},
    )
    assert sv.Job.from_values(one.describe()) == one
    order = msgspec.msgpack.encode(_Order(number=7, job=one.describe(), metric="auc", repeats=2, tables="", once=noisy))
    with pytest.raises(sv.InputError, match="a worker does not see"):
        trial_task(order, str(tmp_path / "tables.safetensors"), "")
    store_tables(marked, tmp_path / "tables.safetensors")
    found = msgspec.msgpack.decode(trial_task(order, str(tmp_path / "tables.safetensors"), ""), type=Outcome)
    assert len(found.values) == 2
    assert [epoch for epoch, _ in found.epochs] == [1]
    assert [list(run) for run in found.released] == ([["shop"]] * 2 if noisy else [[], []])
    if noisy:
        with pytest.raises(sv.InputError, match="trial 7 was begun by a worker that was lost"):
            trial_task(order, str(tmp_path / "tables.safetensors"), "")
    else:
        assert (
            msgspec.msgpack.decode(trial_task(order, str(tmp_path / "tables.safetensors"), ""), type=Outcome) == found
        )


def test_a_study_of_ones_own_hears_epochs_in_the_end(parties: sv.Parties, job: sv.Job, tmp_path: Path) -> None:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    check_pruner(study)
    one, marked, aligned = with_one_split(job, parties)
    runs = _OnPool(Workers(LocalPool()), asked_of(one, marked, aligned), None)
    ended: Future[bytes] = Future()
    ended.set_result(msgspec.msgpack.encode(Outcome([0.5], [{}], [(1, 0.4), (2, 0.5)], pruned=False)))
    assert runs.read_outcome(study.ask(), ended).values == [0.5]
    assert study.trials[0].intermediate_values == {1: 0.4, 2: 0.5}


def asked_of(job: sv.Job, parties: sv.Parties, aligned: Aligned, budget: float | None = None) -> SearchRequest:
    return SearchRequest(
        job=job,
        parties=parties,
        aligned=aligned,
        roster=Roster(owners=("bank",), passive=("shop",)),
        metric="auc",
        space={"epochs": [1, 2]},
        repeats=1,
        budget=SearchBudget(budget),
    )


class Played:
    """Runs that end as they are told to: trial → its value, or what ended it."""

    def __init__(self, places: int, end: Callable[[int], Any]) -> None:
        self.slots, self._end = places, end
        self.going: set[int] = set()
        self.most = 0

    def start_trial(self, trial: optuna.Trial, job: sv.Job, noisy: bool) -> Future[Any]:
        self.going.add(trial.number)
        self.most = max(self.most, len(self.going))
        return Future()

    def read_outcome(self, trial: optuna.Trial, ended: Future[Any]) -> Outcome:
        self.going.remove(trial.number)
        found = self._end(trial.number)
        if isinstance(found, BaseException):
            raise found
        return Outcome([found], [{"shop": [RELEASE]}], [], pruned=False)


@pytest.fixture
def loop(parties: sv.Parties, job: sv.Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A search whose trials are played: the one that began last ends first."""
    monkeypatch.setattr(search_loop, "wait", lambda going, return_when: ({list(going)[-1]}, set()))

    def play(runs: Played, trials: int, budget: float | None = None) -> tuple[str, optuna.Study]:
        dp = None if budget is None else sv.DP(features=sv.Gaussian(epsilon=4.0))
        one, marked, aligned = with_one_split(job.replace(protection=sv.Plain(dp=dp)), parties)
        asked = asked_of(one, marked, aligned, budget)
        loop_study.append(study := make_study(0, None))
        return run_trials(study, asked, trials, 0, runs), study

    loop_study: list[optuna.Study] = []
    play.studies = loop_study  # type: ignore[attr-defined]
    return play


def states(study: optuna.Study) -> list[str]:
    return [one.state.name for one in study.trials]


def test_places_are_filled_and_no_trial_too_many_runs(loop: Callable[..., Any]) -> None:
    runs = Played(3, lambda number: number / 10)
    stopped, study = loop(runs, 7)
    assert (stopped, runs.most, runs.going) == ("", 3, set())
    assert [one.value for one in study.trials] == [number / 10 for number in range(7)]


def test_first_failures_wait_for_those_beside_them(loop: Callable[..., Any]) -> None:
    """Of three first trials two fail: none is begun until the third has a value. Where it fails, too, that is all."""
    runs = Played(3, lambda number: 0.5 if number in (0, 3) else WorkerLost(f"lost {number}"))
    _, study = loop(runs, 5)
    assert states(study) == ["COMPLETE", "FAIL", "FAIL", "COMPLETE", "FAIL"]
    assert study.trials[2].user_attrs["error"] == "lost 2"
    with pytest.raises(sv.SecureVFLError, match="lost 2"):
        loop(Played(3, lambda number: WorkerLost(f"lost {number}")), 5)
    assert states(loop.studies[-1]) == ["FAIL"] * 3  # type: ignore[attr-defined]


def test_a_budget_counts_trials_that_are_under_way(loop: Callable[..., Any]) -> None:
    """Nine fit only as they end: while four are under way with ε = 4 each, a fifth would cross 17. At no time is more
    planned than there is, and the search gets as far as one worker does."""
    spent = []

    def end(number: int) -> float:
        spent.append(spent_by(loop.studies[-1])["features"].epsilon)  # type: ignore[attr-defined]
        return 0.5

    one, many = Played(1, end), Played(8, end)
    stopped, study = loop(one, 30, 17.0)
    also, other = loop(many, 30, 17.0)
    assert many.most == 4
    assert "would cross the budget of ε = 17" in stopped == also
    assert len(states(other)) == len(states(study)) > 5
    assert max(spent) <= 17.0
    with pytest.raises(sv.InputError, match="would cross the budget of ε = 3"):
        loop(Played(8, end), 30, 3.0)


def test_an_interrupt_leaves_no_trial_under_way(loop: Callable[..., Any]) -> None:
    """Those that were under way count as planned, and run again."""
    with pytest.raises(KeyboardInterrupt):
        loop(Played(3, lambda number: KeyboardInterrupt()), 5, 100.0)
    study = loop.studies[-1]  # type: ignore[attr-defined]
    assert states(study) == ["FAIL"] * 3
    assert spent_by(study)["features"].epsilon == pytest.approx(12.0)
    assert not [one for one in study.trials if "error" in one.user_attrs]
