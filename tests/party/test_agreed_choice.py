"""``algorithm = "auto"`` under an agreement: each party runs the candidates one after the other, and keeps what the
active party chose."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms import AutoAlgorithm
from securevfl.errors import MachineFault, PolicyError, ProtocolError
from securevfl.party import planned_numbers, run_party
from securevfl.party.candidate_keeper import ScopedJournal
from securevfl.party.candidates import agreed_candidates, candidate_ends, describe_unfit_choice
from securevfl.party.planning import plan_epsilon
from securevfl.party_context import Keeper, PartyContext, PartySecret
from securevfl.privacy import Journal, Link
from securevfl.run.checkpoint import FolderKeeper
from securevfl.run.simulated_parties import Simulated
from securevfl.training import Trained
from securevfl.transport import Kind

ROUNDED = sv.Shares(metrics="rounded", few_rows=True, useful="off")
PEOPLE = make_parties(passive=1, rows=160)
PASSIVE = PEOPLE.passive[0].name
AUTO = AutoAlgorithm(methods=("boosting", "splitnn", "logistic_regression"), trees=2)
JOB = sv.Job(algorithm=AUTO, protection=sv.Plain(), epochs=2, batch_size=64)
SECRETS = {name: PartySecret.from_seed(5, name) for name in PEOPLE}


def run_all(job: sv.Job, people: sv.Parties = PEOPLE, **options: Any) -> tuple[dict[str, Trained], Any]:
    async def program(site: PartyContext, table: Any) -> Trained:
        return await run_party(site, table, job)

    return Simulated(job=job, parties=people, run="auto", **options).run_program(program)


def crossed(sites: Any, party: str) -> list[str]:
    return [entry.what for entry in sites[party].ledger.entries]


def test_validation_rows_choose_and_only_the_kept_candidate_is_tested() -> None:
    found, sites = run_all(JOB)
    choice = found["bank"].choice
    assert choice is not None
    assert set(choice.tried) == set(AUTO.methods)
    valid = {name: one.valid or 0.0 for name, one in choice.tried.items()}
    assert choice.metric == "auc"
    assert choice.kept == max(valid, key=lambda name: valid[name]) == next(iter(choice.tried))
    told = found[PASSIVE].choice
    assert told is not None
    assert (told.kept, told.metric) == (choice.kept, "")
    assert {one.valid for one in told.tried.values()} == {None}
    assert len(found["bank"].scores) == len(found["bank"].split.test)
    # one alignment, one word of the choice; and test rows of one candidate alone
    steps = crossed(sites, PASSIVE)
    assert steps.count("train/kept") == 1
    assert steps.count("psi/hello") == crossed(run_all(JOB.replace(algorithm=sv.SplitNN()))[1], PASSIVE).count(
        "psi/hello"
    )
    after = steps[steps.index("train/kept") + 1 :]
    alone = agreed_candidates(JOB)[choice.kept]
    assert alone.algorithm.name == choice.kept
    assert "train/epoch" not in after
    assert len(after) < steps.index("train/kept") / 4


@pytest.mark.parametrize(
    ("protection", "methods", "passive"),
    [
        (sv.BFV(), ("logistic_regression", "splitnn"), 1),
        (ROUNDED, ("additive", "boosting"), 2),
        (
            sv.Shares(computing=2, metrics="rounded", few_rows=True, useful="off"),
            ("logistic_regression", "scorecard"),
            1,
        ),
    ],
    ids=["BFV", "shares of three", "shares of two"],
)
def test_candidates_train_under_protection(protection: Any, methods: tuple[str, ...], passive: int) -> None:
    job = JOB.replace(algorithm=AUTO.replace(methods=methods, trees=1), protection=protection, epochs=1)
    people = make_parties(passive=passive, rows=120)
    found, _ = run_all(job, people)
    choices = {name: one.choice.kept for name, one in found.items() if one.choice is not None}
    assert set(choices) == set(people)
    assert len(set(choices.values())) == 1
    assert found["bank"].test
    assert all(one.model for one in found.values())


def test_the_budget_is_that_of_all_candidates_together() -> None:
    private = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4.0, delta=1e-5)))
    job = JOB.replace(algorithm=AUTO.replace(methods=("splitnn", "logistic_regression")), protection=private)
    assert [one.protection.dp.features.epsilon for one in agreed_candidates(job).values()] == [2.0, 2.0]
    planned = plan_epsilon(job, mine=False, passive=1)
    assert (planned.epsilon, planned.delta) == (4.0, pytest.approx(1e-5))
    found, sites = run_all(job)
    spent = [one for one in found[PASSIVE].spent if one.what == "activations"]
    assert len(spent) == 2
    # each of the two kept its part, the one that was not tested too, and the ledger has both
    assert all(1.0 < one.epsilon_rdp <= 2.001 for one in spent)
    notes = [line.values for line in sites[PASSIVE].ledger.iter_lines() if getattr(line, "note", "") == "epsilon"]
    assert len(notes) == 2
    strict = job.replace(policies={PASSIVE: sv.Policy(max_epsilon=3.0, max_delta=1e-4)})
    with pytest.raises(PolicyError, match="ε = 4; the policy allows 3"):
        run_all(strict)
    plain = job.replace(protection=sv.Plain())
    each = [planned_numbers(one, PASSIVE, 2) or 0 for one in agreed_candidates(plain).values()]
    assert planned_numbers(plain, PASSIVE, 2) == sum(each) == 34
    with pytest.raises(PolicyError, match="max_results"):
        run_all(plain.replace(policies={PASSIVE: sv.Policy(max_results=33)}))


def test_a_table_that_a_candidate_is_not_for_is_refused_before_anything_is_sent() -> None:
    weighed = replace(PEOPLE["bank"], weight=np.linspace(0.5, 2, PEOPLE["bank"].rows))
    people = sv.Parties.of(weighed, PEOPLE[PASSIVE])
    job = JOB.replace(algorithm=AUTO.replace(methods=("splitnn", "additive")))
    with pytest.raises(sv.InputError, match=r"'additive' cannot be tried: .* counts all rows alike"):
        run_all(job, people)
    job = JOB.replace(algorithm=AUTO.replace(methods=("splitnn", "scorecard")))
    with pytest.raises(sv.InputError, match="'scorecard' cannot be tried: scorecard is for 2 classes; the label of"):
        run_all(job, make_parties(passive=1, rows=60, classes=3))


class Stops(sv.Observer):
    """Fails in an epoch of a candidate."""

    def __init__(self, candidate: str, epoch: int) -> None:
        self._waits_for, self._epoch, self._armed = candidate, epoch, False

    def phase(self, name: str) -> None:
        self._armed = name == f"candidate {self._waits_for}" or (self._armed and not name.startswith("candidate"))

    def step(self, epoch: int, done: int, total: int) -> None:
        if self._armed and epoch == self._epoch:
            raise MachineFault("stopped by the test")


def _keepers(folder: Path, job: sv.Job, attempt: int) -> dict[str, FolderKeeper]:
    """As parties that begin an attempt together: from the last epoch that all of them have."""
    found = {name: FolderKeeper(folder, name, job.digest, ends=candidate_ends(job)) for name in PEOPLE}
    common = set.intersection(*(set(one.find_intact()) for one in found.values()))
    for one in found.values():
        one.resume_from(attempt, max(common, default=None))
    return found


@pytest.mark.parametrize(("candidate", "epoch"), [("boosting", 2), ("splitnn", 1), ("logistic_regression", 2)])
def test_an_attempt_resumes_in_the_middle_of_a_candidate(candidate: str, epoch: int, tmp_path: Path) -> None:
    whole, _ = run_all(JOB, secrets=SECRETS)
    with pytest.raises(MachineFault, match="stopped"):
        run_all(JOB, secrets=SECRETS, keepers=_keepers(tmp_path, JOB, 1), observer=Stops(candidate, epoch))
    again = _keepers(tmp_path, JOB, 2)
    done = list(AUTO.methods).index(candidate)
    assert again["bank"].start == (2 * done + epoch - 1 or None)
    found, sites = run_all(JOB, secrets=SECRETS, keepers=again)
    assert found["bank"].choice is not None
    assert whole["bank"].choice is not None
    assert found["bank"].choice.kept == whole["bank"].choice.kept
    assert {name: one.valid for name, one in found["bank"].choice.tried.items()} == {
        name: one.valid for name, one in whole["bank"].choice.tried.items()
    }
    assert np.array_equal(found["bank"].scores, whole["bank"].scores)
    # epochs that were over were not trained again
    assert crossed(sites, PASSIVE).count("train/epoch") == 2 * len(AUTO.methods) - (2 * done + epoch - 1)


@pytest.mark.parametrize(
    ("limit", "resumes", "refused"),
    [(6.0, 3, ""), (5.0, 2, r"the policy allows 2\.07"), (4.0, 1, "the policy allows 2:")],
)
def test_interrupted_attempts_of_all_candidates_stay_within_one_limit(
    limit: float, resumes: int, refused: str, tmp_path: Path
) -> None:
    """Each of two candidates plans ε = 2, and releases a row twice where an attempt broke off: 2.9."""
    private = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4.0, delta=1e-5)))
    methods = ("splitnn", "logistic_regression")
    job = JOB.replace(
        algorithm=AUTO.replace(methods=methods),
        protection=private,
        policies={PASSIVE: sv.Policy(max_epsilon=limit, max_delta=1e-4)},
    )
    for attempt, stopped in enumerate((*methods, ""), 1):
        if attempt > resumes:
            with pytest.raises(PolicyError, match=refused):
                run_all(job, secrets=SECRETS, keepers=_keepers(tmp_path, job, attempt))
            return
        if stopped:
            with pytest.raises(MachineFault, match="stopped"):
                run_all(job, secrets=SECRETS, keepers=_keepers(tmp_path, job, attempt), observer=Stops(stopped, 1))
    found, _ = run_all(job, secrets=SECRETS, keepers=_keepers(tmp_path, job, 3))
    assert sum(one.epsilon_rdp for one in found[PASSIVE].spent) <= limit


def test_releases_of_candidates_do_not_count_as_repetitions_of_each_other() -> None:
    outer = Journal()
    one, other = ScopedJournal(outer, "one", 0), ScopedJournal(outer, "other", 0)
    for journal in (one, other):
        journal.begin_attempt(3)
        assert journal.max_releases("opened predictions", 0) == 0
        journal.reserve_releases(0, "opened predictions", 1, 1)
    assert one.max_releases("opened predictions", 0) == other.max_releases("opened predictions", 0) == 1
    one.close_epoch(1, "0 activations", np.array([2, 0]))
    outer.attempt += 1
    assert one.earlier_counts("0 activations", 2, 0).lost.tolist() == [2, 0]
    assert other.earlier_counts("0 activations", 2, 0).lost.tolist() == [0, 0]


@pytest.mark.parametrize("told", ["attention", ["splitnn"], None])
def test_a_passive_party_keeps_nothing_that_was_not_agreed(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Link.send

    async def lie(self: Link, kind: Kind, what: str, **content: Any) -> None:
        await send(self, kind, what, **content | ({"meta": {"kept": told}} if what == "train/kept" else {}))

    monkeypatch.setattr(Link, "send", lie)
    with pytest.raises(ProtocolError, match=rf"keeps {re.escape(repr(told))}, and the agreement names splitnn, log"):
        run_all(JOB.replace(algorithm=AUTO.replace(methods=("splitnn", "logistic_regression")), epochs=1))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"algorithm": AutoAlgorithm()}, "names the candidates, two or more"),
        ({"algorithm": AUTO.replace(methods=("boosting",))}, "names the candidates, two or more"),
        ({"protection": sv.Shares()}, "set metrics = 'rounded'"),
        ({"protection": sv.BFV()}, "'boosting' cannot be tried"),
        (
            {"protection": sv.Plain(dp=sv.DP(features=sv.Gaussian(noise_multiplier=1.0, delta=1e-5)))},
            "give epsilon, which they share",
        ),
        ({"algorithm": AUTO.replace(methods=("splitnn", "risa"))}, "all candidates have to train on the same rows"),
        (
            {
                "algorithm": AUTO.replace(methods=("additive", "boosting"), trees=60),
                "epochs": 60,
                "protection": ROUNDED,
            },
            "120 sets of validation metrics (additive 60, boosting 60); a job under",
        ),
    ],
)
def test_what_cannot_be_agreed_is_told(change: dict[str, Any], says: str) -> None:
    assert not describe_unfit_choice(JOB, ["bank"], [PASSIVE])
    assert says in "; ".join(describe_unfit_choice(JOB.replace(**change), ["bank"], [PASSIVE]))


def test_a_keeper_without_a_folder_keeps_nothing() -> None:
    assert Keeper().last_position(0, 5) is None
