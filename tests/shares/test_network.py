"""The network on shares: the three parties compute what the same fixed-point arithmetic gives in the clear, bit by bit,
and what floating point gives up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from securevfl_crypto.replicated import Clear, Computing, run_three
from securevfl_crypto.ring import decode_words, encode_words
from sklearn.metrics import roc_auc_score

import securevfl as sv
from securevfl.shares import Network, NetworkShape, OptimiserConstants, SharedMetrics
from securevfl.shares.engine import Engine
from securevfl.shares.metrics import EDGES, METRIC_BITS
from securevfl.testing.shared_reference import SharedReference

RULE = OptimiserConstants(lr=0.25, momentum=0.9, decay=0.0)
SHAPES = {
    "logistic": NetworkShape((3, 2), (), (), 2),
    "perceptron": NetworkShape((3, 2), (), (4, 3), 2),
    "bottoms": NetworkShape((3, 0, 2), (4, 3), (4,), 2),
}


def _rows(shape: NetworkShape, rows: int = 24) -> tuple[list[np.ndarray], np.ndarray]:
    generator = np.random.default_rng(5)
    inputs = [generator.normal(size=(rows, width)).clip(-5, 5) for width in shape.inputs]
    labels = (sum(x.sum(axis=1) for x in inputs) > 0).astype(float)[:, None]
    return inputs, labels


async def _trained(
    engine: Engine, shape: NetworkShape, steps: int, rule: OptimiserConstants = RULE
) -> dict[str, np.ndarray]:
    """This party's summands of everything there is after training: weights, momentum, logits, metrics."""
    network = Network(shape, rule, 8, engine, seed=1)
    inputs, labels = _rows(shape)
    x, y = [engine.constant(encode_words(one)) for one in inputs], engine.constant(encode_words(labels))
    for step in range(steps):
        here = slice(8 * (step % 3), 8 * (step % 3) + 8)
        await network.train_batch([one[here] for one in x], y[here])
    scores = SharedMetrics(network)
    await scores.add_rows(x, y)
    found = {name: one for kind in (network.weights, network.moving) for name, one in kind.items()}
    found |= {f"moving {name}": one for name, one in network.moving.items()}
    found["logits"] = await network.forward(x)
    found["metrics"] = await scores.compute_rounded()
    found["out of range"] = await network.out_of_range()
    return {name: one.mine for name, one in found.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_three_parties_compute_what_the_clear_does_bit_by_bit(name: str) -> None:
    seed = bytes(range(32))

    async def party(engine: Computing) -> dict[str, np.ndarray]:
        return await _trained(engine, SHAPES[name], 4)

    async def clear(engine: Clear) -> dict[str, np.ndarray]:
        return await _trained(engine, SHAPES[name], 4)

    results = run_three(party, seed=seed).results
    with pytest.raises(StopIteration) as ended:
        clear(Clear(seed)).send(None)
    wanted: dict[str, np.ndarray] = ended.value.value
    for what, words in wanted.items():
        np.testing.assert_array_equal(sum(one[what] for one in results), words, err_msg=what)


@pytest.mark.parametrize("name", SHAPES)
def test_the_arithmetic_is_that_of_sgd_with_momentum_up_to_rounding(name: str) -> None:
    shape, rule = SHAPES[name], OptimiserConstants(lr=0.25, momentum=0.5, decay=0.01)
    inputs, labels = _rows(shape)
    model = SharedReference(shape, rule, batch_size=8, seed=1)
    x, y = [torch.from_numpy(one) for one in inputs], torch.from_numpy(labels)
    for step in range(6):
        here = slice(8 * (step % 3), 8 * (step % 3) + 8)
        model.step([one[here] for one in x], y[here])
    with pytest.raises(StopIteration) as ended:
        _trained(Clear(bytes(32)), shape, 6, rule).send(None)
    found: dict[str, np.ndarray] = ended.value.value
    wanted = model(x).detach().numpy()
    np.testing.assert_allclose(decode_words(found["logits"]), wanted, atol=0.01)
    accuracy, log_loss, auc = decode_words(found["metrics"], METRIC_BITS)
    loss = float(np.logaddexp(0, wanted).sum() - (labels * wanted).sum()) / len(labels)
    assert abs(accuracy - ((wanted > 0) == (labels > 0)).mean()) < 0.01
    assert abs(log_loss - loss) < 0.025
    bins = np.digitize(decode_words(found["logits"]), EDGES)
    gap = bins[labels > 0][:, None] - bins[labels == 0][None, :]
    assert abs(auc - ((gap > 0) + (gap == 0) / 2).mean()) < 0.01
    assert not found["out of range"].any()


def test_a_step_takes_no_more_than_24_rounds() -> None:
    shape = NetworkShape((16, 16), (), (16, 16), 2)

    async def step(engine: Computing) -> int:
        network = Network(shape, RULE, 8, engine, seed=1)
        x = [engine.constant(np.zeros((8, 16), dtype=np.uint64))] * 2
        await network.train_batch(x, engine.constant(np.zeros((8, 1), dtype=np.uint64)))
        return engine.rounds

    assert max(run_three(step).results) <= 24


@pytest.mark.parametrize("value", [17.0, -(2.0**30), 2.0**40, 2.0**47, -(2.0**46) - 3, 2.0**46 + 0.5])
def test_weights_out_of_range_are_found(value: float) -> None:
    engine = Clear(bytes(32))
    network = Network(SHAPES["perceptron"], RULE, 8, engine, seed=1)
    words = network.weights["layer 1"].mine.copy()
    words[1, 1] = round(value * 2**16) % 2**64  # also what no comparison tells from a small one
    network.weights["layer 1"] = engine.constant(words)
    with pytest.raises(StopIteration) as ended:
        network.out_of_range().send(None)
    assert ended.value.value.mine.any()


def test_weights_of_a_wide_layer_whose_norm_would_wrap_are_found() -> None:
    """Their squares, added up in one sum, would come to 0 modulo 2^64: 2^20 weights of 64."""
    shape = NetworkShape((1024,), (), (1024,), 2)
    engine = Clear(bytes(32))
    network = Network(shape, RULE, 8, engine, seed=1)
    most = shape.top_layers()[0].max_norm
    wrong = np.full(network.weights["layer 0"].shape, min(64.0, most))
    network.weights["layer 0"] = engine.constant(encode_words(wrong))
    with pytest.raises(StopIteration) as ended:
        network.out_of_range().send(None)
    assert ended.value.value.mine.any()


def test_the_first_answers_of_a_model_are_equal_whatever_the_row_is() -> None:
    """All parties know the first weights: an untrained model's answers would be known equations in a row's columns."""
    for shape in SHAPES.values():
        inputs, _ = _rows(shape)
        model = SharedReference(shape, RULE, batch_size=8, seed=1)
        assert not model([torch.from_numpy(one) for one in inputs]).any()


def test_networks_whose_products_could_wrap_are_refused() -> None:
    with pytest.raises(sv.InputError, match=r"below 2\^62 nothing wraps"):
        NetworkShape((32, 32), (), (64, 64, 64, 64), 2)
    with pytest.raises(sv.InputError, match="take smaller batches"):
        NetworkShape((64,), (), (64, 64), 2).layer_steps(RULE, 1 << 16)


@pytest.mark.parametrize("lr", [1e-4, 0.2, 10])
@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("decay", [0.0, 1e-4, 0.999])
@pytest.mark.parametrize("batch_size", [64, 4096, 1 << 14])
def test_what_momentum_and_decay_keep_cannot_wrap_either(
    lr: float, momentum: float, decay: float, batch_size: int
) -> None:
    """Each step adds a sum over the batch below 2^61 and, of weights within twice their norms, less than that again."""
    shape = NetworkShape((30, 30), (), (16,), 2)
    try:
        steps = shape.layer_steps(OptimiserConstants(lr, momentum, decay), batch_size)
    except sv.InputError:
        return
    for layer in shape.all_layers():
        step = steps[layer.name]
        moved, weight = 4 * layer.max_norm * 2**16, 2 * layer.max_norm * 2**16
        assert moved * step.keep + weight * step.decay <= 2**61 * (1 + 1e-9)
        assert abs(step.factor / 2.0 ** (step.shift - 16) / (lr / batch_size) - 1) <= 0.5


@pytest.mark.parametrize("rows", [3, 1000, 6000, 40_000])
def test_the_log_loss_is_right_whatever_the_number_of_rows(rows: int) -> None:
    """A divisor of a fixed number of bits behind the point would be 8 % off at 3,000 rows, and nothing at 33,000."""
    logits = np.random.default_rng(rows).normal(size=(rows, 1)) * 2
    labels = (logits > 0.5).astype(float)

    async def judged(engine: Clear) -> np.ndarray:
        scores = SharedMetrics(Network(SHAPES["logistic"], RULE, 8, engine, seed=1))
        scores._rows = rows
        scores._sums = await scores._score_two_classes(
            engine.constant(encode_words(logits)), engine.constant(encode_words(labels))
        )
        return decode_words((await scores.compute_rounded()).mine, METRIC_BITS)

    with pytest.raises(StopIteration) as ended:
        judged(Clear(bytes(32))).send(None)
    accuracy, log_loss, auc = ended.value.value
    fine = 2.0**-METRIC_BITS
    assert abs(accuracy - ((logits > 0) == (labels > 0)).mean()) < 0.0002 + fine
    assert abs(log_loss - np.mean(np.logaddexp(0, logits) - labels * logits)) < 0.005 + fine  # chords, and rounding
    bins = np.digitize(logits, EDGES)[:, 0].astype(float)
    if rows > 3:
        positive = labels[:, 0] == 1
        assert abs(auc - roc_auc_score(positive, bins)) < 0.0003 + fine


def test_steps_that_are_too_small_are_refused_with_that_reason() -> None:
    with pytest.raises(sv.InputError, match=r"lr 1e-09 with batches of 32 is too small .*: take a larger lr"):
        SHAPES["logistic"].layer_steps(OptimiserConstants(1e-9, 0.9, 0.0), 32)


def test_metrics_of_no_rows() -> None:
    with pytest.raises(ValueError, match="no rows"):
        SharedMetrics(Network(SHAPES["logistic"], RULE, 8, Clear(bytes(32)), seed=1)).compute_rounded().send(None)
