"""Noisy answers are given again, ε of the day is counted and bounded, and padded batches hide who is asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from support.servers import JOB, forget_answers, ready, scores_of, served, trained

import securevfl as sv
from securevfl.privacy import GaussianRelease, epsilon_rdp
from securevfl.run.model_parts import ModelPart
from securevfl.serving import Batching, Refusal, ServePassive, ServingPolicy
from securevfl.serving.groups import make_groups

Parts = Mapping[str, ModelPart]
Noisy = tuple[sv.Job, Parts]
DELTA = 1e-3
KINDS: Mapping[str, sv.Gaussian | sv.JointNoise] = {
    "activations": sv.Gaussian(epsilon=8.0, delta=DELTA, clip=1.0),
    "z": sv.JointNoise(epsilon=8.0, delta=DELTA, clip=1.0, weight_bound=2.0),
}


@pytest.fixture(scope="module", params=sorted(KINDS))
def noisy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Noisy:
    job = JOB.replace(epochs=2, protection=sv.Plain(dp=sv.DP(features=KINDS[request.param])))
    return job, trained(tmp_path_factory.mktemp("noisy"), job)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Rows that the passive party shop1 was asked to score, batch for batch."""
    rows: list[np.ndarray] = []
    original = ServePassive._decide_batch

    async def noted(self: ServePassive, upstream: object, index: object, asked: np.ndarray) -> object:
        if self.place.name == "shop1":
            rows.append(asked)
        return await original(self, upstream, index, asked)  # type: ignore[arg-type]

    monkeypatch.setattr(ServePassive, "_decide_batch", noted)
    return rows


def test_a_noisy_answer_is_given_again(tmp_path: Path, noisy: Noisy, asked: list[np.ndarray]) -> None:
    job, parts = noisy

    async def main() -> None:
        at = ready(tmp_path, parts, job=job)
        async with served(at) as running:
            bank, name = running.bank, min(running.bank.common_customers)
            first = scores_of(await bank.scores([name]))
            for _ in range(3):
                assert np.array_equal(scores_of(await bank.scores([name])), first)
            assert len(asked) == 1, "a passive party was asked again"
            running.crash("bank")
            await running.again("bank")
            assert np.array_equal(scores_of(await running.bank.scores([name])), first), "a restart drew anew"
            assert len(asked) == 1
            spent = running.servers["shop1"].epsilon_today()
            assert spent == pytest.approx(epsilon_rdp(GaussianRelease(_sigma(job, parts), 1), DELTA))

    asyncio.run(main())


def test_epsilon_of_a_day_is_bounded_at_the_passive_party(
    tmp_path: Path, noisy: Noisy, asked: list[np.ndarray]
) -> None:
    """The active party loses its answers, and asks again: what is drawn anew costs ε, and passes the bound."""
    job, parts = noisy
    release = GaussianRelease(_sigma(job, parts), 1)
    one = epsilon_rdp(release, DELTA)
    policies = {"shop1": ServingPolicy(epsilon_per_record=one * 1.01)}

    async def main() -> None:
        async with served(ready(tmp_path, parts, policies, job)) as running:
            bank, name = running.bank, min(running.bank.common_customers)
            scores_of(await bank.scores([name]))
            forget_answers(bank)
            (again,) = await bank.scores([name])
            dp = job.protection.dp
            if dp is None or dp.joint_noise is None:
                assert isinstance(again, np.ndarray), "noise drawn once is the same, and costs nothing more"
                return
            assert isinstance(again, Refusal)
            assert (again.party, again.rule) == ("shop1", "epsilon_per_record")

    asyncio.run(main())


def _sigma(job: sv.Job, parts: Parts) -> float:
    dp = job.protection.dp
    assert dp is not None
    assert dp.features is not None
    return float(dp.features.sigma(int(parts["shop1"].tree["times"])))


def test_epsilon_without_noise_is_refused(tmp_path: Path) -> None:
    parts = trained(tmp_path / "model")
    policies = {"shop2": ServingPolicy(epsilon_per_record=100.0)}

    async def main() -> None:
        async with served(ready(tmp_path, parts, policies)) as running:
            (found,) = await running.bank.scores([min(running.bank.common_customers)])
            assert isinstance(found, Refusal)
            assert (found.party, found.rule, found.is_temporary) == ("shop2", "no_noise", False)

    asyncio.run(main())


def test_a_padded_batch_is_the_same_for_whoever_is_in_it(tmp_path: Path, asked: list[np.ndarray]) -> None:
    parts = trained(tmp_path / "model")

    async def main() -> dict[str, np.ndarray]:
        async with served(ready(tmp_path, parts), Batching(padded=16)) as running:
            bank = running.bank
            seen = {}
            for name in sorted(bank.common_customers):
                asked.clear()
                forget_answers(bank)
                scores_of(await bank.scores([name]))
                (seen[name],) = asked
            asked.clear()
            forget_answers(bank)
            scores_of(await bank.scores(sorted(bank.common_customers)))
            assert len(asked) == -(-len(bank.common_customers) // 16)
            return seen

    seen = asyncio.run(main())
    batches = {tuple(rows.tolist()) for rows in seen.values()}
    assert {len(batch) for batch in batches} == {16}
    assert len(batches) == -(-len(seen) // 16), "a person's batch depends on who asks, or when"
    assert all(sum(tuple(rows.tolist()) == batch for rows in seen.values()) >= 6 for batch in batches)


def test_groups_hold_everybody_and_need_the_key() -> None:
    names = [f"p{i}" for i in range(50)]
    one, two = make_groups(names, 8, b"one" * 11), make_groups(names, 8, b"two" * 11)
    assert {len(group) for group in one} == {8}
    assert set(np.concatenate(one).tolist()) == set(range(50))
    assert [group.tolist() for group in one] == [group.tolist() for group in make_groups(names, 8, b"one" * 11)]
    assert [group.tolist() for group in one] != [group.tolist() for group in two]
    (everybody,) = make_groups(names[:3], 8, b"key")
    assert everybody.tolist() == [0, 1, 2]
