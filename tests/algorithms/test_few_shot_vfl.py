"""One-shot and few-shot VFL: its parts against slow references, its rounds against the paper's, what it counts."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make
from torch import nn

import securevfl as sv
from securevfl.algorithms.field.few_shot_vfl.fixmatch import (
    augment_strongly,
    augment_weakly,
    cluster_directions,
    cluster_purity,
    fixmatch_loss,
)
from securevfl.algorithms.field.few_shot_vfl.server import keep_agreed
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun


def job(few_shot: bool = True, **settings: object) -> sv.Job:
    return sv.Job(
        protection=sv.Plain(),
        algorithm=make("few_shot_vfl", few_shot=few_shot, **settings),
        epochs=3,
        batch_size=32,
        seed=3,
    )


@functools.cache
def ran(few_shot: bool, passive: int = 1) -> RunOutcome:
    people, work = low_overlap_parties(passive, rows=200, overlap=0.4), job(few_shot)
    return run_parties(work, people, join_parties(people, work), run="run")


@pytest.mark.parametrize("passive", [1, 2])
@pytest.mark.parametrize(("few_shot", "uploads", "downloads"), [(False, 2, 1), (True, 3, 2)])
def test_rounds_are_those_of_the_paper(few_shot: bool, uploads: int, downloads: int, passive: int) -> None:
    """One-shot: two uploads and a download for each client. Few-shot: "just one more communication round"."""
    found = ran(few_shot, passive)
    for number in range(passive):
        entries = found.ledgers[f"shop{number + 1}"].entries
        sent = [e for e in entries if e.way == "sent" and e.what == "few_shot_vfl/upload"]
        got = [e for e in entries if e.way == "received" and e.what == "few_shot_vfl/gradient"]
        assert (len(sent), len(got)) == (uploads, downloads)
        steps = {e.what for e in entries if e.kind.value in ("representation", "gradient")}
        assert steps == {"few_shot_vfl/upload", "few_shot_vfl/gradient", "few_shot_vfl/answer"}
        answers = [e for e in entries if e.what == "few_shot_vfl/answer"]
        assert len(answers) == 1  # the test rows; validation rows came with the last upload


def test_bytes_do_not_grow_with_epochs() -> None:
    people = low_overlap_parties(1, rows=120, overlap=0.4)

    def sent(epochs: int) -> int:
        work = job().replace(epochs=epochs)
        entries = run_parties(work, people, join_parties(people, work), run="run").ledgers["shop1"].entries
        return sum(e.bytes for e in entries if e.way == "sent" and e.kind.value == "representation")

    assert sent(1) == sent(4)


@pytest.mark.parametrize(("few_shot", "uploads"), [(False, 2), (True, 3)])
def test_uploads_are_all_that_noise_is_sized_for(few_shot: bool, uploads: int) -> None:
    """However many epochs: the classifier trains on what was uploaded."""
    people = low_overlap_parties(1, rows=120, overlap=0.4)
    dp = sv.DP(features=sv.Gaussian(epsilon=8.0))
    multipliers = set()
    for epochs in (1, 5):
        work = job(few_shot).replace(epochs=epochs, protection=sv.Plain(dp=dp))
        (spent,) = run_parties(work, people, join_parties(people, work), run="run").trained["shop1"].spent
        assert spent.times == uploads
        assert spent.epsilon_rdp <= 8.0 + 1e-6
        multipliers.add(spent.noise_multiplier)
    assert len(multipliers) == 1


def test_groups_are_those_of_k_means() -> None:
    """Against scikit-learn's, on directions that fall apart into three."""
    from sklearn.cluster import KMeans

    generator = np.random.default_rng(0)
    centres = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0.3, 1.0, 0]])
    label = generator.integers(3, size=60)
    points = (centres[label] + 0.15 * generator.normal(size=(60, 4))) * generator.uniform(0.01, 10, size=(60, 1))
    group = cluster_directions(torch.from_numpy(points), 3, seed=1)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    slow = KMeans(3, n_init=10, random_state=0).fit(unit).labels_
    pairs = {(int(a), int(b)) for a, b in zip(group, slow, strict=True)}
    assert len(pairs) == 3  # the same groups under other names
    assert cluster_purity(group, torch.from_numpy(label)) == cluster_purity(
        torch.from_numpy(slow).long(), torch.from_numpy(label)
    )


def test_groups_of_few_or_equal_points() -> None:
    assert cluster_directions(torch.ones(2, 3), 5, seed=0).tolist() == [0, 0]
    assert len(set(cluster_directions(torch.eye(3), 3, seed=0).tolist())) == 3


def test_purity_by_hand() -> None:
    assert cluster_purity(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([1, 1, 0, 0, 0])) == pytest.approx(4 / 5)


