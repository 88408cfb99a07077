"""What the active party has been answered is not asked again, and rows that a party answers nothing more about are left
out or end the prediction before anything is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.servers import JOB, ready, scores_of, served

import securevfl as sv
from securevfl.data import Parties
from securevfl.errors import RowsSpent
from securevfl.ledger import PrivateKey
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServePassive, ServingContext, ServingPolicy
from securevfl.serving.day_book import CountedBatch
from securevfl.serving.policy import SPENT, Refusal, ScoringRefused
from securevfl.serving.process_tasks import Scored, predict_all
from securevfl.testing.parties import make_parties

Parts = Mapping[str, ModelPart]


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Passive party and number of rows of each batch that was scored."""
    batches: list[tuple[str, int]] = []
    original = ServePassive._score_batch

    async def noted(self: ServePassive, rows: np.ndarray) -> None:
        batches.append((self.place.name, len(rows)))
        await original(self, rows)

    monkeypatch.setattr(ServePassive, "_score_batch", noted)
    return batches


async def _predict(folder: Path, parts: Parts, people: Parties | None = None, **options: bool) -> Scored:
    async with served(ready(folder, parts, people=people)) as running:
        found = await predict_all(running.bank, running.tasks["bank"], **options)
        assert found is not None
        return found


def test_a_customer_is_asked_about_once(tmp_path: Path, plain: Parts, answered: list[tuple[str, int]]) -> None:
    async def main() -> None:
        at = ready(tmp_path, plain)
        async with served(at) as running:
            one, two = sorted(running.bank.common_customers)[:2]
            first = scores_of(await running.bank.scores([one]))
            both = scores_of(await running.bank.scores([two, one]))
            assert np.array_equal(both[1], first[0])
            assert answered == [("shop1", 1), ("shop2", 1)] * 2
            running.crash("bank")
            await running.again("bank")
            assert np.array_equal(scores_of(await running.bank.scores([one])), first)
            assert len(answered) == 4
            scores_of(await running.bank.scores([one], again=True))
            assert len(answered) == 6

    asyncio.run(main())


def test_a_server_asks_again_when_a_partners_table_has_changed_and_a_prediction_says_so(
    tmp_path: Path, plain: Parts, answered: list[tuple[str, int]]
) -> None:
    people = make_parties()
    shop = people["shop1"]
    newer = replace(shop, columns={name: np.array(values) + 0.5 for name, values in shop.columns.items()})
    changed = Parties({**people, "shop1": newer}, active="bank")

    async def serve() -> None:
        async with served(ready(tmp_path, plain, people=changed)) as running:
            scores_of(await running.bank.scores([min(running.bank.common_customers)]))

    first = asyncio.run(_predict(tmp_path, plain, people))
    answered.clear()
    second = asyncio.run(_predict(tmp_path, plain, changed))
    assert (second.kept, second.older, second.asked) == (len(first.ids), len(first.ids), 0)
    assert second.probabilities == first.probabilities
    assert not answered
    asyncio.run(serve())
    assert answered == [("shop1", 1), ("shop2", 1)]
    third = asyncio.run(_predict(tmp_path, plain, changed))
    assert (third.kept, third.older) == (len(first.ids), len(first.ids) - 1)


def test_a_prediction_asks_about_new_rows_alone(tmp_path: Path, plain: Parts, answered: list[tuple[str, int]]) -> None:
    people = make_parties()
    bank = people["bank"]
    common = set(asyncio.run(_predict(tmp_path / "other", plain, people)).ids)
    some = [row for row, name in enumerate(bank.ids) if name not in sorted(common)[:4]]
    answered.clear()
    fewer = Parties({**people, "bank": bank.take(some)}, active="bank")
    first = asyncio.run(_predict(tmp_path, plain, fewer))
    assert (first.kept, first.asked) == (0, len(common) - 4)
    second = asyncio.run(_predict(tmp_path, plain, people))
    assert (second.kept, second.asked) == (len(common) - 4, 4)
    assert set(second.ids) == common
    assert answered == [("shop1", len(common) - 4), ("shop2", len(common) - 4), ("shop1", 4), ("shop2", 4)]
    again = asyncio.run(_predict(tmp_path, plain, people, ask_again=True))
    assert (again.kept, again.asked) == (0, len(common))


