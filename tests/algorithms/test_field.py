"""The baselines of the field: losses against loops, what they send and how often, who is needed to score a row."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.algorithms.field.apc_vfl import imitation_loss, standardise_codes
from securevfl.algorithms.field.distilled import _Active, distillation_loss, log_probabilities
from securevfl.algorithms.field.fedhssl import cross_loss, guided_loss, negative_cosine
from securevfl.privacy import READABLE_KINDS
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.transport import Kind


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ran(algorithm: sv.Algorithm, *, passive: int = 1, epochs: int = 2, **more: object) -> RunOutcome:
    people = low_overlap_parties(passive, rows=110, width=2)
    terms: dict[str, Any] = {"protection": sv.Plain(), **more}
    job = sv.Job(algorithm=algorithm, epochs=epochs, batch_size=16, seed=2, **terms)
    return run_parties(job, people, join_parties(people, job), run="run")


def content(found: RunOutcome, sender: str) -> Counter[str]:
    """How often each readable message left a party."""
    entries = found.ledgers[sender].entries
    return Counter(e.what for e in entries if e.way == "sent" and e.kind in READABLE_KINDS | {Kind.STATISTIC})


# FedHSSL.


def cosine(p: torch.Tensor, z: torch.Tensor) -> float:
    """The negative mean cosine, by loops."""
    total = 0.0
    for one, two in zip(p.tolist(), z.tolist(), strict=True):
        lengths = math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in two))
        total -= sum(a * b for a, b in zip(one, two, strict=True)) / lengths
    return total / len(p)


def test_the_losses_of_fedhssl_are_those_of_the_paper() -> None:
    p1, p2, z1, z2, v1, v2 = (numbers(5, 3, seed=seed) for seed in range(6))
    assert float(negative_cosine(p1, z2)) == pytest.approx(cosine(p1, z2))
    assert float(cross_loss(p1, [z1, z2, v1])) == pytest.approx(sum(cosine(p1, z) for z in (z1, z2, v1)) / 3)
    wanted = 0.5 * (cosine(p1, z2) + cosine(p2, z1)) + 0.3 * (cosine(p1, v1) + cosine(p2, v2))
    assert float(guided_loss((p1, p2), (z1, z2), (v1, v2), 0.3)) == pytest.approx(wanted)


def test_what_is_predicted_is_not_trained() -> None:
    p, z, v = (numbers(4, 3, seed=seed).requires_grad_() for seed in range(3))
    guided_loss((p, p * 2), (z, z + 1), (v, v), 0.5).backward()
    assert p.grad is not None
    assert z.grad is None
    assert v.grad is None


@pytest.mark.parametrize("passive", [1, 2])
def test_fedhssl_sends_a_projection_a_step_and_weights_a_round(passive: int) -> None:
    algorithm = make("fedhssl", rounds=3, cross_steps=5)
    found = ran(algorithm, passive=passive)
    assert content(found, "shop1")["fedhssl/projections"] == 3 * 5
    assert content(found, "shop1")["fedhssl/weights"] == 3
    assert content(found, "bank")["fedhssl/projections"] == 3 * 5 * passive
    assert content(found, "bank")["fedhssl/weights"] == 3 * passive
    assert not {what for what in content(ran(algorithm.replace(aggregate=False)), "shop1") if "weights" in what}


def test_averaging_leaves_all_parties_with_the_same_upper_part_and_their_own_lower_part() -> None:
    with roles_begun() as roles:
        ran(make("fedhssl", rounds=1), passive=2, epochs=1, steps=1, keep="last")
    kept = []
    for role in roles:
        encoders = role.half.bottom  # type: ignore[attr-defined]
        with torch.no_grad():
            kept.append((encoders.local_upper[0].weight.clone(), encoders.local_lower))
    # one step of fine-tuning follows the average and moves each weight by Adam's rate at most
    bound = 2 * 0.02 + 1e-6
    assert all(float((weight - kept[0][0]).abs().max()) <= bound for weight, _ in kept)
    lower = [next(module.parameters()) for _, module in kept]
    assert all(one.data_ptr() != two.data_ptr() for i, one in enumerate(lower) for two in lower[:i])


def test_noise_on_features_beside_bare_weights_is_refused() -> None:
    noisy = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=8.0)))
    with pytest.raises(sv.InputError, match="aggregate=False"):
        sv.Job(algorithm=make("fedhssl"), protection=noisy)
    found = ran(make("fedhssl", aggregate=False), protection=noisy)
    assert [s.what for s in found.trained["bank"].spent] == ["representations"]
    assert [s.times for s in found.trained["bank"].spent] <= [s.times for s in found.trained["shop1"].spent]
    sent = [e for name in found.ledgers for e in found.ledgers[name].entries if e.way == "sent"]
    assert all(e.noise > 0 for e in sent if e.what == "fedhssl/projections")


# APC-VFL.


def test_the_loss_of_the_student_is_reconstruction_and_imitation() -> None:
    x, rebuilt, codes, joint = numbers(6, 4), numbers(6, 4, seed=1), numbers(3, 2, seed=2), numbers(3, 2, seed=3)
    one = sum((a - b) ** 2 for a, b in zip(x.flatten().tolist(), rebuilt.flatten().tolist(), strict=True)) / 24
    two = sum((a - b) ** 2 for a, b in zip(codes.flatten().tolist(), joint.flatten().tolist(), strict=True)) / 6
    assert float(imitation_loss(rebuilt, x, codes, joint, 0.7)) == pytest.approx(one + 0.7 * two)


def test_codes_are_standardised_column_by_column() -> None:
    codes = torch.cat([numbers(40, 3) * 5 + 2, torch.full((40, 1), 3.0)], dim=1)
    found = standardise_codes(codes)
    assert found[:, :3].mean(dim=0).abs().max() < 1e-9
    assert torch.allclose(found[:, :3].square().mean(dim=0), torch.ones(3, dtype=torch.float64), atol=1e-5)
    assert found[:, 3].abs().max() < 1e-9


@pytest.mark.parametrize(("passive", "epochs"), [(1, 1), (2, 6)])
def test_apc_vfl_sends_one_message_whatever_the_epochs_are(passive: int, epochs: int) -> None:
    algorithm = make("apc_vfl")
    found = ran(algorithm, passive=passive, epochs=epochs)
    for shop in [f"shop{number + 1}" for number in range(passive)]:
        assert content(found, shop) == {"apc/codes": 1}
        (codes,) = [e for e in found.ledgers[shop].entries if e.what == "apc/codes"]
        assert codes.shapes == {"codes": [len(found.split.train), 6]}
    assert not content(found, "bank")
    to_train = {e.what for e in found.ledgers["bank"].entries if e.way == "sent"}
    assert not {what for what in to_train if what.startswith(("apc", "cut"))}


@pytest.mark.parametrize("name", ["apc_vfl", "distilled"])
def test_rows_are_scored_without_a_message_and_without_the_partner(name: str) -> None:
    found = ran(make(name))
    bank = found.trained["bank"]
    assert bank.alone == bank.test
    assert np.array_equal(bank.alone_scores, bank.scores)
    people, job = (
        low_overlap_parties(1, rows=110, width=2),
        sv.Job(protection=sv.Plain(), algorithm=make(name), epochs=2, batch_size=16, seed=2),
    )
    result = sv.simulate(job, people, baselines=())
    alone = sv.predict(result.model(), sv.Parties.of(people["bank"]))
    assert len(alone.probabilities) == people["bank"].rows


def test_findings_of_apc_vfl_give_the_passive_parties_nothing() -> None:
    found = make("apc_vfl").findings(sv.Plain(), ["shop1"], "bank")
    assert {f.severity for f in found if f.party == "shop1"} == {"ok"}
    assert {f.severity for f in found if f.party == "bank"} == {"leak"}


# Distillation.


@pytest.mark.parametrize("outputs", [1, 3])
def test_distillation_is_a_divergence_of_softened_probabilities(outputs: int) -> None:
    student, teacher, heat = numbers(4, outputs), numbers(4, outputs, seed=1), 2.5

    def softened(row: list[float]) -> list[float]:
        row = [0.0, *row] if len(row) == 1 else row
        powers = [math.exp(value / heat) for value in row]
        return [power / sum(powers) for power in powers]

    assert torch.allclose(log_probabilities(student, heat).exp().sum(dim=1), torch.ones(4, dtype=torch.float64))
    for row, value in enumerate(distillation_loss(student, teacher, heat).tolist()):
        p, q = softened(student[row].tolist()), softened(teacher[row].tolist())
        wanted = heat**2 * sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
        assert value == pytest.approx(wanted)
    assert float(distillation_loss(teacher, teacher, heat).abs().max()) < 1e-12


@pytest.mark.parametrize(("folds", "teachers"), [(1, 1), (3, 3)])
def test_a_row_is_taught_by_a_teacher_that_never_saw_it(folds: int, teachers: int) -> None:
    with roles_begun() as roles:
        found = ran(make("distilled", folds=folds, teacher_steps=5), epochs=3)
    active = next(role for role in roles if isinstance(role, _Active))
    shop = next(role for role in roles if not isinstance(role, _Active))
    rows = found.split.train
    assert sorted(np.concatenate(active.teacher_folds).tolist()) == sorted(rows.tolist())
    for seen, fold, theirs in zip(active.teacher_rows, active.teacher_folds, shop.teacher_folds, strict=True):  # type: ignore[attr-defined]
        assert np.array_equal(fold, theirs)
        if folds > 1:
            assert not set(seen.tolist()) & set(fold.tolist())
            assert set(seen.tolist()) | set(fold.tolist()) == set(rows.tolist())
    assert content(found, "shop1")["cut/forward"] == teachers * (5 + 1)
    assert active.taught[torch.from_numpy(rows)].abs().min() > 0


def test_without_a_share_the_student_is_the_local_model() -> None:
    """The same steps on the same rows: nothing of the teachers is left."""
    sizes = {"hidden": 8, "top": (8,), "lr": 0.02}
    one = ran(make("distilled", share=0.0, teacher_steps=3), epochs=3)
    two = ran(sv.Local(**sizes), epochs=3)  # type: ignore[arg-type]
    assert one.trained["bank"].epochs == two.trained["bank"].epochs
    assert np.array_equal(one.trained["bank"].scores, two.trained["bank"].scores)
    taught = ran(make("distilled", share=0.7, teacher_steps=3), epochs=3)
    assert taught.trained["bank"].epochs != two.trained["bank"].epochs
