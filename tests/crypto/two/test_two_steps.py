"""How many messages a step of two parties takes, and what is made for several steps at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from securevfl_crypto.two.correlations import Correlations, LinearTask, wave_places
from securevfl_crypto.two.curves import ANGLES, SIGMOID, find_multiples, find_sines
from securevfl_crypto.two.dealing import MemoryHelper
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import StepRule, TwoLinear, encode_rows
from securevfl_crypto.two.pair import PairCorrelations
from securevfl_crypto.two.wire import MemoryWires

ROWS, WIDTHS = 24, (3, 2)
RULE = StepRule(SIGMOID, 2.0**-4)


class Two:
    """Two parties with one source, in one process."""

    def __init__(self, *, helped: bool) -> None:
        self.wires = MemoryWires()
        ends = self.wires.pair()
        helper = MemoryHelper()
        self.sources: list[Correlations] = [
            DealtCorrelations(end, helper.dealer.seeds[end.me], helper.ask_as(end.me))
            if helped
            else PairCorrelations(end, b"test")
            for end in ends
        ]
        self.models = [TwoLinear(end, source, WIDTHS, 1) for end, source in zip(ends, self.sources, strict=True)]
        self.run(*(source.setup() for source in self.sources))

    def run(self, *parties: Any) -> tuple[Any, Any]:
        """Run both by turns."""
        return self.wires.run(*parties)

    def steps(self) -> dict[str, int]:
        """Messages of both parties by label."""
        return dict(self.wires.messages)


def make_rows(batches: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows of both parties (batches, n, d), and labels of party 0."""
    rng = np.random.default_rng(seed)
    rows = [encode_rows(rng.normal(size=(batches, ROWS, width)).clip(-4, 4)) for width in WIDTHS]
    return rows, rng.integers(0, 2, (batches, ROWS, 1)).astype(float)


async def train(model: TwoLinear, rows: np.ndarray, labels: np.ndarray | None, uses: list[Any], epochs: int) -> None:
    """Some epochs."""
    for _ in range(epochs):
        await model.begin_epoch([use.popleft() for use in uses])
        for number, batch in enumerate(rows):
            await model.train_batch(batch, None if labels is None else labels[number], RULE)


def tasks(rows: list[np.ndarray], me: int) -> list[LinearTask]:
    """What both parties make of the batches."""
    return [LinearTask(key, batch, WIDTHS[1 - me], 1, backward=True) for key, batch in enumerate(rows[me])]


@pytest.mark.parametrize("helped", [False, True], ids=["pair", "helper"])
def test_a_step_takes_exactly_two_exchanges(*, helped: bool) -> None:
    batches, epochs = 9, 2
    two, (rows, labels) = Two(helped=helped), make_rows(batches)
    uses = two.run(*(model.prepare(tasks(rows, me), epochs) for me, model in enumerate(two.models)))
    two.wires.messages.clear()
    two.run(*(train(two.models[me], rows[me], (labels, None)[me], uses[me], epochs) for me in (0, 1)))
    assert two.models[0].exchanges == two.models[1].exchanges == epochs * (2 * batches + 1)
    found = two.steps()
    during = {label: found.pop(label) for label in list(found) if label.startswith("step ")}
    assert during == {
        "step ahead": 2 * epochs,
        "step angles": 2 * epochs * batches,
        "step errors": 2 * epochs * batches,
    }
    # All that is left makes angles, for all steps of an epoch at once.
    once = {"ahead places": 1, "ahead spent": 2} if helped else {"transfers: columns": 1, "ahead sines": 1}
    assert found == {label: epochs * count for label, count in once.items()}


def test_angles_of_many_steps_are_made_in_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_crypto.two.online._WAVES_AT_ONCE", 2 * ROWS + 1)
    batches = 5
    two, (rows, labels) = Two(helped=True), make_rows(batches)
    uses = two.run(*(model.prepare(tasks(rows, me), 1) for me, model in enumerate(two.models)))
    two.run(*(train(two.models[me], rows[me], (labels, None)[me], uses[me], 1) for me in (0, 1)))
    assert two.steps()["ahead places"] == 3  # two, two and one


