"""Noise on sums of gradients inside the shares: whose draws reach σ, what a row can move, what is counted, what is
refused, and what an attacker who owns part of the noise gets."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from securevfl_crypto.replicated import Clear, Computing, Product, Share, run_three
from securevfl_crypto.ring import decode_words, encode_words
from support.helpers import make_parties

import securevfl as sv
from securevfl.attacks.epsilon import bound_epsilon
from securevfl.data import Parties
from securevfl.privacy import GaussianRelease, NoteLine, calibrate_sigma, epsilon_rdp
from securevfl.run import Result
from securevfl.shares import (
    Network,
    NetworkShape,
    OptimiserConstants,
    StepNoise,
    check_clipped,
    check_logits,
    clip_below,
    gradient_bound,
    row_bounds,
)
from securevfl.shares.engine import Engine

RULE = OptimiserConstants(lr=0.25, momentum=0.5, decay=0.01)
NOISE = sv.Gaussian(epsilon=4.0, clip=3.0)
EPOCHS = 2
DP = sv.DP(model=NOISE)


def _entropy(party: int) -> object:
    """The same octets at each call with this count of them before it."""
    given = [0]

    def octets(count: int) -> bytes:
        given[0] += 1
        return hashlib.shake_256(f"{party} {given[0]}".encode()).digest(count)

    return octets


def _noise(party: int, sigma: float = 1.5, sensitivity: float = 4.0) -> StepNoise:
    return StepNoise(sigma, sensitivity, _entropy(party))  # type: ignore[arg-type]


class _Several(StepNoise):
    """What several parties add, in the clear."""

    def __init__(self, every: Sequence[StepNoise]) -> None:
        super().__init__(every[0].sigma, every[0].sensitivity)
        self.every = every

    def draw_words(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(sum(one.draw_words(shape) for one in self.every))


def _job(protection: sv.Shares | None = None, algorithm: sv.Algorithm | None = None) -> sv.Job:
    return sv.Job(
        algorithm=algorithm or sv.LogisticRegression(),
        protection=protection or sv.Shares(dp=DP),
        epochs=EPOCHS,
        batch_size=32,
    )


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 120)


@pytest.fixture(scope="module")
def ran(people: Parties) -> Result:
    return sv.simulate(_job(), people)


# The noise.


@pytest.mark.parametrize("classes", [2, 3])
def test_three_parties_with_noise_compute_what_the_clear_does_with_the_sum_of_it(classes: int) -> None:
    seed, shape = bytes(range(32)), NetworkShape((3, 2), (), (), classes)

    async def train(engine: Engine, noise: StepNoise) -> np.ndarray:
        network = Network(shape, RULE, 8, engine, seed=1, noise=noise)
        generator = np.random.default_rng(0)
        x = [engine.constant(encode_words(generator.normal(size=(8, width)))) for width in (3, 2)]
        y = engine.constant(encode_words(np.eye(3)[np.arange(8) % 2][:, : shape.outputs]))
        for _ in range(3):
            await network.train_batch(x, y)
        return np.concatenate([network.weights["layer 0"].mine, network.moving["layer 0"].mine])

    async def party(engine: Computing) -> np.ndarray:
        return await train(engine, _noise(engine.index))

    results = run_three(party, seed=seed).results
    with pytest.raises(StopIteration) as ended:
        train(Clear(seed), _Several([_noise(index) for index in range(3)])).send(None)
    np.testing.assert_array_equal(sum(results), ended.value.value)
    with pytest.raises(StopIteration) as without:
        train(Clear(seed), _Several([_noise(0), _noise(1)])).send(None)
    assert (without.value.value != ended.value.value).any()


def test_each_party_draws_half_the_variance_and_any_two_reach_sigma() -> None:
    sigma, sensitivity, shape = 1.7, 3.0, (20_000,)
    noises = [StepNoise(sigma, sensitivity) for _ in range(3)]
    first, every = ([decode_words(n.draw_words(shape), 32) / (sigma * sensitivity) for n in noises] for _ in range(2))
    assert all((a != b).mean() > 0.999 for a, b in zip(first, every, strict=True))  # anew for each step
    for one in every:
        assert stats.kstest(one * math.sqrt(2), "norm").pvalue > 1e-6
    for left_out in range(3):
        rest = sum(one for index, one in enumerate(every) if index != left_out)
        assert 1e-7 < stats.chi2.cdf(np.square(rest).sum(), shape[0]) < 1 - 1e-7


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_party_that_adds_none_leaves_the_noise_of_the_two_others_in_the_weights(silent: int) -> None:
    """No rows, so that the first step is noise alone."""
    shape, rule = NetworkShape((3_000,), (), (), 2), OptimiserConstants(lr=0.25, momentum=0.0, decay=0.0)

    class Nothing(StepNoise):
        def draw_words(self, shape: tuple[int, ...]) -> np.ndarray:
            return np.zeros(shape, dtype=np.uint64)

    async def party(engine: Computing) -> np.ndarray:
        noise = (Nothing if engine.index == silent else StepNoise)(1.5, 4.0)
        network = Network(shape, rule, 1, engine, seed=1, noise=noise)
        await network.train_batch(
            [engine.constant(np.zeros((1, 3_000), np.uint64))], engine.constant(encode_words(np.ones((1, 1))))
        )
        return network.moving["layer 0"].mine

    moved = decode_words(np.asarray(sum(run_three(party).results)))[:-1, 0] / rule.lr  # less the bias
    assert 1e-7 < stats.chi2.cdf(np.square(moved / 6.0).sum(), 3_000) < 1 - 1e-7


def test_noise_has_a_largest_size_and_steps_have_room_for_it() -> None:
    noise = StepNoise(1.5, 4.0, lambda count: b"\0" * count)
    worst = abs(decode_words(noise.draw_words((1,)), 32)[0])
    assert worst * 3 <= noise.largest < worst * 4
    shape = NetworkShape((3, 2), (), (), 2)
    assert shape.layer_steps(RULE, 8, 2.0**25)["layer 0"].factor < shape.layer_steps(RULE, 8)["layer 0"].factor
    with pytest.raises(sv.InputError, match="could wrap"):
        shape.layer_steps(RULE, 8, 2.0**40)


# What a row can move.


@pytest.mark.parametrize("classes", [2, 3, 10, 17])
def test_what_a_row_puts_into_a_gradient_is_bounded_whatever_its_logits(classes: int) -> None:
    outputs = 1 if classes == 2 else classes
    generator = np.random.default_rng(0)
    z = generator.normal(0, 1, (4_000, outputs)) * generator.choice([0.1, 2, 30, 1e6], (4_000, 1))
    z[:outputs] = np.eye(outputs) * 40
    logits = encode_words(z)
    engine = Clear(bytes(32))

    async def gaps() -> np.ndarray:
        one = engine.constant(encode_words(np.ones((1, 1))))
        if classes == 2:
            (found,) = await engine.compute_products(
                [Product(engine.constant(logits), one, "times", 16, then="sigmoid")]
            )
            assert isinstance(found, Share)
            found = await engine.truncate(found, 12)
        else:
            found = await engine.softmax(engine.constant(logits))
        p = decode_words(found.mine)
        if classes == 2:
            return np.maximum(np.abs(p), np.abs(p - 1))[:, 0]
        return np.stack([np.linalg.norm(p - np.eye(classes)[k], axis=1) for k in range(classes)]).max(axis=0)

    with pytest.raises(StopIteration) as ended:
        gaps().send(None)
    bound = gradient_bound(NetworkShape((3,), (), (), classes), 3.0) / math.hypot(3.0, 1.0)
    assert 0.99 * bound < ended.value.value.max() <= bound


class _Sums(Clear):
    """Keeps every sum of gradients, times the step's factor, in units of 2⁻³²."""

    def __init__(self) -> None:
        super().__init__(bytes(32))
        self.sums: list[np.ndarray] = []

    async def compute_products(self, jobs: Sequence[Product]) -> list[object]:  # type: ignore[override]
        self.sums += [(j.left.mine @ j.right.mine).view(np.int64) for j in jobs if j.add is not None]
        return await super().compute_products(jobs)  # type: ignore[return-value]


