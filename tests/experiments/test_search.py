"""Searches: what chooses, what is pruned, what noise costs over all trials, and going on where one broke off."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from support.own_frames import frames

import securevfl as sv
from securevfl.data.table import TEST, VALID
from securevfl.experiments import pool as pool_module
from securevfl.experiments import search_trial
from securevfl.experiments.privacy_cost import Cost
from securevfl.experiments.search_budget import SearchBudget, total_released
from securevfl.experiments.search_study import make_study, spent_by
from securevfl.experiments.search_trial import with_one_split
from securevfl.privacy.accountant import GaussianRelease, epsilon_rdp

SPACE = {"algorithm.lr": {"low": 1e-5, "high": 0.1, "log": True}, "batch_size": [32, 64]}


@pytest.fixture(scope="module")
def parties() -> sv.Parties:
    return sv.Parties.from_pandas(frames(), id="id", label="good")


@pytest.fixture(scope="module")
def job() -> sv.Job:
    return sv.Job(
        algorithm=sv.SplitNN(hidden=4), protection="plain", epochs=2, batch_size=64, valid=0.2, test=0.2, seed=3
    )


@pytest.fixture(scope="module")
def found(parties: sv.Parties, job: sv.Job) -> sv.Study:
    return sv.search(job, parties, SPACE, trials=5, seeds=2)


def noisy(job: sv.Job, epsilon: float = 4.0) -> sv.Job:
    return job.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=epsilon))), epochs=1)


def test_a_trial_has_the_validation_figure_of_its_job(found: sv.Study, parties: sv.Parties, job: sv.Job) -> None:
    """The winner's value, run as a job of its own with the same split, and its figures on the test rows."""
    assert len(found.search.trials) == 5
    assert found.search.value == max(one.value for one in found.search.trials if one.value is not None)
    assert found.best.job.algorithm.lr == found.best.settings["algorithm.lr"]
    run = sv.simulate(found.best.job, with_one_split(job, parties)[1]).run("plain")
    assert run.epochs[run.best_epoch - 1].valid["auc"] == found.search.value
    assert found.record.cells
    assert found.record.cells[0].test == run.test
    assert [cell.seed for cell in found.record.cells] == [3, 4]
    assert not found.search.spent
    cells = [cell.value for cell in found.record.cells]
    assert f"test auc {np.mean(cells):.4f} ± {np.std(cells, ddof=1):.4f} over 2 seeds" in repr(found)


def test_test_rows_have_no_say(found: sv.Study, parties: sv.Parties, job: sv.Job) -> None:
    """Attack: every label of a test row is turned over. Trials and winner are the same to the last bit; the winner's
    test figures are another's. Turned over on validation rows, they change."""
    _, marked, _ = with_one_split(job, parties)
    bank = marked.active
    assert bank.fold is not None
    assert bank.label is not None

    def turned(part: int) -> sv.Study:
        label = np.where(bank.fold == part, 1 - bank.label, bank.label)
        return sv.search(job, sv.Parties.of(replace(bank, label=label), marked["shop"]), SPACE, trials=5, seeds=2)

    after = turned(TEST)
    assert [(one.settings, one.value) for one in after.search.trials] == [
        (one.settings, one.value) for one in found.search.trials
    ]
    assert (after.best.settings, after.search.value) == (found.best.settings, found.search.value)
    values = [[cell.value for cell in one.record.cells] for one in (found, after)]
    assert values[1] == pytest.approx([1 - value for value in values[0]])
    assert turned(VALID).search.trials != found.search.trials


def test_all_seeds_have_one_split(parties: sv.Parties, job: sv.Job) -> None:
    """The split is that of the job by itself; repeats and the winner's seeds do not draw another."""
    _, marked, _ = with_one_split(job, parties)
    rows = {cut: set(np.flatnonzero(marked.active.fold == cut)) for cut in (VALID, TEST)}
    own = sv.simulate(job.replace(epochs=1), parties)
    assert {marked.active.ids[row] for row in rows[TEST]} == set(own.test_ids)
    again = sv.simulate(job.replace(epochs=1, seed=9), marked)
    assert set(again.test_ids) == set(own.test_ids)
    assert with_one_split(job, marked)[1] is marked


