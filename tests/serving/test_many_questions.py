"""Servers answer any number of questions under every protection, over a partner that is killed in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.servers import Served, ready, served, trained, unlabelled

import securevfl as sv
from securevfl.serving import Batching, ServePassive, Unavailable
from securevfl.testing.parties import make_parties

QUESTIONS = 60
NETWORK = sv.SplitNN(hidden=4, top=(4,), bottom=(3,))
SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 32, "seed": 5}
JOBS = {
    "plain": sv.Job(algorithm=NETWORK, protection=sv.Plain(), **SMALL),
    "paillier": sv.Job(algorithm=sv.SplitNN(hidden=1, top=()), protection=sv.Paillier(bits=2048), **SMALL),
    "bfv": sv.Job(algorithm=NETWORK, protection=sv.BFV(), **SMALL),
    "ckks": sv.Job(algorithm=NETWORK, protection=sv.CKKS(), **SMALL),
    "boosting": sv.Job(algorithm=sv.Boosting(depth=2), protection=sv.Plain(), epochs=2, seed=5),
    "shares": sv.Job(algorithm=NETWORK, protection=sv.Shares(), **SMALL),
    "shares, logistic regression": sv.Job(algorithm=sv.LogisticRegression(), protection=sv.Shares(), **SMALL),
    "shares, trees": sv.Job(algorithm=sv.Boosting(depth=2, bins=8), protection=sv.Shares(), epochs=2, keep="last"),
    "shares, scorecard": sv.Job(algorithm=sv.Scorecard(), protection=sv.Shares(), epochs=3, keep="last"),
    "shares, additive": sv.Job(algorithm=sv.Additive(), protection=sv.Shares(), epochs=3, keep="last"),
}


async def ask_until_answered(running: Served, names: Sequence[str]) -> tuple[np.ndarray, int]:
    """Scores of customers, and how often the parties were not there."""
    refused = 0
    while True:
        try:
            outcomes = await running.bank.scores(names)
        except Unavailable as error:
            refused += error.wait > 0
            await asyncio.sleep(0.02)
            continue
        assert all(isinstance(one, np.ndarray) for one in outcomes), outcomes
        return np.array(outcomes), refused


@pytest.mark.parametrize("kind", JOBS)
def test_any_number_of_questions_is_answered(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, people = JOBS[kind], make_parties(rows=90)
    parts = trained(tmp_path / "model", job, people)
    model = sv.Model(job=job, parts={name: part.tree for name, part in parts.items()})
    wanted = sv.predict(model, sv.Parties(unlabelled(people), active="bank"))
    expected = dict(zip(wanted.ids, wanted.probabilities, strict=True))
    names = sorted(expected)
    assert len(names) >= QUESTIONS
    killed = asyncio.Event()
    original = ServePassive._score_batch

    async def dies(self: ServePassive, *more: object) -> None:
        if self.place.name == "shop2" and not killed.is_set():
            killed.set()
            await asyncio.Event().wait()
        await original(self, *more)  # type: ignore[arg-type]

    async def main() -> tuple[list[np.ndarray], int]:
        found: list[np.ndarray] = []
        async with served(ready(tmp_path / "state", parts, job=job, people=people), Batching(grace=0.05)) as running:
            for number in range(QUESTIONS // 2):
                found.append((await ask_until_answered(running, names[number : number + 1]))[0])
            with monkeypatch.context() as patched:  # shop2 dies when it has agreed, before it has answered
                patched.setattr(ServePassive, "_score_batch", dies)
                parts_left = [names[number : number + 1] for number in range(QUESTIONS // 2, QUESTIONS)]
                asking = asyncio.ensure_future(
                    asyncio.gather(*(ask_until_answered(running, part) for part in parts_left))
                )
                await killed.wait()
                running.crash("shop2")
                await asyncio.sleep(0.1)
            await running.again("shop2")
            answers = await asking
            assert len({id(task) for task in running.tasks.values() if not task.done()}) == 3, "a server ended"
        return [*found, *(scores for scores, _ in answers)], sum(refused for _, refused in answers)

    found, refused = asyncio.run(main())
    assert refused, "nobody was told to ask again"
    near = 0.016 if job.protection.on_shares else 1e-3 if kind == "ckks" else 1e-5
    for number, scores in enumerate(found):
        part = np.array([expected[name] for name in names[number : number + 1]])
        assert np.abs(scores - part).max() < near, number
