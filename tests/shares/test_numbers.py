"""A number on shares: three parties compute what the clear does bit by bit, the Huber loss of floating point up to
rounding, and open its mean once an epoch and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from securevfl_crypto.replicated import Clear, Computing, run_three
from securevfl_crypto.ring import decode_words, encode_words
from support.helpers import make_parties
from torch.nn import functional

import securevfl as sv
from securevfl.data import Parties
from securevfl.run import Result
from securevfl.shares import ERROR_BOUND, Network, NetworkShape, OptimiserConstants, SharedMetrics, gradient_bound
from securevfl.shares.engine import Engine
from securevfl.shares.metrics import METRIC_BITS
from securevfl.testing.shared_reference import SharedReference
from securevfl.training.objectives import LossOfNumber
from securevfl.training.regression import Regression
from securevfl.transport import Kind

RULE = OptimiserConstants(lr=0.25, momentum=0.5, decay=0.01)
SHAPES = {
    "linear": NetworkShape((3, 2), (), (), 1),
    "perceptron": NetworkShape((3, 2), (), (4, 3), 1),
    "bottoms": NetworkShape((3, 0, 2), (4, 3), (4,), 1),
}
EPOCHS = 6


def _rows(shape: NetworkShape, rows: int = 24) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows, and scaled numbers of which some are far off."""
    draw = np.random.default_rng(5)
    inputs = [draw.normal(size=(rows, width)).clip(-5, 5) for width in shape.inputs]
    numbers = sum(x.sum(axis=1) for x in inputs) + 0.3 * draw.normal(size=rows)
    numbers[::7] += 20
    return inputs, numbers[:, None]


async def _trained(engine: Engine, shape: NetworkShape, steps: int) -> dict[str, np.ndarray]:
    network = Network(shape, RULE, 8, engine, seed=1)
    inputs, numbers = _rows(shape)
    x, y = [engine.constant(encode_words(one)) for one in inputs], engine.constant(encode_words(numbers))
    for step in range(steps):
        here = slice(8 * (step % 3), 8 * (step % 3) + 8)
        await network.train_batch([one[here] for one in x], y[here])
    scores = SharedMetrics(network)
    await scores.add_rows([one[:10] for one in x], y[:10])
    await scores.add_rows([one[10:] for one in x], y[10:])
    found = {name: one for kind in network.get_state().values() for name, one in kind.items()}
    found |= {"logits": await network.forward(x)}
    found |= {"metrics": await scores.compute_rounded()}
    return {name: one.mine for name, one in found.items()}


def _clear(shape: NetworkShape, steps: int) -> dict[str, np.ndarray]:
    with pytest.raises(StopIteration) as ended:
        _trained(Clear(bytes(range(32))), shape, steps).send(None)
    found: dict[str, np.ndarray] = ended.value.value
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_three_parties_compute_what_the_clear_does_bit_by_bit(name: str) -> None:
    async def party(engine: Computing) -> dict[str, np.ndarray]:
        return await _trained(engine, SHAPES[name], 4)

    results = run_three(party, seed=bytes(range(32))).results
    for what, words in _clear(SHAPES[name], 4).items():
        np.testing.assert_array_equal(sum(one[what] for one in results), words, err_msg=what)


def _run_clear(coroutine: Coroutine[Any, Any, np.ndarray]) -> np.ndarray:
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    found: np.ndarray = ended.value.value
    return found


@pytest.mark.parametrize("rows", [8, 1000, 1 << 18, (1 << 18) + 1, 1 << 20, 1 << 24])
@pytest.mark.parametrize("mean", [0.5, 1.0, 3143.9])
def test_no_mean_loss_of_any_number_of_rows_wraps(rows: int, mean: float) -> None:
    """3,144 is the largest loss of a row: three times 24 + 1,024, less 4.5."""
    scores = SharedMetrics(Network(SHAPES["linear"], RULE, 8, engine := Clear(bytes(32)), seed=1))
    scores._sums, scores._rows = engine.constant(np.array([round(mean * rows * 65536)], np.uint64)), rows

    async def opened() -> np.ndarray:
        return (await scores.compute_rounded()).mine

    (found,) = decode_words(_run_clear(opened()), METRIC_BITS)
    assert found == pytest.approx(mean, rel=1e-3, abs=2**-METRIC_BITS)


