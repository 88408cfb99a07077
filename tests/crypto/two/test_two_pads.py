"""One-layer models of two parties: right beside floats, and messages uniform for whoever has the other summands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.errors import DisagreementError, ReusedError
from securevfl_crypto.two.correlations import Correlations, Linear, LinearTask, Wave
from securevfl_crypto.two.curves import ANGLE_BITS, SIGMOID, Factors
from securevfl_crypto.two.dealing import MemoryHelper
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import LOGIT_BITS, WEIGHT_BITS, StepRule, TwoLinear, encode_rows
from securevfl_crypto.two.pair import PairCorrelations
from securevfl_crypto.two.wire import MemoryEnd, MemoryWires

SOURCES = ("pair", "helper")
_SIX = 6.0
"""Deviations that a mean of fair bits exceeds once in a billion."""


@dataclass
class Half:
    """What one party has of a run: its model, its correlations, and its shares of the errors."""

    linear: TwoLinear
    source: Correlations
    uses: list[Linear] = field(default_factory=list)
    spent: list[Linear] = field(default_factory=list)
    errors: list[np.ndarray] = field(default_factory=list)
    angles: list[np.ndarray] = field(default_factory=list)


def train(
    source: str, rows: Sequence[np.ndarray], targets: np.ndarray, *, steps: int = 1, lr: float = 0.5
) -> tuple[MemoryWires, tuple[Half, Half], StepRule]:
    """Take steps on one batch, one an epoch, from weights of zero; keep what was sent and drawn."""
    wires, helper = MemoryWires(record=True), MemoryHelper()
    rule = StepRule(SIGMOID, lr / len(targets))

    async def take_part(wire: MemoryEnd) -> Half:
        made: Correlations = PairCorrelations(wire, b"tests")
        if source == "helper":
            made = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        await made.setup()
        columns = rows[0].shape[1], rows[1].shape[1]
        half = Half(TwoLinear(wire, made, columns, targets.shape[1]), made)
        _listen(half)
        mine = rows[wire.me]
        task = LinearTask(0, mine, columns[1 - wire.me], targets.shape[1], backward=True)
        (uses,) = await half.linear.prepare([task], steps)
        half.uses, half.spent = [_copy(use) for use in uses], list(uses)
        for use in half.spent:
            await half.linear.begin_epoch([use])
            await half.linear.train_batch(mine, targets if wire.me == 0 else None, rule)
        return half

    one, other = wires.pair()
    return wires, wires.run(take_part(one), take_part(other)), rule


def _copy(use: Linear) -> Linear:
    copies: dict[str, Any] = {name: None if words is None else words.copy() for name, words in vars(use).items()}
    return Linear(**copies)


def _listen(half: Half) -> None:
    open_angles = half.linear._open_angles

    async def opened(z: np.ndarray, wave: Wave, factors: Sequence[Factors]) -> list[np.ndarray]:
        half.angles.append(wave.angles.copy())
        found = await open_angles(z, wave, factors)
        half.errors.append(found[0])
        return found

    half.linear._open_angles = opened  # type: ignore[method-assign]


def draw_rows(rows: int, columns: tuple[int, int], *, size: float = 1.0) -> list[np.ndarray]:
    generator = np.random.default_rng(5)
    return [encode_rows(np.clip(generator.normal(size=(rows, d)) * size, -8, 8)) for d in columns]


def are_uniform(words: np.ndarray, bits: int = 64) -> bool:
    """Whether each bit of many numbers is as often set as not."""
    flat = np.ascontiguousarray(words).reshape(-1).astype(np.uint64)
    places = np.arange(bits, dtype=np.uint64)[:, None]
    means = ((flat >> places) & np.uint64(1)).mean(axis=1)
    return bool(np.abs(means - 0.5).max() < _SIX * 0.5 / np.sqrt(flat.size))


def sent(wires: MemoryWires, label: str, party: int) -> list[list[np.ndarray]]:
    return [one.arrays for one in wires.record if one.label == label and one.sender == party]


def weights_of(halves: tuple[Half, Half]) -> list[np.ndarray]:
    one, other = (half.linear for half in halves)
    return [np.ldexp(words.view(np.int64), -WEIGHT_BITS) for words in (one.own + other.other, other.own + one.other)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("rows", "columns", "outputs"), [(32, (3, 2), 1), (1, (2, 1), 2), (9, (4, 0), 1), (5, (1, 7), 3)]
)
def test_steps_are_those_of_floats(source: str, rows: int, columns: tuple[int, int], outputs: int) -> None:
    x = draw_rows(rows, columns, size=2.0)
    y = np.random.default_rng(1).integers(0, 2, (rows, outputs)).astype(np.float64)
    _, halves, rule = train(source, x, y, steps=3)
    both = np.ldexp(np.concatenate(x, axis=1).astype(np.float64), -10)
    wanted = np.zeros((sum(columns), outputs))
    for _ in range(3):
        wanted -= rule.rate * both.T @ (1 / (1 + np.exp(-both @ wanted)) - y)
    np.testing.assert_allclose(np.concatenate(weights_of(halves)), wanted, atol=0.03 * rows * rule.rate)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_of_the_largest_size_and_many_columns_do_not_wrap(source: str) -> None:
    """900 columns at ±8: products of summands have 64 bits, and only their sum has to be small."""
    x = [np.where(one > 0, 8192, -8192).astype(np.int64) for one in draw_rows(3, (450, 450))]
    _, halves, rule = train(source, x, np.ones((3, 1)), lr=1e-2)
    both = np.ldexp(np.concatenate(x, axis=1).astype(np.float64), -10)
    wanted, largest = both.T @ np.full((3, 1), 0.5), 3 * 8 * (rule.factors.bound_values() - 0.5)
    np.testing.assert_allclose(np.concatenate(weights_of(halves)), rule.rate * wanted, atol=rule.rate * largest)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("victim", [0, 1])
def test_weights_are_hidden_by_a_pad_of_their_sender(source: str, victim: int) -> None:
    """From weights of zero, what a party sends ahead is its pad alone; with the receiver's summand, the weights."""
    wires, _, _ = train(source, draw_rows(2, (1500, 1500)), np.zeros((2, 1)))
    (message,) = sent(wires, "step ahead", victim)
    assert are_uniform(message[0])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("victim", [0, 1])
