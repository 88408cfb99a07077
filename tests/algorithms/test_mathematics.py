"""The formulas of the algorithms, against loops, against finite differences, and by their laws."""

from __future__ import annotations

import asyncio
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import securevfl as sv
from securevfl.algorithms import RISA, EntityAugmentation, FedCVT, FedDA, RandomMatch, fedcvt, risa
from securevfl.algorithms.attention import apply_attention, apply_polynomial_attention
from securevfl.algorithms.entity_augmentation import draw_places, mixed_labels
from securevfl.algorithms.fedcvt import similarity_loss
from securevfl.algorithms.fedda import gradient_penalty, train_generator
from securevfl.algorithms.opinions import (
    EVIDENCE,
    OpinionLoss,
    as_logits,
    evidence_to_opinion,
    fuse_all,
    fuse_opinions,
    opinion_to_probabilities,
    outputs_to_evidence,
)
from securevfl.algorithms.risa import threshold_at
from securevfl.privacy.loss import CrossEntropy
from securevfl.training import NumberedRows, Split, Task
from securevfl.training.pseudo_labels import SelfTraining, answer_rows, label_rows
from securevfl.training.received_tensors import checked_rows, read_tensor
from securevfl.training.rows import Features
from securevfl.training.self_supervised import augment_rows, nt_xent
from securevfl.training.split import epoch_batches


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_opinions(classes: int, rows: int = 6, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    e = 5 * torch.rand((3, rows, classes), generator=generator(seed), dtype=torch.float64) ** 2
    return [evidence_to_opinion(part) for part in e]


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_fused_opinions_are_opinions(classes: int) -> None:
    for b, u in [*some_opinions(classes), fuse_all(some_opinions(classes))]:
        assert (b >= 0).all()
        assert (u >= 0).all()
        assert torch.allclose(b.sum(dim=-1) + u, torch.ones_like(u))


@pytest.mark.parametrize("classes", [2, 4])
def test_fusion_is_the_double_sum_of_the_paper_and_commutes(classes: int) -> None:
    (b1, u1), (b2, u2), _ = some_opinions(classes)
    b, u = fuse_opinions((b1, u1), (b2, u2))
    for row in range(len(u)):
        conflict = sum(float(b1[row, i] * b2[row, j]) for i, j in itertools.product(range(classes), repeat=2) if i != j)
        assert float(u[row]) == pytest.approx(float(u1[row] * u2[row]) + conflict)
        for k in range(classes):
            one, two = float(b1[row, k]), float(b2[row, k])
            assert float(b[row, k]) == pytest.approx(one * two + one * float(u2[row]) + two * float(u1[row]))
    other_b, other_u = fuse_opinions((b2, u2), (b1, u1))
    assert torch.allclose(b, other_b)
    assert torch.allclose(u, other_u)


def test_fusion_does_not_associate() -> None:
    one, two, three = (
        (torch.tensor([b, 0.0]), torch.tensor(1 - b)) if k == 0 else (torch.tensor([0.0, b]), torch.tensor(1 - b))
        for k, b in ((0, 0.5), (1, 0.5), (1, 0.5))
    )
    left, right = fuse_opinions(fuse_opinions(one, two), three), fuse_opinions(one, fuse_opinions(two, three))
    assert left[0].tolist() == pytest.approx([0.125, 0.5])
    assert right[0].tolist() == pytest.approx([0.125, 0.375])
    assert torch.equal(fuse_all([one, two, three])[0], left[0])


@pytest.mark.parametrize("kind", EVIDENCE)
def test_probabilities_are_alpha_over_s(kind: str) -> None:
    e = outputs_to_evidence(torch.randn((5, 3), generator=generator(1), dtype=torch.float64), kind)
    assert (e >= 0).all()
    b, u = evidence_to_opinion(e)
    assert torch.allclose(b, e / (e + 1).sum(dim=1, keepdim=True))
    assert torch.allclose(opinion_to_probabilities((b, u)), (e + 1) / (e + 1).sum(dim=1, keepdim=True))
    b, u = fuse_all(some_opinions(3))
    strength = 3 / u
    alpha = b * strength.unsqueeze(-1) + 1
    assert torch.allclose(opinion_to_probabilities((b, u)), alpha / strength.unsqueeze(-1))
    assert torch.allclose(alpha.sum(dim=-1), strength)


def test_evidence_of_large_outputs_stays_finite_and_unknown_kinds_are_refused() -> None:
    assert torch.isfinite(outputs_to_evidence(torch.tensor([1e4]), "exp")).all()
    with pytest.raises(sv.UnknownNameError, match="evidence"):
        outputs_to_evidence(torch.zeros(1), "tanh")


@pytest.mark.parametrize("classes", [2, 4])
def test_the_loss_of_an_opinion_is_equation_6(classes: int) -> None:
    """``Σ_k y_k (log S − log α_k)``, by the cross entropy of the logits."""
    whole = fuse_all(some_opinions(classes))
    strength = classes / whole[1]
    alpha = whole[0] * strength.unsqueeze(-1) + 1
    labels = torch.arange(len(strength)) % classes
    wanted = torch.log(strength) - torch.log(alpha[torch.arange(len(labels)), labels])
    assert torch.allclose(CrossEntropy(classes)(as_logits(whole), labels), wanted)


def test_the_threshold_falls_from_one_to_its_end() -> None:
    steps = [threshold_at(0.6, epoch, 10) for epoch in range(11)]
    assert (steps[0], steps[10]) == (1.0, pytest.approx(0.6))
    assert all(a > b for a, b in itertools.pairwise(steps))
    assert steps[5] == pytest.approx(math.sqrt(0.6))
    assert threshold_at(1.0, 3, 10) == 1.0


def test_withheld_rows_are_filled_and_others_untouched() -> None:
    table = NumberedRows(
        x=torch.arange(10.0).reshape(5, 2), split=Split.without_rows(), name="a", rest={"b": 4, "a": 1}
    )
    features = Features(table, "cpu")
    features.fill = torch.full((1, 2), -1.0)
    role: Any = object.__new__(risa._Active)
    role.table, role.visible = table, np.array([True, False, True, False])
    rows = np.array([3, 0, 7, 1, 8])
    fed = role.feed(rows)
    assert fed.tolist() == [3 + 9, 0, 7, 1 + 9, 8]
    assert features(fed).tolist() == [[-1, -1], [0, 1], [-1, -1], [-1, -1], [8, 9]]
    assert features(rows).tolist() == [[6, 7], [0, 1], [-1, -1], [2, 3], [8, 9]]
    assert features.present_rows().tolist() == [0, 1, 2, 3, 8]
    role.visible = None
    assert role.feed(rows) is rows


def test_rows_are_labelled_where_the_model_is_sure() -> None:
    """In parts, in which the passive parties answer."""
    logits, parts = torch.tensor([3.0, 0.1, -3.0, 0.0, 2.0]), []

    async def score(rows: np.ndarray) -> torch.Tensor:
        parts.append(rows.tolist())
        return logits[rows - 4, None]

    plan = SimpleNamespace(eval_rows=2)
    active: Any = SimpleNamespace(plan=plan, task=Task(2), y=torch.full((9,), -1), score=score)
    tally = SelfTraining(0.85)
    found = asyncio.run(label_rows(active, np.array([4, 5, 6, 7, 8]), tally))
    assert found.tolist() == [4, 6, 8]
    assert (tally.rows, tally.labelled, round(tally.most, 3)) == (5, 3, 0.953)
    assert active.y.tolist() == [-1, -1, -1, -1, 1, -1, 0, -1, 1]
    asked = list(parts)
    passive: Any = SimpleNamespace(plan=plan, answer=score)
    asyncio.run(answer_rows(passive, np.array([4, 5, 6, 7, 8])))
    assert parts == asked * 2 == [[4, 5], [6, 7], [8]] * 2
    assert asyncio.run(label_rows(active, np.arange(0), tally)).tolist() == []


@pytest.mark.parametrize(
    "rows", [np.array([0.0]), np.array([[0]]), np.array([], dtype=np.int64), np.array([-1]), np.array([9]), [1, 1]]
)
def test_rows_that_a_peer_names_are_checked(rows: object) -> None:
    with pytest.raises(
        sv.ProtocolError, match=r"'a' sent (rows to train on that are not numbers|a row to train on twice)"
    ):
        checked_rows(np.asarray(rows), 9, "a")
    assert checked_rows(np.array([8, 0]), 9, "a").tolist() == [8, 0]


@pytest.mark.parametrize(
    "value", [np.zeros((2, 2)), np.zeros((2, 3), dtype=int), np.full((2, 3), np.nan), np.full((2, 3), np.inf)]
)
def test_tensors_that_a_peer_sends_are_checked(value: np.ndarray) -> None:
    with pytest.raises(sv.ProtocolError, match="'a' sent"):
        read_tensor(value, (2, 3), "a", "cpu")
    assert read_tensor(np.ones((2, 3)), (2, 3), "a", "cpu").dtype == torch.float32


# Entity Augmentation


def small_table(**change: object) -> NumberedRows:
    values: dict[str, object] = {
        "x": torch.zeros(16, 2),
        "split": Split(np.array([4, 1, 7, 2]), np.array([0, 3]), np.array([5, 6])),
        "name": "a",
        "rest": {"a": 8, "b": 5, "c": 9},
        "labelled": {"b": 3, "c": 9},
    }
    return NumberedRows(**values | change)  # type: ignore[arg-type]


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 5),
)
def test_rows_are_put_in_as_often_as_planned(train: int, others: list[tuple[int, int]], keep: bool, epoch: int) -> None:
    names = "abcd"[: len(others)]
    rest = {name: max(pair) for name, pair in zip(names, others, strict=True)}
    labelled = {name: min(pair) for name, pair in zip(names[1:], others[1:], strict=True)}
    split = Split(np.arange(train) + 2, np.array([0]), np.array([1]))
    x = torch.zeros(train + 2 + rest["a"], 1)
    table = NumberedRows(x=x, split=split, name="a", rest=rest, labelled=labelled)
    found = draw_places(table, "a", 7, epoch, keep_aligned=keep)
    again = draw_places(table, "a", 7, epoch, keep_aligned=keep)
    most = max([rest["a"], *labelled.values()])
    assert list(found) == list(names)
    for name, rows in found.items():
        assert np.array_equal(rows, again[name])
        assert len(rows) == train + most
        assert sorted(rows[:train]) == split.train.tolist()
        assert not set(rows.tolist()) & {0, 1}  # validation and test
        pool = table.rows_only_at(name)[: rest["a"] if name == "a" else labelled[name]]
        mixed = rows[train:]
        assert set(mixed.tolist()) <= set(pool.tolist() if len(pool) else split.train.tolist())
        if most and len(pool):
            counts = np.bincount(mixed, minlength=table.total_count)[pool]
            assert counts.max() - counts.min() <= 1
        if keep:
            assert rows[:train].tolist() == split.train.tolist()
    together = [found["a"][:train]] if keep else [rows[:train] for rows in found.values()]
    used = np.concatenate([*together, *(rows[train:] for rows in found.values())])
    planned = EntityAugmentation(keep_aligned=keep).max_reuse(table, "a")
    assert np.bincount(used).max() <= planned
    full = all(most % size == 0 for size in (rest["a"], *labelled.values()) if size)
    if keep and full and (most % train == 0 or all((rest["a"], *labelled.values()))):
        assert np.bincount(used).max() == planned


