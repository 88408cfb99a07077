"""ε of a whole job on shares: which jobs a bound on ε admits, what the report says is covered and what is counted
apart, and what an attacker gets from the predictions alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from opacus.accountants import RDPAccountant
from securevfl_crypto.ring import decode_words
from support.helpers import make_parties

import securevfl as sv
from securevfl.agreement.plain_words import describe_proposal
from securevfl.algorithms.splitnn import Active, Passive
from securevfl.attacks.epsilon import bound_epsilon
from securevfl.data import Parties, PartyTable
from securevfl.party.consent import rule_against
from securevfl.privacy import NoteLine, epsilon_rdp
from securevfl.privacy.accountant import GaussianRelease
from securevfl.shares import NetworkShape, StepNoise
from securevfl.testing.company import create_company
from securevfl.training import Fits

EPOCHS = 3
NOISE = sv.Gaussian(epsilon=4.0, clip=3.0)
PRIVATE = sv.Shares(dp=sv.DP(model=NOISE), metrics="none")


def _job(protection: sv.Shares = PRIVATE, policies: Mapping[str, sv.Policy] | None = None, **more: object) -> sv.Job:
    options = {"algorithm": sv.LogisticRegression(), "epochs": EPOCHS, "batch_size": 32, "keep": "last"} | more
    return sv.Job(protection=protection, policies=dict(policies or {}), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 120)


@pytest.fixture(scope="module")
def ran(people: Parties) -> sv.Result:
    return sv.simulate(_job(policies=dict.fromkeys(people, sv.Policy(max_epsilon=4.0))), people)


# What is admitted, and what is refused.


def test_a_bound_on_epsilon_admits_the_job_at_every_party(ran: sv.Result, people: Parties) -> None:
    assert np.isfinite(ran.record.runs[-1].test["log_loss"])
    assert {total.party for total in ran.record.runs[-1].epsilon_totals} == set(people)


@pytest.mark.parametrize(
    ("protection", "policy", "words"),
    [
        (
            sv.Shares(dp=sv.DP(model=NOISE)),
            sv.Policy(max_epsilon=8.0),
            r"metrics of its validation rows .*metrics='none'",
        ),
        (sv.Shares(metrics="none"), sv.Policy(max_epsilon=8.0), r"trained without noise .*dp=sv\.DP\(model="),
        (PRIVATE, sv.Policy(max_epsilon=3.9), r"releasing the model as planned spends ε = 4; the policy allows 3\.9"),
        (PRIVATE, sv.Policy(max_epsilon=8.0, max_results="unlimited"), "set max_results to a number"),
        (PRIVATE, sv.Policy(max_epsilon=8.0, max_delta=1e-6), "counts ε at δ = 1e-05; the policy allows δ up to 1e-06"),
    ],
)
def test_a_job_that_the_bound_does_not_cover_is_refused_with_the_cure(
    protection: sv.Shares, policy: sv.Policy, words: str, people: Parties
) -> None:
    job = _job(protection, {"shop1": policy})
    with pytest.raises(sv.PolicyError, match=words) as caught:
        sv.simulate(job, people)
    assert not any("shares/" in entry.what for ledger in caught.value.ledgers for entry in ledger.iter_entries())


def test_the_active_party_may_bound_its_rows_without_bounding_its_own_predictions(people: Parties) -> None:
    for policy, rule in (
        (sv.Policy(max_epsilon=4.0, max_results="unlimited"), ""),
        (sv.Policy(max_epsilon=3.0), "ε = 4"),
    ):
        job = _job(policies={"bank": policy})
        found = rule_against(job, "bank", active="bank", passive=("shop1", "shop2"))
        assert bool(found) is bool(rule)
        assert rule in found


def test_a_noise_multiplier_is_held_against_the_bound_with_the_epochs_that_the_job_plans() -> None:
    sigma = 6.0
    spends = epsilon_rdp(GaussianRelease(sigma, EPOCHS), 1e-5)
    shares = PRIVATE.replace(dp=sv.DP(model=sv.Gaussian(noise_multiplier=sigma)))
    for most, refused in ((spends * 1.001, False), (spends * 0.999, True)):
        job = _job(shares, {"shop1": sv.Policy(max_epsilon=most, useful="off")})
        assert bool(rule_against(job, "shop1", active="bank", passive=("shop1", "shop2"))) is refused


def test_no_known_leak_still_refuses_because_of_the_predictions(people: Parties) -> None:
    """Noise on the model does not hide from whom it is answered about: a prediction is a function of that row."""
    job = _job(policies={"shop1": sv.Policy(leaks=False, max_epsilon=4.0)})
    found = rule_against(job, "shop1", active="bank", passive=("shop1", "shop2"))
    assert "accepts no known leak" in found
    assert "final predictions" in found
    leaks = [one for one in job.findings(["shop1", "shop2"], "bank") if one.severity == "leak"]
    assert {one.sights[0].through for one in leaks} == {"final predictions"}


def test_a_job_file_says_the_same(people: Parties, tmp_path: Path) -> None:
    text = """
