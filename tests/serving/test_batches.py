"""Batches follow each other, are counted before they are answered, and a failed one ends nothing but itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.servers import JOB, put, ready, scores_of, served, trained, unlabelled, until

import securevfl as sv
from securevfl.errors import PolicyError
from securevfl.privacy import ResultBook
from securevfl.run.model_parts import ModelPart
from securevfl.serving import Batching, DailyCounts, Refusal, ServePassive, Unavailable
from securevfl.serving.exchanges import send_command
from securevfl.testing.parties import make_parties
from securevfl.training import PassiveProgram

Parts = Mapping[str, ModelPart]
Command = tuple[str, int, bool]


def note_commands(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """What the bank tells shop1: the command, of how many rows, and whether these are the next batch's."""
    found: list[Command] = []
    original = send_command

    async def noted(link: Any, do: str, rows: np.ndarray, meta: Mapping[str, Any]) -> None:
        if link.peer == "shop1":
            found.append((do, len(rows), "then" in meta))
        await original(link, do, rows, meta)

    monkeypatch.setattr("securevfl.serving.joint.send_command", noted)
    return found


def test_one_row_costs_two_round_trips_and_batches_in_a_row_one_each(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(rows=2)) as running:
            bank = running.bank
            one, *more = sorted(bank.common_customers)
            commands = note_commands(monkeypatch)
            await bank.scores([one])
            assert commands == [("score", 1, False), ("go", 0, False)]
            commands.clear()
            await asyncio.gather(*(bank.scores([name]) for name in more[:7]))
            assert commands == [
                ("score", 2, False),
                ("go", 2, True),
                ("go", 2, True),
                ("go", 1, True),
                ("go", 0, False),
            ]

    asyncio.run(main())


def test_a_customer_is_asked_about_once_however_many_wait(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(rows=1)) as running:
            bank = running.bank
            one, two = sorted(bank.common_customers)[:2]
            commands = note_commands(monkeypatch)
            found = await asyncio.gather(*(bank.scores(names) for names in ([one], [one, two], [two, one], [two])))
            assert sum(rows for _, rows, _ in commands) == 2
            first, second = scores_of(found[1])
            assert np.array_equal(scores_of(found[0])[0], first)
            assert np.array_equal(scores_of(found[2]), [second, first])
            assert bank.counts.rows == 2

    asyncio.run(main())


def test_a_batch_that_a_rule_refuses_does_not_stop_the_next_one(tmp_path: Path, plain: Parts) -> None:
    """Each batch of the row is agreed with the message that starts the one before it."""
    job = JOB.replace(policies={"shop1": sv.Policy(max_results=4)})

    async def main() -> None:
        async with served(ready(tmp_path, plain, job=job), Batching(rows=2)) as running:
            bank, names = running.bank, sorted(running.bank.common_customers)[:8]
            scores_of(await bank.scores([names[2], names[5]]))
            sessions = bank.sessions
            found = await asyncio.gather(*(bank.scores([name], again=True) for name in names))
            refused = [name for name, (one,) in zip(names, found, strict=True) if isinstance(one, Refusal)]
            assert refused == [names[2], names[5]]
            assert bank.sessions == sessions

    asyncio.run(main())


