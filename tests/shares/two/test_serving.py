"""Servers of two parties, and of a helper, score rows by a model of which each of the two has a summand."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from support.helpers import make_parties
from support.servers import PATIENCE, put, scores_of, unlabelled

import securevfl as sv
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServeActive, ServePassive, ServingContext
from securevfl.serving.helper import ServeHelper
from securevfl.transport import MemoryHub


@pytest.mark.parametrize(
    "algorithm", [sv.LogisticRegression(), sv.Scorecard(bins=4, least=5)], ids=lambda one: one.name
)
@pytest.mark.parametrize("helper", ["", "notary"])
def test_servers_answer_many_questions(tmp_path: Path, helper: str, algorithm: sv.Algorithm) -> None:
    two = make_parties(1, 120)
    names = (two.active.name, two.passive[0].name)
    protection = sv.Shares(computing=2, helper=helper)
    job = sv.Job(algorithm=algorithm, protection=protection, epochs=2, batch_size=64, keep="last")
    model = sv.simulate(job, two).model()
    wanted = sv.predict(model, two)
    folder = model.save(tmp_path / "model")
    tables = unlabelled(two)

    def place(name: str) -> ServingContext:
        at = ServingContext(
            name=name,
            active=names[0],
            passive=names[1:],
            coordinator=helper,
            job=job,
            load=lambda: tables[name],
            folder=tmp_path / name,
        )
        put(at, ModelPart.load(folder, name, job))
        return at

    async def score() -> tuple[tuple[str, ...], list[np.ndarray]]:
        hub = MemoryHub([*names, *([helper] if helper else [])])
        bank = ServeActive(hub[names[0]], place(names[0]))
        others: list[ServePassive | ServeHelper] = [ServePassive(hub[names[1]], place(names[1]), once=True)]
        others += [ServeHelper(hub[helper], place(helper), once=True)] if helper else []
        tasks = [asyncio.ensure_future(one.run()) for one in (bank, *others)]
        try:
            async with asyncio.timeout(PATIENCE):
                await bank.wait_for_session()
                assert not bank.problem
                common = tuple(sorted(bank.common_customers))
                found = [scores_of(await bank.scores(part)) for part in _questions(common)]
                await bank.finish()
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return common, found

    common, scores = asyncio.run(score())
    expected = dict(zip(wanted.ids, wanted.probabilities, strict=True))
    assert set(common) == set(expected)
    for found, part in zip(scores, _questions(common), strict=True):
        gap = np.abs(found - np.array([expected[name] for name in part])).max()
        assert gap < 0.016  # an answer is rounded up or down by chance


def _questions(common: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [common, common[:5], *((name,) for name in common[5:25])]
