"""How algorithms use rows that are not aligned: what they estimate, what they count, what stays as it is."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.algorithms.attention import apply_attention
from securevfl.algorithms.fedda import _CompletingRole
from securevfl.testing.trial import roles_begun
from securevfl.training.self_supervised import augment_rows


def test_a_row_is_no_key_of_its_own_estimate() -> None:
    rows, others = torch.eye(3), torch.tensor([[0.0, 0.0, 5.0]])
    keys, values = torch.cat([rows, others]), torch.arange(4.0)[:, None]
    sharp = {"temperature": 1e-3}
    assert apply_attention(rows[:2], keys, values, **sharp).flatten().tolist() == [0, 1]  # each finds itself
    query = torch.tensor([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 1.0, 0.0]])
    found = apply_attention(query, keys, values, **sharp, same=2).flatten()
    assert found.tolist() == [1, 0, 1]  # the third query is of no key, so it may take the second
    assert torch.isfinite(
        apply_attention(rows[:1], keys[:1], values[:1], **sharp, same=1)
    ).all()  # else nothing were left


@pytest.mark.parametrize("own_key", [True, False])
def test_fedcvt_runs_either_way_and_counts_all_rows_that_it_drew(own_key: bool) -> None:
    with roles_begun() as roles:
        job = sv.Job(protection=sv.Plain(), algorithm=make("fedcvt", own_key=own_key), epochs=2, steps=2, batch_size=16)
        result = sv.simulate(job, low_overlap_parties(1, rows=300))
    active = next(role for role in roles if role.site.role == "active")
    table, drawn = active.table, 0
    for name in (active.site.active, *active.site.passive):
        drawn += min(2 * 16, len(table.rows_only_at(name)))
    assert result.record.runs[0].rows_trained == len(table.split.train) + drawn


def test_fedcvt_scores_rows_alone_by_its_own_classifier() -> None:
    with roles_begun() as roles:
        sv.simulate(
            sv.Job(protection=sv.Plain(), algorithm=make("fedcvt"), epochs=1, batch_size=32),
            low_overlap_parties(1, rows=200),
        )
    active: Any = next(role for role in roles if role.site.role == "active")
    rows = active.table.split.test
    before = active.score_alone(rows)
    with torch.no_grad():
        for other in active.classifiers[1:]:
            other.weight.zero_()
    assert torch.equal(active.score_alone(rows), before)
    with torch.no_grad():
        active.classifiers[0].bias[0] += 1
    assert not torch.equal(active.score_alone(rows), before)


@pytest.mark.parametrize("frozen", [True, False])
def test_what_was_generated_does_not_go_stale(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {}
    augment = _CompletingRole.complete_rows

    async def watched(self: Any, release: Any) -> None:
        await augment(self, release)
        kept[self.site.name] = copy.deepcopy(self.half.bottom.state_dict())

    monkeypatch.setattr(_CompletingRole, "complete_rows", watched)
    with roles_begun() as roles:
        algorithm = make("fedda", frozen=frozen)
        sv.simulate(
            sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=5, batch_size=32, keep="last"),
            low_overlap_parties(1, rows=200),
        )
    assert len(kept) == 2
    for role in roles:
        now = role.half.bottom.state_dict()  # type: ignore[attr-defined]
        same = all(torch.equal(now[name], weight) for name, weight in kept[role.site.name].items())
        assert same is frozen


def test_each_image_of_a_view_is_shifted_by_itself() -> None:
    torch.manual_seed(0)
    images = torch.zeros(64, 1, 16, 16)
    images[:, :, 8, 8] = 100.0
    seen = augment_rows(images, 0.4).flatten(1)
    places = {int(row.argmax()) for row in seen if row.max() > 50}  # but for those whose pixel was erased
    assert len(places) > 5
    assert all(abs(place // 16 - 8) <= 2 and abs(place % 16 - 8) <= 2 for place in places)
    assert np.isfinite(seen.numpy()).all()
    table = augment_rows(images + torch.arange(64.0)[:, None, None, None], 0.4, shifted=False) - images
    assert set(table.flatten().tolist()) <= {*range(64), *range(-100, 164)}  # pixels of some row, in their places
    rows = torch.arange(64.0)[:, None, None, None]
    assert 0.2 < float((table != rows).float().mean()) < 0.6
