"""Training of two parties against a twin in whole numbers, word by word: the helper's source, whose seeds are known."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from crypto.two.parties import deviation
from hypothesis import given
from hypothesis import strategies as st
from securevfl_crypto.errors import DisagreementError, MalformedError, ReusedError
from securevfl_crypto.ring import Stream
from securevfl_crypto.two.correlations import LinearTask, wave_places
from securevfl_crypto.two.curves import ANGLES, CLIPPED_ERROR, SIGMOID, Curve, find_sines
from securevfl_crypto.two.dealing import LINEAR, Dealer, MemoryHelper, Request
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.online import ERROR_BITS, StepRule, TwoLinear, encode_rows
from securevfl_crypto.two.wire import MemoryWires, TwoWire

SEEDS = (b"a" * 32, b"b" * 32)
WORD = 1 << 64
B, D, K, EPOCHS = 8, (3, 2), 2, 3


def _data(seed: int) -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """Rows of two batches of each party, and targets."""
    generator = np.random.default_rng(seed)
    rows = [[encode_rows(generator.uniform(-8, 8, (B, d))) for d in D] for _ in range(2)]
    return rows, [generator.integers(0, 2, (B, K)).astype(float) for _ in range(2)]


class _Run:
    """A run of both parties, with everything that crossed."""

    def __init__(
        self, curve: Curve, rate: float, *, seed: int = 0, checked: bool = False, dealer: Dealer | None = None
    ):
        self.rows, self.targets = _data(0)
        self.rule = StepRule(curve, rate)
        self.wires = MemoryWires(record=True)
        self.helper = MemoryHelper(Dealer(SEEDS) if dealer is None else dealer)
        ends = self.wires.pair()
        self.checked = checked
        self.parties = self.wires.run(self._train(ends[0]), self._train(ends[1]))

    async def _train(self, wire: TwoWire) -> TwoLinear:
        me = wire.me
        source = DealtCorrelations(wire, SEEDS[me], self.helper.ask_as(me), checked=self.checked)
        linear = TwoLinear(wire, source, D, K)
        tasks = [LinearTask(key, self.rows[key][me], D[1 - me], K, backward=True) for key in (0, 1)]
        uses = await linear.prepare(tasks, EPOCHS)
        for _ in range(EPOCHS):
            await linear.begin_epoch([one.popleft() for one in uses])
            for key in (0, 1):
                await linear.train_batch(self.rows[key][me], None if me else self.targets[key], self.rule)
        return linear

    def angles(self, sender: int) -> list[np.ndarray]:
        """The masked angles that a party sent, in order."""
        sent = [each.arrays[0] for each in self.wires.record if each.label == "step angles" and each.sender == sender]
        return [np.pad(one, ((0, 0), (0, 1))).view("<u4").reshape(-1).astype(np.int64) for one in sent]

    def whole(self) -> list[list[list[int]]]:
        """The weights of both parties' columns, as Python's integers."""
        one, other = self.parties
        found = [(one.own + other.other), (other.own + one.other)]
        return [[[int(word) for word in row] for row in part] for part in found]


def _drawn_angles(epochs: int, batches: int) -> list[np.ndarray]:
    """The sums of both parties' angles of each step, drawn again from the seeds as the dealing draws them: for all
    steps of an epoch at once."""
    places, found = [0, 0], []
    streams = [Stream(seed) for seed in SEEDS]
    # linear: for each task and holder the pads (other party), then the masks (holder); both directions, so 4 each
    places = [p + 2 * 4 for p in places]
    count = batches * B * K
    for _ in range(epochs):
        angles = [(streams[me].draw_words(places[me], (count,)) % np.uint64(ANGLES)).astype(np.int64) for me in (0, 1)]
        places = [places[0] + 2, places[1] + 1]  # party 0's shares of sines follow its angles
        found += np.split((angles[0] + angles[1]) % ANGLES, batches)
    return found


def _step_in_whole_numbers(
    weights: list[list[list[int]]],
    rows: list[np.ndarray],
    targets: np.ndarray,
    rule: StepRule,
    opened: np.ndarray,
    drawn: np.ndarray,
) -> None:
    """One step modulo 2^64, with the angle that was opened; checks that it is that of z."""
    z = [
        [
            sum(
                int(x) * w
                for part, v in zip(rows, weights, strict=True)
                for x, w in zip(part[i], (r[k] for r in v), strict=True)
            )
            for k in range(K)
        ]
        for i in range(B)
    ]
    if rule.curve is not SIGMOID:
        z = [[value - round(float(targets[i, k]) * 2**55) for k, value in enumerate(row)] for i, row in enumerate(z)]
    seen = ((opened - drawn) % ANGLES).reshape(B, K)
    for i in range(B):
        for k in range(K):
            exact = (z[i][k] % WORD >> 39) % ANGLES
            assert int(seen[i, k]) in (exact, (exact - 1) % ANGLES)  # bits below were dropped from two summands
    # The shares of sines add up to the sines: one factor each, as whole numbers.
    waves = [find_sines(n * drawn, place) for n, place in enumerate(wave_places(rule.bits), 1)]
    sines, cosines = (np.stack(part).view(np.uint64) for part in zip(*waves, strict=True))
    error = rule.factors.combine(opened, sines, cosines, first=True).reshape(B, K)
    for i in range(B):
        for k in range(K):
            value = int(error[i, k])
            if rule.curve is SIGMOID:
                value += round((0.5 - float(targets[i, k])) * rule.rate * 2**ERROR_BITS)
            for part, own in zip(weights, rows, strict=True):
                for column in range(own.shape[1]):
                    part[column][k] = (part[column][k] - int(own[i, column]) * value) % WORD


@pytest.mark.parametrize(("curve", "rate"), [(SIGMOID, 2.0**-7), (SIGMOID, 0.003), (CLIPPED_ERROR, 2.0**-9)])
def test_words_are_those_of_a_twin_in_whole_numbers(curve: Curve, rate: float) -> None:
    run = _Run(curve, rate)
    weights = [[[0] * K for _ in range(d)] for d in D]
    opened = [(a + b) % ANGLES for a, b in zip(run.angles(0), run.angles(1), strict=True)]
    steps = [key for _ in range(EPOCHS) for key in (0, 1)]
    for key, seen, drawn in zip(steps, opened, _drawn_angles(EPOCHS, 2), strict=True):
        _step_in_whole_numbers(weights, run.rows[key], run.targets[key], run.rule, seen, drawn)
    assert run.whole() == weights


def test_a_step_takes_two_exchanges_and_an_epoch_one_more() -> None:
    run = _Run(SIGMOID, 2.0**-7)
    assert [party.exchanges for party in run.parties] == [EPOCHS * (2 * 2 + 1)] * 2
    steps = [each.label for each in run.wires.record if each.label.startswith("step")]
    assert len(steps) == 2 * EPOCHS * (2 * 2 + 1)


def test_the_float_twin_is_close() -> None:
    run = _Run(SIGMOID, 2.0**-7)
    weights = [np.zeros((d, K)) for d in D]
    for _ in range(EPOCHS):
        for key in (0, 1):
            rows = [part / 1024 for part in run.rows[key]]
            z = sum(part @ v for part, v in zip(rows, weights, strict=True))
            error = 1 / (1 + np.exp(-z)) - run.targets[key]
            weights = [v - 2.0**-7 * part.T @ error for part, v in zip(rows, weights, strict=True)]
    for found, wanted in zip(run.whole(), weights, strict=True):
        np.testing.assert_allclose(np.array(found, np.uint64).view(np.int64) / 2.0**45, wanted, atol=0.02)


async def _train_twice(wire: TwoWire, helper: MemoryHelper, rows: list[np.ndarray], targets: np.ndarray | None) -> None:
    """Two steps on one batch."""
    source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
    linear = TwoLinear(wire, source, D, K)
    (uses,) = await linear.prepare([LinearTask(0, rows[wire.me], D[1 - wire.me], K, backward=True)], 2)
    for _ in range(2):
        await linear.begin_epoch([uses.popleft()])
        await linear.train_batch(rows[wire.me], targets, StepRule(SIGMOID, 2.0**-7))


def test_messages_are_uniform_and_all_different() -> None:
    """Over many runs with fresh seeds, each octet of what a party sends in steps is uniform; no word occurs twice."""
    octets, words = [], []
    (rows, _), (targets, _) = _data(1)
    for _ in range(40):
        wires, helper = MemoryWires(record=True), MemoryHelper()
        one, other = wires.pair()
        wires.run(_train_twice(one, helper, rows, targets), _train_twice(other, helper, rows, None))
        for each in wires.record:
            if each.label in ("step ahead", "step errors", "ahead rows"):
                (array,) = each.arrays
                words += array.reshape(-1).tolist()
                octets.append(array.view(np.uint8).reshape(-1))
            if each.label == "step angles":
                octets.append(each.arrays[0][:, :2].reshape(-1))  # the third octet has five bits
    assert deviation(np.concatenate(octets)) < 7
    assert len(set(words)) == len(words)


@given(st.integers(0, 2**32 - 1))
def test_masked_rows_are_the_same_for_a_key_and_unlike_others(key: int) -> None:
    masks = [
        Stream(hmac.digest(SEEDS[0], b"securevfl two rows 1" + number.to_bytes(8, "big"), hashlib.sha256)).draw_words(
            0, (4, 2)
        )
        for number in (key, key, key + 1)
    ]
    assert np.array_equal(masks[0], masks[1])
    assert not np.intersect1d(masks[0], masks[2]).size


class _Wrong(Dealer):
    """Deals one wrong word of a kind."""

    def __init__(self, kind: int, party: int, array: int) -> None:
        super().__init__(SEEDS)
        self.kind, self.party, self.array = kind, party, array

    def deal(self, request: Request) -> tuple[list[np.ndarray], list[np.ndarray]]:
        found = super().deal(request)
        if request.kind == self.kind:
            found[self.party][self.array].flat[0] += np.uint64(1)
        return found


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize("array", [0, 1])
def test_a_helper_that_deals_wrong_products_is_found_before_a_step(party: int, array: int) -> None:
    with pytest.raises(DisagreementError, match="dealt wrong numbers"):
        _Run(SIGMOID, 2.0**-7, checked=True, dealer=_Wrong(LINEAR, party, array))


def test_a_helper_that_deals_wrong_sines_is_found_with_the_stated_chance() -> None:
    class All(Dealer):
        def deal(self, request: Request) -> tuple[list[np.ndarray], list[np.ndarray]]:
            found = super().deal(request)
            if request.kind != LINEAR:
                found[1][0] += np.uint64(1)
            return found

    with pytest.raises(DisagreementError, match="of sines"):
        _Run(SIGMOID, 2.0**-7, checked=True, dealer=All(SEEDS))


@pytest.mark.parametrize(
    "sizes",
    [
        (9, 1),
        (LINEAR, 0, 8, 3, 2, 2, 1),
        (LINEAR, 0, 1 << 20, 900, 900, 1, 8, 1),
        (LINEAR, 0, -8, 3, 2, 2, 1, 1),
        (2, 100, *(40,) * 16),
        (3, 2, 100, 2),
        (3, 0, 100, 9),
    ],
)
def test_requests_that_no_honest_party_makes_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(MalformedError):
        Request.unpack(np.array(sizes, np.int64))


def test_a_use_serves_once_and_rows_fit_it() -> None:
    wires, helper = MemoryWires(), MemoryHelper()
    ends = wires.pair()
    rows = _data(0)[0][0]

    async def prepare(wire: TwoWire) -> TwoLinear:
        source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        linear = TwoLinear(wire, source, D, K)
        (uses,) = await linear.prepare([LinearTask(0, rows[wire.me], D[1 - wire.me], K, backward=False)], 1)
        await linear.begin_epoch(list(uses))
        return linear

    one, _ = wires.run(prepare(ends[0]), prepare(ends[1]))
    with pytest.raises(MalformedError, match="rows meet a correlation"):
        one.compute_logits(rows[0][:3])
    with pytest.raises(ReusedError, match="no correlation is left"):
        one.compute_logits(rows[0])


def test_angles_of_more_bits_are_refused() -> None:
    wires, helper = MemoryWires(), MemoryHelper()
    ends = wires.pair()
    bits = StepRule(SIGMOID, 2.0**-7).bits

    async def honest() -> None:
        source = DealtCorrelations(ends[0], helper.dealer.seeds[0], helper.ask_as(0), checked=False)
        await TwoLinear(ends[0], source, D, 1).evaluate(np.zeros((2, 1), np.uint64), [], bits)

    async def deviates() -> None:
        await ends[1].send("step angles", [np.full((2, 3), 255, np.uint8)])
        await ends[1].receive("step angles", [(np.uint8, (2, 3))])

    with pytest.raises(MalformedError, match="more than 21 bits"):
        wires.run(honest(), deviates())