def test_errors_are_hidden_from_whoever_has_the_other_summand(source: str, victim: int) -> None:
    wires, halves, _ = train(source, draw_rows(1000, (1, 1)), np.zeros((1000, 1)))
    (message,) = sent(wires, "step errors", victim)
    assert are_uniform(message[0])
    whole = halves[0].errors[0] + halves[1].errors[0]
    assert np.abs(whole.view(np.int64)).max() < 1 << 36  # the sum is an error, and small
    assert are_uniform(message[0] + halves[1 - victim].errors[0])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("victim", [0, 1])
def test_angles_are_hidden_by_all_of_their_bits(source: str, victim: int) -> None:
    """Of rows of zeros, the opened angle less the receiver's own is the sender's: 21 uniform bits, of each row anew."""
    rows = [np.zeros((1000, 1), np.int64)] * 2
    wires, halves, _ = train(source, rows, np.zeros((1000, 1)))
    octets = [
        np.pad(sent(wires, "step angles", party)[0][0], ((0, 0), (0, 1))).view("<u4").reshape(-1).astype(np.int64)
        for party in (0, 1)
    ]
    opened = (octets[0] + octets[1]) % (1 << ANGLE_BITS)
    rest = (opened - halves[1 - victim].angles[0]) % (1 << ANGLE_BITS)
    assert are_uniform(octets[victim], ANGLE_BITS)
    assert are_uniform(rest, ANGLE_BITS)
    assert len(np.unique(rest)) > 950
    distance = (rest - halves[victim].angles[0]) % (1 << ANGLE_BITS)
    assert set(np.unique(distance)) <= {0, (1 << ANGLE_BITS) - 1}  # z is zero, but for a carry of the cut bits


@pytest.mark.parametrize("source", SOURCES)
def test_summands_of_products_are_uniform(source: str) -> None:
    """What the holder of rows draws hides them, and their product with a pad, from whoever knows the pad."""
    rows = [np.full((1200, 1), 1024, np.int64)] * 2
    wires, halves, _ = train(source, rows, np.zeros((1200, 1)))
    for half in halves:
        (use,) = half.uses
        for words in (use.mask, use.share, use.pad_back):
            assert words is not None
            assert are_uniform(words)
    if source == "helper":
        for party in (0, 1):
            ((masked,),) = sent(wires, "ahead rows", party)
            assert are_uniform(masked)


@pytest.mark.parametrize("source", SOURCES)
def test_no_pad_serves_twice(source: str) -> None:
    _, halves, _ = train(source, draw_rows(8, (3, 3)), np.zeros((8, 2)), steps=9)
    for half in halves:
        for name in ("mask", "mask_back", "pad", "share", "pad_back", "share_back"):
            drawn = np.concatenate([getattr(use, name).reshape(-1) for use in half.uses])
            assert len(np.unique(drawn)) == drawn.size, name


@pytest.mark.parametrize("source", SOURCES)
def test_random_numbers_are_wiped_when_they_are_used(source: str) -> None:
    _, halves, _ = train(source, draw_rows(8, (3, 3)), np.zeros((8, 2)), steps=2)
    for half in halves:
        for use in half.spent:
            assert not any(words.any() for words in vars(use).values())


def test_summands_of_other_attempts_are_refused() -> None:
    wires = MemoryWires()

    async def take_part(wire: MemoryEnd) -> None:
        source = DealtCorrelations(wire, bytes(32), MemoryHelper().ask_as(wire.me))
        await TwoLinear(wire, source, (2, 2), 1).refresh_shares(b"attempt %d" % wire.me)

    one, other = wires.pair()
    with pytest.raises(DisagreementError, match="different attempts"):
        wires.run(take_part(one), take_part(other))


def test_an_epoch_does_not_begin_within_another() -> None:
    wires = MemoryWires()

    async def take_part(wire: MemoryEnd) -> None:
        source = PairCorrelations(wire, b"tests")
        await source.setup()
        linear = TwoLinear(wire, source, (1, 1), 1)
        (uses,) = await linear.prepare([LinearTask(0, np.ones((2, 1), np.int64), 1, 1, backward=True)], 2)
        for use in uses:
            await linear.begin_epoch([use])

    one, other = wires.pair()
    with pytest.raises(ReusedError, match="not done"):
        wires.run(take_part(one), take_part(other))


def test_logits_have_nine_bits_before_the_point() -> None:
    assert LOGIT_BITS == 55  # 256 in size, of which 21 bits from 2^-16 on are an angle
