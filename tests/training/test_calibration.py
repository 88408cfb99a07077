"""Calibration: it finds what data were drawn with, only where cross-validation gains, and one set of probabilities is
reported, predicted and served."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import make_parties

import securevfl as sv
from securevfl.run.simulation import join_parties, run_parties
from securevfl.training import Trained
from securevfl.training.active_program import ActiveProgram, Progress
from securevfl.training.calibration import (
    FEWEST_TO_CHOOSE,
    Correction,
    calibrate,
    correction_of,
    expected_calibration_error,
    fit_correction,
)


def _drawn(rows: int, classes: int, temperature: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are too sure by `temperature`, and classes drawn from the right ones."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(rows, classes))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sure = np.exp(logits * temperature) / np.exp(logits * temperature).sum(axis=1, keepdims=True)
    labels = (rng.random((rows, 1)) > true.cumsum(axis=1)).sum(axis=1).clip(max=classes - 1)
    return sure, labels


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_temperature_of_the_data_is_found_and_the_error_falls(temperature: float, classes: int) -> None:
    valid, test = (_drawn(4000, classes, temperature, seed) for seed in (0, 1))
    found = calibrate(*valid, *test)
    if temperature == 1.0:
        assert found is None  # nothing to gain
        return
    assert found is not None
    assert found.correction.temperature == pytest.approx(temperature, rel=0.15)
    assert found.rows == 4000
    assert found.gain > 0.01
    assert found.after < min(0.03, 0.5 * found.before)


@pytest.mark.parametrize("classes", [2, 4])
def test_an_intercept_is_found_where_a_class_is_scored_too_low(classes: int) -> None:
    (p, labels), (test, true) = (_drawn(4000, classes, 1.0, seed) for seed in (0, 1))
    low = Correction(2.0, (-1.5, *[1.5 / (classes - 1)] * (classes - 1)))
    found, bare = (calibrate(low.apply(p), labels, low.apply(test), true, intercept=on) for on in (True, False))
    assert found is not None
    assert found.correction.temperature == pytest.approx(0.5, rel=0.15)
    assert found.correction.intercept[0] == pytest.approx(1.5 * 2, rel=0.25) or classes > 2
    assert sum(found.correction.intercept) == pytest.approx(0)
    assert found.after < 0.03
    assert bare is None or (not bare.correction.intercept and found.gain > bare.gain)
    np.testing.assert_allclose(found.correction.apply(low.apply(test)), test, atol=0.06)


def test_the_fit_is_that_of_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    p, labels = _drawn(3000, 2, 2.0, 3)
    found = fit_correction(Correction(1.0, (0.5, -0.5)).apply(p), labels)
    assert found is not None
    logits = np.log(p[:, 1] / p[:, 0]) - 1
    platt = LogisticRegression(C=1e6).fit(logits[:, None], labels)
    assert 1 / found[0].temperature == pytest.approx(platt.coef_[0, 0], rel=0.01)
    assert found[0].intercept[1] - found[0].intercept[0] == pytest.approx(platt.intercept_[0], abs=0.02)


@pytest.mark.parametrize("shift", [-3.0, 3.0])
def test_a_large_shift_of_all_scores_is_found(shift: float) -> None:
    """As of a model that weighted one class: the first step of the search would leave the range of temperatures."""
    p, labels = _drawn(400, 2, 1.0, 0)
    shifted = Correction(1.0, (shift / 2, -shift / 2)).apply(p)
    found = fit_correction(shifted, labels)
    assert found is not None
    assert found[0].intercept[1] - found[0].intercept[0] == pytest.approx(shift, abs=0.8)
    np.testing.assert_allclose(found[0].apply(shifted), p, atol=0.15)


def test_few_rows_by_chance_do_not_move_probabilities_that_are_right() -> None:
    """Of 54 rows a fitted temperature alone is never exactly 1; cross-validation keeps nearly all as they are."""
    drawn = [_drawn(54, 2, 1.0, seed) for seed in range(60)]
    assert sum(fit_correction(*one) is not None for one in drawn) <= 9


def test_rows_count_by_their_weights() -> None:
    sure, labels = _drawn(2000, 2, 3.0, 0)
    fair, more = _drawn(2000, 2, 1.0, 1)
    both, all_labels = np.concatenate([sure, fair]), np.concatenate([labels, more])
    light = np.repeat([1e-6, 1.0], 2000)
    assert fit_correction(both, all_labels, weight=light) is None
    heavy = fit_correction(both, all_labels, weight=light[::-1])
    assert heavy is not None
    assert heavy[0].temperature == pytest.approx(3.0, rel=0.15)


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(2, 6), st.floats(0.5, 10), st.integers(0, 99))
def test_scaled_probabilities_are_some_and_name_the_same_class(
    rows: int, classes: int, temperature: float, seed: int
) -> None:
    p, _ = _drawn(rows, classes, 1.0, seed)
    scaled = Correction(temperature).apply(p)
    np.testing.assert_allclose(scaled.sum(axis=1), 1)
    np.testing.assert_array_equal(scaled.argmax(axis=1), p.argmax(axis=1))
    np.testing.assert_allclose(Correction(1 / temperature).apply(scaled), p, atol=1e-5)
    logits = np.log(p)
    wide = np.exp(logits / temperature)
    np.testing.assert_allclose(scaled, wide / wide.sum(axis=1, keepdims=True), atol=1e-9)


def test_the_error_is_that_of_equation_3() -> None:
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.42, 0.58]])
    labels = np.array([0, 1, 1, 1])
    # Bins of 1/15: 0.9 and 0.9 in one (accuracy 0.5), 0.6 in one, 0.58 in one.
    wanted = (2 * abs(0.5 - 0.9) + abs(1 - 0.6) + abs(1 - 0.58)) / 4
    assert expected_calibration_error(p, labels) == pytest.approx(wanted)
    assert expected_calibration_error(p[:0], labels[:0]) == 0


def test_rows_that_say_nothing_give_no_correction() -> None:
    p, labels = _drawn(FEWEST_TO_CHOOSE, 2, 4.0, 0)
    assert fit_correction(p, labels) is not None
    assert fit_correction(p[1:], labels[1:]) is None  # too few
    assert fit_correction(p, p.argmax(axis=1)) is None  # all right: the surer, the better, without end
    assert fit_correction(p, 1 - p.argmax(axis=1)) is None  # all wrong


def test_a_class_without_rows_stays_finite() -> None:
    p, labels = _drawn(400, 3, 3.0, 0)
    found = fit_correction(p[labels < 2], labels[labels < 2])
    assert found is not None
    assert np.isfinite(found[0].apply(p)).all()


def test_a_model_of_an_earlier_version_keeps_its_temperature() -> None:
    assert correction_of({"temperature": {"whole": 2.0}}, "whole") == Correction(2.0)
    assert correction_of({"temperature": {"whole": 2.0}}, "alone") == correction_of({}, "whole") == Correction()


def _unsure(rows: int = 800) -> sv.Parties:
    """Parties of whose labels a quarter is drawn anew, so that a model can be too sure."""
    people, rng = make_parties(rows=rows), np.random.default_rng(0)
    bank = people["bank"]
    label = np.where(rng.random(bank.rows) < 0.25, 1 - np.asarray(bank.label), bank.label)
    return sv.Parties.of(replace(bank, label=label), *people.passive)


OVERFITTED = sv.Job(
    protection=sv.Plain(),
    algorithm=sv.ZeroImputation(hidden=32, bottom=(32,), lr=0.05),
    epochs=20,
    batch_size=32,
    keep="last",
    valid=0.3,
)


def test_predict_applies_what_the_active_party_fitted_and_no_message_is_more() -> None:
    people, job = _unsure(), OVERFITTED
    aligned = join_parties(people, job)
    ran = run_parties(job, people, aligned, run="test")
    trained = ran.trained["bank"]
    assert set(trained.calibration) == {"whole", "alone"}
    assert all(one.rows == len(ran.split.valid) >= FEWEST_TO_CHOOSE for one in trained.calibration.values())
    assert {name for name, found in ran.trained.items() if "calibration" in found.model} == {"bank"}
    few = job.replace(valid=0.05)
    without = run_parties(few, people, aligned, run="test")
    assert without.trained["bank"].calibration == {}
    assert "calibration" not in without.trained["bank"].model
    assert [len(one.entries) for one in ran.ledgers.values()] == [
        len(one.entries) for one in run_parties(job, people, aligned, run="test").ledgers.values()
    ]
    model = sv.Model(job=job, parts={name: found.model for name, found in ran.trained.items()})
    bare = replace(people["bank"], label=None, classes=())
    new = sv.Parties.of(bare, *people.passive, active="bank")
    raw, scaled = (sv.predict(model, new, everyone=True, calibrated=on) for on in (False, True))
    assert raw.ids == scaled.ids
    for whose, count in (("whole", 3), ("alone", 1)):
        correction = correction_of(model.parts["bank"], whose)
        assert correction == trained.calibration[whose].correction != Correction()
        rows = [place for place, used in enumerate(raw.used) if len(used) == count]
        assert rows
        np.testing.assert_allclose(scaled.probabilities[rows], correction.apply(raw.probabilities[rows]), atol=1e-9)


def test_the_report_measures_the_probabilities_that_predictions_give() -> None:
    """The report measured a model before its temperature, and every prediction came after it."""
    people = _unsure()
    result = sv.simulate(OVERFITTED, people)
    run = result.run("plain")
    assert set(run.calibration) == {"whole", "alone"}
    answers = sv.predict(result.model(), people)
    place = {name: at for at, name in enumerate(answers.ids)}
    again = answers.probabilities[[place[name] for name in result.test_ids]]
    np.testing.assert_allclose(again, result.scores["plain"], atol=1e-6)
    bank = people["bank"]
    known = dict(zip(bank.ids, bank.label, strict=True))
    labels = np.array([known[name] for name in result.test_ids])
    assert run.test["log_loss"] == pytest.approx(-np.log(again[np.arange(len(again)), labels]).mean(), abs=1e-6)
    assert run.evaluation is not None
    assert run.evaluation.metrics["ece"] == pytest.approx(expected_calibration_error(again, labels), abs=1e-6)
    assert run.evaluation.metrics["ece"] == pytest.approx(run.calibration["whole"]["after"])
    single = sv.predict(result.model(), sv.Parties.of(bank, active="bank"))
    place = {name: at for at, name in enumerate(single.ids)}
    alone = single.probabilities[[place[name] for name in result.test_ids]]
    assert run.alone["log_loss"] == pytest.approx(-np.log(alone[np.arange(len(alone)), labels]).mean(), abs=1e-6)


@pytest.mark.parametrize("left", [False, True])
def test_scores_of_a_party_that_left_calibrate_nothing(left: bool) -> None:
    """A training that was over is resumed: the kept model loses the party's columns, and has other scores."""
    program = ActiveProgram.__new__(ActiveProgram)
    program.trained = Trained()
    checkpoints: Any = SimpleNamespace(is_finished=lambda saved: True, has_fewer_parties=lambda saved: left)
    program.checkpoints = checkpoints
    progress = Progress(kept=None, scores=torch.full((60, 2), 0.5), best=0.7, epoch=3, stop=True)
    saved = {"best_epoch": 3, "history": [], "progress": asdict(progress), "stopped": "all epochs done"}
    found = program.resume_from(saved)
    assert found.stop
    assert (found.scores is None) is left


