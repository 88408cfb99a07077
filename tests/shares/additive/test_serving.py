"""Servers of two parties and a party without data score rows with an additive model whose shapes each party keeps."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import make_parties
from support.servers import PATIENCE, put, scores_of, unlabelled

import securevfl as sv
from securevfl.data import Parties
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServeActive, ServePassive, ServingContext
from securevfl.serving.helper import ServeHelper
from securevfl.transport import MemoryHub


@pytest.mark.parametrize("number", [False, True])
def test_servers_answer_one_question_after_another(tmp_path: Path, number: bool) -> None:
    two = make_parties(1, 120)
    names = (two.active.name, two.passive[0].name, "notary")
    more: dict[str, Any] = {}
    if number:
        amounts = 100 + 10 * np.asarray(two.active.columns["f0"])
        two = Parties.of(replace(two.active, label=amounts, classes=()), *two.passive)
        more = {"task": "regression", "target_range": (50.0, 150.0)}
    job = sv.Job(algorithm=sv.Additive(), protection=sv.Shares(computing=names), epochs=3, keep="last", **more)
    model = sv.simulate(job, two).model()
    wanted = sv.predict(model, two)
    folder = model.save(tmp_path / "model")
    tables = unlabelled(two)

    def place(name: str) -> ServingContext:
        at = ServingContext(
            name=name,
            active=names[0],
            passive=names[1:2],
            coordinator="notary",
            job=job,
            load=lambda: tables[name],
            folder=tmp_path / name,
        )
        put(at, ModelPart.load(folder, name, job))
        return at

    async def score() -> tuple[tuple[str, ...], list[np.ndarray]]:
        hub = MemoryHub(list(names))
        bank = ServeActive(hub[names[0]], place(names[0]))
        others = [
            ServePassive(hub[names[1]], place(names[1]), once=True),
            ServeHelper(hub["notary"], place("notary"), once=True),
        ]
        tasks = [asyncio.ensure_future(one.run()) for one in (bank, *others)]
        try:
            async with asyncio.timeout(PATIENCE):
                await bank.wait_for_session()
                assert not bank.problem
                common = tuple(sorted(bank.common_customers))
                found = [scores_of(await bank.scores(part)) for part in (common, common[:5], common[3:4])]
                await bank.finish()
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return common, found

    common, scores = asyncio.run(score())
    expected = dict(zip(wanted.ids, wanted.probabilities, strict=True))
    assert set(common) == set(expected)
    for found, part in zip(scores, (common, common[:5], common[3:4]), strict=True):
        gap = np.abs(found - np.array([expected[name] for name in part])).max()
        assert gap < (2 * 50 / 256 if number else 0.016)  # an answer is rounded up or down by chance
