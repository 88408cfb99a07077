"""Servers over memory score what a prediction scores, and go on after a party was started anew."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.servers import JOB, places, put, ready, scores_of, served, trained, unlabelled

import securevfl as sv
from securevfl.cli.scores import scores_as_csv
from securevfl.cut import Protection
from securevfl.data import PartyTable
from securevfl.errors import InputError, PeerEnded
from securevfl.run.model_parts import PART, ModelPart
from securevfl.run.run_folder import keep_reported_answers
from securevfl.serving import (
    Batching,
    ModelMismatch,
    ModelRecord,
    ModelShelf,
    Refusal,
    ServeActive,
    ServePassive,
    ServingPolicy,
    Unavailable,
)
from securevfl.serving.access import _customer_answer
from securevfl.serving.process_tasks import predict_all
from securevfl.serving.schema import Score
from securevfl.serving.scoring import Answer, ScoringRouter
from securevfl.serving.serving_sessions import describe_end
from securevfl.testing.parties import make_parties
from securevfl.transport import MemoryHub

Parts = Mapping[str, ModelPart]


def predicted(parts: Parts, job: sv.Job = JOB) -> dict[str, np.ndarray]:
    model = sv.Model(job=job, parts={name: part.tree for name, part in parts.items()})
    found = sv.predict(model, make_parties())
    return dict(zip(found.ids, found.probabilities, strict=True))


def test_scores_are_those_of_a_prediction(tmp_path: Path, plain: Parts) -> None:
    expected = predicted(plain)
    ids = sorted(expected)[:7]

    async def main() -> np.ndarray:
        async with served(ready(tmp_path, plain)) as running:
            assert running.bank.common_customers == set(expected)
            one = await running.bank.scores(ids[:1])
            many = await asyncio.gather(*(running.bank.scores([name]) for name in ids))
            return scores_of([*one, *(found for (found,) in many)])

    found = asyncio.run(main())
    assert np.allclose(found, [expected[name] for name in [ids[0], *ids]], atol=1e-6)


@pytest.mark.parametrize("protection", [sv.BFV(), sv.Plain(fixed_point=True)], ids=["bfv", "fixed point"])
def test_sealed_scores_are_those_of_a_prediction(tmp_path: Path, protection: Protection) -> None:
    job = JOB.replace(protection=protection)
    parts = trained(tmp_path / "trained", job)
    expected = predicted(parts, job)
    ids = sorted(expected)[:3]

    async def main() -> np.ndarray:
        async with served(ready(tmp_path, parts, job=job)) as running:
            first = await running.bank.scores(ids[:1])
            return scores_of([*first, *await running.bank.scores(ids[1:])])

    assert np.allclose(asyncio.run(main()), [expected[name] for name in ids], atol=1e-6)


SAME = {
    "network": JOB.replace(epochs=3),
    "trees": JOB.replace(algorithm=sv.Boosting(depth=2), epochs=3),
    "additive": JOB.replace(algorithm=sv.Additive(), epochs=2),
    "pair": JOB.replace(algorithm=sv.LogisticRegression(), protection=sv.Shares(computing=2), epochs=2),
}


@pytest.mark.parametrize("kind", list(SAME))
def test_report_prediction_and_server_print_the_same_digits(kind: str, tmp_path: Path) -> None:
    """A prediction gives the report's scores again and asks about other rows alone. A server that asks anew has the
    same digits but where an answer depends on chance: sums of a row in float32 on how many rows a processor takes at
    once, in one of a hundred rows a digit at the sixth place; opened numbers of shares are rounded at random between
    two neighbours, a grain of a logit apart. What the server has answered it says again.
    """
    job, people = SAME[kind], make_parties(passive=1, rows=120)
    result = sv.simulate(job, people)
    folder = result.model().save(tmp_path / "model")
    assert keep_reported_answers(result, people, folder / "answers") == len(result.test_ids) > 8
    report = read_csv(result._format_scores())
    scored = sv.predict(result.model(), sv.Parties(unlabelled(people), active="bank"), answers=folder / "answers")
    assert scored.kept == len(result.test_ids)
    predicted = read_csv(scores_as_csv(scored.classes, scored.ids, scored.probabilities.tolist()))
    assert {name: predicted[name] for name in report} == report
    parts = {name: ModelPart.load(folder / f"{name}{PART}", name, job) for name in people}

    async def main() -> list[list[list[str]]]:
        async with served(ready(tmp_path / "state", parts, job=job, people=people)) as running:
            desk = ScoringRouter(running.bank)
            return [[printed(one) for one in await desk.answers(list(report))] for _ in range(2)]

    first, second = asyncio.run(main())
    assert first == second
    served_digits = dict(zip(report, first, strict=True))
    if kind in ("trees", "additive"):
        assert served_digits == report
        return
    both = np.array([[list(map(float, of[name])) for name in report] for of in (report, served_digits)])
    if kind == "network":
        assert np.abs(both[0] - both[1]).max() < 1.5e-6
    else:
        logits = np.log(both[:, :, 1] / both[:, :, 0])
        assert np.abs(logits[0] - logits[1]).max() <= 2.0**-4 * 1.001


def read_csv(content: bytes) -> dict[str, list[str]]:
    """Identifier → the scores of the last run, as they are written."""
    return {row[0]: row[-2:] for row in csv.reader(content.decode().splitlines()[1:])}


def printed(answer: object) -> list[str]:
    """Scores of an answer over HTTP, as they are written."""
    assert isinstance(answer, Answer)
    found = _customer_answer(answer)
    assert isinstance(found, Score)
    return [f"{value:.6f}" for value in found.probabilities]


def test_a_question_before_the_first_alignment_waits_for_it(tmp_path: Path, plain: Parts) -> None:
    """A common customer is not taken for one that only the bank has."""
    at = ready(tmp_path, plain)
    name = min(predicted(plain))

    async def main() -> None:
        hub = MemoryHub(at)
        bank = ServeActive(hub["bank"], at["bank"])
        others = [ServePassive(hub[party], at[party]) for party in at if party != "bank"]
        tasks = [asyncio.ensure_future(server.run()) for server in (bank, *others)]
        assert not bank.is_aligned
        (answer,) = await ScoringRouter(bank).answers([name])
        assert isinstance(answer, Answer)
        assert answer.model == "joint"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_a_passive_party_that_dies_is_named_and_comes_back(tmp_path: Path, plain: Parts) -> None:
    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(grace=0.05)) as running:
            name = min(running.bank.common_customers)
            before = scores_of(await running.bank.scores([name]))
            mark = running.bank.alignment_mark()
            running.crash("shop2")
            with pytest.raises(Unavailable, match="shop2") as caught:
                await running.bank.scores([name], again=True)
            assert caught.value.parties == ("shop2",)
            assert not running.bank.is_ready
            await running.again("shop2")
            assert np.allclose(scores_of(await running.bank.scores([name], again=True)), before, atol=1e-6)
            assert running.bank.alignment_mark() == mark, "the stored index was not used again"

    asyncio.run(main())


def test_a_request_in_flight_hears_of_a_party_that_died(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The party dies after it was asked and before it answers: the client gets its name, soon, and no score."""
    reached = asyncio.Event()

    async def never(self: ServePassive, *more: object) -> None:
        if self.place.name == "shop1":
            reached.set()
            await asyncio.Event().wait()

    async def main() -> None:
        async with served(ready(tmp_path, plain), Batching(grace=0.05)) as running:
            name = min(running.bank.common_customers)
            with monkeypatch.context() as patched:
                patched.setattr(ServePassive, "_decide_batch", never)
                asked = asyncio.ensure_future(running.bank.scores([name]))
                await reached.wait()
                running.crash("shop1")
                with pytest.raises(Unavailable, match="shop1"):
                    await asked
            await running.again("shop1")
            assert len(await running.bank.scores([name])) == 1

    asyncio.run(main())


