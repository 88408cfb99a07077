"""Servers of three parties answer many questions with trees that stay on shares, and with trees whose splits were
handed out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from support.helpers import make_parties
from support.servers import PATIENCE, put, scores_of, unlabelled

import securevfl as sv
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServeActive, ServePassive, ServingContext
from securevfl.training import Algorithm
from securevfl.transport import MemoryHub

QUESTIONS = 12


@pytest.mark.parametrize("left", ["shares", "parts"])
@pytest.mark.parametrize(
    "algorithm",
    [sv.Boosting(depth=2, bins=8), sv.BoostedResidual(depth=2, bins=8, own_trees=3, own_depth=2)],
    ids=["boosting", "on the own model"],
)
def test_servers_answer_one_question_after_another(
    algorithm: Algorithm, left: Literal["shares", "parts"], tmp_path: Path
) -> None:
    people = make_parties(2, 120)
    names = (people.active.name, *(table.name for table in people.passive))
    job = sv.Job(algorithm=algorithm, protection=sv.Shares(model=left), epochs=2, keep="last")
    model = sv.simulate(job, people).model()
    wanted = sv.predict(model, people)
    folder, tables = model.save(tmp_path / "model"), unlabelled(people)

    def place(name: str) -> ServingContext:
        at = ServingContext(
            name=name,
            active=names[0],
            passive=names[1:],
            job=job,
            load=lambda: tables[name],
            folder=tmp_path / name,
        )
        put(at, ModelPart.load(folder, name, job))
        return at

    async def ask() -> tuple[tuple[str, ...], list[np.ndarray]]:
        hub = MemoryHub(list(names))
        bank = ServeActive(hub[names[0]], place(names[0]))
        others = [ServePassive(hub[name], place(name), once=True) for name in names[1:]]
        tasks = [asyncio.ensure_future(one.run()) for one in (bank, *others)]
        try:
            async with asyncio.timeout(PATIENCE):
                await bank.wait_for_session()
                assert not bank.problem
                common = tuple(sorted(bank.common_customers))
                found = [scores_of(await bank.scores(common[k : k + 3])) for k in range(QUESTIONS)]
                await bank.finish()
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return common, found

    common, scores = asyncio.run(ask())
    expected = dict(zip(wanted.ids, wanted.probabilities, strict=True))
    for k, found in enumerate(scores):
        part = np.array([expected[name] for name in common[k : k + 3]])
        assert np.abs(found - part).max() < 0.016, k