[job]
epochs = 2
batch_size = 64
keep = "last"
[algorithm]
name = "logistic_regression"
[protection]
name = "shares"
computing = ["clinic", "lab", "helper"]
metrics = "none"
[protection.dp.model]
mechanism = "gaussian"
epsilon = 2.0
[policy.lab]
max_epsilon = 2.0
useful = "off"
[data]
name = "breast_cancer"
"""
    path = tmp_path / "job.toml"
    path.write_text(text, encoding="utf-8")
    file = sv.read_job(path)
    assert file.job.protection == sv.Shares(
        computing=("clinic", "lab", "helper"), metrics="none", dp=sv.DP(model=sv.Gaussian(epsilon=2.0))
    )
    assert rule_against(file.job, "lab", active="clinic", passive=("lab",)) == ""
    path.write_text(text.replace('keep = "last"', 'keep = "best"'), encoding="utf-8")
    with pytest.raises(sv.InputError, match="set keep = 'last'"):
        sv.read_job(path)


def test_a_stratified_split_is_refused() -> None:
    with pytest.raises(sv.InputError, match=r"dp\.model bounds what is learned .*leave stratify out"):
        _job(stratify=True)


# What is reported.


def test_the_reported_epsilon_is_that_of_an_independent_accountant(ran: sv.Result) -> None:
    run = ran.record.runs[-1]
    other = RDPAccountant()
    other.history = [(run.epsilon[0].noise_multiplier, 1.0, EPOCHS)]
    for total in run.epsilon_totals:
        if total.protects == "features and labels":
            assert total.epsilon_rdp == pytest.approx(other.get_epsilon(NOISE.delta), rel=1e-6)
            assert total.releases == EPOCHS


def test_report_and_ledgers_say_what_is_counted_apart(ran: sv.Result, people: Parties) -> None:
    said = "ε = 4 (δ = 1e-05) for rows that train; 0 for rows that validate, of which nothing is opened; predictions: "
    assert f"{said}1 number a row, counted by max_results, not by ε" in ran.record.runs[-1].notes
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    for name in people:
        (note,) = [
            one for one in ledgers[name].iter_lines() if isinstance(one, NoteLine) and one.note == "epsilon covers"
        ]
        assert note.values["rows that train"] == pytest.approx(4.0, rel=1e-3)
        assert (note.values["rows that validate"], note.values["numbers of a predicted row"]) == (0.0, 1)


def test_an_agreement_says_what_is_counted_apart(people: Parties, tmp_path: Path) -> None:
    policies = {name: sv.Policy(useful="off") for name in ("shop1", "shop2")}
    proposal = create_company(tmp_path, people, _job(), policies=policies).agreement.proposal
    said = [line for one in describe_proposal(proposal) for line in one.lines]
    told = "ε = 4 for rows that train; predictions are counted as numbers (max_results), not by ε"
    assert sum(told in line for line in said) == len(people)


def test_with_rounded_metrics_the_report_says_that_nothing_bounds_validation_rows(people: Parties) -> None:
    run = sv.simulate(_job(sv.Shares(dp=sv.DP(model=NOISE)), epochs=1), people).record.runs[-1]
    assert any("no bound for rows that validate, whose rounded metrics carry no noise" in note for note in run.notes)


# A row trains, or it is scored.


class _FeedsTheTestActive(Active):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.split.test[:1]])


class _FeedsTheTestPassive(Passive):
    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.split.test[:1]])


class _FeedsTheTest(sv.LogisticRegression):
    """An algorithm that trains on all rows at last."""

    fits = Fits(shares=True)

    def active(self, setting: object) -> Active:
        return _FeedsTheTestActive(self, setting)  # type: ignore[arg-type]

    def passive(self, setting: object) -> Passive:
        return _FeedsTheTestPassive(self, setting)  # type: ignore[arg-type]


def test_rows_that_train_and_are_scored_are_refused(people: Parties) -> None:
    with pytest.raises(sv.PolicyError, match="rows of a batch also validate or test"):
        sv.simulate(_job(algorithm=_FeedsTheTest()), people)
    assert sv.simulate(_job(sv.Shares(), algorithm=_FeedsTheTest(), epochs=1), people).record.runs[-1].test


def test_each_row_that_feeds_is_counted(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Passive, "feed", lambda self, rows: np.repeat(rows[:1], len(rows)))
    with pytest.raises(sv.InputError, match="contains a row twice"):
        sv.simulate(_job(), people)


# What an attacker gets who is answered about rows of its own choice, and knows the label of each canary.

_PAIRS = 300


def _canaries(seed: int) -> tuple[Parties, np.ndarray]:
    """A table in which each column is 0 but in two rows: a canary with a secret sign, which trains, and a probe, which
    tests. → the tables, and the secret bits."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, _PAIRS)
    features = 5 * np.concatenate([np.diag(2.0 * bits - 1), np.eye(_PAIRS)])
    names = [f"canary {i}" for i in range(_PAIRS)] + [f"probe {i}" for i in range(_PAIRS)]
    fold = np.array([0] * _PAIRS + [2] * _PAIRS)
    fold[_PAIRS : _PAIRS + 2] = 1  # two probes validate
    label = np.array([1] * _PAIRS + [0, 1] * (_PAIRS // 2))
    label[:2] = 0
    spread = [np.array_split(np.arange(_PAIRS), 2)[k] for k in range(2)]
    shops = [
        PartyTable(name=f"shop{k + 1}", ids=names, columns={f"c{j}": features[:, j] for j in columns})
        for k, columns in enumerate(spread)
    ]
    bank = PartyTable(name="bank", ids=names, columns={}, label=label, classes=(0, 1), fold=fold)
    return Parties.of(bank, *shops), bits


def _attack(epsilon: float, seed: int = 0) -> float:
    """The ε that predictions of the probes refute; first weights are known to all."""
    people, bits = _canaries(seed)
    noise = sv.Gaussian(epsilon=epsilon, clip=8.0)
    shares = sv.Shares(dp=sv.DP(model=noise), metrics="none", lr=2.5, momentum=0.0)
    job = _job(shares, epochs=1, batch_size=4096, scale="none")
    result = sv.simulate(job, people)
    (told,) = result.scores.values()
    logits = dict(zip(result.test_ids, np.log(told[:, 1] / told[:, 0]), strict=True))
    first = NetworkShape((0, _PAIRS // 2, _PAIRS // 2), (), (), 2).first_weights(job.seed)["layer 0"]
    known = 5 * decode_words(first)[:_PAIRS, 0]
    scores = np.array([logits[f"probe {i}"] - known[i] for i in range(2, _PAIRS)])
    return bound_epsilon(bits[2:], scores, delta=noise.delta).lower


def test_predictions_of_probes_find_no_more_of_a_canary_than_epsilon() -> None:
    assert _attack(1.0) <= 1.0


def test_predictions_of_probes_find_more_where_noise_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = StepNoise.draw_words

    def quieter(noise: StepNoise, shape: tuple[int, ...]) -> np.ndarray:
        words = draw(noise, shape)
        return (words.view(np.int64) // 1024).view(np.uint64)

    monkeypatch.setattr(StepNoise, "draw_words", quieter)
    assert _attack(1.0) > 1.0
