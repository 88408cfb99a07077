"""What differential privacy counts, held against what happened: whose features were read, whose labels were used."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties

import securevfl as sv
from securevfl.algorithms import risa, splitnn
from securevfl.cut import CutSpec
from securevfl.data import LabelBook, PartyTable
from securevfl.privacy import Link, Noised, RowRelease, clip_rows, strip_noise_mark
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.training import ActiveRole, Algorithm, PassiveRole, find_algorithm, registered_algorithms
from securevfl.training.noise import FeatureNoise
from securevfl.training.rows import Features

SIZES: dict[str, Any] = {"hidden": 4, "top": (), "bottom": (3,)}
SETTINGS: dict[str, dict[str, Any]] = {
    "splitnn": SIZES,
    "entity_augmentation": SIZES,
    "zero_imputation": SIZES,
    "random_match": SIZES,
    "all_labels": SIZES,
    "ssl": {**SIZES, "pretraining": 2},
    "risa": {**SIZES, "self_training": 2, "drop_every": 1, "confidence": 0.6, "uncertainty": 0.4},
    "fedda": {**SIZES, "first": 2, "generator_steps": 2, "critic_steps": 1, "width": 8, "confidence": 0.6},
    "fedcvt": {"bottom": (3,), "confidence": 0.6},
}
MISALIGNED: list[tuple[str, dict[str, Any]]] = [("entity_augmentation", {"keep_aligned": False})]
KINDS = {name: find_algorithm(name) for name in registered_algorithms()}
CASES = [*SETTINGS.items(), *((name, SIZES | more) for name, more in MISALIGNED)]


def train(algorithm: Algorithm, people: sv.Parties, dp: sv.DP, steps: int | None) -> RunOutcome:
    job = sv.Job(
        algorithm=algorithm, protection=sv.Plain(dp=dp), epochs=4, batch_size=16, steps=steps, seed=2, scale="quantile"
    )
    return run_parties(job, people, join_parties(people, job), run="run")


@pytest.mark.parametrize("steps", [None, 11])
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_row_that_is_fed_is_counted(
    name: str, settings: dict[str, Any], steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of rows follows a look at the features of just these rows, and no features leave without one."""
    read: dict[int, list[set[int]]] = {}  # whose features → the rows of each look that no release followed yet
    counted: dict[int, Counter[int]] = {}
    owners: dict[int, tuple[RowRelease, Features]] = {}  # a release → whose features it releases
    look, begin, release = Features.__call__, FeatureNoise.__init__, RowRelease.__call__

    def watched_features(self: Features, rows: np.ndarray) -> torch.Tensor:
        read.setdefault(id(self), []).append({row % total for row in rows.tolist()})
        return look(self, rows)

    def watched_noise(self: FeatureNoise, role: PassiveRole) -> None:
        begin(self, role)
        assert self.release is not None
        owners[id(self.release)] = (self.release, role.features)

    def watched_release(self: RowRelease, values: torch.Tensor, rows: np.ndarray, **more: Any) -> Noised[torch.Tensor]:
        if self.what == "activations":
            _, mine = owners[id(self)]
            counted.setdefault(id(self), Counter()).update(rows.tolist())
            read[id(mine)].remove({row % total for row in rows.tolist()})
        return release(self, values, rows, **more)

    passive = 1 if KINDS[name].most_passive else 2
    people = low_overlap_parties(passive, rows=110, width=2)
    common = len(set.intersection(*(set(table.ids) for table in people.values())))
    others = sum(table.rows - common for table in people.values()) if KINDS[name].uses_others else 0
    total = common + others  # all numbers; those beyond are the same rows, hidden
    monkeypatch.setattr(Features, "__call__", watched_features)
    monkeypatch.setattr(FeatureNoise, "__init__", watched_noise)
    monkeypatch.setattr(RowRelease, "__call__", watched_release)
    ran = train(KINDS[name](**settings), people, sv.DP(features=sv.Gaussian(epsilon=50.0)), steps)
    spent = [s.times for trained in ran.trained.values() for s in trained.spent if s.what == "activations"]
    assert sorted(spent) == sorted(max(c.values()) for c in counted.values())
    assert len(spent) == passive