def test_epochs_mix_differently_and_deliberate_misalignment_parts_aligned_rows() -> None:
    table = small_table()
    one, two = (draw_places(table, "a", 1, epoch, keep_aligned=True) for epoch in (1, 2))
    assert not np.array_equal(one["a"], two["a"])
    apart = [draw_places(table, "a", 1, epoch, keep_aligned=False) for epoch in range(5)]
    assert any(not np.array_equal(found["a"][:4], found["b"][:4]) for found in apart)
    pool = set(small_table().rows_only_at("b")[:3].tolist())
    assert set(one["b"][4:].tolist()) == pool  # rows whose label nobody knows stay out


def test_mixed_labels_are_averages_weighed_by_width() -> None:
    task = Task(3)
    parts = {"a": task.one_hot(torch.tensor([0, 1])), "b": task.one_hot(torch.tensor([2, 1]))}
    found = mixed_labels(parts, {"a": 6, "b": 2, "absent": 100})
    assert found.tolist() == [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0]]
    assert torch.allclose(found.sum(dim=1), torch.ones(2))


def test_random_matches_are_planned() -> None:
    matches = RandomMatch(bottom=(4,)).max_matches
    assert matches(small_table(rest={"a": 8, "b": 5, "c": 9}), "a") == 2
    assert matches(small_table(rest={"a": 8, "b": 8}), "a") == 1
    assert matches(small_table(rest={"a": 8, "b": 0}), "a") == 1 + 2
    assert matches(small_table(rest={"a": 0, "b": 3}), "a") == 1


