"""What a passive party's gradients tell of columns that it never met: found by an attack, stated by the findings."""

from __future__ import annotations

import pytest

import securevfl as sv
from securevfl.attacks import AttackScore
from securevfl.attacks.suite import Effort, run_suite
from securevfl.experiments import record_job
from securevfl.party import rule_against
from securevfl.privacy.attack_verdict import describe_contradiction, measures_as_leak, worst_claims

ALL = ("network", "retailer")
LABELS = sv.DP(labels=sv.Gaussian(epsilon=0.5))
FEATURES = sv.DP(features=sv.Gaussian(epsilon=0.5))
BOTH = FEATURES.replace(labels=sv.Gaussian(epsilon=0.5))
DRAWN = sv.DP(labels=sv.RandomisedResponse(epsilon=0.2))


def _job(protection: sv.cut.Protection, *bottom: int) -> sv.Job:
    algorithm = sv.SplitNN(hidden=16, bottom=bottom, lr=0.01, cut_lr=1.0)
    return sv.Job(algorithm=algorithm, protection=protection, epochs=4, batch_size=128)


def _said(protection: sv.cut.Protection, *bottom: int, passive: tuple[str, ...] = ALL) -> dict[tuple[str, str], str]:
    return dict(worst_claims(_job(protection, *bottom).algorithm.findings(protection, passive, "bank")))


@pytest.mark.parametrize("dp", [None, LABELS, DRAWN])
def test_an_attack_gets_others_columns_and_findings_say_so(dp: sv.DP | None) -> None:
    job = _job(sv.Plain(dp=dp))
    for one, severity in _columns(job):
        if one.attacker == "network":  # the retailer's view has no column of the network with many values
            assert measures_as_leak(one), one
        assert severity == "leak", one
        assert not describe_contradiction(one, severity)


def test_noise_on_features_leaves_nothing_to_that_attack() -> None:
    """At an ε for which the findings call it a note."""
    found = _columns(_job(sv.Plain(dp=BOTH)))
    assert {severity for _, severity in found} == {"note"}
    assert not any(measures_as_leak(one) for one, _ in found)


def _columns(job: sv.Job) -> list[tuple[AttackScore, str]]:
    parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=1_600)
    transcript = record_job(job, parties)[1]
    stated = worst_claims(job.algorithm.findings(job.planned_protection(2), ALL, "bank"))
    measured = run_suite(transcript, Effort(labels=(), records=(300,), draws=1, perceptron=False, attributes=0))
    found = [(one, stated.get((one.attacker, one.victim), "")) for one in measured if "others' columns" in one.attack]
    assert {one.victim for one, _ in found} == {"bank", "retailer"}
    return found


@pytest.mark.parametrize("bottom", [(), (4,)])
@pytest.mark.parametrize("sealed", [False, True])
def test_findings_name_each_pair_of_passive_parties_where_a_gradient_is_opened(
    sealed: bool, bottom: tuple[int, ...]
) -> None:
    protection = sv.BFV if sealed else sv.Plain
    opened = not sealed or bool(bottom)
    for dp, severity in ((None, "leak"), (LABELS, "leak"), (FEATURES, "note"), (BOTH, "note")):
        said = _said(protection(dp=dp), *bottom)
        assert said.get(("network", "retailer"), "") == said.get(("retailer", "network"), "") == severity * opened
        assert not {pair for pair in _said(protection(dp=dp), *bottom, passive=("shop",)) if "bank" not in pair}


def test_noise_on_z_counts_without_the_readers_own_share() -> None:
    """With two parties a reader knows half of its variance: ε = 0.5 against the active party permits more to it."""
    noise = sv.JointNoise(epsilon=0.5, weight_bound=2.0)
    found = _job(sv.BFV(dp=sv.DP(features=noise)), 4).algorithm.findings(sv.BFV(dp=sv.DP(features=noise)), ALL, "bank")
    texts = {(f.party, f.about): f.learns for f in found}
    assert "(ε = 0.5)" in texts["bank", "retailer"]
    assert "less the reader's own share (ε = 0.7" in texts["network", "retailer"]
    assert _said(sv.BFV(dp=sv.DP(features=noise.replace(epsilon=0.3))), 4)["network", "retailer"] == "note"


def test_who_accepts_no_leak_refuses_what_another_passive_party_could_read() -> None:
    """Noise on z keeps the active party at a note; what the network could get from its gradient is a leak by itself."""
    dp = sv.DP(features=sv.JointNoise(epsilon=0.5, weight_bound=2.0))
    job = _job(sv.BFV(dp=dp), 4).replace(policies={"retailer": sv.Policy(leaks=False)})
    assert "'network' learns the gradient at its activations" in rule_against(
        job, "retailer", active="bank", passive=ALL, simulated=True
    )
    assert not rule_against(job, "retailer", active="bank", passive=("retailer",), simulated=True)


def test_the_bank_refuses_noise_on_labels_alone_for_its_columns() -> None:
    strict = {"bank": sv.Policy(leaks=False)}
    job = _job(sv.Plain(dp=LABELS)).replace(policies=strict)
    rule = rule_against(job, "bank", active="bank", passive=ALL, simulated=True)
    assert "label owner's own columns, which noise on labels does not hide" in rule
    assert not rule_against(
        _job(sv.Plain(dp=BOTH)).replace(policies=strict), "bank", active="bank", passive=ALL, simulated=True
    )
    assert not rule_against(
        _job(sv.BFV(dp=LABELS)).replace(policies=strict), "bank", active="bank", passive=ALL, simulated=True
    )