@pytest.mark.parametrize("steps", [None, 11])
@pytest.mark.parametrize(("name", "settings"), [case for case in CASES if case[0] != "fedcvt"])
def test_every_label_that_is_used_is_counted(
    name: str, settings: dict[str, Any], steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: Counter[int] = Counter()
    looked: list[np.ndarray] = []
    labels, original, batch = ActiveRole.labels, RowRelease.__call__, splitnn.Active.train_batch

    def watched(self: ActiveRole, rows: np.ndarray) -> torch.Tensor:
        looked.append(self.table.merge_persons(rows))
        return labels(self, rows)

    def released(self: RowRelease, values: torch.Tensor, rows: np.ndarray, **more: Any) -> Noised[torch.Tensor]:
        if self.what == "gradients":
            for column in np.stack([part for part in looked if len(part) == len(rows)], axis=1):
                used.update(set(column.tolist()))  # a label counts once at a place, whoever gives it
        return original(self, values, rows, **more)

    async def from_here(self: splitnn.Active, rows: np.ndarray) -> float | torch.Tensor:
        looked.clear()
        return await batch(self, rows)

    people = low_overlap_parties(1 if KINDS[name].most_passive else 2, rows=110, width=2)
    monkeypatch.setattr(ActiveRole, "labels", watched)
    monkeypatch.setattr(RowRelease, "__call__", released)
    monkeypatch.setattr(splitnn.Active, "train_batch", from_here)
    ran = train(KINDS[name](**settings), people, sv.DP(labels=sv.Gaussian(epsilon=50.0)), steps)
    (spent,) = ran.trained["bank"].spent
    assert spent.times == max(used.values())


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_both_sides_of_the_cut_plan_for_the_same_noise(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sealed cut sizes its integers by it, and the two sides have to agree."""
    specs: dict[str, list[CutSpec]] = {}
    for side in ("active_cut", "passive_cut"):
        original = getattr(sv.Plain, side)

        def watched(self: sv.Plain, site: Any, spec: CutSpec, original: Any = original) -> object:
            specs.setdefault(site.name, []).append(spec)
            return original(self, site, spec)

        monkeypatch.setattr(sv.Plain, side, watched)
    people = low_overlap_parties(1, rows=110, width=2)
    few = sv.Parties.of(people["bank"], people["shop1"].take(np.arange(70)))
    much = sv.Gaussian(epsilon=1.0)
    train(KINDS[name](**settings), few, sv.DP(features=much, labels=None if name == "fedcvt" else much), None)
    if name != "fedcvt":
        key = repr
        assert sorted(specs["bank"], key=key) == sorted(specs["shop1"], key=key)
        assert specs["bank"][0].activation_bound > 8


def test_what_fedda_hands_over_went_through_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[tuple[str, str], Any] = {}
    original = Link.send

    async def watched(self: Link, kind: Any, what: str, **more: Any) -> None:
        if what.startswith("fedda/") and "u" in more:
            sent[self.me, what] = strip_noise_mark(more["u"])
        await original(self, kind, what, **more)

    monkeypatch.setattr(Link, "send", watched)
    drawn = RowRelease._add_noise
    monkeypatch.setattr(
        RowRelease,
        "_add_noise",
        lambda self, values, *more: drawn(self, values, *more).map(lambda v: torch.full_like(v, 0.125)),
    )
    dp = sv.DP(features=sv.Gaussian(epsilon=50.0))
    ran = train(KINDS["fedda"](**SETTINGS["fedda"]), low_overlap_parties(1, rows=110, width=2), dp, None)
    assert set(sent) == {(party, what) for party in ran.trained for what in ("fedda/aligned", "fedda/generated")}
    assert all(len(u) and bool((u == 0.125).all()) for u in sent.values())
    assert [s.what for s in ran.trained["bank"].spent] == ["representations"]


def shared_people() -> sv.Parties:
    """Three parties; rows 60 … 79 are of the active and one passive party, 80 … 99 of both passive ones with labels
    known: these people go by two numbers."""
    rng = np.random.default_rng(0)
    names = [f"p{i:03d}" for i in range(100)]
    label = np.arange(100) % 2

    def table(name: str, rows: np.ndarray) -> PartyTable:
        columns = {f"{name}{j}": rng.normal(size=len(rows)) + label[rows] for j in range(2)}
        return PartyTable(name=name, ids=[names[i] for i in rows], columns=columns)

    bank = replace(table("bank", np.arange(80)), label=label[:80], classes=(0, 1))
    bank = replace(bank, book=LabelBook(tuple(names[80:]), label[80:]))
    return sv.Parties.of(bank, table("shop1", np.arange(100)), table("shop2", np.r_[0:60, 80:100]))


@pytest.mark.parametrize(
    ("name", "uses"),
    [("all_labels", 2), ("entity_augmentation", 3), ("zero_imputation", 1)],  # the second puts in 20 rows twice
)
def test_a_person_with_two_numbers_has_one_budget(name: str, uses: int) -> None:
    dp = sv.DP(labels=sv.Gaussian(epsilon=50.0))
    (spent,) = train(KINDS[name](**SIZES), shared_people(), dp, None).trained["bank"].spent
    assert spent.times == 4 * uses
    assert spent.epsilon_rdp <= 50.0 + 1e-6
    if name != "entity_augmentation":
        assert spent.epsilon_rdp == pytest.approx(50.0, rel=1e-3)


@pytest.mark.parametrize("name", ["entity_augmentation", "random_match"])
def test_a_row_that_comes_twice_in_a_batch_is_drawn_once(name: str) -> None:
    """Identity bottoms: noise is drawn once for a row, however often it is put in."""
    people = low_overlap_parties(1, rows=120, width=2)
    few = people["shop1"].take(np.arange(90))  # fewer others than the active party has: they come again
    again = sv.Parties.of(people["bank"], few)
    ran = train(KINDS[name](hidden=4, top=()), again, sv.DP(features=sv.Gaussian(epsilon=50.0)), None)
    assert ran.trained["shop1"].spent[0].times == 1


def test_risa_releases_no_mean_of_rows_and_keeps_hidden_rows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under noise a missing row is zeros; and the noise that a row keeps is not that of the row hidden."""
    made: list[risa._Passive] = []
    original = risa._Passive.begin_epoch

    async def watched(self: risa._Passive, epoch: int) -> bool:
        if self not in made:
            made.append(self)
        return await original(self, epoch)

    monkeypatch.setattr(risa._Passive, "begin_epoch", watched)
    people = low_overlap_parties(1, rows=110, width=2)
    settings = {**SETTINGS["risa"], "bottom": ()}
    drawn = RowRelease._add_noise
    monkeypatch.setattr(
        RowRelease,
        "_add_noise",
        lambda self, values, *more: drawn(self, values, *more).map(lambda v: clip_rows(values, self.clip)),
    )
    train(KINDS["risa"](**settings), people, sv.DP(features=sv.Gaussian()), None)
    (role,) = made
    assert not role.features.fill.any()
    assert role.noise.release is not None
    remembered = role.noise.release._kept
    for row in remembered.row_numbers().tolist():
        kept = strip_noise_mark(remembered.recall_rows(np.array([row])))[0]
        if row < role.table.aligned_count:
            length = float(torch.linalg.vector_norm(role.features.x[row]))
            assert torch.allclose(kept, role.features.x[row] / max(length, 1.0), atol=1e-4)
        elif row >= role.table.total_count:
            assert torch.allclose(kept, torch.zeros_like(kept), atol=1e-4)
    assert (remembered.row_numbers() >= role.table.total_count).any()
