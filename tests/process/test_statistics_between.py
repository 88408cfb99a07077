"""Statistics between two organisations with an agreement: each party's own process, its report, its result book."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.agreement.plain_words import describe_proposal
from securevfl.dossier import gather_evidence
from securevfl.serving.process import read_own_part
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

PEOPLE = make_parties(passive=1, rows=400)


def job(**given: object) -> sv.Job:
    return sv.Job(algorithm=sv.Statistics(bins=4, least=5), epochs=1, seed=3, **given)


def test_each_organisation_reports_what_it_saw(tmp_path: Path) -> None:
    """The active party sees all figures and no end of the other's bins; the passive one sees none."""
    company = create_company(tmp_path, PEOPLE, job(protection=sv.Shares(computing=2)))
    company.over_memory()
    found = json.loads((company.state_folder("bank") / "report/statistics.json").read_text())
    columns = {(one["party"], one["column"]): one for one in found["columns"]}
    assert [part["bin"] for part in columns["shop1", "f0"]["bins"]] == ["1", "2", "3", "4"]
    assert " to " in columns["bank", "f0"]["bins"][0]["bin"]
    assert columns["shop1", "f0"]["missing"] is None
    assert columns["shop1", "f0"]["iv"] > 0.1
    assert not (company.state_folder("shop1") / "report/statistics.json").exists()
    told = [line for paragraph in describe_proposal(company.agreement.proposal) for line in paragraph.lines]
    assert "No model comes of it, and nobody is scored by it." in told
    with pytest.raises(sv.InputError, match="nothing to explain"):
        read_own_part(tmp_path / "agreement.toml", "bank", tmp_path / "bank.toml")
    with pytest.raises(sv.InputError, match="documents a model"):
        gather_evidence(company.state_folder("shop1"))


def test_an_agreement_lets_nobody_ask_for_scores(tmp_path: Path) -> None:
    asked = job(protection=sv.Shares(computing=2))
    with pytest.raises(sv.InputError, match=r"statistics leave no model to ask: leave serving"):
        create_company(tmp_path, PEOPLE, asked, serving=ServingTerms(asks=("bank",)))


def test_a_policy_bounds_how_often_and_how_exactly(tmp_path: Path) -> None:
    once = {"shop1": sv.Policy(max_results=1)}
    asked = job(protection=sv.Shares(computing=2), policies=once)
    sv.simulate(asked, PEOPLE, observer=sv.Observer(), results=tmp_path)
    with pytest.raises(sv.PolicyError, match="max_results = 1"):
        sv.simulate(asked, PEOPLE, observer=sv.Observer(), results=tmp_path)
    (tmp_path / "noisy").mkdir()
    noisy = sv.Shares(computing=2, dp=sv.DP(model=sv.Gaussian(epsilon=2.0, delta=1e-5)))
    with pytest.raises(sv.PolicyError, match="spends ε = 2; the policy allows 1"):
        sv.simulate(job(protection=noisy, policies={"shop1": sv.Policy(max_epsilon=1.0)}), PEOPLE)
    both = job(protection=noisy, policies={"shop1": sv.Policy(max_epsilon=2.5)})
    sv.simulate(both, PEOPLE, observer=sv.Observer(), results=tmp_path / "noisy")
    with pytest.raises(sv.PolicyError, match=r"beside ε = 2 of earlier jobs: 2\.95 together"):
        sv.simulate(both, PEOPLE, observer=sv.Observer(), results=tmp_path / "noisy")
