"""ε of one party's rows over all jobs on shares: composed in the result book, before anything is dealt, for ever."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from opacus.accountants import PRVAccountant
from scipy.optimize import brentq
from scipy.stats import norm
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.privacy import EpsilonBudget, GaussianRelease, NoteLine, ResultBook, calibrate_sigma
from securevfl.privacy.epsilon_budget import compose_epsilon
from securevfl.testing.company import Company, create_company

DELTA = 1e-5
EPOCHS = 2
NOISE = sv.Gaussian(epsilon=4.0, clip=3.0)
NAMES = [f"p{i}" for i in range(8)]
ALL = np.arange(8)


def _job(**more: object) -> sv.Job:
    options = {"algorithm": sv.LogisticRegression(), "epochs": EPOCHS, "batch_size": 32, "keep": "last"} | more
    return sv.Job(protection=sv.Shares(dp=sv.DP(model=NOISE), metrics="none"), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 120)


def _budget(path: Path, most: float | None = None, asker: str = "bank") -> EpsilonBudget:
    return EpsilonBudget("shop", NAMES, asker=asker, most=most, book=ResultBook(path, party="shop"))


def _exact_epsilon(losses: float) -> float:
    """ε of Gaussian releases whose 1/σ² add up to `losses`, by the trade-off of δ and ε (Balle and Wang 2018)."""
    mu = math.sqrt(losses)

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) - DELTA

    return float(brentq(excess, 0, 100, xtol=1e-10))


# The book and the bound.


@pytest.mark.filterwarnings("ignore")  # of the other accountant, where it chooses its grid
def test_what_several_jobs_spend_is_what_an_independent_formula_and_accountant_say(tmp_path: Path) -> None:
    path, history = tmp_path / "book.jsonl", [(4.0, 3), (11.0, 20), (2.5, 1)]
    other, losses = PRVAccountant(), 0.0
    for sigma, times in history:
        budget = _budget(path)  # each job is another process
        budget.count_releases(ALL, sigma, times, DELTA)
        other.history.append((sigma, 1.0, times))
        losses += times / sigma**2
        assert budget.ledger_facts()["epsilon"] == pytest.approx(_exact_epsilon(losses), rel=1e-6)
    assert budget.ledger_facts()["epsilon"] == pytest.approx(other.get_epsilon(DELTA, eps_error=0.01), abs=0.02)
    spent = ResultBook(path, party="shop").noise_spent(NAMES, "bank")
    assert spent == pytest.approx([sum(times / sigma**2 for sigma, times in history)] * 8)


def test_each_row_and_each_asker_pays_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    _budget(path).count_releases(ALL[:4], 2.0, 1, DELTA)
    _budget(path).count_releases(ALL[2:], 2.0, 2, DELTA)
    assert ResultBook(path).noise_spent(NAMES, "bank").tolist() == [0.25, 0.25, 0.75, 0.75, 0.5, 0.5, 0.5, 0.5]
    assert not ResultBook(path).noise_spent(NAMES, "insurer").any()
    assert ResultBook(path).noise_spent(["nobody", "p2"], "bank").tolist() == [0.0, 0.75]
    assert not ResultBook(path).count_opened(NAMES, "bank").any()


def test_a_plan_beside_earlier_jobs_is_refused_with_the_value_the_bound_and_the_cure(tmp_path: Path) -> None:
    path, sigma = tmp_path / "book.jsonl", calibrate_sigma(2.0, DELTA, 5)
    planned = GaussianRelease(sigma, 5)
    for most, refused in ((2.0, True), (2.7, True), (2.72, False)):
        budget = _budget(path, most)
        budget.check_plan(ALL[:1], planned, DELTA) if not path.exists() else None
        if not path.exists():
            budget.count_releases(ALL, sigma, 5, DELTA)
        budget = _budget(path, most)
        if refused:
            words = r"plans ε = 1\.84 .*'bank', beside ε = 1\.84 .*: 2\.71 together; max_epsilon = .* for all jobs"
            with pytest.raises(sv.PolicyError, match=words):
                budget.check_plan(ALL, planned, DELTA)
        else:
            budget.check_plan(ALL, planned, DELTA)
    _budget(path, 2.0, asker="insurer").check_plan(ALL, planned, DELTA)


def test_of_two_jobs_at_once_the_second_is_refused_when_it_counts(tmp_path: Path) -> None:
    path, sigma = tmp_path / "book.jsonl", calibrate_sigma(2.0, DELTA, 1)
    one, other = _budget(path, 2.5), _budget(path, 2.5)
    for budget in (one, other):
        budget.check_plan(ALL, GaussianRelease(sigma, 1), DELTA)
    one.count_releases(ALL, sigma, 1, DELTA)
    with pytest.raises(sv.PolicyError, match="max_epsilon"):
        other.count_releases(ALL, sigma, 1, DELTA)
    assert ResultBook(path).noise_spent(NAMES, "bank") == pytest.approx([1 / sigma**2] * 8)


def test_a_compacted_book_keeps_what_was_spent(tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    book = ResultBook(path, party="shop")
    run = book.begin_run(NAMES, "bank")
    book.add_noise(run, ALL[:3], 0.5)
    book.add_noise(run, ALL[:3], 0.25)
    book.add(run, ALL[5:], 1)
    before = book.noise_spent(NAMES, "bank")
    book._compact(path)
    again = ResultBook(path, party="shop")
    assert again.noise_spent(NAMES, "bank").tolist() == before.tolist() == [0.75] * 3 + [0.0] * 5
    assert again.count_opened(NAMES, "bank").tolist() == [0] * 5 + [1] * 3
    book.add_noise(run, ALL[:3], 0.25)
    assert ResultBook(path).noise_spent(NAMES, "bank").tolist() == [1.0] * 3 + [0.0] * 5


@pytest.mark.parametrize("loss", [-0.1, math.nan, math.inf])
def test_a_loss_that_is_none_is_not_written(loss: float, tmp_path: Path) -> None:
    book = ResultBook(tmp_path / "book.jsonl")
    run = book.begin_run(NAMES, "bank")
    with pytest.raises(ValueError, match="a loss of"):
        book.add_noise(run, ALL, loss)
    assert not book.noise_spent(NAMES, "bank").any()


def test_nothing_spent_costs_nothing() -> None:
    assert compose_epsilon(0.0, DELTA) == 0.0
    assert compose_epsilon(5 / 9, DELTA) == pytest.approx(_exact_epsilon(5 / 9))


# Jobs of processes.


def _company(folder: Path, people: Parties, most: float, earlier: Path | None = None) -> Company:
    job, other = _job(), sv.Policy(few_rows=True, useful="off")
    policies = {"shop1": other.replace(max_epsilon=most, max_results=9), "shop2": other}
    job = job.replace(protection=job.protection.replace(few_rows=True))
    company = create_company(folder, people, job, policies=policies)
    if earlier is not None:
        for path in earlier.glob("shop1.results.*"):
            shutil.copy(path, folder / path.name)
    return company


def test_retraining_on_the_same_rows_adds_up_over_agreements(people: Parties, tmp_path: Path) -> None:
    """Two jobs at ε = 4 by Rényi spend 5.53 together: 6 admits both, and no third one. The first runs over sockets."""
    first = _company(tmp_path / "first", people, 6.0)
    parties = first.over_network()
    again = _company(tmp_path / "again", people, 6.0, tmp_path / "first")
    more = again.over_memory()
    sigma = calibrate_sigma(4.0, DELTA, EPOCHS)
    for party, times in ((parties["shop1"], EPOCHS), (more["shop1"], 2 * EPOCHS)):
        assert party.finished is not None
        (note,) = [
            one
            for one in party.finished.ledger.iter_lines()
            if isinstance(one, NoteLine) and one.note == "epsilon over jobs"
        ]
        assert note.values["epsilon"] == pytest.approx(_exact_epsilon(times / sigma**2))
        assert (note.values["asker"], note.values["allowed"]) == ("bank", 6.0)
        assert any("over all jobs for 'bank', this one included" in text for text in party.finished.trained.notes)
    third = _company(tmp_path / "third", people, 6.0, tmp_path / "again")
    with pytest.raises(BaseExceptionGroup) as caught:
        third.over_memory()
    refused = [str(one) for one in _leaves(caught.value) if isinstance(one, sv.PolicyError)]
    told = "beside ε = 5.53 of earlier jobs: 7.03 together; max_epsilon = 6"
    assert any(told in text for text in refused), refused


def test_an_agreement_bounds_itself_and_the_policy_all_of_them(
    people: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two agreements allows ε = 4.5; together they spend more, and the policy allows 8."""

    def with_card(policy: sv.Policy, proposal: object, name: str, budget: object) -> sv.Policy:
        return policy.combine_strictest(sv.Policy(max_epsilon=4.5 if name == "shop1" else None))

    monkeypatch.setattr("securevfl.process.party_process._bound_policy", with_card)
    _company(tmp_path / "first", people, 8.0).over_memory()
    finished = _company(tmp_path / "again", people, 8.0, tmp_path / "first").over_memory()["shop1"].finished
    assert finished is not None
    assert any("at most 5.53 (δ = 1e-05); max_epsilon = 8 is for all jobs" in text for text in finished.trained.notes)