# FedCVT


def test_attention_against_a_loop() -> None:
    q, k, v = (torch.randn(n, d, generator=generator(i)) for i, (n, d) in enumerate([(4, 3), (5, 3), (5, 2)]))
    found = apply_attention(q, k, v, 0.5)
    for i in range(4):
        weights = [math.exp(float(q[i] @ k[j]) / (0.5 * math.sqrt(3))) for j in range(5)]
        wanted = sum((w / sum(weights) * v[j] for j, w in enumerate(weights)), torch.zeros(2))
        assert torch.allclose(found[i], wanted, atol=1e-6)


@pytest.mark.parametrize("same", [0, 3])
def test_polynomial_attention_against_a_loop(same: int) -> None:
    q, k = torch.rand((5, 3), generator=generator(0)), torch.rand((4, 3), generator=generator(1))
    v = torch.rand((4, 2), generator=generator(2))
    expected = []
    for i in range(5):
        weights = [0.0 if i == j < same else float(q[i] @ k[j]) ** 2 for j in range(4)]
        expected.append(torch.stack([w * v[j] for j, w in enumerate(weights)]).sum(dim=0) / sum(weights))
    found = apply_polynomial_attention(q, k, v, same=same)
    torch.testing.assert_close(found, torch.stack(expected))
    if not same:  # as moments of the keys and values, which is how shares would compute it
        moments = torch.einsum("ja,jb,je->abe", k, k, v)
        sums = torch.einsum("ja,jb->ab", k, k)
        by_moments = torch.einsum("ia,ib,abe->ie", q, q, moments) / torch.einsum("ia,ib,ab->i", q, q, sums)[:, None]
        torch.testing.assert_close(found, by_moments)
    zero = apply_polynomial_attention(torch.zeros(2, 3), k, v)
    assert torch.equal(zero, torch.zeros(2, 2))  # nothing like it: no estimate


