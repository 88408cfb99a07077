"""Of two label owners, each reads the other's classes off the mean change: why that finding is a leak."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import securevfl as sv
from securevfl.algorithms.multivfl.averaging import MaskedAveraging
from securevfl.data import Parties, PartyTable, hold_out, label_owners
from securevfl.run.simulation import join_parties, run_parties
from securevfl.testing.trial import roles_begun

CLASSES = 4


def people(seed: int, rows: int = 1500) -> Parties:
    """Two label owners, one of them with rows of two classes of four, and three data owners."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    score = x.sum(axis=1)
    label = rng.permutation(CLASSES)[np.digitize(score, np.quantile(score, [0.25, 0.5, 0.75]))].astype(np.int64)
    table = PartyTable(
        name="all",
        ids=[f"p{i}" for i in range(rows)],
        columns={f"c{j}": x[:, j] for j in range(6)},
        label=label,
        classes=tuple(range(CLASSES)),
    )
    columns = {"clinic": ["c0", "c1"], "lab": ["c2", "c3"], "shop": ["c4", "c5"]}
    fold = hold_out(rows, valid=0.1, test=0.2, seed=seed)
    return label_owners(table, columns, fold, owners=2, rows=200, scenario="1niid", seed=seed)


def test_each_of_two_label_owners_has_the_other_s_change(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tried = 0
    for seed in range(4):
        changes: dict[str, list[np.ndarray]] = defaultdict(list)
        weights: dict[str, list[np.ndarray]] = defaultdict(list)
        step = MaskedAveraging.average_change

        async def watched(self: MaskedAveraging, change: np.ndarray, *, step: Any = step) -> np.ndarray:
            found: np.ndarray = await step(self, change)
            changes[self.site.name].append(change)  # noqa: B023 - used within the turn
            weights[self.site.name].append(found)  # noqa: B023
            return found

        with monkeypatch.context() as patched:
            patched.setattr(MaskedAveraging, "average_change", watched)
            tables = people(seed)
            job = sv.Job(
                protection=sv.Plain(),
                algorithm=sv.MultiVFL(hidden=8, top=(8,), bottom=(6,), lr=0.01, cut_lr=0.2),
                epochs=4,
                steps=6,
                batch_size=32,
                seed=seed,
            )
            with roles_begun() as roles:
                run_parties(job, tables, join_parties(tables, job), run="watched")
        labels = {
            role.site.name: role.table.y.numpy()[role.table.split.train] for role in roles if role.table.y is not None
        }
        for attacker, victim in (("owner1", "owner2"), ("owner2", "owner1")):
            # What the attacker has: the weights before and after a round, and its own change of them.
            means = np.diff(np.stack(weights[attacker]), axis=0)
            theirs = 2 * means - np.stack(changes[attacker][1:])
            np.testing.assert_allclose(theirs, np.stack(changes[victim][1:]), atol=1e-6)
            guess = set(np.argsort(theirs[:, -CLASSES:].sum(axis=0))[-2:].tolist())
            has = set(np.unique(labels[victim]).tolist())
            if len(has) == 2:
                tried += 1
                right += guess == has
    assert tried >= 4
    assert right / tried > 0.6, f"{right} of {tried}; chance is one in six"


@pytest.mark.parametrize("aggregation", ["masked", "paillier", "ckks"])
def test_the_finding_is_a_leak(aggregation: Any) -> None:
    found = sv.MultiVFL(aggregation=aggregation).findings(sv.Plain(), ["shop"], "bank")
    (finding,) = {f for f in found if f.party == "the other label owners"}
    assert finding.severity == "leak"
    assert "which classes it has" in finding.learns