def test_replacing_a_row_moves_the_sum_by_no_more_than_the_sensitivity() -> None:
    shape, clip = NetworkShape((3, 2), (), (), 2), 2.0
    bounds = row_bounds(clip, shape.inputs)
    generator = np.random.default_rng(1)

    def released(row: np.ndarray, label: float) -> np.ndarray:
        engine = _Sums()
        network = Network(shape, RULE, 8, engine, seed=1)
        rows = np.vstack([np.random.default_rng(2).normal(size=(7, 5)), row])
        blocks = [
            clip_below(torch.from_numpy(part), c) for part, c in zip((rows[:, :3], rows[:, 3:]), bounds, strict=True)
        ]
        labels = np.append(np.arange(7) % 2, label).astype(float)[:, None]
        x = [engine.constant(encode_words(block.numpy())) for block in blocks]
        with pytest.raises(StopIteration):
            network.train_batch(x, engine.constant(encode_words(labels))).send(None)
        return engine.sums[-1].astype(float) / network._steps["layer 0"].factor * 2.0**-32

    first = released(np.full(5, 100.0), 0.0)
    moved = [np.linalg.norm(released(sign * np.full(5, 100.0), 1.0) - first) for sign in (1, -1)]
    moved += [np.linalg.norm(released(generator.normal(0, 9, 5), label) - first) for label in (0, 1)]
    assert max(moved) <= 2 * gradient_bound(shape, clip)


