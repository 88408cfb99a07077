"""``algorithm = "auto"``: candidates train on the same rows, validation rows choose, and what that costs is counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms import AutoAlgorithm
from securevfl.experiments import choosing
from securevfl.experiments.choosing import find_candidates
from securevfl.party import undecided_choice, with_default_protection
from securevfl.party.candidates import divide_budget, expand_candidates
from securevfl.report import render_report, render_text
from securevfl.report.choice import choice_sentence, choice_table, explain_choice
from securevfl.report.record import ChoiceRecord
from securevfl.testing.company import create_company

PEOPLE = make_parties(passive=1, rows=160)
PASSIVE = PEOPLE.passive[0].name
AUTO = AutoAlgorithm(methods=("splitnn", "boosting", "logistic_regression"), trees=2)
JOB = sv.Job(algorithm=AUTO, protection=sv.Plain(), epochs=2, patience=1, batch_size=64)


def test_validation_rows_choose_and_only_that_model_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = sv.simulate(JOB, PEOPLE, checkpoints=kept, baselines=("alone_boosted",))
    choice = result.record.choice
    assert choice is not None
    valid = {one.key: one.valid for one in choice.candidates}
    assert set(valid) == set(AUTO.methods)
    for key, value in valid.items():
        run = result.run(key)
        assert value == run.epochs[run.best_epoch - 1].valid["auc"]
        assert run.learned
    assert choice.chosen == max(valid, key=lambda key: valid[key] or 0.0)
    assert [run.key for run in result.record.runs[:2]] == ["alone_boosted", choice.chosen]
    assert list(result.models) == [choice.chosen]
    assert set(result.scores) == {"alone_boosted", choice.chosen}
    assert [path.name for path in kept.iterdir()] == [choice.chosen]
    assert set(result.ledgers) > set(AUTO.methods)
    assert all(one.seconds > 0 and one.bytes > 0 for one in choice.candidates)
    page = render_report(result.record)
    assert "Which algorithm was chosen, and why" in page
    assert choice_sentence(result.record).startswith("chosen: ")
    table = choice_table(result.record)
    assert table is not None
    assert "chosen" in render_text(table)
    folder = result.model().save(tmp_path / "model")
    loaded = sv.Model.load(folder, JOB)
    assert loaded.job.algorithm.name == choice.chosen
    assert np.array_equal(sv.predict(loaded, PEOPLE).probabilities, sv.predict(result.model(), PEOPLE).probabilities)


def test_a_candidate_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def diverge(self: object, rows: np.ndarray) -> float:
        raise sv.RangeError("the loss of epoch 1 is nan")

    monkeypatch.setattr("securevfl.algorithms.splitnn.roles.Active.train_batch", diverge)
    job = JOB.replace(algorithm=AUTO.replace(methods=("splitnn", "boosting")))
    result = sv.simulate(job, PEOPLE)
    choice = result.record.choice
    assert choice is not None
    assert choice.chosen == "boosting"
    assert [one.why for one in choice.candidates] == ["", "the loss of epoch 1 is nan"]
    assert {ledger.party for ledger in result.ledgers["splitnn"].values()} == set(PEOPLE)
    with pytest.raises(sv.RangeError, match="nan"):
        sv.simulate(JOB.replace(algorithm=AUTO.replace(methods=("splitnn",))), PEOPLE)


def test_candidates_follow_from_the_protection() -> None:
    def tried(job: sv.Job, passive: int) -> set[str]:
        names = [f"shop{k}" for k in range(passive)]
        return set(expand_candidates(with_default_protection(job, ["bank"], names)).jobs)

    auto = sv.Job(algorithm="auto")
    assert tried(auto, 1) == {"logistic_regression", "scorecard"}
    assert tried(auto, 2) == {"splitnn", "boosting"}  # the additive model's sums would be read
    assert tried(auto.replace(protection=sv.Plain()), 2) == {"splitnn", "additive", "boosting"}
    assert tried(auto.replace(protection=sv.BFV()), 1) == {"splitnn"}
    assert tried(auto.replace(task="regression"), 1) == {"logistic_regression"}
    left = expand_candidates(auto.replace(protection=sv.BFV())).left_out
    assert "scores no validation rows" in left["additive"]
    assert "Paillier" in left["boosting"]
    trees = expand_candidates(JOB.replace(algorithm=AUTO.replace(trees=70))).jobs["boosting"]
    assert (trees.epochs, trees.patience) == (70, 7)


def test_candidates_share_the_budget_of_noise() -> None:
    noisy = JOB.replace(
        algorithm=AUTO.replace(methods=("splitnn", "logistic_regression")),
        protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4.0, delta=1e-5))),
    )
    jobs = find_candidates(noisy, PEOPLE).jobs
    noises = [job.protection.dp.features for job in jobs.values() if job.protection.dp is not None]
    assert [(noise.epsilon, noise.delta) for noise in noises if noise is not None] == [(2.0, 5e-6)] * 2
    fixed = noisy.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(noise_multiplier=1.0, delta=1e-5))))
    with pytest.raises(sv.InputError, match="give epsilon"):
        divide_budget(fixed, 2)
    strict = noisy.replace(policies={PASSIVE: sv.Policy(max_epsilon=3.0)})
    with pytest.raises(
        sv.InputError, match=r"nothing can be tried:\s+splitnn: .shop.* refuses it: .*the policy allows 3"
    ):
        find_candidates(strict, PEOPLE)


def test_candidates_that_do_not_fit_into_a_bound_of_numbers_are_not_tried() -> None:
    price = {"splitnn": 32, "logistic_regression": 2}
    job = JOB.replace(algorithm=AUTO.replace(methods=("splitnn", "logistic_regression")))

    def find(bound: int) -> tuple[set[str], Mapping[str, str]]:
        found = find_candidates(job.replace(policies={PASSIVE: sv.Policy(max_results=bound)}), PEOPLE)
        return set(found.jobs), found.left_out

    counted = {name: choosing.planned_numbers(one, PASSIVE, 2) for name, one in expand_candidates(job).jobs.items()}
    assert counted == price
    assert find(34)[0] == {"splitnn", "logistic_regression"}
    tried, left = find(33)
    assert tried == {"splitnn"}
    assert "it opens 2 numbers" in left["logistic_regression"]
    assert "32 go to the candidates before it" in left["logistic_regression"]
    assert find(31)[0] == {"logistic_regression"}


def test_a_choice_is_refused_where_one_algorithm_is_needed(tmp_path: Path) -> None:
    with pytest.raises(sv.InputError, match="an agreement names the candidates, two or more"):
        create_company(tmp_path, PEOPLE, JOB.replace(algorithm="auto"))
    (why,) = undecided_choice(AUTO, "a comparison is of")
    assert "securevfl run" in why
    assert not undecided_choice(sv.SplitNN(), "a comparison is of")
    with pytest.raises(sv.InputError, match="a comparison is of one algorithm"):
        sv.compare({"a": JOB}, PEOPLE)
    hidden = sv.Job(algorithm="auto", protection=sv.Shares(metrics="none", computing=2), keep="last")
    with pytest.raises(sv.InputError, match="metrics = 'rounded'"):
        sv.simulate(hidden, PEOPLE)
    with pytest.raises(sv.InputError, match=r"auto\.methods has 'bosting'"):
        AutoAlgorithm(methods=("bosting",))
    assert sv.Job(algorithm="auto").algorithm == AutoAlgorithm()


def test_the_reason_says_whether_chance_would_do() -> None:
    choice = ChoiceRecord(metric="auc", chosen="a", rows=90, candidates=[], margin=0.02, half=0.01)
    rows = [
        choosing.CandidateRecord(key="a", title="A", valid=0.8, chosen=True),
        choosing.CandidateRecord(key="b", title="B", valid=0.78),
    ]
    sure = explain_choice(msgspec.structs.replace(choice, candidates=rows))
    assert "beyond chance" in sure
    assert "within chance" in explain_choice(msgspec.structs.replace(choice, candidates=rows, half=0.03))
    assert "no interval" in explain_choice(msgspec.structs.replace(choice, candidates=rows, half=None))
    assert "nothing else" in explain_choice(msgspec.structs.replace(choice, candidates=rows[:1]))