@pytest.mark.parametrize("by", ["group", "time"])
def test_a_split_by_a_column_stays_one(job: sv.Job, by: str) -> None:
    """Groups stay together, and time's order: also for rows of the active party that nobody else holds."""
    own = frames()
    own["bank"][by] = np.arange(len(own["bank"])) // 8
    tables = sv.Parties.from_pandas(own, id="id", label="good", **{by: by})
    asked = job.replace(split_by=by, epochs=1)
    one, marked, aligned = with_one_split(asked, tables)
    fold, values = marked.active.fold, np.arange(len(own["bank"])) // 8
    assert fold is not None
    rows = aligned.parties["bank"].rows
    held = np.isin(fold[rows], (VALID, TEST))
    others = np.setdiff1d(np.flatnonzero(fold == 0), rows)
    if by == "group":
        assert not set(values[rows[held]]) & set(values[rows[~held]])
        assert not set(values[rows[held]]) & set(values[others])
    else:
        assert values[rows[~held]].max() <= values[rows[held]].min()
        assert values[others].max() < values[rows[held]].min()
    assert len(others) > 0
    assert one.split_by == "rows"
    found = sv.search(asked, tables, {"epochs": [1]}, trials=1, seeds=1)
    assert found.best.job.split_by == by


def test_hopeless_trials_are_pruned(parties: sv.Parties, job: sv.Job) -> None:
    """A pruner that ends a trial below 2 ends it after its first epoch, and the run of all parties with it."""
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=2.0))
    with pytest.raises(sv.InputError, match="all were pruned"):
        sv.search(job, parties, SPACE, trials=2, study=study)
    assert [one.state.name for one in study.trials] == ["PRUNED", "PRUNED"]
    assert [one.user_attrs["epochs"] for one in study.trials] == [1, 1]