@pytest.mark.parametrize("who", ["bank", "shop1 today", "shop1 ever"])
def test_nothing_is_answered_before_it_is_counted_on_the_disk(
    who: str, tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one file is not yet on the disk, no score reaches the caller, and a passive party sends nothing."""
    party, which = who.partition(" ")[::2]
    gate, waiting = threading.Event(), threading.Event()

    def block(original: Callable[..., None], mine: Callable[[Any], bool]) -> Callable[..., None]:
        def sync(self: Any) -> None:
            if mine(self):
                waiting.set()
                assert gate.wait(60)
            original(self)

        return sync

    async def main() -> None:
        async with served(ready(tmp_path, plain)) as running:
            name = min(running.bank.common_customers)
            if which == "ever":
                mine = running.servers[party].serving.program.role.opened._book  # type: ignore[union-attr]
                monkeypatch.setattr(ResultBook, "sync", block(ResultBook.sync, lambda one: one is mine))
            else:
                counts = running.servers[party].counts
                monkeypatch.setattr(DailyCounts, "sync", block(DailyCounts.sync, lambda one: one is counts))
            before = running.hub["bank"].link_states()["shop1"].received if party != "bank" else 0
            asking = asyncio.ensure_future(running.bank.scores([name]))
            await until(waiting.is_set)
            await asyncio.sleep(0.1)
            assert not asking.done()
            if party != "bank":  # the answer to "score", and no activations
                sent = running.hub["bank"].link_states()["shop1"].received - before
                assert sent < 200, sent
            gate.set()
            assert len(scores_of(await asking)) == 1

    asyncio.run(main())


def test_a_party_killed_between_counting_and_answering_has_counted(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer a row is allowed: after the kill there is none left, although none was given."""
    job = JOB.replace(policies={"shop1": sv.Policy(max_results=4)})
    reached = asyncio.Event()

    async def hangs(self: PassiveProgram, rows: np.ndarray, **more: bool) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with served(ready(tmp_path, plain, job=job), Batching(grace=0.05)) as running:
            one, other = sorted(running.bank.common_customers)[:2]
            with monkeypatch.context() as patched:
                patched.setattr(PassiveProgram, "answer_all", hangs)
                asking = asyncio.ensure_future(running.bank.scores([one]))
                await reached.wait()
                running.crash("shop1")
                with pytest.raises(Unavailable, match="shop1"):
                    await asking
            await running.again("shop1")
            assert running.servers["shop1"].counts.rows == 1
            (refused,) = await running.bank.scores([one])
            assert isinstance(refused, Refusal)
            assert (refused.party, refused.rule) == ("shop1", "max_results")
            scores_of(await running.bank.scores([other]))

    asyncio.run(main())


def _slow(go_on: asyncio.Event) -> Callable[..., Awaitable[None]]:
    original, slept = ServePassive._score_batch, list[None]()

    async def slow(self: ServePassive, *more: object) -> None:
        if self.place.name == "shop1" and not slept:
            slept.append(None)
            await go_on.wait()
        await original(self, *more)  # type: ignore[arg-type]

    return slow


def test_a_late_answer_ends_its_question_alone(tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()
    monkeypatch.setattr(ServePassive, "_score_batch", _slow(go_on))

    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(seconds=2.0)) as running:
            bank, (one, other) = running.bank, sorted(running.bank.common_customers)[:2]
            sessions = bank.sessions
            with pytest.raises(Unavailable, match="shop1"):
                await bank.scores([one])
            go_on.set()
            assert len(scores_of(await bank.scores([other]))) == 1
            assert len(scores_of(await bank.scores([one]))) == 1
            assert bank.sessions == sessions

    asyncio.run(main())


@pytest.mark.parametrize("party", ["bank", "shop1"])
def test_a_batch_that_fails_at_a_party_leaves_its_server(
    party: str, tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that no rule foresaw: the question ends, a new session begins, the next question is answered."""

    async def fails(*given: object, **more: object) -> None:
        raise PolicyError("this batch cannot be answered")

    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(grace=20)) as running:
            bank, (one, other) = running.bank, sorted(running.bank.common_customers)[:2]
            program = running.servers[party].serving.program  # type: ignore[union-attr]
            name = "score_probabilities" if party == "bank" else "answer_all"
            monkeypatch.setattr(program, name, fails)
            sessions = bank.sessions
            if party == "bank":
                (refused,) = await bank.scores([one])
                assert isinstance(refused, Refusal)
                assert refused.words == "this batch cannot be answered"
            else:
                with pytest.raises(Unavailable):
                    await bank.scores([one])
            assert len(scores_of(await bank.scores([other]))) == 1
            assert bank.sessions == sessions + 1
            assert not any(task.done() for task in running.tasks.values())

    asyncio.run(main())


def test_a_change_of_model_loses_no_answer_and_mixes_none(tmp_path: Path, plain: Parts) -> None:
    """While some keep asking, the model changes and changes back: every answer is one model's, and all of it."""
    more = trained(tmp_path / "second", JOB, make_parties(seed=3))
    people = sv.Parties(unlabelled(make_parties()), active="bank")
    models = []
    for parts in (plain, more):
        model = sv.Model(job=JOB, parts={name: part.tree for name, part in parts.items()})
        found = sv.predict(model, people)
        models.append(dict(zip(found.ids, found.probabilities, strict=True)))

    async def main() -> None:
        at = ready(tmp_path / "state", plain)
        async with served(at, Batching(rows=4)) as running:
            bank, names = running.bank, sorted(running.bank.common_customers)
            for name, place in at.items():
                put(place, more[name])
            seen, over = set[int](), asyncio.Event()

            async def keep_asking(first: int) -> int:
                number = first
                while not over.is_set():
                    asked = [names[(number + i) % len(names)] for i in range(3)]
                    scores = scores_of(await bank.scores(asked, again=number % 2 == 0))
                    far = [np.abs(scores - [one[name] for name in asked]).max() for one in models]
                    assert min(far) < 1e-6
                    assert max(far) > 1e-3
                    seen.add(int(np.argmin(far)))
                    number += 7
                return number - first

            asking = [asyncio.ensure_future(keep_asking(first)) for first in range(6)]
            await until(lambda: seen == {0})
            await bank.activate(more["bank"].run)
            await until(lambda: seen == {0, 1})
            await bank.roll_back()
            over.set()
            assert min(await asyncio.gather(*asking)) > 0
            scores_of(await bank.scores(names[:1]))
            moving = asyncio.ensure_future(bank.activate(more["bank"].run))
            await asyncio.sleep(0)
            mixed = scores_of(await bank.scores([names[0], names[40]]))  # one kept from the model before
            await moving
            assert np.abs(mixed - [models[1][names[0]], models[1][names[40]]]).max() < 1e-6

    asyncio.run(main())


def test_questions_that_wait_outlive_a_partners_restart(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two batches on their way only the one that was started is lost."""
    reached = asyncio.Event()

    async def hangs(self: PassiveProgram, rows: np.ndarray, **more: bool) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(rows=1, grace=30)) as running:
            one, other, third = sorted(running.bank.common_customers)[:3]
            with monkeypatch.context() as patched:
                patched.setattr(PassiveProgram, "answer_all", hangs)
                asking = [asyncio.ensure_future(running.bank.scores([name])) for name in (one, other, third)]
                await reached.wait()
                running.crash("shop1")
            await running.again("shop1")
            lost, *answered = await asyncio.gather(*asking, return_exceptions=True)
            assert isinstance(lost, Unavailable)
            for outcomes in answered:
                assert not isinstance(outcomes, BaseException)
                assert len(scores_of(outcomes)) == 1

    asyncio.run(main())
