"""A whole job of two parties: no random number serves twice, and each opening is counted before it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from securevfl_crypto.two.correlations import Linear
from securevfl_crypto.two.online import TwoLinear
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.privacy.opened_values import OpenedValues
from securevfl.privacy.result_book import ResultBook
from securevfl.shares.two import course
from securevfl.shares.two.parties import TwoParty

PAIR, HELPED = sv.Shares(computing=2), sv.Shares(computing=2, helper="notary")
BOTH = pytest.mark.parametrize("protection", [PAIR, HELPED], ids=["pair", "helper"])


def _job(protection: sv.Shares, **more: object) -> sv.Job:
    settings = {"algorithm": sv.LogisticRegression(), "epochs": 1, "batch_size": 64, "seed": 0}
    return sv.Job(protection=protection, **(settings | more))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, 300)


@BOTH
@pytest.mark.parametrize("steps", [None, 7], ids=["passes", "more steps than batches"])
def test_no_pad_serves_twice_in_a_job(
    monkeypatch: pytest.MonkeyPatch, people: Parties, protection: sv.Shares, steps: int | None
) -> None:
    """Over ten epochs, so over two lots; with steps, a batch has several uses in an epoch."""
    begin, taken = TwoLinear.begin_epoch, []

    async def begun(self: TwoLinear, uses: Sequence[Linear]) -> None:
        for use in uses:
            taken.append(use.pad.copy())
            if use.pad_back is not None:
                taken.append(use.pad_back.copy())
        await begin(self, uses)

    monkeypatch.setattr(TwoLinear, "begin_epoch", begun)
    job = _job(protection, epochs=10 if steps is None else 2, steps=steps, batch_size=100, keep="last", patience=None)
    sv.simulate(job, people)
    words = np.concatenate([one.reshape(-1) for one in taken])
    assert words.size > 1000
    assert len(np.unique(words)) == words.size


def test_logits_out_of_range_end_the_job(monkeypatch: pytest.MonkeyPatch, people: Parties) -> None:
    opened = []
    monkeypatch.setattr(course, "count_outside", _all_outside)
    monkeypatch.setattr(TwoParty, "open_words", lambda self, name, *rest: opened.append(name))
    with pytest.raises(sv.RangeError, match="above 12 in size"):
        sv.simulate(_job(PAIR), people)
    assert not opened


async def _all_outside(party: TwoParty, logits: np.ndarray) -> np.ndarray:
    return np.asarray(np.uint8(party.is_active))


def test_openings_are_counted_before_they_happen(
    monkeypatch: pytest.MonkeyPatch, people: Parties, tmp_path: Path
) -> None:
    happened: list[str] = []
    open_words, open_bit, metrics = TwoParty.open_words, TwoParty.open_bit, ResultBook.add_metrics
    looks = OpenedValues.count_opening

    async def words(self: TwoParty, name: str, *rest: object) -> np.ndarray | None:
        if not self.is_active:
            happened.append(f"open {name}")
        return await open_words(self, name, *rest)  # type: ignore[arg-type]

    async def bit(self: TwoParty, name: str, *rest: object) -> bool:
        if not self.is_active:
            happened.append(f"open {name}")
        return await open_bit(self, name, *rest)  # type: ignore[arg-type]

    def counted(self: OpenedValues, *rest: object, **named: object) -> object:
        happened.append("count numbers")
        return looks(self, *rest, **named)  # type: ignore[arg-type]

    def set_of(self: ResultBook, asker: str) -> None:
        happened.append("count a set")
        metrics(self, asker)

    monkeypatch.setattr(TwoParty, "open_words", words)
    monkeypatch.setattr(TwoParty, "open_bit", bit)
    monkeypatch.setattr(ResultBook, "add_metrics", set_of)
    monkeypatch.setattr(OpenedValues, "count_opening", counted)
    job = _job(PAIR, policies={people.passive[0].name: sv.Policy(max_results=3)})
    sv.simulate(job, people, results=tmp_path)
    for opening, count in (("open metrics", "count a set"), ("open predictions", "count numbers")):
        assert count in happened[: happened.index(opening)]
    assert happened.index("count numbers") < happened.index("open range")
    after_metrics = happened[happened.index("open metrics") :]
    assert after_metrics.index("count numbers") < after_metrics.index("open useful")


@BOTH
def test_repeated_predictions_are_counted_and_refused(people: Parties, tmp_path: Path, protection: sv.Shares) -> None:
    job = _job(protection).replace(policies={people.passive[0].name: sv.Policy(max_results=3)})
    model = sv.simulate(job, people, results=tmp_path).model()
    for _ in range(3):
        try:
            sv.predict(model, people, results=tmp_path)
        except sv.PolicyError as error:
            assert "max_results" in str(error)  # noqa: PT017 - whichever attempt is refused
            return
    pytest.fail("three predictions and a test of the same rows were answered with max_results = 3")


@pytest.mark.parametrize("kind", ["two classes", "four classes", "a number"])
@BOTH
def test_batches_of_one_row(protection: sv.Shares, kind: str) -> None:
    people = make_parties(1, 130, classes=4 if kind == "four classes" else 2)
    if kind == "a number":
        bank = people.active
        label = np.random.default_rng(0).normal(size=len(bank.ids)) * 5 + 100
        people = sv.Parties.of(replace(bank, label=label, classes=()), *people.passive)
    task = "regression" if kind == "a number" else "classification"
    found = sv.simulate(_job(protection, task=task, steps=3, batch_size=1), people)
    assert found.record.runs[-1].test
