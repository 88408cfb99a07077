"""Temperature scaling: it finds the temperature that data were drawn with, moves no class, and `predict` applies it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import make_parties

import securevfl as sv
from securevfl.run.simulation import join_parties, run_parties
from securevfl.training.calibration import (
    FEWEST_TO_CHOOSE,
    apply_temperature,
    expected_calibration_error,
    fit_temperatures,
    temperature_of,
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
    found = fit_temperatures(*valid, *test)
    assert found is not None
    assert found.temperature == pytest.approx(temperature, rel=0.15)
    assert found.rows == 4000
    assert found.after < 0.03
    if temperature != 1.0:
        assert found.after < 0.5 * found.before


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(2, 6), st.floats(0.5, 10), st.integers(0, 99))
def test_scaled_probabilities_are_some_and_name_the_same_class(
    rows: int, classes: int, temperature: float, seed: int
) -> None:
    p, _ = _drawn(rows, classes, 1.0, seed)
    scaled = apply_temperature(p, temperature)
    np.testing.assert_allclose(scaled.sum(axis=1), 1)
    np.testing.assert_array_equal(scaled.argmax(axis=1), p.argmax(axis=1))
    np.testing.assert_allclose(apply_temperature(scaled, 1 / temperature), p, atol=1e-5)
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


def test_rows_that_say_nothing_give_no_temperature() -> None:
    p, labels = _drawn(FEWEST_TO_CHOOSE, 2, 2.0, 0)
    assert fit_temperatures(p, labels, p, labels) is not None
    assert fit_temperatures(p[1:], labels[1:], p, labels) is None  # too few
    assert fit_temperatures(p, p.argmax(axis=1), p, labels) is None  # all right: the surer, the better, without end
    assert fit_temperatures(p, 1 - p.argmax(axis=1), p, labels) is None  # all wrong


def test_predict_applies_what_the_active_party_fitted_and_no_message_is_more() -> None:
    people = make_parties(rows=600)
    job = sv.Job(
        protection=sv.Plain(),
        algorithm=sv.ZeroImputation(hidden=32, bottom=(32,), lr=0.05),
        epochs=6,
        batch_size=32,
        keep="last",
        valid=0.3,
    )
    aligned = join_parties(people, job)
    ran = run_parties(job, people, aligned, run="test")
    trained = ran.trained["bank"]
    assert set(trained.calibration) == {"whole", "alone"}
    assert all(one.rows == len(ran.split.valid) >= FEWEST_TO_CHOOSE for one in trained.calibration.values())
    assert {name for name, found in ran.trained.items() if "temperature" in found.model} == {"bank"}
    few = job.replace(valid=0.03)
    without = run_parties(few, people, aligned, run="test")
    assert without.trained["bank"].calibration == {}
    assert "temperature" not in without.trained["bank"].model
    assert [len(one.entries) for one in ran.ledgers.values()] == [
        len(one.entries) for one in run_parties(job, people, aligned, run="test").ledgers.values()
    ]
    model = sv.Model(job=job, parts={name: found.model for name, found in ran.trained.items()})
    bare = replace(people["bank"], label=None, classes=())
    new = sv.Parties.of(bare, *people.passive, active="bank")
    raw, scaled = (sv.predict(model, new, everyone=True, calibrated=on) for on in (False, True))
    assert raw.ids == scaled.ids
    for whose, count in (("whole", 3), ("alone", 1)):
        t = temperature_of(model.parts["bank"], whose)
        assert t == trained.calibration[whose].temperature != 1
        rows = [place for place, used in enumerate(raw.used) if len(used) == count]
        assert rows
        np.testing.assert_allclose(scaled.probabilities[rows], apply_temperature(raw.probabilities[rows], t), atol=1e-9)


def test_the_report_says_how_sure_scores_are() -> None:
    people = make_parties(rows=600)
    job = sv.Job(protection=sv.Plain(), algorithm=sv.Local(hidden=8, lr=0.05), epochs=2, batch_size=64)
    run = sv.simulate(job, people).run("plain")
    assert set(run.calibration) == {"whole", "alone"}
    assert set(run.calibration["whole"]) == {"temperature", "rows", "before", "after"}
    assert any("expected calibration error on the test rows" in note for note in run.notes)
    assert any("by the active party's own columns, without a message" in note for note in run.notes)
    assert run.alone == run.test  # what local is


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
