"""Between two organisations only one bit of an epoch's metrics is opened: whether they are the best so far."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties

EPOCHS = 5


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, 400)


def _run(people: Parties, metrics: str | None, folder: Path | None = None, **more: object) -> list[dict[str, float]]:
    protection = sv.Shares(computing=2, helper="notary", metrics=metrics)  # type: ignore[arg-type]
    job = sv.Job(
        algorithm=sv.LogisticRegression(), protection=protection, epochs=EPOCHS, batch_size=64, seed=0, keep="best"
    )
    result = sv.simulate(job, people, checkpoints=folder, **more)  # type: ignore[arg-type]
    return [dict(epoch.valid) for epoch in result.record.runs[-1].epochs]


def test_a_bit_says_whether_an_epoch_is_the_best_so_far(people: Parties) -> None:
    aucs = [valid["auc"] for valid in _run(people, "rounded")]
    bits = _run(people, "best")
    assert all(set(valid) == {"best_so_far"} for valid in bits)
    for epoch, valid in enumerate(bits):
        before = max(aucs[:epoch], default=-1.0)
        if abs(aucs[epoch] - before) > 0.005:  # both runs round by chance, and their sines are others
            assert bool(valid["best_so_far"]) == (aucs[epoch] > before), epoch
    assert bits[0]["best_so_far"] == 1


class _Stops(sv.Observer):
    """Ends the run after three epochs."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 3:
            raise RuntimeError("the power failed")


def test_the_best_figure_outlives_a_restart(tmp_path: Path, people: Parties) -> None:
    whole = _run(people, "best")
    with pytest.raises(sv.PartyFailed):
        _run(people, "best", tmp_path, observer=_Stops())
    again = _run(people, "best", tmp_path)
    aucs = [valid["auc"] for valid in _run(people, "rounded")]
    near = [abs(aucs[e] - max(aucs[:e], default=-1.0)) <= 0.005 for e in range(EPOCHS)]
    found = [a == b or close for a, b, close in zip(whole, again, near, strict=True)]
    assert all(found), (whole, again, aucs)
