"""Losses in numpy: their derivatives against finite differences, their constants against a search, their values
against scikit-learn's deviances and, where a network has the same loss, against torch."""

import numpy as np
import pytest
from sklearn import metrics

import securevfl as sv
from securevfl.training.objectives import NUMBER_LOSSES, check_numbers_fit, find_objective

ALL = (*NUMBER_LOSSES, "logistic", "softmax")


def _rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    raw = rng.normal(size=(40, 3 if name == "softmax" else 1))
    y = {"logistic": rng.integers(0, 2, 40), "softmax": rng.integers(0, 3, 40), "poisson": rng.poisson(1.0, 40)}
    amounts = rng.gamma(1, 2, 40) * rng.integers(0, 2, 40) if name == "tweedie" else rng.normal(size=40) * 3
    return raw, y.get(name, amounts)


@pytest.mark.parametrize("name", ALL)
def test_derivatives_are_those_of_the_loss(name: str) -> None:
    raw, y = _rows(name)
    one = find_objective(name, classes=3)
    g, h = one.compute_derivatives(raw, y)
    step = 1e-4
    for k in range(one.outputs):
        up, down = raw.copy(), raw.copy()
        up[:, k] += step
        down[:, k] -= step
        slope = (one.compute_losses(up, y) - one.compute_losses(down, y)) / (2 * step)
        assert g[:, k] == pytest.approx(slope, abs=1e-4)
        bend = (one.compute_losses(up, y) - 2 * one.compute_losses(raw, y) + one.compute_losses(down, y)) / step**2
        if name == "huber":  # the parabola above it: exact inside, larger outside
            inside = np.abs(raw[:, 0] - y) < 0.99
            assert h[inside, k] == pytest.approx(bend[inside], abs=1e-3)
            assert (h[:, k] >= bend - 1e-3).all()
        else:
            assert h[:, k] == pytest.approx(bend, abs=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_the_start_has_the_least_loss_of_all_constants(name: str, weighted: bool) -> None:
    _raw, y = _rows(name)
    weight = np.random.default_rng(1).uniform(0, 2, len(y)) if weighted else np.ones(len(y))
    one = find_objective(name, classes=3)
    start = one.initial_score(y, weight if weighted else None)
    g, _ = one.compute_derivatives(np.tile(start, (len(y), 1)), y)
    assert (weight[:, None] * g).sum(axis=0) == pytest.approx(np.zeros(one.outputs), abs=1e-6)


def test_huber_s_parabola_lies_above_the_loss() -> None:
    one, y, raw = find_objective("huber", delta=0.7), np.zeros(1), np.array([[5.0]])
    g, h = one.compute_derivatives(raw, y)
    for f in np.linspace(-9, 9, 50):
        bound = one.compute_losses(raw, y) + g[0] * (f - 5.0) + h[0] * (f - 5.0) ** 2 / 2
        assert one.compute_losses(np.array([[f]]), y) <= bound + 1e-12


@pytest.mark.parametrize(("name", "power"), [("squared", 0.0), ("poisson", 1.0), ("tweedie", 1.5)])
def test_losses_move_as_scikit_learn_s_deviances_do(name: str, power: float) -> None:
    raw, y = _rows(name)
    one = find_objective(name, power=1.5)
    flat = np.tile(one.initial_score(y), (len(y), 1))
    moved = one.compute_losses(raw, y).mean() - one.compute_losses(flat, y).mean()
    deviances = [metrics.mean_tweedie_deviance(y, one.to_predictions(f)[:, 0], power=power) for f in (raw, flat)]
    assert 2 * moved == pytest.approx(deviances[0] - deviances[1])


def test_what_a_loss_is_not_for_is_refused_with_the_cure() -> None:
    with pytest.raises(sv.InputError, match=r"goes down to -1.*'squared' or 'huber'"):
        check_numbers_fit("poisson", np.array([0.0, -1.0]), "here")
    with pytest.raises(sv.InputError, match="nothing to learn"):
        check_numbers_fit("squared", np.ones(3), "here")
    with pytest.raises(sv.InputError, match="lies between 1 and 2"):
        find_objective("tweedie", power=2.0)
    with pytest.raises(sv.InputError, match="positive number"):
        find_objective("huber", delta=0)
    with pytest.raises(sv.UnknownNameError, match="squared"):
        find_objective("sqared")
