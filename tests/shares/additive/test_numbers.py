"""A number by an additive model on shares: the sums of the plain run word for word, what is opened of its validation
rows, and targets outside the job's range."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from securevfl_crypto.replicated import Clear, Share
from securevfl_crypto.ring import encode_words
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms.additive.shapes import OwnShapes
from securevfl.algorithms.additive.units import target_units
from securevfl.data import Parties
from securevfl.run import Result
from securevfl.shares import NetworkShape, SharedMetrics
from securevfl.shares.additive.course import AdditiveTraining
from securevfl.shares.additive.programs import number_words
from securevfl.shares.additive.scores import ScoreSum
from securevfl.shares.engine import Engine
from securevfl.shares.metrics import METRIC_BITS
from securevfl.shares.share_party import ShareParty

RANGE = (850.0, 1150.0)
"""Some targets of `_people` lie beyond either end."""

EPOCHS = 4


def _people(passive: int = 2, rows: int = 150) -> Parties:
    people = make_parties(passive, rows)
    every = {name: dict(zip(table.ids, sum(table.columns.values()), strict=True)) for name, table in people.items()}
    bank = people.active
    amounts = [1000 + 40 * sum(every[name].get(one, 0.0) for name in people) for one in bank.ids]
    return Parties.of(replace(bank, label=np.array(amounts), label_name="amount", classes=()), *people.passive)


def _job(protection: sv.Protection | None = None, **more: Any) -> sv.Job:
    given = {"epochs": EPOCHS, "keep": "last", "seed": 3, "task": "regression", "target_range": RANGE} | more
    return sv.Job(**{"algorithm": sv.Additive(), "protection": protection or sv.Shares()} | given)


def _budget(people: Parties, **more: Any) -> sv.Job:
    names = [f"{table.name}.{column}" for table in people.values() for column in table.columns]
    cuts = sv.Additive(edges="declared", cuts=dict.fromkeys(names, (-1.0, 0.0, 1.0)))
    return _job(sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=60.0)), metrics="none"), algorithm=cuts, **more)


def _shapes(result: Result) -> dict[str, np.ndarray]:
    parts = result.model().parts
    return {
        name: part["parts"]["shapes"]["values"].numpy() for name, part in parts.items() if "shapes" in part["parts"]
    }


@pytest.fixture(scope="module")
def people() -> Parties:
    return _people()


@pytest.mark.parametrize("passive", [2, 3])
def test_every_sum_and_shape_is_that_of_the_plain_run(passive: int, monkeypatch: pytest.MonkeyPatch) -> None:
    people = _people(passive)
    labels = np.asarray(people.active.label)
    assert labels.min() < RANGE[0]
    assert labels.max() > RANGE[1]
    opened: dict[str, list[np.ndarray]] = defaultdict(list)
    update = OwnShapes.update

    def noted(shapes: OwnShapes, contrasts: Any, sums: np.ndarray) -> None:
        opened[shapes.party].append(sums)
        update(shapes, contrasts, sums)

    monkeypatch.setattr(OwnShapes, "update", noted)
    plain = sv.simulate(_job(sv.Plain()), people)
    wanted = {name: list(sums) for name, sums in opened.items()}
    opened.clear()
    found = sv.simulate(_job(), people)
    assert set(wanted) == set(opened) == set(people)
    for name, sums in wanted.items():
        assert len(sums) == EPOCHS
        assert all(np.array_equal(one, other) for one, other in zip(sums, opened[name], strict=True))
        assert np.array_equal(_shapes(plain)[name], _shapes(found)[name])


def test_validation_test_and_predictions_say_what_the_plain_run_says() -> None:
    people = _people(rows=700)
    low, high = wide = (500.0, 1500.0)  # beyond all targets: validation on shares clips them, and a plain one does not
    plain, found = (sv.simulate(_job(one, epochs=30, target_range=wide), people) for one in (sv.Plain(), sv.Shares()))
    exact, told = plain.record.runs[-1], found.record.runs[-1]
    assert told.test["r2"] > 0.7
    assert told.test["rmse"] == pytest.approx(exact.test["rmse"], rel=0.01)
    for one, other in zip(told.epochs, exact.epochs, strict=True):
        assert set(one.valid) == {"rmse"}
        # Rounded at 2^-15 of half the range's square: a hundredth of this error.
        assert one.valid["rmse"] == pytest.approx(other.valid["rmse"], rel=0.01)
    (answers,), (exactly,) = found.scores.values(), plain.scores.values()
    steps = (answers[:, 0] - (low + high) / 2) / ((high - low) / 2) * 2**8
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    assert np.abs(answers - exactly).max() <= (high - low) / 2 / 2**8
    predicted = sv.predict(found.model(), people)
    again = dict(zip(predicted.ids, predicted.probabilities[:, 0], strict=True))
    gap = max(abs(again[name] - value) for name, value in zip(found.test_ids, answers[:, 0], strict=True))
    assert gap <= (high - low) / 2 / 2**8 + 1e-6


def _opened_loss(parts: np.ndarray, targets: np.ndarray) -> float:
    """The sum of the losses of validation rows as the active party can compute it from the opened mean, which a party
    that knows how it is rounded inverts.

    Args:
        parts: of both parties, (2, n).
        targets: (n,).
    """

    async def judge(engine: Engine) -> Share:
        scores = ScoreSum(NetworkShape((1, 1), (), (), 1), engine)
        metrics = SharedMetrics(scores, AdditiveTraining.loss_bits)
        dealt = [engine.constant(encode_words(one[:, None])) for one in parts]
        await metrics.add_rows(dealt, engine.constant(encode_words(targets[:, None])))
        return await metrics.compute_rounded()

    with pytest.raises(StopIteration) as ended:
        judge(Clear(bytes(range(32)))).send(None)
    bits = METRIC_BITS + AdditiveTraining.loss_bits
    log_rows = math.ceil(math.log2(len(targets)))
    factor = round(2.0 ** (15 + log_rows) / len(targets)) / 2.0 ** (15 + log_rows)
    return float(ended.value.value.mine.view(np.int64)[0]) / 2**bits / factor


@pytest.mark.parametrize(("rows", "error"), [(200, 0.001), (1000, 0.005)])
def test_false_parts_read_one_validation_row_an_epoch(rows: int, error: float) -> None:
    """As the page says: who deals parts far outside for all rows but one knows the losses of these, and the opened mean
    tells the others' part of that row. Parts of validation rows are not checked."""
    rng, errors = np.random.default_rng(2), []
    for _ in range(15):
        others, targets = rng.random(rows) / 2, np.rint(256 * rng.uniform(-1, 1, rows)) / 256
        row = rng.integers(rows)
        own = np.full(rows, 64.0)
        own[row] = 1.0
        known = (3 * (24 - np.delete(targets, row)) - 4.5).sum()
        left = max(_opened_loss(np.stack([own, others]), targets) - known, 0.0)
        errors.append(abs((math.sqrt(2 * left) + targets[row] + 1) / 2 - 1 - others[row]))
    assert error / 10 < np.median(errors) < error