def test_a_search_goes_on_where_it_broke_off(
    parties: sv.Parties, job: sv.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ran = search_trial.run_parties, []

    def counted(*arguments: Any, **options: Any) -> object:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(search_trial, "run_parties", counted)
    quick = job.replace(epochs=1)
    with pytest.raises(KeyboardInterrupt):
        sv.search(quick, parties, SPACE, trials=3, seeds=1, folder=tmp_path)
    monkeypatch.setattr(search_trial, "run_parties", lambda *a, **o: ran.append(1) or real(*a, **o))
    make_study(0, tmp_path).ask()  # as a process leaves a trial that is killed in it
    one = sv.search(quick, parties, SPACE, trials=3, seeds=1, folder=tmp_path)
    assert (len(ran), len(one.search.trials)) == (3, 3)
    two = sv.search(quick, parties, SPACE, trials=3, seeds=1, folder=tmp_path)
    assert len(ran) == 3
    assert (two.best.settings, two.search.trials) == (one.best.settings, one.search.trials)
    assert two.record.cells == one.record.cells  # did not run again: the seconds are the same
    for other in (quick.replace(epochs=2), quick.replace(algorithm=sv.SplitNN(hidden=5))):
        with pytest.raises(sv.InputError, match="of another search"):
            sv.search(other, parties, SPACE, trials=3, folder=tmp_path)


def test_noise_needs_a_budget_and_stays_in_it(parties: sv.Parties, job: sv.Job, tmp_path: Path) -> None:
    """The releases of all trials are composed, and the plan of the winner added; nothing crosses the budget."""
    space = {"algorithm.lr": SPACE["algorithm.lr"]}
    with pytest.raises(sv.InputError, match="every trial releases the same rows again"):
        sv.search(noisy(job), parties, space, trials=2)
    with pytest.raises(sv.InputError, match="would cross the budget of ε = 7"):
        sv.search(noisy(job), parties, space, trials=2, budget=7.9)
    assert len(sv.search(noisy(job), parties, space, trials=1, budget=8.0).search.trials) == 1
    short = sv.search(noisy(job), parties, space, trials=30, budget=14.0, folder=tmp_path)
    assert 1 < len(short.search.trials) < 30
    assert "would cross the budget of ε = 14" in short.search.stopped
    assert 8.0 < short.search.spent["features"].epsilon <= 14.0
    releases = [run["shop"] for one in short.search.study.trials for run in one.user_attrs.get("released", ())]
    assert len(releases) == len(short.search.trials)
    every = [GaussianRelease(one["sigma"], one["times"], one["rate"]) for run in releases for one in run]
    assert short.search.spent["features"].epsilon == pytest.approx(epsilon_rdp(every, 1e-5) + 4.0)
    with pytest.raises(sv.InputError, match="winner's 2 runs would cross"):
        sv.search(noisy(job), parties, space, trials=len(short.search.trials), seeds=3, budget=14.0, folder=tmp_path)


def test_a_winner_s_run_that_broke_off_or_was_deleted_counts_when_it_runs_again(
    parties: sv.Parties, job: sv.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It released its noise, and releases it again."""
    space, real, ran = {"algorithm.lr": SPACE["algorithm.lr"]}, pool_module.run_cell, []

    def killed(*arguments: Any) -> object:
        ran.append(real(*arguments))
        raise KeyboardInterrupt

    def searched(budget: float) -> sv.Study:
        return sv.search(noisy(job), parties, space, trials=1, budget=budget, folder=tmp_path)

    monkeypatch.setattr(pool_module, "run_cell", killed)
    with pytest.raises(KeyboardInterrupt):
        searched(8.0)
    monkeypatch.setattr(pool_module, "run_cell", lambda *a: ran.append(1) or real(*a))
    with pytest.raises(sv.InputError, match="winner's 1 runs would cross the budget of ε = 8"):
        searched(8.0)
    assert len(ran) == 1
    assert searched(12.0).search.spent["features"].epsilon == pytest.approx(12.0, abs=0.5)
    assert searched(8.0).record.cells  # it ended: nothing runs, nothing is spent
    assert len(ran) == 2
    shutil.rmtree(tmp_path / "winner")
    with pytest.raises(sv.InputError, match="would cross the budget of ε = 12"):
        searched(12.0)
    assert len(ran) == 2


def test_what_broke_off_counts_as_planned() -> None:
    """A pruned trial may have released all that it planned; composing less would call a search cheaper than it was."""
    gone = total_released([], [{"features": Cost(4.0, 1e-5)}] * 2)
    assert gone["features"] == Cost(8.0, 2e-5)
    one = {"shop": [{"sigma": 2.0, "rate": 1.0, "times": 3, "protects": ["features"], "delta": 1e-5}]}
    alone = total_released([one], [])["features"].epsilon
    both = total_released([one, one], [])["features"].epsilon
    assert alone < both < 2 * alone  # the accountant composes
    other = {"bank": [{"epsilon": 1.0, "classes": 2, "times": 1, "protects": ["labels"], "delta": 1e-5}]}
    assert total_released([one, other], [])["features"].epsilon == alone
    assert SearchBudget(math.inf).allows({}, [{"features": Cost(math.inf, 1e-5)}])
    with pytest.raises(sv.InputError, match="positive ε"):
        SearchBudget(0.0)


def test_a_pruned_trial_with_noise_is_paid_for(parties: sv.Parties, job: sv.Job) -> None:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=2.0))
    with pytest.raises(sv.InputError, match="all were pruned"):
        sv.search(noisy(job), parties, {"batch_size": [32]}, trials=2, budget=100.0, study=study)
    assert spent_by(study)["features"] == Cost(8.0, 2e-5)


def test_spaces_of_all_kinds(parties: sv.Parties, job: sv.Job) -> None:
    small = job.replace(epochs=1)
    space = {
        "algorithm": {"net": sv.SplitNN(hidden=3), "trees": sv.Boosting(depth=2)},
        "epochs": IntDistribution(1, 2),
        "clip": FloatDistribution(3.0, 5.0, step=1.0),
        "scale": CategoricalDistribution(["standard", "robust"]),
    }
    found = sv.search(small, parties, space, trials=3, seeds=0)
    assert not found.record.cells
    assert found.best.job.algorithm == space["algorithm"][found.search.study.best_params["algorithm"]]  # type: ignore[index]
    assert found.best.job.clip in (3.0, 4.0, 5.0)

    def depends(trial: optuna.Trial) -> dict[str, object]:
        if trial.suggest_categorical("kind", ["net", "trees"]) == "net":
            return {"algorithm": "splitnn", "algorithm.hidden": trial.suggest_int("hidden", 2, 4)}
        return {"algorithm": "boosting", "algorithm.depth": trial.suggest_int("depth", 2, 3)}

    chosen = sv.search(small, parties, depends, trials=3, repeats=2, seeds=1)
    assert chosen.best.job.algorithm.name == chosen.best.settings["algorithm"]
    frame = chosen.to_pandas("trials")
    assert list(frame.columns[:3]) == ["state", "auc valid", "epochs run"]
    assert "best so far" in [line.get_label() for line in chosen.plot().lines]
    assert "complete" in chosen.table()
    assert "on validation rows" in repr(chosen)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({}, "names no setting"),
        ({"algorithm.lrr": [1]}, "did you mean 'lr'"),
        ({"epochs": {"low": 0, "high": 4}}, "epochs is 0"),
        ({"epochs": {"low": 4, "high": 1}}, "from 4 to 1; give the lower end first"),
        ({"job.epochs": [1, 2]}, r"those of \[job\] are named without it, as 'epochs'"),
        ({"algorithm.lr": {"low": 0.1, "high": math.nan}}, "two numbers"),
        ({"algorithm.lr": {"low": 0.0, "high": 0.1, "log": True}}, "algorithm.lr"),
        ({"epochs": []}, "at least one"),
        ({"epochs": [1, 1]}, "different choices"),
        ({"epochs": 3}, "a list of choices"),
        ({"test": [0.1, 0.2]}, "all trials have the same test"),
        ({"seed": [1, 2]}, "seed"),
        ({"algorithm": ["splitnn"], "algorithm.lr": [0.1]}, "give a function"),
        (lambda trial: None, "the function of the trial returned None"),
    ],
)
def test_mistakes_in_a_space_are_told(parties: sv.Parties, job: sv.Job, space: Any, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.search(job, parties, space, trials=1, seeds=0)


def test_what_cannot_be_searched_is_refused(
    parties: sv.Parties, job: sv.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options, words in (
        ({"trials": 0}, "trials is 0"),
        ({"repeats": True}, "repeats is True"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"budget": -1.0}, "budget is -1"),
        ({"study": optuna.create_study(direction="minimize")}, "does not maximise"),
        ({"study": optuna.create_study(direction="maximize"), "folder": tmp_path}, "both given"),
    ):
        with pytest.raises(sv.InputError, match=words):
            sv.search(job, parties, SPACE, **options)
    with pytest.raises(sv.InputError, match="leave fold out"):
        sv.search(job.replace(fold=(1, 3)), parties, SPACE)
    with pytest.raises(sv.InputError, match="'shop' refuses"):
        sv.search(job.replace(policies={"shop": sv.Policy(sealed=True)}), parties, SPACE)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(sv.InputError, match=r"pip install 'securevfl\[optuna\]'"):
        sv.search(job, parties, SPACE)