def test_the_active_party_is_started_anew(tmp_path: Path, plain: Parts) -> None:
    async def main() -> None:
        async with served(ready(tmp_path, plain)) as running:
            name = min(running.bank.common_customers)
            before = scores_of(await running.bank.scores([name]))
            running.crash("bank")
            await running.again("bank")
            assert np.allclose(scores_of(await running.bank.scores([name], again=True)), before, atol=1e-6)
            assert running.bank.counts.rows == 2, "a restart reset the counts of the day"

    asyncio.run(main())


def test_each_party_refuses_by_its_own_policy(tmp_path: Path, plain: Parts) -> None:
    """No other party knows the rule before it is broken, and rows that nobody refuses are scored all the same."""
    policies = {"shop1": ServingPolicy(scores_per_record=2), "shop2": ServingPolicy(min_batch=2)}

    async def main() -> None:
        async with served(ready(tmp_path, plain, policies)) as running:
            bank, (one, two, three) = running.bank, sorted(running.bank.common_customers)[:3]
            (alone,) = await bank.scores([one])
            assert isinstance(alone, Refusal)
            assert (alone.party, alone.rule, alone.is_temporary) == ("shop2", "min_batch", False)
            for _ in range(2):
                scores_of(await bank.scores([one, two], again=True))
            over, *rest = await bank.scores([one, three], again=True)
            assert isinstance(over, Refusal)
            assert (over.party, over.rule, over.is_temporary) == ("shop1", "scores_per_record", True)
            assert 0 < over.wait <= 86400
            assert isinstance(rest[0], Refusal), "one row is left, and shop2 scores two at least"
            assert rest[0].party == "shop2"
            running.crash("shop1")
            await running.again("shop1")
            again, _ = await bank.scores([one, two], again=True)
            assert isinstance(again, Refusal), "a restart reset the counts of the day"
            assert again.rule == "scores_per_record"

    asyncio.run(main())