def _refuse(monkeypatch: pytest.MonkeyPatch, refused: Mapping[str, set[str]], rule: str = SPENT) -> None:
    """Let parties refuse these customers."""
    original = ServePassive._count_batch

    def find(self: ServePassive, serving: object, index: object, rows: np.ndarray) -> CountedBatch | Refusal:
        mine = refused.get(self.place.name, set())
        names = [index.identifiers[row] for row in rows.tolist()]  # type: ignore[attr-defined]
        over = tuple(place for place, name in enumerate(names) if name in mine)
        if over:
            return Refusal(party=self.place.name, rule=rule, words="no more", rows=over)
        return original(self, serving, index, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(ServePassive, "_count_batch", find)


def test_spent_rows_end_a_prediction_before_anything_is_asked(
    tmp_path: Path, plain: Parts, answered: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(asyncio.run(_predict(tmp_path / "other", plain)).ids)
    answered.clear()
    _refuse(monkeypatch, {"shop1": set(names[:3]), "shop2": {names[5]}})
    with pytest.raises(RowsSpent, match=r"max_results: .* leave these .* rows out \(--skip-spent\)") as caught:
        asyncio.run(_predict(tmp_path, plain))
    assert caught.value.exit_code == 3
    assert (caught.value.parties, caught.value.spent) == ({"shop1": 3, "shop2": 1}, 4)
    assert not answered, "a number was spent on rows whose answers nobody got"


def test_spent_rows_are_left_out_and_listed(
    tmp_path: Path, plain: Parts, answered: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = asyncio.run(_predict(tmp_path / "other", plain))
    names = sorted(whole.ids)
    answered.clear()
    _refuse(monkeypatch, {"shop1": set(names[:3]), "shop2": {names[5]}})
    found = asyncio.run(_predict(tmp_path, plain, skip_spent=True))
    left = {*names[:3], names[5]}
    assert set(found.skipped) == left
    assert found.refused == {"shop1": 3, "shop2": 1}
    assert sorted((*found.ids, *found.skipped)) == names
    assert answered == [("shop1", len(names) - 4), ("shop2", len(names) - 4)]
    at = dict(zip(whole.ids, whole.probabilities, strict=True))
    np.testing.assert_allclose(found.probabilities, [at[name] for name in found.ids], atol=1e-6)
    held = asyncio.run(_predict(tmp_path, plain, skip_spent=True))
    assert (held.kept, held.asked, set(held.skipped)) == (len(names) - 4, 0, left)


def test_answers_that_are_held_are_given_though_their_rows_are_spent(
    tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = asyncio.run(_predict(tmp_path, plain))
    _refuse(monkeypatch, {"shop1": set(whole.ids)})
    assert asyncio.run(_predict(tmp_path, plain)).probabilities == whole.probabilities
    with pytest.raises(RowsSpent):
        asyncio.run(_predict(tmp_path, plain, ask_again=True))


def test_other_rules_end_a_prediction_with_or_without_the_option(
    tmp_path: Path, plain: Parts, answered: list[tuple[str, int]]
) -> None:
    async def main() -> None:
        at = ready(tmp_path, plain, {"shop2": ServingPolicy(max_batch=2)})
        async with served(at) as running:
            with pytest.raises(ScoringRefused, match="max_batch"):
                await predict_all(running.bank, running.tasks["bank"], skip_spent=True)

    asyncio.run(main())
    assert not answered


def test_the_answers_of_noise_free_models_are_not_in_the_clear(tmp_path: Path, plain: Parts) -> None:
    scored = asyncio.run(_predict(tmp_path, plain))
    (file,) = (tmp_path / "bank" / "answers").glob("kept-*.jsonl")
    assert not any(name.encode() in file.read_bytes() for name in scored.ids)


# With the bound itself: four numbers a score at this cut.

BOUNDED = JOB.replace(policies={"shop1": sv.Policy(max_results=4), "shop2": sv.Policy(max_results="unlimited")})


def test_a_grant_lets_a_partner_ask_again_and_stands_in_the_ledger(tmp_path: Path, plain: Parts) -> None:
    key = PrivateKey.generate()

    def at() -> dict[str, ServingContext]:
        return {name: replace(place, key=key) for name, place in ready(tmp_path, plain, job=BOUNDED).items()}

    async def predict(**options: bool) -> Scored:
        async with served(at()) as running:
            found = await predict_all(running.bank, running.tasks["bank"], **options)
            assert found is not None
            return found

    first = asyncio.run(predict())
    assert (first.asked, first.numbers) == (len(first.ids), 4)
    with pytest.raises(RowsSpent) as caught:
        asyncio.run(predict(ask_again=True))
    assert (caught.value.parties, caught.value.spent) == ({"shop1": len(first.ids)}, len(first.ids))
    left = asyncio.run(predict(ask_again=True, skip_spent=True))
    assert (len(left.skipped), left.ids) == (len(first.ids), ())
    forged = replace(at()["shop1"], key=PrivateKey.generate()).book
    forged.add_grant("bank", results=100, reason="another's key", until=2_000_000_000, by="somebody")
    book = at()["shop1"].book
    book.add_grant("bank", results=4, reason="a complaint", until=2_000_000_000, by="the officer")
    book.add_grant("bank", results=4, reason="last year's", until=1_600_000_000, by="the officer")
    again = asyncio.run(predict(ask_again=True))
    np.testing.assert_allclose(again.probabilities, first.probabilities, atol=1e-6)
    with pytest.raises(RowsSpent):  # the grant that is over does not count
        asyncio.run(predict(ask_again=True))
    ledgers = sorted((tmp_path / "shop1" / "ledgers").glob("*/shop1.jsonl"))
    noted = [file.read_text().count('"grant"') for file in ledgers]
    assert noted[:3] == [0, 0, 0]
    assert all("a complaint" in file.read_text() and "last year" not in file.read_text() for file in ledgers[3:])


def test_rows_of_one_person_share_what_may_be_answered(tmp_path: Path, plain: Parts) -> None:
    """Snapshots under other identifiers do not start the count at zero."""
    people = make_parties()
    shop = people["shop1"]
    whole = Parties(
        {**people, "shop1": replace(shop, persons=[f"c{row // 2}" for row in range(shop.rows)])}, active="bank"
    )

    async def predict() -> Scored:
        async with served(ready(tmp_path, plain, job=BOUNDED, people=whole)) as running:
            found = await predict_all(running.bank, running.tasks["bank"], skip_spent=True)
            assert found is not None
            return found

    found = asyncio.run(predict())
    person = {name: row // 2 for row, name in enumerate(shop.ids)}
    scored = [person[name] for name in found.ids]
    assert len(set(scored)) == len(scored), "two rows of one person were answered about"
    assert found.skipped
    assert {person[name] for name in found.skipped} <= set(scored)