def test_unlike_is_zero_for_orthogonal_rows_and_the_mean_square_otherwise() -> None:
    one, two = torch.tensor([[1.0, 0.0], [1.0, 2.0]]), torch.tensor([[0.0, 3.0], [2.0, 1.0]])
    assert float(similarity_loss(one[:1], two[:1])) == 0
    assert float(similarity_loss(one, two)) == pytest.approx((0 + 16) / 2)


class Says(torch.nn.Module):
    """A classifier that says what it is told to."""

    def __init__(self, probabilities: list[list[float]]) -> None:
        super().__init__()
        self.logits = torch.log(torch.tensor(probabilities))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits


def test_a_pseudo_label_needs_three_confident_classifiers_that_agree() -> None:
    role: Any = object.__new__(fedcvt._Active)
    role.config = FedCVT(confidence=0.6)
    role.tally = SelfTraining(role.config.confidence)
    sure, doubts, other = [0.9, 0.1], [0.55, 0.45], [0.1, 0.9]
    says = [sure, sure, other, doubts, other], [sure, sure, sure, sure, other], [sure, other, sure, sure, other]
    role.classifiers = torch.nn.ModuleList(Says(column) for column in says)
    keep, label = role.pseudo_labels(torch.zeros(5, 1), torch.zeros(5, 1))
    assert keep.tolist() == [True, False, False, False, True]
    assert label[keep].tolist() == [0, 1]
    assert (role.tally.collect_counts().labelled, role.tally.rows) == (2, 5)


def test_each_partys_own_opinion_is_in_the_loss() -> None:
    logits, y = torch.randn(3, 6, 3, generator=generator(0)), torch.tensor([2, 0, 1, 2, 0, 1])
    opinions = [logits[1], logits[2]]
    whole, one, two = (CrossEntropy(3)(part, y) for part in logits)
    loss = OpinionLoss(3, 0.5, lambda: opinions)
    assert torch.allclose(loss(logits[0], y), whole + 0.5 * (one + two))
    assert loss.sensitivity is None  # nobody derived how far a label moves its gradient
    opinions.clear()
    assert torch.equal(loss(logits[0], y), whole)


