"""Checkpoints inside epochs: a run that goes on from one is the run that was not interrupted, and ε counts both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import aligned, low_overlap_parties, make_parties

import securevfl as sv
from securevfl.party_context import PartySecret
from securevfl.privacy import RowRelease
from securevfl.run.checkpoint import FolderKeeper
from securevfl.run.simulation import RunOutcome, run_parties
from securevfl.run.store import tree_digest

STEPS = 2
EPOCHS = 2


class KeepsAll(FolderKeeper):
    """Forgets no checkpoint, so that a test can go on from any; and can die after one."""

    dies: tuple[int, int] | None = None

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        super().save(epoch, state, step=step)
        self.path_of(epoch, step).with_suffix(".whole").write_bytes(self.path_of(epoch, step).read_bytes())
        if (epoch, step) == self.dies:
            raise RuntimeError("killed")


def _job(name: str, protection: Any) -> sv.Job:
    kind: dict[str, Any] = {
        "splitnn": sv.SplitNN(hidden=4, bottom=[3]),
        "logistic_regression": sv.LogisticRegression(),
        "entity_augmentation": sv.EntityAugmentation(hidden=4),
        "fedcvt": sv.FedCVT(bottom=[4]),
    }
    return sv.Job(algorithm=kind[name], protection=protection, epochs=EPOCHS, batch_size=12, seed=3)


def _run(job: sv.Job, people: sv.Parties, keepers: dict[str, KeepsAll] | None) -> RunOutcome:
    secrets = {name: PartySecret.from_seed(5, name) for name in people}
    return run_parties(job, people, aligned(people, job), run="train", keepers=keepers, secrets=secrets)  # type: ignore[arg-type]


def _keepers(folder: Path, job: sv.Job, people: sv.Parties, place: tuple[int, int] | None = None) -> Any:
    found = {name: KeepsAll(folder / name, name, job.digest, steps=STEPS) for name in people}
    for keeper in found.values():
        for left in keeper.folder.glob("*.whole"):
            left.with_suffix(".safetensors").write_bytes(left.read_bytes())
        keeper.resume_from(1, place)
    return found


def _bits(ran: RunOutcome) -> dict[str, object]:
    found: dict[str, object] = {name: tree_digest(trained.model["parts"]) for name, trained in ran.trained.items()}
    scores = [trained.scores for trained in ran.trained.values() if trained.scores is not None]
    return found | {"scores": [np.asarray(one).tobytes() for one in scores]}


CELLS = [
    ("splitnn", sv.Plain()),
    ("splitnn", sv.Plain(fixed_point=True)),
    ("splitnn", sv.BFV()),
    ("logistic_regression", sv.Plain()),
    ("entity_augmentation", sv.Plain()),
]


@pytest.mark.parametrize(("name", "protection"), CELLS, ids=lambda one: getattr(one, "name", one))
def test_it_goes_on_inside_an_epoch(name: str, protection: Any, tmp_path: Path) -> None:
    job = _job(name, protection)
    people = (
        low_overlap_parties(1, rows=80, width=2) if name == "entity_augmentation" else make_parties(passive=1, rows=80)
    )
    first = _keepers(tmp_path, job, people)
    whole = _run(job, people, first)
    without = _run(job, people, None)
    exact = not job.protection.is_sealed
    if exact:
        assert _bits(whole) == _bits(without)
    places = [
        {file.name.removesuffix(".whole").split("epoch-")[1] for file in keeper.folder.glob("*.whole")}
        for keeper in first.values()
    ]
    assert places[0] == places[1]
    assert {"0-step-2", "1", "1-step-2"} <= places[0]
    for place in [(0, 2), (1, 2)] if exact else [(1, 2)]:
        again = _run(job, people, _keepers(tmp_path, job, people, place))
        if exact:
            assert _bits(again) == _bits(whole)
        else:
            (a, b) = (next(t.scores for t in r.trained.values() if t.scores is not None) for r in (again, whole))
            assert np.abs(a - b).max() < 0.05


def test_an_algorithm_whose_epochs_begin_with_something_goes_on_from_epochs(tmp_path: Path) -> None:
    job, people = _job("fedcvt", sv.Plain()), low_overlap_parties(1, rows=120, width=2)
    keepers = _keepers(tmp_path, job, people)
    _run(job, people, keepers)
    assert all({step for _, step in keeper.stored_positions()} == {0} for keeper in keepers.values())


@pytest.mark.parametrize(("dies", "start"), [((0, 2), None), ((1, 0), (0, 4)), ((1, 2), (1, 0)), ((1, 4), (1, 2))])
def test_releases_after_a_checkpoint_inside_an_epoch_count(
    dies: tuple[int, int], start: tuple[int, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on from the place before that of the last checkpoint: what was released between counts twice."""
    dp = sv.DP(features=sv.Gaussian(epsilon=30.0))
    job, people = _job("splitnn", sv.Plain(dp=dp)), make_parties(passive=1, rows=80)
    made: dict[int, int] = {}
    call = RowRelease.__call__

    def counted(self: RowRelease, values: Any, rows: np.ndarray, **more: Any) -> Any:
        for row in rows.tolist():
            made[row] = made.get(row, 0) + 1
        return call(self, values, rows, **more)

    monkeypatch.setattr(RowRelease, "__call__", counted)
    keepers = _keepers(tmp_path, job, people)
    (killed,) = [name for name in people if name != "bank"]
    keepers[killed].dies = dies
    with pytest.raises(sv.PartyFailed):
        _run(job, people, keepers)
    ran = _run(job, people, _keepers(tmp_path, job, people, start))
    (spent,) = [one for one in ran.trained[killed].spent if "activations" in one.what]
    assert max(made.values()) <= spent.times <= max(made.values()) + 1
    assert spent.times > EPOCHS
