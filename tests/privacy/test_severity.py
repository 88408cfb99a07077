"""Severities follow from ε and from what attacks got, in one table; what a refusal advises is accepted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from support.helpers import low_overlap_parties, make_parties

import securevfl as sv
from securevfl.cut.leakage import OTHERS_VIEW
from securevfl.party import rule_against
from securevfl.privacy import GaussianRelease, MeasuredView, Policy, epsilon_rdp, load_measured, permitted_by
from securevfl.privacy import severity as severities
from securevfl.privacy.severity import auc_of_mu, auc_of_response, largest_epsilon, mu_of, with_planned_epsilon
from securevfl.run.simulation import join_parties, run_parties
from securevfl.training import find_algorithm, registered_algorithms

ROLES = ["network", "retailer"]


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.5])
def test_the_best_auc_between_two_normal_distributions(mu: float) -> None:
    draw = np.random.default_rng(0)
    scores = np.concatenate([draw.normal(size=40_000), mu + draw.normal(size=40_000)])
    assert roc_auc_score(np.repeat([0, 1], 40_000), scores) == pytest.approx(auc_of_mu(mu), abs=0.006)


@pytest.mark.parametrize(("epsilon", "classes"), [(0.5, 2), (2.0, 2), (2.0, 5)])
def test_the_best_auc_of_drawn_labels(epsilon: float, classes: int) -> None:
    draw, n = np.random.default_rng(0), 40_000
    y = draw.integers(0, classes, n)
    keep = draw.random(n) < math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    told = np.where(keep, y, (y + draw.integers(1, classes, n)) % classes)
    pair = y < 2
    assert roc_auc_score(y[pair], told[pair] == 1) == pytest.approx(_two_sided(epsilon, classes), abs=0.01)
    assert auc_of_response(epsilon, classes) <= auc_of_response(epsilon)


def _two_sided(epsilon: float, classes: int) -> float:
    p = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    q = 1 / (math.exp(epsilon) + classes - 1)
    assert (1 + p - q) / 2 == pytest.approx(auc_of_response(epsilon, classes))
    return auc_of_response(epsilon, classes)


def test_mu_is_the_same_for_any_number_of_releases() -> None:
    for epsilon, times in ((1.0, 1), (1.0, 30), (8.0, 7)):
        sigma = sv.Gaussian(epsilon=epsilon).sigma(times)
        assert math.sqrt(times) / sigma == pytest.approx(mu_of(epsilon, 1e-5), rel=2e-3)


def test_what_a_multiplier_costs_depends_on_the_plan() -> None:
    noise = sv.Gaussian(noise_multiplier=3.0)
    assert permitted_by(noise).severity == "leak"  # nobody said how many looks there are
    assert permitted_by(noise).auc == 1.0
    one, many = (permitted_by(with_planned_epsilon(noise, looks)) for looks in (1, 30))
    assert one.epsilon == pytest.approx(epsilon_rdp(GaussianRelease(3.0, 1), 1e-5))
    assert one.auc == pytest.approx(auc_of_mu(1 / 3), abs=1e-3)
    assert many.auc == pytest.approx(auc_of_mu(30**0.5 / 3), abs=1e-3)
    stopped = noise.replace(on_budget="stop", epsilon=0.5)
    assert permitted_by(stopped).epsilon == permitted_by(with_planned_epsilon(stopped, 1000)).epsilon == 0.5


def test_the_table() -> None:
    assert [permitted_by(sv.Gaussian(epsilon=e)).severity for e in (0.5, 1.0, 8.0, 1000.0)] == ["note", *["leak"] * 3]
    assert permitted_by(sv.Gaussian(noise_multiplier=0.1)).severity == "leak"
    drawn = [permitted_by(sv.RandomisedResponse(epsilon=e)).severity for e in (0.2, 1.0, 8.0, 20.0)]
    assert drawn == ["note", "leak", "leak", "leak"]
    assert largest_epsilon(auc_of_response) == 0.2
    assert "labels ranked with AUC at most 0.74" in permitted_by(sv.RandomisedResponse(epsilon=1.0)).describe("labels")


@pytest.mark.parametrize(
    ("figures", "severity"),
    [
        ({"about": "labels", "got": 0.55, "without": 0.5}, "ok"),
        ({"about": "labels", "got": 0.70, "without": 0.66}, "note"),
        ({"about": "labels", "got": 0.70, "without": 0.64}, "leak"),
        ({"about": "features", "got": 0.30, "without": 0.21}, "note"),
        ({"about": "features", "got": 0.32, "without": 0.21}, "leak"),
        ({"about": "features", "got": 0.2, "without": 0.2, "attribute": 0.8, "attribute_without": 0.74}, "leak"),
    ],
)
def test_measured_figures_decide(figures: dict[str, float], severity: str) -> None:
    assert MeasuredView(view="a view", **figures).severity == severity  # type: ignore[arg-type]


def test_drawn_labels_leave_the_prediction_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small ε is: the gradient carries no noise, and what the model predicts of a row is a leak as measured."""
    dp = sv.DP(labels=sv.RandomisedResponse(epsilon=0.1))

    def worst() -> set[str]:
        found = sv.SplitNN(bottom=(4,)).findings(sv.BFV(dp=dp), ROLES, "bank")
        return {f.severity for f in found if f.about == "bank"}

    assert worst() == {"leak"}
    told = MeasuredView(view="gradient of drawn labels", about="labels", got=0.6, without=0.58)
    columns = MeasuredView(view=OTHERS_VIEW, about="features", got=0.1, without=0.05)
    monkeypatch.setattr(
        severities, "load_measured", lambda: {**load_measured(), told.view: told, columns.view: columns}
    )
    assert worst() == {"note"}


