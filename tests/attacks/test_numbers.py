"""Attacks on a job that learns a number: planted numbers are recovered, and noise tells nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.attack_views import ROWS, TRAIN, linear, passive, view

import securevfl as sv
from securevfl.attacks import AttackScore, Observation, Observations, feature_inference, label_inference, run_leaks
from securevfl.attacks.measure import (
    Estimate,
    auc,
    draw_known,
    r_squared,
    score_correlation,
    score_labels,
    score_ranking,
)
from securevfl.attacks.suite import QUICK, negative_control, run_suite
from securevfl.privacy.attack_verdict import describe_contradiction, measures_as_leak
from securevfl.report.attack_page import render_attacks

SIGNED = {
    "direction": label_inference.score_by_direction,
    "spectral": label_inference.score_by_spectrum,
    "one look": label_inference.score_single_observations,
}


def _numbers(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=ROWS)


def _seen(y: np.ndarray) -> sv.privacy.attacks.View:  # type: ignore[name-defined]
    return replace(passive(y, noise=0.0), classes=1)


@pytest.mark.parametrize("name", SIGNED)
def test_plain_gradients_tell_numbers_and_noise_does_not(name: str) -> None:
    y = _numbers()
    seen = _seen(y)
    assert score_ranking(SIGNED[name](seen), y, 1)[0] > (0.7 if name == "direction" else 0.95)  # a cosine has no length
    value, error = score_ranking(SIGNED[name](seen.replace_with_noise(0)), y, 1)
    assert value <= 4 * error


def test_a_learner_with_known_numbers_gains_by_gradients_alone() -> None:
    y = _numbers()
    seen = _seen(y)
    known = draw_known(seen.train, y, 60, 0)
    assert len(known) == 60
    assert known.values.dtype == np.float64
    with_view = score_correlation(label_inference.fit_on_gradients(seen, known).exclude_rows(known.rows), y)[0]
    without, error = score_correlation(label_inference.fit_on_own_columns(seen, known).exclude_rows(known.rows), y)
    assert with_view > 0.95
    assert abs(without) <= 4 * error
    told = score_labels(
        "labels: learned", label_inference.fit_on_gradients(seen, known), y, 1, attacker="a", victim="b", known=known
    )
    assert (told.metric, told.baseline, told.rows) == ("correlation", 0.0, TRAIN - 60)


def test_a_bottom_that_holds_the_number_completes_it() -> None:
    y = _numbers()
    seen = replace(_seen(y), embed=lambda x: np.column_stack([y, y**2]))
    found = label_inference.complete_model(seen, draw_known(seen.train, y, 30, 0))
    assert found is not None
    assert score_correlation(found, y)[0] > 0.99


def test_others_columns_follow_from_the_error_where_the_number_is_known() -> None:
    y, secret = _numbers(), _numbers(1)[:, None]
    error = (0.8 * secret[:, 0] - y)[:TRAIN, None] * np.array([1.0, -0.5])
    seen = view(
        "shop",
        observations={
            ("gradient at the cut", "shop"): Observations([Observation(np.arange(TRAIN), error, e) for e in (1, 2, 3)])
        },
        x=np.random.default_rng(2).normal(size=(ROWS, 2)),
        classes=1,
    )
    known = draw_known(seen.train, secret, 100, 0)
    found = feature_inference.infer_columns_from_gradients(seen, y, known)
    assert found is not None
    rest, own = (
        found.exclude_rows(known.rows),
        feature_inference.infer_from_gradients_baseline(seen, y, known).exclude_rows(known.rows),
    )
    assert r_squared(rest.values, secret[rest.rows]) > 0.95
    assert r_squared(own.values, secret[own.rows]) < 0.1


def test_a_prediction_of_a_number_tells_an_attribute() -> None:
    seen, x = linear()
    yes = (x[:, 1] > 0).astype(np.int64)
    told = replace(seen, test=np.arange(ROWS), scores=1e5 + 1e3 * x[:, 1:2], classes=1, y=_numbers())
    known = draw_known(told.test, yes, 72, 0)
    found = feature_inference.infer_attribute_from_predictions(told, known)
    assert found is not None
    assert score_ranking(found.exclude_rows(known.rows), yes, 2)[0] > 0.95


def test_members_have_smaller_errors() -> None:
    y, rows = _numbers(), np.arange(ROWS)
    member = rows < TRAIN
    scores = (y + np.where(member, 0.1, 1.0) * _numbers(3))[:, None]
    found = run_leaks.score_by_error(rows, scores, y)
    assert auc(member, found.values) > 0.8
    assert auc(member, run_leaks.score_by_error(rows, (y + _numbers(3))[:, None], y).values) < 0.6


@pytest.mark.parametrize("kept", [lambda y: y, lambda y: (y - 3) / 7])
def test_numbers_in_a_file_are_found_as_they_are_and_scaled(kept: object) -> None:
    y = 1000 + 50 * _numbers()
    state = {"parts": [{"w": torch.zeros(4)}, {"y": torch.from_numpy(kept(y)).float()}]}  # type: ignore[operator]
    every = [np.arange(ROWS)]
    assert run_leaks.find_secret(state, y, every) == (1.0, "/parts/1/y")
    assert run_leaks.find_secret({"w": torch.randn(ROWS)}, y, every)[0] < 0.05


def test_correlations_have_errors_and_unknown_numbers_do_not_count() -> None:
    y = _numbers()
    y[:100] = np.nan
    rows = np.arange(ROWS)
    value, error = score_correlation(Estimate(rows, -np.nan_to_num(y), either_way=True), y)
    assert (value, error) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))
    assert score_correlation(Estimate(rows, -np.nan_to_num(y)[:, None]), y)[0] == pytest.approx(-1.0)
    assert score_correlation(Estimate(rows, np.ones(ROWS)), y) == (0.0, 1.0)
    spread = [
        score_correlation(Estimate(rows, np.random.default_rng(1000 + k).normal(size=ROWS)), y) for k in range(200)
    ]
    assert np.std([value for value, _ in spread]) == pytest.approx(np.mean([error for _, error in spread]), rel=0.2)


def test_what_counts_as_a_leak_of_a_number() -> None:
    def got(value: float, error: float = 0.01) -> AttackScore:
        return AttackScore(
            attack="labels: spectral",
            attacker="shop",
            victim="bank",
            target="labels",
            metric="correlation",
            value=value,
            baseline=0.0,
            known=0,
            rows=400,
            seed=0,
            error=error,
        )

    assert not measures_as_leak(got(0.09))
    assert measures_as_leak(got(0.12))
    assert not measures_as_leak(got(0.12, error=0.05)), "chance gives that much"
    assert "correlation 0.30 of labels" in describe_contradiction(got(0.3), "ok")


def _people(rows: int = 300) -> sv.Parties:
    draw = np.random.default_rng(0)
    x, ids = draw.normal(size=(rows, 4)), [f"p{i}" for i in range(rows)]
    amount = 1000 + 200 * (x @ [0.3, 0.5, 0.6, -0.5]) + 60 * draw.normal(size=rows)
    bank = sv.PartyTable(name="bank", ids=ids, columns={"a": x[:, 0]}, label=amount, label_name="amount")
    return sv.Parties.of(bank, sv.PartyTable(name="shop", ids=ids, columns={f"c{i}": x[:, i] for i in (1, 2, 3)}))


def test_a_job_that_learns_a_number_is_attacked_and_says_that_it_leaks() -> None:
    algorithm = sv.SplitNN(hidden=6, top=(6,), bottom=(6,), lr=0.01)
    job = sv.Job(task="regression", algorithm=algorithm, protection=sv.Plain(), epochs=2, batch_size=64)
    result = sv.attack(job, _people(), quick=True)
    best: dict[str, float] = {}
    for one in result.record.measured:
        best[one.attack.partition(":")[0]] = max(one.value, best.get(one.attack.partition(":")[0], 0.0))
        assert (one.metric == "correlation") == one.attack.startswith("labels"), one
    assert best["labels"] > 0.9
    assert best["features"] > 0.8
    assert {"attribute", "others' columns", "predictions", "membership", "saved parts"} <= set(best)
    assert best["saved parts"] == 0.0
    assert not result.contradictions
    assert not result.record.unstated
    assert "r2" in result.record.test
    assert "correlation of the true number" in render_attacks(result.record)
    nothing = [
        one for one in run_suite(negative_control(result.transcripts[0]), QUICK) if one.attack.startswith("labels")
    ]
    assert len(nothing) >= 5
    seen = [one for one in nothing if "completion" not in one.attack]  # a bottom is not a message
    assert not [one for one in seen if one.gain > 0.3], seen


def test_a_sealed_identity_bottom_gives_no_number_away() -> None:
    job = sv.Job(task="regression", algorithm="splitnn", protection=sv.BFV(), epochs=1, batch_size=64)
    result = sv.attack(job.replace(algorithm=sv.SplitNN(hidden=4, top=(4,))), _people(200), quick=True)
    assert not [one for one in result.record.measured if one.attack.startswith(("labels", "others'"))]
    assert not result.contradictions
    assert not result.record.unstated
