"""Randomised response: its probabilities, its correction, and that each label is drawn once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from securevfl.errors import InputError
from securevfl.privacy import LabelRelease, PureRelease, randomised_response
from securevfl.privacy.labels import forward_correction, response_probabilities


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (2, 0.2), (5, 2.0)])
def test_labels_are_drawn_with_the_stated_probabilities(classes: int, epsilon: float) -> None:
    n, true = 60_000, classes - 1
    drawn = randomised_response(np.full(n, true), classes, epsilon)
    stay, swap = response_probabilities(classes, epsilon)
    assert stay / swap == pytest.approx(math.exp(epsilon))
    expected = np.full(classes, swap * n)
    expected[true] = stay * n
    assert stats.chisquare(np.bincount(drawn, minlength=classes), expected).pvalue > 1e-6


def test_every_class_is_drawn_alike_from_every_other() -> None:
    labels = np.tile(np.arange(4), 20_000)
    drawn = randomised_response(labels, 4, 1.5)
    table = np.zeros((4, 4))
    np.add.at(table, (labels, drawn), 1)
    stay, swap = response_probabilities(4, 1.5)
    expected = np.full((4, 4), swap * 20_000) + np.eye(4) * (stay - swap) * 20_000
    assert 1e-7 < stats.chi2.cdf(((table - expected) ** 2 / expected).sum(), 12) < 1 - 1e-7


def test_the_correction_is_the_draw_of_the_models_probabilities() -> None:
    logits = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stay, swap = response_probabilities(4, 1.0)
    transition = torch.full((4, 4), swap) + torch.eye(4) * (stay - swap)
    expected = torch.softmax(logits, 1) @ transition.double()
    assert torch.allclose(torch.softmax(forward_correction(logits, 4, 1.0), 1), expected, atol=1e-7)
    two = forward_correction(logits[:, :1], 2, 1.0)
    stay, swap = response_probabilities(2, 1.0)
    p = torch.sigmoid(logits[:, :1])
    assert torch.allclose(torch.sigmoid(two), stay * p + swap * (1 - p))
    assert torch.isfinite(forward_correction(torch.tensor([[1e4], [-1e4]]), 2, 8.0)).all()


def test_the_corrected_loss_is_least_at_the_true_probability() -> None:
    """Without the correction it would be least at the drawn labels' frequency."""
    share, epsilon = 0.2, 1.0
    labels = (np.arange(50_000) < share * 50_000).astype(np.int64)
    drawn = torch.from_numpy(randomised_response(labels, 2, epsilon)).double()
    logits = torch.linspace(-4, 2, 601, dtype=torch.float64)[:, None]
    q = torch.sigmoid(forward_correction(logits, 2, epsilon))[:, 0]
    loss = -(drawn.mean() * torch.log(q) + (1 - drawn.mean()) * torch.log(1 - q))
    assert float(torch.sigmoid(logits[loss.argmin(), 0])) == pytest.approx(share, abs=0.03)
    assert abs(float(drawn.mean()) - share) > 0.1


def test_one_person_is_drawn_for_once_and_held_out_labels_stay() -> None:
    labels = torch.tensor([0, 1] * 200 + [-1] * 3)
    person = np.arange(403)
    person[200:400] = np.arange(200)  # each by two numbers
    rows = np.r_[0:100, 200:300, 400:403]
    release = LabelRelease(labels, rows, classes=2, epsilon=0.5, delta=1e-5, person=person)
    drawn = release.replace_labels(labels)
    assert torch.equal(drawn[:100], drawn[200:300])
    assert torch.equal(drawn[100:200], labels[100:200])
    assert torch.equal(drawn[400:], labels[400:])
    assert 10 < int((drawn != labels)[:100].sum()) < 70  # 38 of 100 on average
    again = LabelRelease(labels, rows, classes=2, epsilon=0.5, delta=1e-5, person=person)
    again.load_state(release.get_state())
    assert torch.equal(again.replace_labels(labels), drawn)
    spent = release.cost_so_far
    assert (spent.times, spent.protects, spent.release) == (1, ("labels",), PureRelease(0.5, 1, 2))
    assert spent.epsilon_prv == 0.5
    assert spent.epsilon_rdp <= 0.5
    with pytest.raises(TypeError):
        again.load_state({"drawn": torch.zeros(3)})


@pytest.mark.parametrize(
    ("labels", "classes", "epsilon"), [([0, 2], 2, 1.0), ([0, -1], 2, 1.0), ([0], 2, 0), ([0], 2, 21), ([0], 1, 1)]
)
def test_what_cannot_be_randomised_is_refused(labels: list[int], classes: int, epsilon: float) -> None:
    with pytest.raises(InputError):
        randomised_response(np.array(labels), classes, epsilon)