def test_numbers_are_dealt_as_the_integers_that_a_plain_run_trains_on() -> None:
    y = np.append(np.linspace(-0.1, 1.1, 777), [0.0, 1.0, 1 / 8192, 3 / 8192])
    scaled = torch.from_numpy(2 * y - 1)
    words = number_words(scaled, 32).view(np.int64)
    units = target_units((scaled.numpy() + 1) / 2, 1)
    np.testing.assert_array_equal(words, units * 32 - (1 << 16))
    assert (words.min(), words.max()) == (-(1 << 16), 1 << 16)


@pytest.mark.parametrize("budget", [False, True])
@pytest.mark.parametrize("dealt", [2049, -2049])
def test_a_target_one_unit_outside_the_range_ends_the_job_before_anything_is_opened(
    people: Parties, dealt: int, budget: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    share, done = ShareParty.share_arrays, []

    async def deviate(member: ShareParty, words: Any, shapes: Any, **more: Any) -> Any:
        if words is not None and len(words) == 1 and not done:  # the first that is dealt are the targets
            done.append(member.site.name)
            words = [words[0].copy()]
            words[0].view(np.int64)[5] = dealt
        return await share(member, words, shapes, **more)

    monkeypatch.setattr(ShareParty, "share_arrays", deviate)
    with pytest.raises(sv.PolicyError, match=r"have to be numbers within the job's target_range\. Nothing") as caught:
        sv.simulate(_budget(people) if budget else _job(), people)
    assert done == [people.active.name]
    every = [entry.what for ledger in caught.value.ledgers for entry in ledger.iter_entries()]
    assert "shares/input" in every
    assert not [what for what in every if what.startswith("shares/open")]


def test_epsilon_of_a_number_is_that_of_two_classes(people: Parties) -> None:
    """A target within its range moves a row's residual as far as a class does."""
    classes = _budget(people, task="classification", target_range=None)
    number, two = (
        sv.simulate(job, table).record.runs[-1]
        for job, table in ((_budget(people), people), (classes, make_parties(2, 150)))
    )
    spent = [[total.epsilon_rdp for total in run.epsilon_totals] for run in (number, two)]
    assert spent[0]
    assert spent[0] == spent[1]
    assert any("ε = 60 (δ = 1e-05)" in note for note in number.notes)


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_a_run_goes_on_as_if_it_had_not_stopped(people: Parties, tmp_path: Path) -> None:
    whole = sv.simulate(_job(), people)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(), people, checkpoints=tmp_path, observer=_Stops())
    resumed = sv.simulate(_job(), people, checkpoints=tmp_path)
    wanted, found = _shapes(whole), _shapes(resumed)
    assert set(wanted) == set(found)
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"target_range": None}, r"learns a number within a range .*: give target_range=\(low, high\)"),
        ({"loss": "huber"}, "learns a number by the squared loss alone"),
        ({"loss": "poisson", "target_range": (0.0, 9.0)}, "learns a number by the squared loss alone"),
    ],
)
def test_what_sums_cannot_learn_is_refused_with_the_reason(given: dict[str, Any], says: str) -> None:
    with pytest.raises(sv.InputError, match=says):
        _job(**given)
