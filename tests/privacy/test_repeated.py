"""Noise of predictions: the same question gets the same noise, so that asking again wears nothing out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from support.helpers import make_parties

import securevfl as sv
from securevfl.privacy import RowRelease, strip_noise_mark
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.run import Model
from securevfl.run.simulation import join_parties

KEY = bytes(range(32))
NAMES = [f"p{i}" for i in range(200)]
ROWS = np.arange(200)
VALUES = torch.from_numpy(np.random.default_rng(0).normal(size=(200, 4)) / 4).float()


def release(values: torch.Tensor, key: bytes = KEY, names: list[str] = NAMES, *, sigma: float = 1.0) -> torch.Tensor:
    made = RowRelease(
        "activations",
        rows=len(ROWS),
        times=1,
        sigma=sigma,
        clip=1.0,
        delta=1e-5,
        once=True,
        repeated=RepeatedNoise(key, names),
    )
    return strip_noise_mark(made(values, ROWS))


def test_forty_answers_are_worth_one() -> None:
    answers = torch.stack([release(VALUES) for _ in range(40)])
    assert (answers == answers[0]).all()
    left = (answers.mean(dim=0) - VALUES).std()
    assert 1.8 < float(left) < 2.2, "σΔ = 2, and not 2/√40 = 0.3"


def test_what_differs_gets_noise_of_its_own() -> None:
    first = release(VALUES) - VALUES
    moved = VALUES.clone()
    moved[7, 0] += 1e-3
    again = release(moved) - moved
    same = (first == again).all(dim=1)
    assert same.sum() == 199
    assert not same[7], "or the difference of two answers would be that of the features"
    others = [
        release(VALUES, bytes(32)) - VALUES,
        release(VALUES, names=NAMES[1:] + NAMES[:1]) - VALUES,
        (release(VALUES, sigma=2.0) - VALUES) / 2,
        release(torch.full((200, 4), 0.1)) - 0.1,
    ]
    for noise in others:
        assert (noise - first).abs().min() > 0
        assert abs(np.corrcoef(noise.flatten(), first.flatten())[0, 1]) < 0.1
    assert len(np.unique(others[-1].numpy(), axis=0)) == 200, "rows with the same features do not show that they are"


def test_it_is_gaussian() -> None:
    noise = (release(VALUES) - VALUES).numpy().ravel() / 2
    assert kstest(noise, "norm").pvalue > 0.01


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="the key has 5 bytes instead of 32"):
        RepeatedNoise(b"short", NAMES)


@pytest.mark.parametrize(
    "algorithm",
    [
        sv.SplitNN(hidden=4, top=(4,)),
        sv.SplitNN(hidden=4, top=(4,), bottom=(3,)),
        sv.FedCVT(bottom=(4,)),
    ],
    ids=["identity", "trainable", "fedcvt"],
)
def test_predicting_again_gives_the_same_answer(algorithm: sv.Algorithm, tmp_path: Path) -> None:
    people = make_parties(passive=1, rows=100)
    noise = sv.DP(features=sv.Gaussian(epsilon=20.0))
    job = sv.Job(algorithm=algorithm, protection=sv.Plain(dp=noise), epochs=1, batch_size=32)
    aligned = join_parties(people, job)
    model = sv.simulate(job, people, aligned=aligned).model()
    first = sv.predict(model, people, aligned=aligned).probabilities
    model.save(tmp_path)
    again = sv.predict(Model.load(tmp_path, job), people, aligned=aligned).probabilities
    assert np.array_equal(first, again)
    shop = people["shop1"]
    columns = {name: np.asarray(values).copy() for name, values in shop.columns.items()}
    row = int(aligned.parties["shop1"].rows[5])
    columns["f0"][row] += 0.5
    moved = sv.Parties.of(people["bank"], replace(shop, columns=columns))
    other = sv.predict(model, moved, aligned=aligned).probabilities
    assert set(np.flatnonzero((other != first).any(axis=1)).tolist()) <= {5}, "a score may be saturated either way"


def test_a_damaged_secret_is_an_error_of_the_user() -> None:
    people = make_parties(passive=1, rows=60)
    job = sv.Job(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian())), epochs=1, batch_size=32)
    aligned = join_parties(people, job)
    model = sv.simulate(job, people, aligned=aligned).model()
    parts = {name: {**part, "noise key": "xy"} for name, part in model.parts.items()}
    with pytest.raises(sv.InputError, match="noise on predictions"):
        sv.predict(Model(job=job, parts=parts), people, aligned=aligned)