def test_weights_of_classes_are_not_taken_back() -> None:
    """Rows of one class count twenty times; an intercept would undo that."""
    people = _unsure()
    rarer = {str(people["bank"].classes[1]): 20.0}
    job = OVERFITTED.replace(algorithm=sv.SplitNN(hidden=8, lr=0.01), class_weight=rarer)
    result = sv.simulate(job, people)
    assert not result.run("plain").calibration.get("whole", {}).get("intercept")
    (scores,) = result.scores.values()
    assert scores.argmax(axis=1).mean() > 0.8


def test_members_of_an_average_are_averaged_as_they_are() -> None:
    people = _unsure()
    job = OVERFITTED.replace(algorithm=sv.Best(methods=("local", "zero_imputation"), hidden=32, lr=0.05))
    result = sv.simulate(job, people)
    members = result.model().parts["bank"]["parts"]["members"]
    assert members
    assert not any("calibration" in member for member in members.values())


def test_the_report_says_how_sure_scores_are() -> None:
    people = _unsure()
    run = sv.simulate(OVERFITTED, people).run("plain")
    assert set(run.calibration) == {"whole", "alone"}
    assert set(run.calibration["whole"]) == {"temperature", "intercept", "rows", "gain", "before", "after"}
    assert any("expected calibration error on the test rows" in note for note in run.notes)
    assert any("by the active party's own columns, without a message" in note for note in run.notes)
    local = sv.simulate(OVERFITTED.replace(algorithm=sv.Local(hidden=16, lr=0.05)), people).run("plain")
    assert local.alone == local.test  # what local is


