"""Noise on the steps of two parties: its size against an accountant of its own, and that each adds all of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from securevfl_crypto.two.correlations import LinearTask
from securevfl_crypto.two.curves import ANGLES, CLIPPED_ERROR, SIGMOID, find_sines
from securevfl_crypto.two.dealing import MemoryHelper
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import ROW_BITS, WEIGHT_BITS, TwoLinear
from securevfl_crypto.two.wire import MemoryEnd, MemoryWires
from support.helpers import make_parties

import securevfl as sv
from securevfl.errors import RangeError
from securevfl.shares.network_ranges import NetworkShape, OptimiserConstants
from securevfl.shares.two.network import step_rule
from securevfl.shares.two.noise import TwoStepNoise, check_held_norms, clip_held_rows, find_sensitivity

RULE = OptimiserConstants(0.2, 0.9, 0.0)
CLASSES, NUMBER = NetworkShape((3, 2), (), (), 2), NetworkShape((3, 2), (), (), 1)


@pytest.mark.parametrize("batch_size", [32, 256, 1024])
@pytest.mark.parametrize("shape", [CLASSES, NUMBER])
def test_no_error_is_larger_than_the_sensitivity_says(shape: NetworkShape, batch_size: int) -> None:
    rule = step_rule(shape, RULE, batch_size)
    curve = CLIPPED_ERROR if shape.is_numeric else SIGMOID
    assert rule.curve is curve
    # Sines are rounded as the pair rounds them: a product of two rounded sines, for angles of both parties.
    generator = np.random.default_rng(0)
    one, other = generator.integers(0, ANGLES, (2, 200_000))
    opened = np.arange(200_000) * 10 % ANGLES
    sines, cosines = [], []
    for k, (own, rest) in enumerate(rule.bits, 1):
        (s0, c0), (s1, c1) = find_sines(k * one, own), find_sines(k * other, rest)
        sines.append(s0 * c1 + c0 * s1)
        cosines.append(c0 * c1 - s0 * s1)
    words = rule.factors.combine(opened, np.stack(sines).view(np.uint64), np.stack(cosines).view(np.uint64), first=True)
    largest = np.abs(words.view(np.int64)).max() * 2.0**-35 / rule.rate
    assert 0.9 * curve.largest < largest <= rule.factors.bound_values()
    # replacing a row: its error, and half of one for its label, twice
    wanted = 2 * (rule.factors.bound_values() + 0.5 * (not shape.is_numeric)) * math.sqrt(1 + 1.5**2)
    assert find_sensitivity(shape, rule, 1.5) == pytest.approx(wanted)


def test_each_party_draws_all_of_the_noise() -> None:
    noise = TwoStepNoise(sigma=3.0, sensitivity=2.0, rate=2.0**-7)
    words = noise.draw_words((20_000,)).view(np.int64) * 2.0**-WEIGHT_BITS
    assert np.std(words) == pytest.approx(6.0 * 2.0**-7, rel=0.03)
    assert abs(np.mean(words)) < 0.002


def test_rows_are_clipped_with_room_for_rounding() -> None:
    rows = torch.randn(500, 7, dtype=torch.float64) * 3
    words = np.rint(np.ldexp(clip_held_rows("bank", rows, 1.0).numpy(), ROW_BITS)).astype(np.int64)
    check_held_norms("bank", words, 1.0)
    with pytest.raises(RangeError, match="'bank' would use a row of norm"):
        check_held_norms("bank", words * 2, 1.0)


@pytest.mark.parametrize("helper", ["", "notary"])
def test_a_noisy_model_says_what_its_epsilon_covers(helper: str) -> None:
    protection = sv.Shares(computing=2, helper=helper, dp=sv.DP(model=sv.Gaussian(epsilon=4.0, clip=1.0)))
    job = sv.Job(algorithm=sv.LogisticRegression(), protection=protection, epochs=2, batch_size=64, seed=0)
    run = sv.simulate(job, make_parties(1, 400)).record.runs[-1]
    noisy = [note for note in run.notes if "added its own noise" in note]
    assert len(noisy) == 2
    assert all("reached by each of the two alone" in note for note in noisy)
    assert any("ε = 4 " in note for note in run.notes)


def test_the_noise_of_both_parties_reaches_all_weights() -> None:
    """Rows of zeros leave weights that are nothing but noise: the sum of both parties' draws, one a step."""
    wires, helper, steps, columns = MemoryWires(), MemoryHelper(), 6, 600
    rule = step_rule(CLASSES, RULE, 8)

    async def train(wire: MemoryEnd) -> tuple[np.ndarray, np.ndarray]:
        source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        noise = TwoStepNoise(sigma=2.0, sensitivity=4.0, rate=rule.rate)
        linear = TwoLinear(wire, source, (columns, columns), 1, noise=noise.draw_words)
        rows = np.zeros((8, columns), np.int64)
        (uses,) = await linear.prepare([LinearTask(0, rows, columns, 1, backward=True)], steps)
        await linear.begin_epoch(list(uses))
        for _ in range(steps):
            await linear.train_batch(rows, np.zeros((8, 1)) if wire.me == 0 else None, rule)
        return linear.own, linear.other

    one, other = wires.pair()
    mine, theirs = wires.run(train(one), train(other))
    for whole in (mine[0] + theirs[1], theirs[0] + mine[1]):
        found = float(np.std(whole.view(np.int64) * 2.0**-WEIGHT_BITS))
        assert found == pytest.approx(2.0 * 4.0 * rule.rate * math.sqrt(2 * steps), rel=0.2)  # of one party: 0.71
