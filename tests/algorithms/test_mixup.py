"""A stranger's mixup at the cut mixes rows that train, and no row that is scored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
import torch
from support.helpers import aligned, low_overlap_parties

import securevfl as sv
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.party_context import derive_seed
from securevfl.privacy import Noised, map_noised
from securevfl.run.simulation import run_parties
from securevfl.training import ActiveRole, PassiveRole, Setting
from securevfl.training.role import Role

PEOPLE = low_overlap_parties(1, rows=160, overlap=0.5)
SHARE = 0.7


def mix(role: Role, a: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    """Each row with a part of another row of its batch; all parties draw the same ones (Zhang et al. 2018)."""
    generator = np.random.default_rng(derive_seed(role.site.seed, "mixup", *map(int, rows)))
    return SHARE * a + (1 - SHARE) * a[torch.from_numpy(generator.permutation(len(rows)))]


class MixupActive(Active):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        a = super().activations(rows, train=train)
        return mix(self, a, rows) if train else a

    def targets(self, rows: np.ndarray) -> torch.Tensor:
        return mix(self, torch.nn.functional.one_hot(super().targets(rows), self.task.classes).float(), rows)


class MixupPassive(Passive):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        a = super().activations(rows, train=train)
        return map_noised(a, lambda exact: mix(self, exact, rows)) if train else a


class Mixup(SplitNN):
    name: ClassVar[str] = "mixup"
    label: ClassVar[str] = "mixup"

    def active(self, setting: Setting) -> ActiveRole:
        return MixupActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return MixupPassive(self, setting)


class CarelessPassive(Passive):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        return map_noised(super().activations(rows, train=train), lambda exact: mix(self, exact, rows))


class Careless(Mixup):
    """It mixes rows that are scored as well."""

    def passive(self, setting: Setting) -> PassiveRole:
        return CarelessPassive(self, setting)


def scores(algorithm: SplitNN, protection: sv.Plain) -> np.ndarray:
    """Of the test rows."""
    job = sv.Job(algorithm=algorithm, protection=protection, epochs=3, batch_size=16, seed=3)
    found = run_parties(job, PEOPLE, aligned(PEOPLE, job), run="run").trained["bank"].scores
    assert found is not None
    return np.asarray(found)


def one_by_one(rows: np.ndarray, _: int) -> Iterator[np.ndarray]:
    return iter(rows[:, None])


@pytest.mark.parametrize("bottom", [(), (6,)])
def test_a_mixup_mixes_no_row_that_is_scored(bottom: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scored one by one, rows have nothing to be mixed with: a model whose scores stay the same mixed none before."""
    sizes = {"hidden": 8, "top": (8,), "lr": 0.02, "bottom": bottom}
    kinds = (SplitNN, Mixup, Careless)
    together = {kind: scores(kind(**sizes), sv.Plain()) for kind in kinds}
    for program in ("active_program", "passive_program"):
        monkeypatch.setattr(f"securevfl.training.{program}.split_chunks", one_by_one)
    alone = {kind: scores(kind(**sizes), sv.Plain()) for kind in kinds}
    assert np.allclose(together[Mixup], alone[Mixup], atol=1e-4)
    assert not np.allclose(together[Careless], alone[Careless], atol=1e-2)
    assert not np.allclose(together[Mixup], together[SplitNN], atol=1e-2)


def test_a_method_that_an_attribute_would_hide_is_refused() -> None:
    """Mixins too: the attribute hides the method of every base."""

    class Jitter:
        def features(self, rows: np.ndarray) -> torch.Tensor:
            raise AssertionError(rows)

    with pytest.raises(sv.InputError, match="Jittered defines a method 'features', which nothing would call: "):

        class Jittered(Jitter, Passive):  # type: ignore[misc]  # what mypy says about it is what this refuses
            pass