def test_gradients_of_two_classes_are_told_apart() -> None:
    """What step 3 rests on, and what it leaks: a new classifier's gradients group rows by their labels exactly."""
    with roles_begun() as roles:
        people, work = low_overlap_parties(1, rows=200, classes=3, overlap=0.5), job()
        run_parties(work, people, join_parties(people, work), run="run")
    active = next(role for role in roles if role.site.role == "active")
    first, second = active.pure  # type: ignore[attr-defined]
    assert first == 1.0
    assert second > 0.95


@pytest.mark.parametrize("weight", [0.0, 0.7])
@torch.no_grad()
def test_fixmatch_against_ten_lines(weight: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    model.weight.mul_(2)
    x, y, u, v = torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0]), 3 * torch.randn(7, 4), 3 * torch.randn(7, 4)
    slow, p = 0.0, torch.softmax
    for row, label in zip(x, y, strict=True):
        slow -= math.log(float(p(model(row), dim=0)[label])) / 5
    counted = 0
    for lightly, heavily in zip(u, v, strict=True):
        sure = p(model(lightly), dim=0)
        if float(sure.max()) >= 0.7:
            counted += 1
            slow -= weight * math.log(float(p(model(heavily), dim=0)[sure.argmax()])) / 7
    assert 0 < counted < 7
    loss = fixmatch_loss(model, (x, y), (u, v), confidence=0.7, weight=weight)
    assert float(loss) == pytest.approx(slow, rel=1e-5)


def test_augmentations() -> None:
    torch.manual_seed(0)
    x, mean = torch.randn(400, 5), torch.full((1, 5), 9.0)
    masked = augment_weakly(x, mean, 0.3)
    replaced = masked == 9.0
    assert torch.equal(masked[~replaced], x[~replaced])
    assert 0.25 < float(replaced.float().mean()) < 0.35
    noisy = augment_strongly(x, mean, 0.0, 0.5) - x
    assert 0.45 < float(noisy.std()) < 0.55
    image = torch.arange(64.0).reshape(1, 1, 8, 8).expand(30, 1, 8, 8)
    moved = augment_weakly(image, mean, 0.3)
    inner = (moved - image)[:, 0, 2:6, 2:6].flatten(1)
    assert torch.equal(inner.amin(dim=1), inner.amax(dim=1))  # each image by one shift
    assert set((inner[:, 0] + 9).tolist()) <= {8.0 * down + right for down in range(3) for right in range(3)}
    assert len(set(inner[:, 0].tolist())) > 3


def test_what_a_party_lacks_is_estimated_over_the_aligned_rows() -> None:
    """SDPA by loops: weights are softmax(h · h_i / √d) over the aligned training rows, of the holder's space."""
    with roles_begun() as roles:
        people, work = low_overlap_parties(1, rows=100, overlap=0.4), job()
        run_parties(work, people, join_parties(people, work), run="run")
    active: Any = next(role for role in roles if role.site.role == "active")
    train, rows = active.table.split.train, active.table.rows_only_at("shop1")[:3]
    found = active.complete_from("shop1", rows)
    assert torch.equal(found["shop1"], active.h["shop1"][rows])
    for place, row in enumerate(rows):
        query = active.h["shop1"][row]
        weights = [math.exp(float(query @ active.h["shop1"][i]) / math.sqrt(6)) for i in train]
        slow = sum(w * active.h["bank"][i] for w, i in zip(weights, train, strict=True)) / sum(weights)
        torch.testing.assert_close(found["bank"][place], slow, atol=1e-4, rtol=1e-4)


def test_two_classifiers_have_to_agree() -> None:
    one = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    two = np.array([[0.7, 0.3], [0.9, 0.1], [0.99, 0.01]])
    assert keep_agreed(one, two).tolist() == [[0.7, 0.1], [0.0, 0.0], [0.6, 0.01]]


def test_labels_that_it_gives_are_counted() -> None:
    with roles_begun() as roles:
        result = sv.simulate(job(), low_overlap_parties(1, rows=300))
    (record,) = result.record.runs
    active = next(role for role in roles if role.site.role == "active")
    y = active.y.numpy()[active.table.rows_only_at("shop1")]  # type: ignore[attr-defined]
    labelled = int(record.self_training.split(" of ")[0].replace(",", ""))
    assert labelled == (y >= 0).sum() > 0
    none = sv.simulate(job(agreement=1.0), low_overlap_parties(1, rows=300)).record.runs[0]
    assert none.self_training.startswith("0 of ")
    assert any("labelled none of" in warning for warning in none.warnings)


def test_the_active_party_alone_sends_nothing() -> None:
    with roles_begun() as roles:
        sv.simulate(job(), low_overlap_parties(1, rows=200))
    active = next(role for role in roles if role.site.role == "active")
    rows = active.table.split.test
    logits = active.score_alone(rows)  # type: ignore[attr-defined]
    accuracy = float(((logits[:, 0] > 0).long() == active.labels(rows)).float().mean())  # type: ignore[attr-defined]
    assert accuracy > 0.6