def test_what_nobody_measured_is_a_leak() -> None:
    assert severities.severity_of_view("a view that does not exist") == "leak"


def test_findings_follow_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report, the threat model and policies read the same table: change it, and all of them say something else."""
    job = sv.Job(algorithm=sv.SplitNN(bottom=(4,)), protection=sv.BFV(), policies={"network": Policy(leaks=False)})
    assert "learns z" in rule_against(job, "network", active="bank", passive=ROLES, simulated=True)
    views = "z, trainable bottoms", OTHERS_VIEW
    mild = {view: MeasuredView(view=view, about="features", got=0.2, without=0.15) for view in views}
    monkeypatch.setattr(severities, "load_measured", lambda: {**load_measured(), **mild})
    found = job.algorithm.findings(job.protection, ROLES, "bank")
    assert {f.severity for f in found if f.party == "bank"} == {"note"}
    assert rule_against(job, "network", active="bank", passive=ROLES, simulated=True) == ""


def test_the_file_has_every_view_that_declarations_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    known = load_measured()

    class Noting(dict[str, MeasuredView]):
        def get(self, view: str, default: object = None) -> MeasuredView | None:  # type: ignore[override]
            asked.add(view)
            return known.get(view)

    monkeypatch.setattr(severities, "load_measured", Noting)
    for name in registered_algorithms():
        for bottom in ((), (4,)):
            for protection in (sv.Plain(), sv.BFV()):
                try:
                    algorithm = find_algorithm(name).from_values({"bottom": bottom})
                    algorithm.check_protection(protection)
                except sv.errors.SecureVFLError:
                    continue
                algorithm.exchanges(protection, 1)
    assert asked
    missing = asked - known.keys()
    assert not missing, f"python -m benchmarks.gate measures {missing}"


JOBS = [
    (sv.SplitNN(bottom=(4,)), sv.Plain()),
    (sv.SplitNN(), sv.Plain()),
    (sv.SplitNN(bottom=(4,)), sv.BFV()),
    (sv.SplitNN(), sv.BFV()),
    (sv.SplitNN(), sv.Paillier(dp=sv.DP(features=sv.Gaussian(epsilon=8.0)))),
    (sv.SplitNN(bottom=(4,)), sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=8.0)))),
    (sv.FedCVT(), sv.Plain()),
    (sv.EntityAugmentation(bottom=(4,)), sv.BFV()),
]


@pytest.mark.parametrize(("algorithm", "protection"), JOBS)
@pytest.mark.parametrize("party", ["bank", "network"])
def test_a_refusal_names_a_cure_that_the_same_policy_accepts(
    algorithm: sv.Algorithm, protection: sv.cut.Protection, party: str
) -> None:
    passive = ROLES[: algorithm.most_passive or 2]
    job = sv.Job(algorithm=algorithm, protection=protection, policies={party: Policy(leaks=False)})
    rule = rule_against(job, party, active="bank", passive=passive, simulated=True)
    if not rule:
        assert (party, protection.is_sealed, algorithm.trainable) == ("bank", True, False)
        return
    assert not (protection.is_sealed and "protection 'bfv'" in rule), "no cure for what is sealed"
    for change in _cures(rule):
        changed = _applied(job, change)
        assert rule_against(changed, party, active="bank", passive=passive, simulated=True) == "", change


def _cures(rule: str) -> Sequence[str]:
    text = rule.removeprefix("the policy accepts no known leak, so the job needs ").split("; by the threat model ")[0]
    return text.split(", or ")


def _applied(job: sv.Job, change: str) -> sv.Job:
    """The job changed as the words say, by nothing but the words."""
    if "algorithm 'splitnn'" in change:
        job = job.replace(algorithm=sv.SplitNN())
    if "bottom=()" in change:
        job = job.replace(algorithm=job.algorithm.replace(bottom=()))
    if "protection 'bfv'" in change:
        job = job.replace(protection=sv.BFV(dp=job.protection.dp))
    if "dp=sv.DP(" in change:
        noise = re.findall(r"(\w+)=sv\.(\w+)\(epsilon=([\d.]+)\)", change)
        new = {what: getattr(sv, mechanism)(epsilon=float(epsilon)) for what, mechanism, epsilon in noise}
        dp = sv.DP(**new) if job.protection.dp is None else job.protection.dp.replace(**new)
        job = job.replace(protection=job.protection.replace(dp=dp))
    return job


CHEAP: dict[str, dict[str, Any]] = {
    "apc_vfl": {"steps": 2, "student_steps": 2},
    "distilled": {"teacher_steps": 4},
    "false_vfl": {"pretraining": 2},
    "fedda": {"generator_steps": 2, "critic_steps": 1, "first": 1},
    "fedhssl": {"aggregate": False, "rounds": 2, "cross_steps": 2, "local_steps": 1},
    "few_shot_vfl": {"local_steps": 2},
    "ssl": {"pretraining": 2},
}


@pytest.mark.parametrize("name", sorted(registered_algorithms()))
@pytest.mark.parametrize("bottom", [(), (3,)])
def test_no_plan_makes_more_looks_than_it_says(name: str, bottom: tuple[int, ...]) -> None:
    """ε of a noise multiplier is weighed by `looks`, before any rows are known: never by fewer than are made."""
    noise, steps = sv.Gaussian(noise_multiplier=50.0), 3 if bottom else None
    for dp in (sv.DP(features=noise, labels=noise), sv.DP(features=noise)):
        try:
            algorithm = find_algorithm(name).from_values({"bottom": bottom} | CHEAP.get(name, {}))
            epochs = max(2, algorithm.least_epochs)
            job = sv.Job(algorithm=algorithm, protection=sv.Plain(dp=dp), epochs=epochs, batch_size=16, steps=steps)
            break
        except sv.errors.SecureVFLError:
            continue
    else:
        return
    if algorithm.many_owners or name == "local":
        return
    people = low_overlap_parties(1 if algorithm.most_passive == 1 else 2, rows=80)
    looks = algorithm.max_releases(job.protection, job.plan, len(people.passive))
    ran = run_parties(job, people, join_parties(people, job), run="run")
    for party, trained in ran.trained.items():
        for spent in trained.spent:
            allowed = looks.labels if spent.what == "gradients" else looks.features
            assert allowed is None or spent.times <= allowed, (party, spent.what)


def test_the_report_says_what_the_plan_permits() -> None:
    dp = sv.DP(labels=sv.Gaussian(noise_multiplier=3.0))
    job = sv.Job(algorithm=sv.SplitNN(hidden=2, top=()), protection=sv.Plain(dp=dp), epochs=4, batch_size=64)
    run = sv.simulate(job, make_parties(), baselines=()).record.runs[-1]
    (line,) = [line for line in run.learned if "labels ranked" in line.learns]
    spent = epsilon_rdp(GaussianRelease(3.0, 4), 1e-5)
    bound = math.ceil(100 * auc_of_mu(2 / 3)) / 100
    assert f"(ε = {spent:.3g}): labels ranked with AUC at most {bound:.2f}" in line.learns


def test_measured_json_is_what_the_gate_writes() -> None:
    text = severities.files("securevfl.privacy").joinpath("measured.json").read_text(encoding="utf-8")
    assert set(json.loads(text)["views"]) == set(load_measured())