@pytest.mark.parametrize(
    ("config", "labels", "with_opinions"),
    [
        (RISA(), None, True),
        (RISA(party_loss=0), None, False),
        (RISA(evidential=False), None, False),
        (RISA(), sv.RandomisedResponse(epsilon=1.0), True),
        (RISA(), sv.Gaussian(epsilon=1.0), False),
    ],
)
def test_opinions_are_in_the_loss_where_gradients_carry_no_noise(
    config: RISA, labels: Any, with_opinions: bool
) -> None:
    role: Any = object.__new__(risa._Active)
    role.config, role.task, role.site = config, Task(2), SimpleNamespace(passive=("b",))
    role.protection = sv.Plain(dp=None if labels is None else sv.DP(labels=labels))
    loss = role.build_loss()
    assert isinstance(loss, OpinionLoss) == with_opinions
    assert (loss.sensitivity is None) == with_opinions


# FedDA


def test_the_gradient_penalty_against_finite_differences() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        critic = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    real, fake = (torch.randn(5, 3, generator=generator(s), dtype=torch.float64) for s in (1, 2))
    mix = torch.rand(5, 1, generator=generator(3), dtype=torch.float64)
    found = gradient_penalty(critic, real, fake, mix)
    wanted, h = 0.0, 1e-5
    for i in range(5):
        x = float(mix[i]) * real[i] + (1 - float(mix[i])) * fake[i]
        slopes = [(critic(x + h * e) - critic(x - h * e)).item() / (2 * h) for e in torch.eye(3, dtype=torch.float64)]
        wanted += (math.sqrt(sum(slope**2 for slope in slopes)) - 1) ** 2 / 5
    assert found.item() == pytest.approx(wanted, rel=1e-6)
    found.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in list(critic.parameters())[:3])  # it trains the critic


def test_a_generator_learns_the_peers_representations() -> None:
    own = 3 * torch.rand(300, 2, generator=generator(0))
    peer = 1 + own[:, :1]
    config = FedDA(bottom=(2,), generator_steps=250, width=32, generator_lr=2e-3)
    made = train_generator(own, own, peer, config, batch=64, seed=1)(own)
    assert made.shape == (300, 1)
    assert float((made.detach() - peer).abs().mean()) < 0.4  # the peer's spread is 0.87
    again = train_generator(own[:40], own[:0], peer[:40], config.replace(generator_steps=2), batch=8, seed=1)
    same = train_generator(own[:40], own[:0], peer[:40], config.replace(generator_steps=2), batch=8, seed=1)
    assert torch.equal(again(own), same(own))


# SSL


def test_nt_xent_against_a_loop() -> None:
    one, two = (torch.randn(4, 3, generator=generator(s), dtype=torch.float64) for s in (0, 1))
    z = [*one, *two]
    similarity = [[float(torch.cosine_similarity(a, b, dim=0)) / 0.5 for b in z] for a in z]
    total = 0.0
    for i in range(8):
        others = [math.exp(similarity[i][k]) for k in range(8) if k != i]
        total -= math.log(math.exp(similarity[i][(i + 4) % 8]) / sum(others))
    assert float(nt_xent(one, two, 0.5)) == pytest.approx(total / 8)


def test_views_keep_shape_and_swap_within_columns() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.arange(60.0).reshape(20, 3)
        seen = augment_rows(x, 0.4)
        assert 0.1 < float((seen != x).float().mean()) < 0.6
        assert all(set(seen[:, j].tolist()) <= set(x[:, j].tolist()) for j in range(3))
        assert torch.equal(augment_rows(x, 0.0), x)
        images = augment_rows(torch.rand(4, 1, 8, 6), 0.4)
        assert images.shape == (4, 1, 8, 6)


# Rows