def test_the_longest_gradient_is_that_of_a_wrong_row_of_full_norm_and_the_column_of_ones() -> None:
    shape, clip = NetworkShape((5,), (), (), 2), 2.0
    engine = _Sums()
    network = Network(shape, RULE, 1, engine, seed=1)
    network.weights["layer 0"] = engine.constant(encode_words(np.array([[0.0]] * 5 + [[9.0]])))
    x = encode_words(clip_below(torch.full((1, 5), 7.0), clip).numpy())
    with pytest.raises(StopIteration):
        network.train_batch([engine.constant(x)], engine.constant(encode_words(np.zeros((1, 1))))).send(None)
    norm = np.linalg.norm(engine.sums[-1].astype(float)) / network._steps["layer 0"].factor * 2.0**-32
    assert 0.999 * gradient_bound(shape, clip) < norm <= gradient_bound(shape, clip)


def test_rows_are_clipped_by_their_owner_also_as_they_are_rounded() -> None:
    bounds = row_bounds(3.0, (4, 0, 12))
    assert math.hypot(*bounds) == pytest.approx(3.0)
    assert bounds[1] == 0
    rows = torch.randn(500, 12, generator=torch.Generator().manual_seed(0)) * 5
    words = encode_words(clip_below(rows, bounds[2]).numpy())
    check_clipped("shop", words, bounds[2])
    assert (np.linalg.norm(decode_words(words), axis=1) > bounds[2] * 0.999).any()
    short = torch.full((2, 12), 0.01)
    assert torch.equal(clip_below(short, bounds[2]), short.double())
    with pytest.raises(sv.RangeError, match="'shop' would share a row of norm"):
        check_clipped("shop", encode_words(rows.numpy()), bounds[2])
    with pytest.raises(sv.InputError, match="take a larger clip"):
        clip_below(rows, 1e-6)


def test_logits_that_could_wrap_within_the_run_are_refused() -> None:
    shape = NetworkShape((3, 2), (), (), 2)
    small = check_logits(shape, RULE, 64, 10, 1, clip=3.0, noise=100.0)
    assert 1 < small < check_logits(shape, RULE, 64, 20, 1, clip=3.0, noise=100.0)
    with pytest.raises(sv.InputError, match="the stated ε would be wrong: lower lr"):
        check_logits(shape, OptimiserConstants(10.0, 0.99, 0.0), 8, 2_000, 1, clip=3.0, noise=1000.0)


