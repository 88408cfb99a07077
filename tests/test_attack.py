"""The attack on z: it gets what it says from a real job's transcript, it fails where it should, and watching changes
nothing. Its arithmetic holds on transcripts made here, for every rule of the cut."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import securevfl as sv

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def attack() -> Iterator[ModuleType]:
    """The example as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("attack_on_z")
    for name in ("attack_on_z", "z_attacks"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def figures(attack: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the quick run finds, as it writes it."""
    out = tmp_path_factory.mktemp("attack") / "figures.json"
    found = attack.main(["--quick", "--out", str(out)])
    written: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    assert {"machine", "versions", *found} <= set(written)
    return written


def test_the_gram_matrix_of_full_batches_follows_from_three_steps(figures: dict[str, Any]) -> None:
    closed = figures["Gram error in closed form"]
    assert closed["2 steps"] > 1e-2  # 16 columns of gradients for 18 of features
    assert closed["3 steps"] < 1e-3
    assert closed["4 steps"] < 1e-3


def test_mini_batches_do_not_help(figures: dict[str, Any]) -> None:
    four = figures["batches of 256"]["4"]
    assert four["gram"] < 1e-3
    assert four["features, transcript"]["36"] < 1e-2
    assert four["features, one look"]["36"] > 0.1
    one = figures["batches of 256"]["1"]
    assert "gram" not in one
    assert one["features, all looks"]["36"] > 0.1


def test_strong_noise_does(figures: dict[str, Any]) -> None:
    noisy = figures["DP on features, ε = 2"]["4"]
    assert noisy["gram"] > 0.5
    for name in ("features, one look", "features, all looks", "features, transcript", "features of validation rows"):
        assert min(noisy[name].values()) > 0.5, name


def test_labels_follow_from_gradients_at_trainable_bottoms(attack: ModuleType) -> None:
    parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=600)
    algorithm = sv.SplitNN(hidden=8, top=(8,), bottom=(8,), lr=0.01)
    job = sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=3, batch_size=64)
    view = attack.watch(job, parties, sv.align_parties(parties, job))
    assert set(view.labels) == {"network", "retailer"}
    assert min(view.labels.values()) > 0.8


def test_watching_changes_nothing(attack: ModuleType) -> None:
    parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=300)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,)), protection=sv.Plain(fixed_point=True), epochs=2)
    aligned = sv.align_parties(parties, job)
    watched = job.replace(protection=attack.tapped(job.protection, attack.Tap(), {}))
    assert watched.digest == job.digest
    one, other = (sv.simulate(run, parties, aligned=aligned).scores["plain"] for run in (job, watched))
    assert np.array_equal(one, other)
    seen = attack.watch(job, parties, aligned)
    assert seen.labels == {}  # an identity bottom has no gradient
    assert seen.width == 18


def made(attack: ModuleType, *, momentum: float = 0.0, decay: float = 0.0, batch: int = 40, epochs: int = 6) -> Any:
    """The transcript of a linear cut with 6 columns and 4 outputs, and random gradients."""
    n, m, d, h, lr = 120, 40, 6, 4, 0.2
    draw = np.random.default_rng(0)
    x = draw.normal(size=(n + m, d)) * np.linspace(0.5, 2.0, d)
    w, velocity = draw.normal(size=(d, h)), np.zeros((d, h))
    batches, z, steps, looks = [], [], [], []
    for _ in range(epochs):
        for rows in np.split(draw.permutation(n), n // batch):
            seen = x[rows] @ w
            step = lr * np.tanh(seen + draw.normal(size=seen.shape)) / batch
            batches.append(rows)
            z.append(seen)
            steps.append(step)
            velocity = momentum * velocity + x[rows].T @ step + decay * w
            w = w - velocity
        looks.append(x[n:] @ w)
    return attack.View(
        batches=batches, z=z, steps=steps, looks=np.stack(looks), momentum=momentum, decay=decay, width=d, truth=x,
        auc=0.0, labels={},
    )  # fmt: skip


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 1e-3), (0.9, 1e-3)])
def test_every_rule_of_the_cut_is_solved(attack: ModuleType, momentum: float, decay: float) -> None:
    view = made(attack, momentum=momentum, decay=decay)
    x, left = attack.transcript(view)
    assert left < 1e-6
    assert attack.gram_error(x, view.truth) < 1e-4


def test_the_rule_has_to_be_known(attack: ModuleType) -> None:
    x, _ = attack.transcript(replace(made(attack, momentum=0.9), momentum=0.0))
    assert attack.gram_error(x, made(attack).truth) > 0.05


def test_full_batches_in_closed_form(attack: ModuleType) -> None:
    view = made(attack, batch=120)
    assert attack.gram_error(attack.full_batch(view), view.truth[: view.rows]) < 1e-6


def test_the_gram_error_is_what_it_says(attack: ModuleType) -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(30, 4)), draw.normal(size=(30, 4))
    direct = np.linalg.norm(a @ a.T - b @ b.T) / np.linalg.norm(b @ b.T)
    assert attack.gram_error(a, b) == pytest.approx(direct)
    rotation = np.linalg.qr(draw.normal(size=(4, 4)))[0]
    assert attack.gram_error(b @ rotation, b) < 1e-7