@given(st.integers(1, 40), st.integers(1, 12), st.one_of(st.none(), st.integers(1, 15)), st.integers(0, 9))
def test_batches_of_an_epoch(rows: int, size: int, steps: int | None, epoch: int) -> None:
    numbers = np.arange(rows) * 3
    found = epoch_batches(numbers, size, steps, seed=1, epoch=epoch)
    again = epoch_batches(numbers, size, steps, seed=1, epoch=epoch)
    assert [part.tolist() for part in found] == [part.tolist() for part in again]
    if steps is None:
        assert sorted(np.concatenate(found).tolist()) == numbers.tolist()
        assert all(len(part) == size for part in found[:-1])
        return
    assert len(found) == steps
    assert all(len(part) == min(size, rows) for part in found)
    full = max(rows // size, 1)
    for start in range(0, steps, full):  # within one pass no row comes twice
        one_pass = np.concatenate(found[start : start + full])
        assert len(set(one_pass.tolist())) == len(one_pass)
    assert np.bincount(np.concatenate(found)).max() <= -(-steps // full)


@given(st.integers(0, 6), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_all_parties_number_rows_alike(aligned: int, others: list[int], data: st.DataObject) -> None:
    names = ["p", "q", "r", "s"][: len(others)]
    rest = dict(zip(names, others, strict=True))
    split = Split.without_rows()
    tables = {
        name: NumberedRows(x=torch.zeros(aligned + rest[name], 1), split=split, name=name, rest=rest) for name in names
    }
    total = aligned + sum(others)
    owners: list[list[str]] = [[] for _ in range(total)]
    for name, table in tables.items():
        assert (table.aligned_count, table.total_count) == (aligned, total)
        own = table.own_places(np.arange(total))
        have = np.flatnonzero(own >= 0)
        assert sorted(own[have].tolist()) == list(range(aligned + rest[name]))  # each of its rows once
        assert np.array_equal(have, np.concatenate([np.arange(aligned), table.rows_only_at(name)]))
        assert np.array_equal(own[table.rows_only_at(name)], aligned + np.arange(rest[name]))
        for other in names:
            assert np.array_equal(table.rows_only_at(other), tables[other].rows_only_at(other))
        for row in have.tolist():
            owners[row].append(name)
    assert owners[:aligned] == [names] * aligned
    assert all(len(found) == 1 for found in owners[aligned:])
    only = NumberedRows(x=torch.zeros(aligned, 1), split=split, name="p")
    assert only.total_count == aligned
    assert only.own_places(np.arange(aligned)).tolist() == list(range(aligned))
    if total:
        row = data.draw(st.integers(0, total - 1))
        assert tables["p"].merge_persons(np.array([row])).tolist() == [row]


@pytest.mark.parametrize("classes", [2, 3])
def test_soft_labels_at_the_corners_are_hard_ones(classes: int) -> None:
    task, loss = Task(classes), CrossEntropy(classes)
    logits = torch.randn(9, task.outputs, generator=generator(0), dtype=torch.float64)
    labels = torch.arange(9) % classes
    soft = task.one_hot(labels).double()
    assert torch.allclose(loss(logits, labels), loss(logits, soft))
    mixed = 0.25 * soft + 0.75 * soft.roll(1, dims=0)
    wanted = 0.25 * loss(logits, labels) + 0.75 * loss(logits, labels.roll(1))
    assert torch.allclose(loss(logits, mixed), wanted)


def test_marked_rows_split_as_marked() -> None:
    split = Split.from_marks(np.array([0, 2, 1, 0, 2, 0], dtype=np.int8))
    assert (split.train.tolist(), split.valid.tolist(), split.test.tolist()) == ([0, 3, 5], [2], [1, 4])
    for fold in ([0, 1, 1], [0, 2], [1, 2]):
        with pytest.raises(sv.InputError, match="each needs at least one"):
            Split.from_marks(np.array(fold, dtype=np.int8))


@pytest.mark.parametrize(
    "settings",
    [
        {"evidence": "tanh"},
        {"self_training": -1},
        {"drop_every": 0},
        {"confidence": 0},
        {"uncertainty": 1.5},
        {"party_loss": -1},
    ],
)
def test_impossible_settings_of_risa_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(sv.InputError):
        RISA(**settings)  # type: ignore[arg-type]
    assert RISA.as_published(hidden=4) == RISA(
        self_training=5,
        confidence=0.9,
        held_out=0.0,
        imputed_views=False,
        warm_start=False,
        party_loss=0.0,
        evidence="exp",
        uncertainty=0.7,
        drop_every=1,
        hidden=4,
    )