@pytest.mark.parametrize("helped", [False, True], ids=["pair", "helper"])
def test_lots_train_as_the_clear_does(*, helped: bool) -> None:
    batches, epochs = 4, 3
    two, (rows, labels) = Two(helped=helped), make_rows(batches, seed=1)
    uses = two.run(*(model.prepare(tasks(rows, me), epochs) for me, model in enumerate(two.models)))
    two.run(*(train(two.models[me], rows[me], (labels, None)[me], uses[me], epochs) for me in (0, 1)))
    clear = [np.zeros((width, 1)) for width in WIDTHS]
    for _ in range(epochs):
        for number in range(batches):
            x = [part[number] / 2.0**10 for part in rows]
            z = sum(one @ w for one, w in zip(x, clear, strict=True))
            error = 1 / (1 + np.exp(-z)) - labels[number]
            clear = [w - RULE.rate * one.T @ error for one, w in zip(x, clear, strict=True)]
    for me in (0, 1):
        words = two.models[me].own + two.models[1 - me].other
        np.testing.assert_allclose(words.view(np.int64) / 2.0**45, clear[me], atol=0.01)


def test_products_of_more_batches_than_cross_together_are_right() -> None:
    batches, uses = 10, 3
    two, (rows, _) = Two(helped=False), make_rows(batches, seed=2)
    made = two.run(*(source.make_linear(tasks(rows, me), uses) for me, source in enumerate(two.sources)))
    found = two.steps()
    assert found["ahead pads"] == found["ahead products"] == 2 * batches
    assert two.wires.depth <= 3 + 1 + 2 * 2  # set-up, keys, and two exchanges for eight batches and for two
    for holder in (0, 1):
        for number in range(batches):
            for mine, theirs in zip(made[holder][number], made[1 - holder][number], strict=True):
                x = rows[holder][number].view(np.uint64)
                back = np.ascontiguousarray(x.T)
                for wanted, shared in (
                    (x @ theirs.pad, mine.mask + theirs.share),
                    (back @ theirs.pad_back, mine.mask_back + theirs.share_back),
                ):
                    assert np.abs((shared - wanted).view(np.int64)).max() <= 1


def test_checks_of_a_helpers_batches_cross_together() -> None:
    two, (rows, _) = Two(helped=True), make_rows(10, seed=3)
    two.run(*(source.make_linear(tasks(rows, me), 2) for me, source in enumerate(two.sources)))
    assert two.steps() == {"ahead rows": 2 * 10, "ahead check": 2 * 10}
    assert two.wires.depth == 2 * 2  # rows and checks, of eight batches and of two


def test_sines_of_multiples_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    bits = [30, 9, 11, 4, 20]
    for count in (0, 1, 1024, 2500):
        angles = rng.integers(0, ANGLES, count)
        found = find_multiples(angles, bits)
        for k, places in enumerate(bits, 1):
            np.testing.assert_array_equal(found[:, k - 1], np.stack(find_sines(k * angles, places)))


def test_sines_of_a_pair_are_as_near_as_their_bits() -> None:
    two, count = Two(helped=False), 700
    first, second = two.run(*(source.make_waves(count, RULE.bits) for source in two.sources))
    turn = 2 * np.pi * (first.angles + second.angles) / ANGLES
    for k, ((own, other), places) in enumerate(zip(RULE.bits, wave_places(RULE.bits), strict=True), 1):
        bound = 2**0.5 * (2.0**-own + 2.0 ** -(other + 1))
        for shares, wanted in (
            (first.sines[k - 1] + second.sines[k - 1], np.sin(k * turn)),
            (first.cosines[k - 1] + second.cosines[k - 1], np.cos(k * turn)),
        ):
            error = shares.view(np.int64) / 2.0**places - wanted
            assert np.abs(error).max() < bound
            assert abs(error.mean()) < 4 * bound / count**0.5  # no bias: odd multiples reach neither 1 nor −1


def test_a_pairs_angles_of_many_values_cost_one_exchange() -> None:
    two = Two(helped=False)
    before = two.wires.depth
    two.run(*(source.make_waves(3000, RULE.bits) for source in two.sources))
    assert two.steps()["ahead sines"] > 1
    assert two.wires.depth - before == 2
