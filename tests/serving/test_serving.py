"""Servers over memory score what a prediction scores, and go on after a party was started anew."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from servers import JOB, places, put, scores_of, served, trained, unlabelled, until

import securevfl as sv
from securevfl.jobs.parts import ModelPart
from securevfl.serving import Batching, Place, ServingPolicy, Unavailable
from securevfl.testing.parties import parties

Parts = Mapping[str, ModelPart]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return trained(tmp_path_factory.mktemp("model"))


def ready(folder: Path, parts: Parts, policies: Mapping[str, ServingPolicy] | None = None) -> dict[str, Place]:
    people = unlabelled(parties())
    at = places(folder, {name: (lambda t=table: t) for name, table in people.items()}, policies=policies)
    for name, place in at.items():
        put(place, parts[name])
    return at


def test_scores_are_those_of_a_prediction(tmp_path: Path, plain: Parts) -> None:
    people = parties()
    model = sv.Model(job=JOB, parts={name: part.tree for name, part in plain.items()})
    whole = sv.predict(model, people)
    expected = dict(zip(whole.ids, whole.probabilities, strict=True))
    ids = list(whole.ids)[:7]

    async def main() -> np.ndarray:
        async with served(ready(tmp_path, plain)) as running:
            assert running.bank.common == set(whole.ids)
            one = await running.bank.scores(ids[:1])
            many = await asyncio.gather(*(running.bank.scores([name]) for name in ids))
            return scores_of([*one, *(found for (found,) in many)])

    found = asyncio.run(main())
    assert np.allclose(found, [expected[name] for name in [ids[0], *ids]], atol=1e-6)


def test_a_passive_party_that_dies_is_named_and_comes_back(tmp_path: Path, plain: Parts) -> None:
    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(grace=0.05)) as running:
            name = sorted(running.bank.common)[0]
            before = scores_of(await running.bank.scores([name]))
            running.crash("shop2")
            with pytest.raises(Unavailable, match="shop2") as caught:
                await running.bank.scores([name])
            assert caught.value.parties == ("shop2",)
            running.start("shop2")
            await until(lambda: running.bank.ready)
            assert np.allclose(scores_of(await running.bank.scores([name])), before, atol=1e-6)

    asyncio.run(main())