def test_a_new_model_is_served_once_all_have_it(tmp_path: Path, plain: Parts) -> None:
    more = trained(tmp_path / "second", JOB, make_parties(seed=3))
    run = more["bank"].run
    old = predicted(plain)

    async def main() -> None:
        at = ready(tmp_path, plain)
        async with served(at) as running:
            bank, name = running.bank, min(running.bank.common_customers)
            first = bank.digest
            put(at["bank"], more["bank"])
            put(at["shop1"], more["shop1"])
            with pytest.raises(ModelMismatch, match="shop2"):
                await bank.activate(run)
            assert bank.digest == first
            assert np.allclose(scores_of(await bank.scores([name])), old[name], atol=1e-6)
            put(at["shop2"], more["shop2"])
            second = await bank.activate(run)
            new = scores_of(await bank.scores([name]))
            assert not np.allclose(new, old[name], atol=1e-3)
            assert np.allclose(new, predicted(more)[name], atol=1e-6)
            assert {server.shelf.committed.digest for server in running.servers.values() if server.shelf.committed} == {
                second
            }
            assert await bank.roll_back() == first
            assert np.allclose(scores_of(await bank.scores([name])), old[name], atol=1e-6)

    asyncio.run(main())


@pytest.mark.parametrize("who", ["bank", "shop1"])
def test_a_crash_between_the_phases_leaves_one_model(
    tmp_path: Path, plain: Parts, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dies after the active party's record was written comes back to what it says."""
    more = trained(tmp_path / "second", JOB, make_parties(seed=3))
    run = more["bank"].run
    reached = asyncio.Event()
    original = ModelShelf.commit

    def commit(self: ModelShelf, model: ModelRecord) -> ModelPart:
        if model.run == run and self.party == "shop1":
            reached.set()
            raise InputError("it dies here")
        return original(self, model)

    async def main() -> None:
        at = ready(tmp_path, plain)
        async with served(at) as running:
            for name, place in at.items():
                put(place, more[name])
            with monkeypatch.context() as patched:
                patched.setattr(ModelShelf, "commit", commit)
                asking = asyncio.ensure_future(running.bank.activate(run))
                await reached.wait()
                running.crash(who)
                asking.cancel()
            await running.again(who)
            models = [server.shelf.committed for server in running.servers.values()]
            assert {model.run for model in models if model is not None} == {run}
            name = min(running.bank.common_customers)
            found = scores_of(await running.bank.scores([name]))
            assert np.allclose(found, predicted(more)[name], atol=1e-6)

    asyncio.run(main())


def test_parts_of_different_runs_are_never_served_together(tmp_path: Path, plain: Parts) -> None:
    """The same job, trained twice: each party's own part is whole, and together they are no model."""
    more = trained(tmp_path / "second", JOB, make_parties(seed=3))
    mixed = dict(plain) | {"shop1": more["shop1"]}

    async def main() -> None:
        async with served(ready(tmp_path, mixed)) as running:
            assert "shop1" in running.bank.problem
            assert not running.bank.is_ready

    asyncio.run(main())


def test_a_refresh_aligns_new_tables(tmp_path: Path, plain: Parts) -> None:
    tables = unlabelled(make_parties())
    at = places(tmp_path, {name: (lambda name=name: tables[name]) for name in tables})  # type: ignore[misc]
    for name, place in at.items():
        put(place, plain[name])

    async def main() -> None:
        async with served(at) as running:
            bank = running.bank
            gone = min(bank.common_customers)
            size = len(bank.common_customers)
            tables["shop1"] = _without(tables["shop1"], gone)
            assert await bank.refresh() == size - 1
            assert gone not in bank.common_customers
            scores_of(await bank.scores(sorted(bank.common_customers)[:2]))
            good = tables["shop2"]
            tables["shop2"] = replace(good, ids=[f"other-{i}" for i in range(good.rows)])
            with pytest.raises(ModelMismatch, match="the old ones stay"):
                await bank.refresh()
            assert len(bank.common_customers) == size - 1
            scores_of(await bank.scores(sorted(bank.common_customers)[:2]))

    asyncio.run(main())


def _without(table: PartyTable, name: str) -> PartyTable:
    return table.take([row for row, one in enumerate(table.ids) if one != name])


def test_processes_score_the_rows_of_the_active_party_too(tmp_path: Path, plain: Parts) -> None:
    """After the common rows, by the bank alone; an algorithm that is not fit refuses before anybody is asked."""
    people = make_parties()
    job = JOB.replace(algorithm=sv.ZeroImputation(hidden=4, top=(4,), bottom=(3,)))
    parts = trained(tmp_path / "model", job)
    model = sv.Model(job=job, parts={name: part.tree for name, part in parts.items()})
    wanted = sv.predict(model, sv.Parties(unlabelled(people), active="bank"), everyone=True)

    async def main() -> None:
        async with served(ready(tmp_path / "own", parts, job=job)) as running:
            before = running.bank.sessions
            found = await predict_all(running.bank, running.tasks["bank"], everyone=True)
            assert found is not None
            assert running.bank.sessions == before
            at = {name: place for place, name in enumerate(found.ids)}
            assert sorted(at) == sorted(wanted.ids)
            assert [found.used[at[name]] for name in wanted.ids] == list(wanted.used)
            assert {len(used) for used in found.used} == {1, 3}
            rows = [found.probabilities[at[name]] for name in wanted.ids]
            np.testing.assert_allclose(rows, wanted.probabilities, atol=1e-6)
        async with served(ready(tmp_path / "plain", plain)) as running:
            with pytest.raises(sv.InputError, match="SplitNN is not fit for rows without the columns of shop1, shop2"):
                await predict_all(running.bank, running.tasks["bank"], everyone=True)

    asyncio.run(main())


def test_a_bound_of_numbers_holds_over_servers(tmp_path: Path, plain: Parts) -> None:
    """Four numbers a score: 9 allow two scores of a customer, for good."""
    job = JOB.replace(policies={"shop1": sv.Policy(max_results=9)})

    async def scored(times: int) -> None:
        async with served(ready(tmp_path, plain, job=job)) as running:
            one, other = sorted(running.bank.common_customers)[:2]
            for _ in range(times):
                await running.bank.scores([one], again=True)
            (refused,) = await running.bank.scores([one], again=True)
            assert isinstance(refused, Refusal)
            assert (refused.party, refused.rule) == ("shop1", "max_results")
            assert not isinstance((await running.bank.scores([other]))[0], Refusal)

    asyncio.run(scored(2))
    assert (tmp_path / "shop1" / "results.jsonl").exists()
    asyncio.run(scored(0))


def test_a_session_that_was_stopped_is_said_to_be_so() -> None:
    """The ledger's closing line names no class of the program for an ordinary stop."""
    said = "broken off: a process was stopped or restarted"
    assert describe_end(asyncio.CancelledError()) == describe_end(PeerEnded("shop1 ended")) == said
    assert describe_end(InputError("a table is damaged")) == "ended: InputError"


def test_served_scores_are_calibrated_as_predictions_are(tmp_path: Path, plain: Parts) -> None:
    fitted = {"whole": {"temperature": 3.0, "intercept": [0.5, -0.5]}}
    parts = {**plain, "bank": replace(plain["bank"], tree={**plain["bank"].tree, "calibration": fitted})}
    expected, bare = predicted(parts), predicted(plain)
    ids = sorted(expected)[:3]

    async def main() -> np.ndarray:
        async with served(ready(tmp_path, parts)) as running:
            return scores_of(await running.bank.scores(ids))

    found = asyncio.run(main())
    assert np.allclose(found, [expected[name] for name in ids], atol=1e-6)
    assert not np.allclose(found, [bare[name] for name in ids], atol=1e-2)
