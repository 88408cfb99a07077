"""Feature attacks: exact on identity features with known records, up to a rotation without any, nothing from noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.attack_views import TRAIN, linear

from securevfl.attacks import feature_inference, gram
from securevfl.attacks.learners import fit_ridge, linear_solve
from securevfl.attacks.measure import Known, draw_known, r_squared


@pytest.mark.parametrize("which", ["trained", "scored"])
@pytest.mark.parametrize("learner", ["linear", "ridge"])
def test_identity_features_follow_from_known_records(which: feature_inference.Which, learner: str) -> None:
    """The positive control: all looks at a row are more numbers than there are columns."""
    view, x = linear(epochs=8, batch=200)
    rows, seen = feature_inference.stacked_observations(view, "shop", which)
    assert seen.shape[1] == 8 * 4
    known = draw_known(rows, x, 60, 0)
    found = feature_inference.infer_columns(view, "shop", known, learner=learner, which=which).exclude_rows(known.rows)
    assert r_squared(found.values, x[found.rows]) >= 0.99


@pytest.mark.parametrize("learner", list(feature_inference.LEARNERS))
def test_noise_in_place_of_the_view_tells_nothing(learner: str) -> None:
    view, x = linear()
    known = draw_known(view.train, x, 72, 0)
    found = feature_inference.infer_columns(view.replace_with_noise(0), "shop", known, learner=learner).exclude_rows(
        known.rows
    )
    assert r_squared(found.values, x[found.rows]) < 0.05


def test_the_baseline_sees_nothing() -> None:
    view, x = linear()
    known = draw_known(view.train, x, 72, 0)
    own = feature_inference.infer_columns_baseline(view, "shop", known)
    assert np.array_equal(
        own.values, feature_inference.infer_columns_baseline(view.replace_with_noise(1), "shop", known).values
    )
    with_own = feature_inference.infer_columns_with_own(view, "shop", known).exclude_rows(known.rows)
    assert r_squared(with_own.values, x[with_own.rows]) > 0.8


def test_a_perceptron_bends_where_a_line_does_not() -> None:
    view, x = linear()
    rows, seen = feature_inference.stacked_observations(view, "shop", "trained")
    bent = np.abs(x[:, :1])
    known = draw_known(rows, bent, 300, 0)
    rest = ~np.isin(rows, known.rows)
    line, curve = (feature_inference.LEARNERS[name](rows, seen, known) for name in ("ridge", "perceptron"))
    assert r_squared(curve.values[rest], bent[rows[rest]]) > r_squared(line.values[rest], bent[rows[rest]]) + 0.3


def test_a_linear_map_is_solved_by_as_many_records_as_columns() -> None:
    draw = np.random.default_rng(0)
    seen, truth = draw.normal(size=(50, 5)), draw.normal(size=(5, 3))
    target = seen @ truth + 2.0
    known = Known(np.arange(6), target[:6])
    assert np.allclose(linear_solve(np.arange(50), seen, known).values, target)
    assert not np.allclose(linear_solve(np.arange(50), seen, Known(np.arange(4), target[:4])).values, target)
    assert r_squared(fit_ridge(np.arange(50), seen, Known(np.arange(30), target[:30])).values, target) > 0.999


def test_r_squared_is_of_standardised_columns() -> None:
    draw = np.random.default_rng(0)
    truth = np.column_stack([draw.normal(size=100), 100 * draw.normal(size=100), np.ones(100)])
    mean = np.tile(truth.mean(axis=0), (100, 1))
    assert r_squared(truth, truth) == 1.0
    assert r_squared(mean, truth) == pytest.approx(0.0)
    half = mean.copy()
    half[:, 1] = truth[:, 1]
    assert r_squared(half, truth) == pytest.approx(0.5)


def _solved(view: gram.PartyView, x: np.ndarray) -> tuple[float, float]:
    shown = gram.observations_of(view)
    assert shown is not None
    assert shown.is_solvable
    found, left = gram.factor_gram(shown)
    return gram.gram_error(found, x[shown.order]), left


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 1e-3), (0.9, 1e-3)])
def test_every_rule_of_the_cut_is_solved_without_a_known_record(momentum: float, decay: float) -> None:
    view, x = linear(momentum=momentum, decay=decay)
    error, left = _solved(view, x)
    assert left < 1e-6
    assert error < 1e-4


def test_the_rule_has_to_be_known() -> None:
    view, x = linear(momentum=0.9)
    assert view.rule is not None
    assert _solved(replace(view, rule=replace(view.rule, momentum=0.0)), x)[0] > 0.05


def test_full_batches_in_closed_form() -> None:
    view, x = linear(batch=TRAIN)
    shown = gram.observations_of(view)
    assert shown is not None
    assert gram.gram_error(gram.full_batch(shown), x[np.sort(shown.order[:TRAIN])]) < 1e-6


def test_too_few_looks_are_not_solved() -> None:
    view, _ = linear(epochs=2, width=6, h=4)
    shown = gram.observations_of(view)
    assert shown is not None
    assert not shown.is_solvable
    assert gram.observations_of(replace(view, steps={})) is None
    assert gram.observations_of(replace(view, valid=np.arange(0))) is None


def test_the_gram_error_is_what_it_says() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(30, 4)), draw.normal(size=(30, 4))
    direct = np.linalg.norm(a @ a.T - b @ b.T) / np.linalg.norm(b @ b.T)
    assert gram.gram_error(a, b) == pytest.approx(direct)
    rotation = np.linalg.qr(draw.normal(size=(4, 4)))[0]
    assert gram.gram_error(b @ rotation, b) < 1e-7