@pytest.mark.parametrize("weight", [0.5, 15.0, 2.0**20])
@pytest.mark.parametrize("target", [-1024.0, 0.0, 1024.0])
def test_a_loss_is_of_the_answer_however_large_the_prediction(weight: float, target: float) -> None:
    engine, rows = Clear(bytes(32)), 400
    network = Network(SHAPES["linear"], RULE, 8, engine, seed=1)
    network.weights["layer 0"] = engine.constant(encode_words(np.full((6, 1), weight)))
    inputs = [engine.constant(encode_words(np.full((rows, width), 8.0))) for width in network.shape.inputs]
    targets = engine.constant(encode_words(np.full((rows, 1), target)))

    async def opened() -> np.ndarray:
        scores = SharedMetrics(network)
        await scores.add_rows(inputs, targets)
        return (await scores.compute_rounded()).mine

    (found,) = decode_words(_run_clear(opened()), METRIC_BITS)
    answered = min(41 * weight, 24.0)
    wanted = float(functional.huber_loss(torch.tensor(answered), torch.tensor(target), delta=ERROR_BOUND))
    assert found == pytest.approx(wanted, rel=1e-3, abs=2**-8)


@pytest.mark.parametrize("name", SHAPES)
def test_the_arithmetic_is_that_of_the_huber_loss_up_to_rounding(name: str) -> None:
    shape = SHAPES[name]
    inputs, numbers = _rows(shape)
    model = SharedReference(shape, RULE, batch_size=8, seed=1)
    x, y = [torch.from_numpy(one) for one in inputs], torch.from_numpy(numbers)
    for step in range(6):
        here = slice(8 * (step % 3), 8 * (step % 3) + 8)
        model.step([one[here] for one in x], y[here])
    found, wanted = _clear(shape, 6), model(x).detach()
    np.testing.assert_allclose(decode_words(found["logits"]), wanted.numpy(), atol=0.01)
    loss = float(functional.huber_loss(wanted, y, delta=ERROR_BOUND))
    assert float(functional.mse_loss(wanted, y)) > 4 * loss, "some errors are clipped"
    assert found["metrics"].shape == (1,)
    assert decode_words(found["metrics"], METRIC_BITS)[0] == pytest.approx(loss, abs=0.01 * ERROR_BOUND)


def test_a_number_takes_no_more_rounds_than_two_classes() -> None:
    async def rounds(engine: Computing, classes: int) -> int:
        network = Network(NetworkShape((16, 16), (), (16,), classes), RULE, 8, engine, seed=1)
        x = [engine.constant(np.zeros((8, 16), dtype=np.uint64))] * 2
        await network.train_batch(x, engine.constant(np.zeros((8, 1), dtype=np.uint64)))
        return engine.rounds

    number, two = (max(run_three(lambda engine, k=k: rounds(engine, k)).results) for k in (1, 2))
    assert number <= two


@pytest.mark.parametrize("far", [0.0, 50.0, -1000.0])
def test_what_a_row_puts_into_a_gradient_is_bounded_whatever_its_number(far: float) -> None:
    """By D = 3/4 times its own norm: what the noise on the model's steps is sized by."""
    shape, clip = NetworkShape((2, 2), (), (), 1), 2.0
    engine = Clear(bytes(32))
    network = Network(shape, OptimiserConstants(lr=1.0, momentum=0.0, decay=0.0), 1, engine, seed=1)
    before = decode_words(network.weights["layer 0"].mine)
    row = np.full((1, 2), clip / 2)
    x = [engine.constant(encode_words(row))] * 2

    with pytest.raises(StopIteration):
        network.train_batch(x, engine.constant(encode_words(np.array([[far]])))).send(None)
    moved = before - decode_words(network.weights["layer 0"].mine)
    assert np.linalg.norm(moved) <= gradient_bound(shape, clip) + 1e-3
    if far:
        assert np.linalg.norm(moved) == pytest.approx(gradient_bound(shape, clip), abs=1e-3)
        assert np.sign(moved).tolist() == np.full((5, 1), -np.sign(far)).tolist()


def test_units_of_a_shared_number_are_those_in_which_delta_is_what_clips() -> None:
    y = np.random.default_rng(0).normal(100, 20, 500)
    task = Regression.fit_scale(LossOfNumber("huber", delta=1.5), y)
    shared = task.clipped_at(ERROR_BOUND)
    assert shared.scale == pytest.approx(task.scale / 2)
    predicted = y[:, None] + np.random.default_rng(1).normal(0, 30, (500, 1))
    assert shared.compute_metrics(predicted, y) == pytest.approx(task.compute_metrics(predicted, y))
    far = replace(task, loss=replace(task.loss, range=(60.0, 140.0)), center=100.0, scale=40.0).clipped_at(ERROR_BOUND)
    ends = far.make_targets(torch.tensor([0.0, 60.0, 140.0, 900.0], dtype=torch.float64))
    assert ends.tolist() == pytest.approx([-2.0, -2.0, 2.0, 2.0])