# What is counted.


def test_every_party_reports_what_the_accountant_says(ran: Result, people: Parties) -> None:
    run = ran.record.runs[-1]
    sigma = calibrate_sigma(NOISE.epsilon, NOISE.delta, EPOCHS)
    wanted = epsilon_rdp(GaussianRelease(sigma, EPOCHS), NOISE.delta)
    assert wanted <= NOISE.epsilon
    both = {total.party: total for total in run.epsilon_totals if total.protects == "features and labels"}
    assert set(both) == set(people)
    for total in both.values():
        assert total.epsilon_rdp == pytest.approx(wanted)
        assert (total.releases, total.delta) == (EPOCHS, NOISE.delta)
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    for ledger in ledgers.values():
        (note,) = [one for one in ledger.iter_lines() if isinstance(one, NoteLine) and one.note == "epsilon"]
        assert note.values["what"] == "model"
    assert "DP on the model, ε = 4" in run.title
    told = [note for note in run.notes if "added its own noise" in note]
    assert len(told) == 3
    assert all(f"over the sensitivity {2 * math.hypot(NOISE.clip, 1.0):.4g}" in note for note in told)
    assert any("ε of the model covers the training rows" in note for note in run.notes)


def test_a_coordinator_without_data_adds_its_noise_too() -> None:
    people = make_parties(1, 90)
    names = (people.active.name, people.passive[0].name, "helper")
    run = sv.simulate(_job(sv.Shares(computing=names, dp=DP)), people).record.runs[-1]
    assert any(note.startswith("'helper' added its own noise to each of") for note in run.notes)


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_an_epoch_that_is_trained_again_is_counted_again(people: Parties, tmp_path: Path) -> None:
    job = _job().replace(epochs=3)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    run = sv.simulate(job, people, checkpoints=tmp_path).record.runs[-1]
    counted = {total.party: total.releases for total in run.epsilon_totals}
    assert counted[people.active.name] == 4
    assert max(total.epsilon_rdp for total in run.epsilon_totals) > NOISE.epsilon
    assert any("interrupted run of" in note for note in run.notes)


