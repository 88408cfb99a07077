"""The residual at the cut: what its offsets may know, where it begins, and what is left of it without a partner."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.party_context import PartySecret
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.training.role import Role

PEOPLE = low_overlap_parties(1, rows=140, overlap=0.4)
SIZES = {"hidden": 8, "top": (8,), "lr": 0.02, "bottom": (6,)}


def run(
    name: str, people: sv.Parties = PEOPLE, protection: sv.Plain | None = None, **settings: object
) -> tuple[RunOutcome, Role]:
    """What a short job left, and the active party's role."""
    job = sv.Job(
        algorithm=make(name, **(SIZES | settings)), protection=protection or sv.Plain(), epochs=3, batch_size=32, seed=3
    )
    with roles_begun() as roles:
        ran = run_parties(
            job, people, join_parties(people, job), run="run", secrets={n: PartySecret.from_seed(3, n) for n in people}
        )
    return ran, next(role for role in roles if role.site.name == role.site.active)


def offsets(role: Role) -> torch.Tensor:
    found = role.remember()["offsets"]
    assert isinstance(found, torch.Tensor)
    return found


def flipped(row: int) -> sv.Parties:
    """The same parties with another label for one of the bank's rows."""
    bank = PEOPLE["bank"]
    assert bank.label is not None
    label = bank.label.copy()
    label[row] = 1 - label[row]
    return sv.Parties.of(replace(bank, label=label), *PEOPLE.passive)


@pytest.mark.parametrize("out_of_fold", [True, False])
def test_an_offset_knows_nothing_of_its_own_label(out_of_fold: bool) -> None:
    """Another label of a common row changes other rows' offsets, and its own in sample only."""
    ran, role = run("residual", out_of_fold=out_of_fold)
    job = sv.Job(protection=sv.Plain(), algorithm=make("residual", **SIZES), epochs=3, batch_size=32, seed=3)
    rows = join_parties(PEOPLE, job).alignments["bank"]["bank"].rows
    at = 5
    _, other = run("residual", flipped(int(rows[ran.split.train[at]])), out_of_fold=out_of_fold)
    moved = (offsets(role) - offsets(other)).abs().sum(dim=1).numpy()
    assert (moved > 0).sum() > len(moved) // 4
    assert (moved[at] == 0) == out_of_fold


def test_alone_it_is_the_local_model_bit_by_bit() -> None:
    """Fewer than fifty common rows: nothing is chosen, and it is what `Local` has after its last epoch."""
    few = low_overlap_parties(1, rows=140, overlap=0.25)
    ran, role = run("residual", few, local_weight_decay=0.0)
    _, local = run("local", few)
    again, _ = run("residual", sv.Parties.of(replace(few["bank"], book=None)), local_weight_decay=0.0)
    asyncio.run(_last_epoch(local))
    test = ran.split.test
    alone = role.score_alone(test)
    assert torch.equal(alone, asyncio.run(local.score(test)))
    assert not np.array_equal(role.task.compute_probabilities(alone), ran.trained["bank"].scores)
    assert again.trained["bank"].test


async def _last_epoch(local: Role) -> None:
    """Train once more from the beginning: a run keeps its best epoch, and the last one is compared with."""
    local.plan_and_build()
    for epoch in range(1, local.plan.epochs + 1):
        for rows in local.batches(epoch):
            await local.train_batch(rows)


def test_training_begins_at_the_local_model() -> None:
    """Before the first step the prediction is the local model's, up to the floor; a random start is elsewhere."""
    for zero_start in (True, False):
        _, role = run("residual", zero_start=zero_start)
        role.plan_and_build()
        role._fit_local_models()
        rows = role.table.split.test
        alone = role.score_alone(rows)
        assert alone.abs().max() < 9  # none at the floor
        remote = torch.randn(len(rows), 8)
        z = role.half.join_parts(remote, role.half.own(role.activations(rows, train=False)))
        assert torch.equal(role.adjust_logits(z, rows, train=False), alone) == zero_start


def test_without_passive_parties_nothing_is_corrected() -> None:
    bank = sv.Parties.of(replace(PEOPLE["bank"], book=None))
    ran, role = run("residual", bank)
    alone = role.task.compute_probabilities(role.score_alone(ran.split.test))
    assert np.array_equal(alone, ran.trained["bank"].scores)


def test_drawn_labels_are_what_the_local_model_learns_from() -> None:
    dp = sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=0.01)))
    exact, _ = run("residual")
    drawn, role = run("residual", protection=dp)
    tries = [drawn, *(run("residual", protection=dp)[0] for _ in range(5))]  # labels are drawn anew: one may be lucky
    train = role.table.split.train
    told = role.table.y
    assert told is not None
    assert not torch.equal(role.y[train], told[train])
    assert drawn.trained["bank"].spent[0].what == "labels"
    # By chance every fifth training is above 0.8, and one of 60 above 0.88; on true labels each has 0.92 or more.
    assert exact.trained["bank"].test["auc"] > 0.88 > min(one.trained["bank"].test["auc"] for one in tries)


def test_noise_on_gradients_is_refused_with_the_cure() -> None:
    with pytest.raises(sv.InputError, match=r"through the local model, a row.s gradient depends.*RandomisedResponse"):
        run("residual", protection=sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=30.0))))


def test_the_report_says_how_the_local_model_was_trained() -> None:
    ran, _ = run("residual", low_overlap_parties(1, rows=400, overlap=0.4))
    (note,) = [note for note in ran.trained["bank"].notes if "out of fold" in note]
    assert note.startswith("the local model learned from ")
