"""Limits that two servers of a party share: who loses a race refuses that customer, and the session goes on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.servers import forget_answers, ready, scores_of, served

from securevfl.run.model_parts import ModelPart
from securevfl.serving import Refusal, ServingContext, ServingPolicy
from securevfl.serving.joint import JointScores
from securevfl.serving.passive import ServePassive

Parts = Mapping[str, ModelPart]
ONCE = ServingPolicy(scores_per_record=1)


def shared(at: Mapping[str, ServingContext], folder: Path) -> dict[str, ServingContext]:
    """The same parties, whose books are beside their folders, as those of processes are."""
    return {
        name: replace(place, results=folder / f"{name}.results.jsonl", days=folder / f"{name}.results.days")
        for name, place in at.items()
    }


def test_the_asking_party_that_loses_a_race_skips_that_batch_alone(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of the bank scores the customer after all had agreed, and before the bank counts."""
    at = shared(ready(tmp_path, plain, {"bank": ONCE}), tmp_path)
    original, other = JointScores._ask_others, at["bank"].count_days()
    lost: list[str] = []

    async def raced(self: JointScores, rows: Any) -> list[Refusal]:
        found = await original(self, rows)
        if lost:
            other.take([lost.pop()], [False])
        return found

    monkeypatch.setattr(JointScores, "_ask_others", raced)

    async def main() -> None:
        async with served(at) as running:
            bank, (one, two) = running.bank, sorted(running.bank.common_customers)[:2]
            sessions = bank.sessions
            lost.append(one)
            (refused,) = await bank.scores([one])
            assert isinstance(refused, Refusal)
            assert (refused.party, refused.rule) == ("bank", "scores_per_record")
            scores_of(await bank.scores([two]))
            assert bank.sessions == sessions
            assert bank.counts.rows == other.rows == 2
            for shop in ("shop1", "shop2"):
                assert running.servers[shop].counts.rows == 1, "what all agreed on and nobody scored is taken back"

    asyncio.run(main())


def test_what_a_passive_party_agreed_to_is_taken_back_where_another_refuses(tmp_path: Path, plain: Parts) -> None:
    at = shared(ready(tmp_path, plain, {"shop2": ONCE}), tmp_path)

    async def main() -> None:
        async with served(at) as running:
            bank, (one, two) = running.bank, sorted(running.bank.common_customers)[:2]
            scores_of(await bank.scores([one]))
            forget_answers(bank)
            refused, found = await bank.scores([one, two])
            assert isinstance(refused, Refusal)
            scores_of([found])
            assert {name: server.counts.rows for name, server in running.servers.items()} == dict.fromkeys(at, 2)
            assert await bank.find_refusals([one, two])  # asks, and scores nobody
            assert {name: server.counts.rows for name, server in running.servers.items()} == dict.fromkeys(at, 2)

    asyncio.run(main())


def test_what_a_passive_party_agreed_to_is_its_count_until_the_session_breaks_off(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has said yes its other processes have one score less; it takes that back if nothing left."""
    at = shared(ready(tmp_path, plain, {"shop1": ONCE}), tmp_path)
    other, agreed, go_on = at["shop1"].count_days(), asyncio.Event(), asyncio.Event()
    original = ServePassive._decide_batch

    async def note(self: ServePassive, *what: Any) -> Any:
        found = await original(self, *what)
        if self.place.name == "shop1":
            agreed.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(ServePassive, "_decide_batch", note)

    async def main() -> None:
        async with served(at) as running:
            one = min(running.bank.common_customers)
            asking = asyncio.ensure_future(running.bank.scores([one]))
            await agreed.wait()
            assert isinstance(other.find_refusal([one], [False]), Refusal)
            running.crash("shop2")
            asking.cancel()
            await running.again("shop2")
            assert other.rows == 0
            assert other.find_refusal([one], [False]) is None

    asyncio.run(main())


def test_an_older_state_folder_lowers_no_count(tmp_path: Path, plain: Parts) -> None:
    """The day book is beside the folder, as the result book is."""
    at = shared(ready(tmp_path, plain, {"shop1": ONCE}), tmp_path)

    async def main() -> None:
        async with served(at) as running:
            shutil.copytree(at["shop1"].folder, tmp_path / "older")
            one = min(running.bank.common_customers)
            scores_of(await running.bank.scores([one]))
            forget_answers(running.bank)
            running.crash("shop1")
            shutil.rmtree(at["shop1"].folder)
            shutil.copytree(tmp_path / "older", at["shop1"].folder)
            await running.again("shop1")
            (refused,) = await running.bank.scores([one])
            assert isinstance(refused, Refusal)
            assert (refused.party, refused.rule) == ("shop1", "scores_per_record")

    asyncio.run(main())