def test_labels_that_were_drawn_and_models_with_noise_get_none() -> None:
    people = make_parties(rows=600)
    noise = sv.Gaussian(epsilon=8.0, clip=1.0)
    for algorithm, dp in (
        (sv.SplitNN(hidden=4), sv.DP(labels=sv.RandomisedResponse(epsilon=2.0))),
        (sv.Local(hidden=4), sv.DP(model=noise)),
    ):
        job = sv.Job(algorithm=algorithm, epochs=1, batch_size=64, protection=sv.Plain(dp=dp))
        ran = run_parties(job, people, join_parties(people, job), run="test")
        assert ran.trained["bank"].calibration == {}


def test_on_shares_report_and_prediction_differ_by_one_step_of_rounding_at_most() -> None:
    """Opened log-odds are rounded at 1/16, up or down by chance at each opening; nothing else is between them."""
    people = make_parties(rows=200)
    job = sv.Job(algorithm=sv.LogisticRegression(), protection=sv.Shares(), epochs=1, batch_size=64, keep="last")
    result = sv.simulate(job, people)
    answers = sv.predict(result.model(), people)
    place = {name: at for at, name in enumerate(answers.ids)}
    again = answers.probabilities[[place[name] for name in result.test_ids]]
    (scores,) = result.scores.values()
    log_odds = [np.log(p[:, 1] / p[:, 0]) for p in (again, scores)]
    assert len(log_odds[0]) > 20
    assert np.abs(log_odds[0] - log_odds[1]).max() <= 1 / 16 + 1e-9