# What is refused, and what is noticed.


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (sv.SplitNN(hidden=4, top=()), "in a model of one layer"),
        (sv.SplitNN(hidden=4, top=(3,), bottom=(3,)), "nobody can clip a gradient"),
        (sv.EntityAugmentation(hidden=4), "use logistic_regression"),
        (sv.LogisticRegression(bottom=sv.Frozen(5, learned="own rows")), "leave learned out"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_gradients_without_a_small_bound_are_refused(algorithm: sv.Algorithm, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(algorithm=algorithm)
    with pytest.raises(sv.InputError, match="hidden layers"):
        gradient_bound(NetworkShape((3,), (), (4,), 2), 1.0)


def test_findings_say_what_epsilon_permits_of_rows_that_trained(people: Parties) -> None:
    passive, active = [table.name for table in people.passive], people.active.name
    multiplied = sv.Gaussian(noise_multiplier=50.0)
    spent = epsilon_rdp(GaussianRelease(50.0, EPOCHS), multiplied.delta)
    for noise, words in ((NOISE, "(ε = 4)"), (multiplied, f"(ε = {spent:.3g})")):
        planned = _job(sv.Shares(dp=sv.DP(model=noise))).planned_protection(2)
        told = [f.learns for f in sv.LogisticRegression().findings(planned, passive, active)]
        assert any(words in text and "differentially private noise in its steps" in text for text in told), told


def test_a_bound_on_epsilon_covers_rows_that_are_scored_and_so_refuses(people: Parties) -> None:
    name = people.passive[0].name
    job = _job().replace(policies={name: sv.Policy(max_epsilon=8.0)})
    with pytest.raises(sv.PolicyError, match="metrics of its validation rows would be opened without noise"):
        sv.simulate(job, people)


def test_a_model_with_noise_is_handed_out_and_predicts_clipped(people: Parties) -> None:
    found = sv.simulate(_job(sv.Shares(dp=DP, model="parts")), people)
    predicted = sv.predict(found.model(), people)
    own = dict(zip(found.test_ids, next(iter(found.scores.values()))[:, 1], strict=True))
    scores = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    assert max(abs(scores[name] - value) for name, value in own.items()) < 0.016


def test_noise_on_the_model_is_for_shares_alone() -> None:
    with pytest.raises(sv.InputError, match="logistic_regression on shares"):
        _job(sv.BFV(dp=DP))  # type: ignore[arg-type]


def test_frozen_features_are_clipped_as_they_enter(people: Parties) -> None:
    job = _job(algorithm=sv.LogisticRegression(bottom=sv.Frozen(5))).replace(epochs=1)
    assert sv.simulate(job, people).record.runs[-1].epsilon_totals


def test_a_party_that_does_not_clip_is_stopped_before_it_deals(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securevfl.shares.dealt_rows.clip_below", lambda rows, bound: rows)
    with pytest.raises(sv.RangeError, match="None of these rows was shared"):
        sv.simulate(_job(sv.Shares(dp=sv.DP(model=NOISE.replace(clip=0.5)))), people)


def test_noise_that_was_left_out_ends_the_run(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(noise: StepNoise, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, dtype=np.uint64)

    monkeypatch.setattr(StepNoise, "draw_words", silent)
    with pytest.raises(sv.ProtectionInactive, match="had to add noise to each of"):
        sv.simulate(_job(), people)


# What an attacker gets, who sees all weights and knows one party's noise.


def _canaries(sigma: float, clip: float = 3.0, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are alone in a column each, with labels tossed by a coin → the labels, and the attacker's scores."""
    shape, rule = NetworkShape((count,), (), (), 2), OptimiserConstants(lr=0.05, momentum=0.0, decay=0.0)
    labels = np.random.default_rng(3).integers(0, 2, count)
    sensitivity = 2 * gradient_bound(shape, clip)
    others = [StepNoise(sigma, sensitivity) for _ in range(2)]
    engine = Clear(bytes(32))
    network = Network(shape, rule, count, engine, seed=1, noise=_Several(others))
    first = decode_words(network.weights["layer 0"].mine)
    x = engine.constant(encode_words(clip_below(torch.eye(count) * 7, clip).numpy()))
    for _ in range(EPOCHS):
        with pytest.raises(StopIteration):
            network.train_batch([x], engine.constant(encode_words(labels[:, None].astype(float)))).send(None)
    return labels, (decode_words(network.weights["layer 0"].mine) - first)[:-1, 0]


@pytest.mark.parametrize(("part", "holds"), [(1.0, True), (0.02, False)])
def test_canaries_find_no_more_than_epsilon_and_more_where_noise_is_missing(part: float, holds: bool) -> None:
    epsilon, delta = 1.0, 1e-5
    labels, scores = _canaries(calibrate_sigma(epsilon, delta, EPOCHS) * part)
    found = bound_epsilon(labels, scores, delta=delta)
    assert (found.lower <= epsilon) is holds, found


def test_a_coordinator_validates_after_the_last_epoch_that_a_budget_allows() -> None:
    """After epochs 4 and 5 of ten; the coordinator would wait for a verdict while the others validate."""
    people = make_parties(1, 200)
    names = (people.active.name, people.passive[0].name, "helper")
    noise = sv.Gaussian(noise_multiplier=8.0, epsilon=1.2, clip=3.0, on_budget="stop")
    protection = sv.Shares(computing=names, dp=sv.DP(model=noise), lr=0.05)
    run = sv.simulate(_job(protection).replace(epochs=10, valid_every=4), people).record.runs[-1]
    assert len(run.epochs) == 5
    assert [bool(epoch.valid) for epoch in run.epochs] == [False, False, False, True, True]