def _people(rows: int = 200, passive: int = 2) -> Parties:
    people = make_parties(passive, rows)
    every = {name: dict(zip(table.ids, sum(table.columns.values()), strict=True)) for name, table in people.items()}
    bank = people.active
    amounts = [1000 + 50 * sum(every[name].get(one, 0.0) for name in people) for one in bank.ids]
    return Parties.of(replace(bank, label=np.array(amounts), label_name="amount", classes=()), *people.passive)


@pytest.fixture(scope="module")
def people() -> Parties:
    return _people()


@pytest.fixture(scope="module")
def ran(people: Parties) -> Result:
    return sv.simulate(sv.Job(task="regression", algorithm="logistic_regression", epochs=EPOCHS, batch_size=16), people)


def test_a_regression_without_a_named_protection_trains_on_shares(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert run.title == "linear regression (Huber), secret shares"
    assert run.test["r2"] > 0.6
    assert [set(epoch.valid) for epoch in run.epochs] == [{"huber"}] * EPOCHS
    assert run.test["huber"] < run.constant["huber"]
    assert ran.evaluation is not None
    assert ran.evaluation.task == "regression"


def test_what_is_opened_is_one_number_an_epoch_and_the_predictions_once(ran: Result, people: Parties) -> None:
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    for name, ledger in ledgers.items():
        got = Counter(one.what for one in ledger.iter_entries() if one.way == "received" and "open" in one.what)
        mine = {"shares/open metrics": 2 * EPOCHS, "shares/open useful": 2, "shares/open predictions": 2}
        assert got == (mine if name == people.active.name else {"shares/open useful": 2})
        kinds = {one.kind for one in ledger.iter_entries()}
        assert kinds <= {Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE}


def test_a_model_in_shares_predicts_numbers_in_their_units(ran: Result, people: Parties) -> None:
    found = sv.predict(ran.model(), people)
    truth = dict(zip(people.active.ids, people.active.label, strict=True))
    wanted = np.array([truth[name] for name in found.ids])
    assert found.classes == ("amount",)
    assert 1 - np.mean((found.probabilities[:, 0] - wanted) ** 2) / wanted.var() > 0.6


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_with_a_coordinator_a_run_goes_on_and_hands_out_its_model(tmp_path: Path) -> None:
    people = _people(120, 1)
    shares = sv.Shares(computing=("bank", people.passive[0].name, "helper"), model="parts")
    job = sv.Job(task="regression", algorithm="logistic_regression", epochs=3, batch_size=16, protection=shares)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    ran = sv.simulate(job, people, checkpoints=tmp_path)
    run = ran.record.runs[-1]
    assert len(run.epochs) == 3
    found = sv.predict(ran.model(), people)
    truth = dict(zip(people.active.ids, people.active.label, strict=True))
    wanted = np.array([truth[name] for name in found.ids])
    assert 1 - np.mean((found.probabilities[:, 0] - wanted) ** 2) / wanted.var() > 0.3


def test_noise_on_the_model_of_a_number_needs_a_range_and_is_counted() -> None:
    protection = sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=8.0, clip=2.0)))
    job = sv.Job(
        task="regression",
        algorithm="logistic_regression",
        epochs=1,
        batch_size=32,
        target_range=(700, 1300),
        protection=protection,
    )
    with pytest.raises(sv.InputError, match=r"target_range=\(low, high\)"):
        job.replace(target_range=None)
    run = sv.simulate(job, _people(100)).record.runs[-1]
    assert np.isfinite(run.test["rmse"])
    assert any("added its own noise to each of" in note for note in run.notes)


def test_attacks_on_shares_of_a_number_get_nothing_but_by_final_predictions(people: Parties) -> None:
    job = sv.Job(task="regression", algorithm="logistic_regression", epochs=1, batch_size=32, protection=sv.Shares())
    record = sv.attack(job, people, quick=True).record
    assert not [one for one in record.measured if one.attack.startswith(("labels", "features", "others'"))]
    assert any(one.attack == "predictions: final scores" for one in record.measured)
    assert not record.contradictions
