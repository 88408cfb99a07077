"""Metrics, range and answers of two parties beside floats, at the edges of what they can hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from securevfl_crypto.two.dealing import MemoryHelper
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import LOGIT_BITS, TwoLinear, encode_values
from securevfl_crypto.two.wire import MemoryEnd, MemoryWires

from securevfl.shares.answers import AnswerKind, RowAnswer
from securevfl.shares.network_ranges import NetworkShape
from securevfl.shares.two.answering import compute_answers
from securevfl.shares.two.judging import compute_metrics, count_outside, metric_scales
from securevfl.shares.two.parties import CountedWire, TwoParty

Run = Callable[[TwoParty, np.ndarray], Awaitable[np.ndarray]]


class _Network:
    """What judging needs of a network."""

    def __init__(self, party: TwoParty, shape: NetworkShape) -> None:
        self.shape = shape
        first, second = shape.inputs
        self.linear = TwoLinear(party.wire, party.source, (first, second), shape.outputs)


def both(logits: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """What the two get of logits that they share."""
    wires, helper = MemoryWires(), MemoryHelper()
    pads = np.random.default_rng(3).integers(0, 1 << 64, logits.shape, dtype=np.uint64)
    words = np.rint(np.ldexp(logits, LOGIT_BITS)).astype(np.int64).view(np.uint64)

    async def take_part(wire: MemoryEnd) -> np.ndarray:
        source = DealtCorrelations(CountedWire(wire), helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        party = TwoParty(None, ("a", "p"), CountedWire(wire), source, {})  # type: ignore[arg-type]
        return await run(party, pads if wire.me else words - pads)

    one, other = wires.pair()
    first, second = wires.run(take_part(one), take_part(other))
    return first, second


@pytest.mark.parametrize(
    ("outside", "found"), [(0, False), (2, False), (3, True), (200, True)], ids=["none", "1 %", "more", "all"]
)
@pytest.mark.parametrize("size", [12.1, -12.1, 20.0, -100.0, 127.0, -200.0, 250.0, -250.0])
def test_the_range_bit_tells_whether_more_than_one_in_a_hundred_is_outside(
    size: float, outside: int, found: bool
) -> None:
    logits = np.linspace(-11.9, 11.9, 200).reshape(-1, 1)
    logits[:outside] = size
    one, other = both(logits, count_outside)
    assert bool(one ^ other) is found


def metrics_of(logits: np.ndarray, targets: np.ndarray, shape: NetworkShape) -> np.ndarray:
    async def run(party: TwoParty, share: np.ndarray) -> np.ndarray:
        network = _Network(party, shape)
        return await compute_metrics(party, network, share, targets if party.is_active else None)  # type: ignore[arg-type]

    one, other = both(logits, run)
    shifts, units = metric_scales(len(logits), shape)
    return np.asarray(((one + other).view(np.int64) >> np.array(shifts)) * np.array(units))


@pytest.mark.parametrize("positive", [0, 1, 100, 199, 200])
def test_metrics_of_two_classes(positive: int) -> None:
    shape = NetworkShape((1, 1), (), (), 2)
    generator = np.random.default_rng(4)
    logits = np.clip(generator.normal(size=(200, 1)) * 3, -11, 11)
    targets = np.zeros((200, 1))
    targets[:positive] = 1
    right, loss, area = metrics_of(logits, targets, shape)
    assert right == pytest.approx(((logits > 0) == (targets > 0.5)).mean(), abs=0.006)
    wanted = np.mean(np.log1p(np.exp(logits)) - targets * logits)
    assert loss == pytest.approx(wanted, abs=0.006)
    if 0 < positive < 200:
        difference = logits[targets > 0.5][:, None] - logits[targets < 0.5][None]
        assert area == pytest.approx((difference > 0).mean(), abs=0.03)
    else:
        assert area == 0


def test_metrics_of_outputs_that_are_all_equal() -> None:
    right, loss, area = metrics_of(
        np.zeros((50, 1)), np.eye(2)[:, :1].repeat(25, axis=0), NetworkShape((1, 1), (), (), 2)
    )
    assert (right, area) == (0.5, pytest.approx(0.5, abs=2e-3))
    assert loss == pytest.approx(np.log(2), abs=4e-3)


def test_metrics_of_three_classes() -> None:
    generator = np.random.default_rng(6)
    logits, labels = generator.normal(size=(90, 3)) * 2, generator.integers(0, 3, 90)
    right, loss = metrics_of(logits, np.eye(3)[labels], NetworkShape((1, 1), (), (), 3))
    assert right == pytest.approx((logits.argmax(axis=1) == labels).mean(), abs=0.012)
    wanted = np.mean(np.sum(np.log1p(np.exp(logits)) - np.eye(3)[labels] * logits, axis=1))
    assert loss == pytest.approx(wanted, abs=0.02)


def answers_to(logits: np.ndarray, kind: AnswerKind | None, classes: int) -> np.ndarray:
    answer, found = RowAnswer.of(kind, classes), {}

    async def run(party: TwoParty, share: np.ndarray) -> np.ndarray:
        words, shift, bits = await compute_answers(party, answer, share)
        found["how"] = shift, bits
        return words

    one, other = both(logits, run)
    shift, bits = found["how"]
    whole = (one + other).view(np.int64) >> shift
    assert np.abs(whole).max() < 1 << (bits - 1)  # what is opened is not cut
    return np.asarray(whole)


FAR = np.array(
    [-255.0, -240.0, -200.0, -40.0, -8.1, -7.9, -1.0, -0.01, 0.01, 1.0, 7.9, 8.1, 40.0, 120.0, 200.0, 240.0, 255.0]
).reshape(-1, 1)


def test_answers_far_outside_are_clipped() -> None:
    whole = answers_to(FAR, None, 2) / 2**4
    np.testing.assert_allclose(whole, np.clip(FAR, -8, 8), atol=2**-4)
    whole = answers_to(FAR, None, 1) / 2**8
    np.testing.assert_allclose(whole, np.clip(FAR, -24, 24), atol=2**-7)


def test_classes_and_grades_of_logits_far_outside() -> None:
    np.testing.assert_array_equal(answers_to(FAR, "class", 2), FAR > 0)
    edges = (2 * np.arange(-9, 11) - 1) / 4
    near = FAR[np.abs(FAR[:, 0]) < 251]  # beyond, a comparison with an edge of 5 wraps
    np.testing.assert_array_equal(answers_to(near, "grades", 2), (near > edges).sum(axis=1, keepdims=True))
    three = np.concatenate([FAR, -FAR, np.zeros_like(FAR)], axis=1) / 4
    np.testing.assert_array_equal(answers_to(three, "class", 3)[:, 0], three.argmax(axis=1))


def test_numbers_that_would_wrap_are_refused() -> None:
    with pytest.raises(ValueError, match="would wrap"):
        encode_values(np.array([128.0]), LOGIT_BITS)
