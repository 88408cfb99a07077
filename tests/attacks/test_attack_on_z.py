"""The attack on z: it gets what it says from a real job's transcript, it fails where it should, and watching changes
nothing. Its arithmetic is held in `attacks/test_features.py`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import securevfl as sv

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def attack() -> Iterator[ModuleType]:
    """The example as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("attack_on_z")
    sys.modules.pop("attack_on_z", None)


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
    watched = job.replace(protection=attack.noisy(job.protection, 0.0, 0))
    assert watched.digest == job.digest
    one, other = (sv.simulate(run, parties, aligned=aligned).scores["plain"] for run in (job, watched))
    assert np.array_equal(one, other)
    seen = attack.watch(job, parties, aligned)
    assert seen.labels == {}  # an identity bottom has no gradient
    assert seen.shown.width == 18