def _leaves(error: BaseException) -> list[BaseException]:
    inside = getattr(error, "exceptions", ())
    return [leaf for one in inside for leaf in _leaves(one)] if inside else [error]


# Attempts of one job.


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_an_epoch_that_is_trained_again_counts_again(people: Parties, tmp_path: Path) -> None:
    job = _job(epochs=3, policies={"shop1": sv.Policy(max_epsilon=8.0, useful="off")})
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    run = sv.simulate(job, people, checkpoints=tmp_path).record.runs[-1]
    (spent,) = [one for one in run.epsilon if one.party == "shop1"]
    assert spent.releases > 3
    sigma = calibrate_sigma(4.0, DELTA, 3)
    exact = _exact_epsilon(spent.releases / sigma**2)
    told = f"of 'shop1' over all jobs for 'bank', this one included: at most {exact:.3g} (δ = 1e-05)"
    assert any(told in note for note in run.notes)


def test_nothing_is_dealt_that_is_not_counted(people: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(book: ResultBook, run: str, places: np.ndarray, loss: float) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(ResultBook, "add_noise", full)
    job = _job(policies={"shop1": sv.Policy(max_epsilon=5.0, useful="off")})
    with pytest.raises(sv.PartyFailed, match="no space left") as caught:
        sv.simulate(job, people, checkpoints=tmp_path)
    for ledger in caught.value.ledgers:
        if ledger.party == "shop1":
            assert not any(entry.what == "shares/input" and entry.way == "sent" for entry in ledger.iter_entries())
