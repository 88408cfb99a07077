"""mFTL and SFHTL: their losses against slow references, and what they count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make
from torch import nn

import securevfl as sv
from securevfl.algorithms.field.mftl import label_signs, similarity_scores, transfer_loss
from securevfl.algorithms.field.sfhtl import mean_view
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.training import ActiveRole


def trained(name: str, classes: int = 2, passive: int = 1, **settings: Any) -> tuple[RunOutcome, ActiveRole]:
    algorithm = make(name, **settings)
    people = low_overlap_parties(passive, rows=150, classes=classes, overlap=0.4)
    job = sv.Job(
        protection=sv.Plain(), algorithm=algorithm, epochs=max(algorithm.least_epochs, 2), batch_size=32, seed=3
    )
    with roles_begun() as roles:
        ran = run_parties(job, people, join_parties(people, job), run="run")
    return ran, next(role for role in roles if isinstance(role, ActiveRole))


def test_labels_are_signs() -> None:
    assert label_signs(torch.tensor([0, 1, 1]), 2).tolist() == [[-1.0], [1.0], [1.0]]
    assert label_signs(torch.tensor([2, 0]), 3).tolist() == [[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]


def test_likeness_is_the_average_of_signed_inner_products() -> None:
    torch.manual_seed(0)
    u_a, u_b, y = torch.randn(7, 4), torch.randn(3, 4), label_signs(torch.tensor([0, 1, 1, 2, 0, 2, 1]), 3)
    phi = similarity_scores(u_a, y, u_b)
    for j in range(3):
        for k in range(3):
            slow = sum(float(y[i, k]) * float(u_a[i] @ u_b[j]) for i in range(7)) / 7
            assert float(phi[j, k]) == pytest.approx(slow, abs=1e-5)


def test_the_transfer_loss_and_its_expansion() -> None:
    phi, y = torch.tensor([[0.3, -2.0], [0.0, 1.5]]), torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    exact = transfer_loss(phi, y, taylor=False)
    slow = [sum(math.log1p(math.exp(-float(y[i, k] * phi[i, k]))) for k in range(2)) for i in range(2)]
    assert exact.tolist() == pytest.approx(slow)
    small = torch.linspace(-0.2, 0.2, 9)[:, None]
    ones = torch.ones_like(small)
    near = transfer_loss(small, ones, taylor=True) - transfer_loss(small, ones, taylor=False)
    assert float(near.abs().max()) < 0.2**4 / 100  # the expansion has no cubic term
    far = transfer_loss(10 * small, ones, taylor=True) - transfer_loss(10 * small, ones, taylor=False)
    assert float(far.abs().max()) > 0.01


@pytest.mark.parametrize("classes", [2, 3])
def test_the_objective_of_mftl_is_the_sum_of_its_parts(classes: int) -> None:
    _, role = trained("mftl", classes, transfer=0.7, alignment=0.2)
    torch.manual_seed(1)
    u_a, u_b = torch.rand(9, 6), torch.rand(4, 6)
    y = torch.arange(9) % classes
    federated: nn.Module = role.federated  # type: ignore[attr-defined]
    slow, sign = 0.0, label_signs(y, classes)
    with torch.no_grad():
        for j in range(4):
            logits = federated(torch.cat([u_a[j], u_b[j]])[None])
            slow += float(role.loss(logits, y[j : j + 1])) / 4
            for k in range(sign.shape[1]):
                phi = sum(float(sign[i, k]) * float(u_a[i] @ u_b[j]) for i in range(9)) / 9
                slow += 0.7 * math.log1p(math.exp(-float(sign[j, k]) * phi)) / 4
            slow += 0.2 * float((u_a[j] - u_b[j]).square().sum()) / 4
        assert float(role.compute_objective(u_a, u_b, y)) == pytest.approx(slow, rel=1e-5)  # type: ignore[attr-defined]


def test_mftl_hands_over_aligned_rows_only() -> None:
    ran, role = trained("mftl")
    sent = [e for e in ran.ledgers["shop1"].entries if e.what == "mftl/representations" and e.way == "sent"]
    rows = sum(e.shapes["u"][0] for e in sent)
    split = role.table.split
    assert rows == 2 * (len(split.train) + len(split.valid)) + len(split.test)


def test_the_mean_of_the_views_that_there_are() -> None:
    one, two = torch.tensor([[2.0], [4.0], [9.0]]), torch.tensor([[6.0], [9.0], [8.0]])
    there = [torch.tensor([True, True, False]), torch.tensor([True, False, True])]
    assert mean_view([one, two], there).tolist() == [[4.0], [4.0], [8.0]]


@pytest.mark.parametrize("passive", [1, 2])
def test_the_objective_of_sfhtl_is_the_sum_of_its_parts(passive: int) -> None:
    _, role = trained("sfhtl", 3, passive, distance=0.3)
    torch.manual_seed(1)
    views = [torch.rand(8, 6) for _ in range(1 + passive)]
    there = [torch.arange(8) < 6, *(torch.tensor([1, 1, 1, 0, 0, 0, 1 - n, n]) > 0 for n in range(passive))]
    if passive == 1:
        there[1][7] = True
    y = torch.arange(8) % 3
    classifier: nn.Module = role.classifier.model  # type: ignore[attr-defined]
    losses, distance = [], 0.0
    with torch.no_grad():
        for i in range(8):
            mine = [view[i] for view, has in zip(views, there, strict=True) if has[i]]
            seen = [*mine, torch.stack(mine).mean(dim=0)] if len(mine) > 1 else mine
            losses += [float(role.loss(classifier(one[None]), y[i : i + 1])) for one in seen]
        for view, has in zip(views[1:], there[1:], strict=True):
            both = [i for i in range(8) if has[i] and there[0][i]]
            distance += sum(float((view[i] - views[0][i]).square().sum()) for i in both) / len(both)
        slow = np.mean(losses) + 0.3 * distance
        found = role.compute_objective(views, [has.numpy() for has in there], y)  # type: ignore[attr-defined]
    assert float(found) == pytest.approx(slow, rel=1e-5)


def test_reconstruction_is_of_features() -> None:
    _, role = trained("sfhtl", reconstruction=0.5)
    role.draw_rows(1)  # type: ignore[attr-defined]
    rows = np.random.default_rng(role.seed("reconstruction", 1)).choice(role.rows, 32, replace=False)  # type: ignore[attr-defined]
    x = role.features(rows)
    with torch.no_grad():
        slow = 0.5 * float((role.decoder(role.bottom(x)) - x).square().mean())  # type: ignore[attr-defined]
        assert float(role.reconstruction_loss()) == pytest.approx(slow, rel=1e-5)  # type: ignore[attr-defined]


def test_sfhtl_counts_its_labels_and_warns_at_none() -> None:
    people = low_overlap_parties(1, rows=300)
    job = sv.Job(protection=sv.Plain(), algorithm=make("sfhtl", confidence=0.6), epochs=4, batch_size=32, seed=3)
    with roles_begun() as roles:
        (record,) = sv.simulate(job, people).record.runs
    active: Any = next(role for role in roles if isinstance(role, ActiveRole))
    y = active.y.numpy()[active.table.rows_only_at("shop1")]
    assert int(record.self_training.split(" of ")[0].replace(",", "")) == (y >= 0).sum() > 0
    assert "held out" in record.self_training
    none = sv.simulate(job.replace(algorithm=make("sfhtl", confidence=1.0)), people).record.runs[0]
    assert any("labelled none of" in warning for warning in none.warnings)
    off = sv.simulate(job.replace(algorithm=make("sfhtl", first=0)), people).record.runs[0]
    assert off.self_training == ""


def test_views_of_validation_rows_tell_how_many_labels_are_right() -> None:
    """From the passive party's view alone, by the classifier as it labelled."""
    _, role = trained("sfhtl", 3, confidence=0.5)
    tally: Any = role.tally  # type: ignore[attr-defined]
    assert tally.held == len(role.table.split.valid)
    assert 0 < tally.held_right <= tally.held_sure <= tally.held


def test_configurations_refuse_identity_bottoms() -> None:
    for name in ("mftl", "sfhtl", "few_shot_vfl"):
        with pytest.raises(sv.InputError, match="would send the features themselves"):
            make(name, bottom=())
