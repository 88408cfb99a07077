"""What a model on shares answers: how finely, of how many numbers, and whether it is useful at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from securevfl_crypto.replicated import Clear, Computing, Opening, run_three
from securevfl_crypto.replicated.opening import _hash_arrays
from securevfl_crypto.ring import FRACTION, decode_words, encode_words
from support.helpers import make_parties

import securevfl as sv
from securevfl.shares import Network, NetworkShape, OptimiserConstants, RowAnswer, Usefulness
from securevfl.shares.answers import clip_outputs
from securevfl.transport import Kind

RULE = OptimiserConstants(lr=0.25, momentum=0.5, decay=0.0)


def _clear(program: Callable[[Clear], Awaitable[Any]]) -> Any:
    with pytest.raises(StopIteration) as ended:
        program(Clear(bytes(32), openings={"targets": 9, "useful": 9})).send(None)  # type: ignore[attr-defined]
    return ended.value.value


@pytest.mark.parametrize(
    ("wanted", "classes", "kind", "width"),
    [
        (None, 2, "probabilities", 1),
        (None, 5, "class", 1),
        (None, 1, "probabilities", 1),
        ("probabilities", 5, "probabilities", 5),
        ("class", 1, "probabilities", 1),
        ("grades", 2, "grades", 1),
    ],
)
def test_more_than_two_classes_answer_the_class_alone_unless_the_job_says_otherwise(
    wanted: Any, classes: int, kind: str, width: int
) -> None:
    answer = RowAnswer.of(wanted, classes)
    assert (answer.kind, answer.width) == (kind, width)


@pytest.mark.parametrize(("classes", "bound", "fine"), [(2, 8, 2.0**-4), (3, 8, 2.0**-4), (1, 24, 2.0**-8)])
def test_answers_are_rounded_and_clipped(classes: int, bound: int, fine: float) -> None:
    outputs = np.random.default_rng(0).normal(size=(400, 3 if classes == 3 else 1)) * bound
    answer = RowAnswer.of("probabilities", classes)

    async def answered(engine: Clear) -> np.ndarray:
        return answer.decode((await answer.compute(engine, engine.constant(encode_words(outputs)))).mine)

    found = _clear(answered)
    np.testing.assert_allclose(found, outputs.clip(-bound, bound), atol=fine + 0.001)
    assert np.abs(found - outputs.clip(-bound, bound)).mean() > fine / 8
    np.testing.assert_allclose(found / fine, np.rint(found / fine), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 13, 64])
def test_a_class_alone_is_the_likeliest_and_one_word(classes: int) -> None:
    outputs = np.random.default_rng(classes).normal(size=(200, 1 if classes == 2 else classes)) * 3
    if classes > 2:
        outputs[:20] = outputs[:20, :1]  # all alike: still one class
    answer = RowAnswer.of("class", classes)

    async def party(engine: Computing | Clear) -> np.ndarray:
        return (await answer.compute(engine, engine.constant(encode_words(outputs)))).mine

    words = sum(run_three(party).results)
    assert words.shape == (200, 1)
    wanted = outputs[:, 0] >= 0 if classes == 2 else outputs.argmax(axis=1)
    np.testing.assert_array_equal(words[:, 0], wanted)
    logits = answer.decode(words)
    assert (logits[:, 0] > 0).tolist() == wanted.tolist() if classes == 2 else (logits.argmax(1) == wanted).all()


def test_grades_are_steps_of_half_a_unit_of_log_odds() -> None:
    outputs = np.linspace(-7, 7, 301)[:, None]
    answer = RowAnswer.of("grades", 2)

    async def answered(engine: Clear) -> np.ndarray:
        return answer.decode((await answer.compute(engine, engine.constant(encode_words(outputs)))).mine)

    found = _clear(answered)
    assert len(np.unique(found)) == 21
    assert np.abs(found - outputs.clip(-5, 5)).max() <= 0.2501


def _reference(z: np.ndarray, without: np.ndarray, y: np.ndarray, classes: int) -> float:
    """By how much the bit's two sides differ, relative to the larger; above zero where the model is useful."""
    if classes == 1:

        def huber(r: np.ndarray) -> np.ndarray:
            c = r.clip(-3, 3)
            return c * (r - c / 2)

        gain = (huber(without - y) - huber(z - y)).sum()
        chance = ((z - y).clip(-3, 3) ** 2).mean() * ((z - without) ** 2).sum()
        weight = 1
    else:
        p, p0 = ((1 / (1 + np.exp(-x)) if classes == 2 else softmax(x, axis=1)) for x in (z, without))
        gain, chance = ((y - p0) ** 2 - (y - p) ** 2).sum(), ((p - p0) ** 2).sum()
        weight = 1 if classes == 2 else 0.5
    left = weight * gain**2 * np.sign(gain)
    return float((left - chance) / max(abs(left), chance, 1e-9))


@pytest.mark.parametrize("classes", [2, 3, 1])
def test_the_bit_is_that_of_floating_point_but_near_its_edge(classes: int) -> None:
    """Fifty models whose gain lies around the edge; rounding may decide only those within an eighth of it."""
    generator, near = np.random.default_rng(classes), 0
    for number in range(50):
        rows, outputs = int(generator.integers(30, 400)), 3 if classes == 3 else 1
        shape = NetworkShape((3, 2, 2), (), (), classes)
        weights = generator.normal(size=(8, outputs)) * generator.uniform(0.05, 0.6)
        inputs = [generator.normal(size=(rows, width)).clip(-5, 5) for width in shape.inputs]
        every = np.hstack([*inputs, np.ones((rows, 1))])
        means = [inputs[0], *(np.broadcast_to(one.mean(0), one.shape) for one in inputs[1:])]
        z, without = every @ weights, np.hstack([*means, np.ones((rows, 1))]) @ weights
        strength = generator.uniform(0, 1.5)
        truth = without + strength * (z - without)
        if classes == 1:
            y = truth + generator.normal(size=truth.shape) * 2
        elif classes == 2:
            y = (generator.random((rows, 1)) < 1 / (1 + np.exp(-truth))).astype(float)
        else:
            y = np.eye(3)[(truth + generator.gumbel(size=truth.shape)).argmax(1)]

        async def judged(engine: Clear) -> int:
            network = Network(shape, RULE, 8, engine, seed=1)  # noqa: B023 - called at once
            network.weights["layer 0"] = engine.constant(encode_words(weights))  # noqa: B023
            judge = Usefulness(network)
            x = [engine.constant(encode_words(one)) for one in inputs]  # noqa: B023
            await judge.add_to_means(x)
            await judge.add_rows(x, engine.constant(encode_words(y)))  # noqa: B023
            return int((await judge.decide()).mine[0])

        margin = _reference(z, without, y, classes)
        if abs(margin) < 1 / 8:
            near += 1
        else:
            assert _clear(judged) == (margin > 0), (number, margin)
    assert near < 25


def test_a_model_that_ignores_the_others_is_not_useful_and_one_that_follows_them_is() -> None:
    inputs = [np.random.default_rng(k).normal(size=(300, 2)).clip(-5, 5) for k in range(2)]
    labels = (inputs[1][:, :1] > 0).astype(float)

    def judge(weight: float) -> int:
        async def judged(engine: Clear) -> int:
            network = Network(NetworkShape((2, 2), (), (), 2), RULE, 8, engine, seed=1)
            words = encode_words(np.array([[1.0], [1.0], [weight], [0.0], [0.0]]))
            network.weights["layer 0"] = engine.constant(words)
            found = Usefulness(network)
            x = [engine.constant(encode_words(one)) for one in inputs]
            await found.add_to_means(x)
            for here in (slice(0, 200), slice(200, 300)):
                await found.add_rows([one[here] for one in x], engine.constant(encode_words(labels[here])))
            return int((await found.decide()).mine[0])

        return int(_clear(judged))

    assert judge(0.0) == 0
    assert judge(2.0) == 1
    assert judge(-2.0) == 0  # it moves the answers as far, and makes them worse


def test_the_model_is_compared_with_means_of_all_rows_in_whatever_order_they_come() -> None:
    """The first rows' columns lie far from the others': with means of those alone, others would gain much."""
    generator = np.random.default_rng(8)
    far = np.repeat([4.0, -1.0], [100, 300])[:, None]
    inputs = [generator.normal(size=(400, 2)).clip(-5, 5), (far + generator.normal(size=(400, 2))).clip(-5, 5)]
    labels = (generator.random((400, 1)) < 0.5).astype(float)

    def judge(*order: slice) -> np.ndarray:
        async def judged(engine: Clear) -> np.ndarray:
            network = Network(NetworkShape((2, 2), (), (), 2), RULE, 8, engine, seed=1)
            network.weights["layer 0"] = engine.constant(encode_words(np.full((5, 1), 0.5)))
            found = Usefulness(network)
            x, y = [engine.constant(encode_words(one)) for one in inputs], engine.constant(encode_words(labels))
            for here in order:
                await found.add_to_means([one[here] for one in x])
            for here in order:
                await found.add_rows([one[here] for one in x], y[here])
            assert found._sums is not None
            return found._sums.mine

        return np.asarray(_clear(judged)).view(np.int64) / 2.0 ** np.array([16, 32])

    first, rest = slice(0, 100), slice(100, 400)
    np.testing.assert_allclose(judge(first, rest), judge(rest, first), rtol=0.01, atol=0.05)
    np.testing.assert_allclose(judge(slice(0, 400)), judge(first, rest), rtol=0.01, atol=0.05)


@pytest.mark.parametrize("rows", [1, 200, 1 << 20, 1 << 24])
def test_means_of_any_number_of_rows_are_right(rows: int) -> None:
    async def computed(engine: Clear) -> np.ndarray:
        judge = Usefulness(Network(NetworkShape((2, 3), (), (), 2), RULE, 8, engine, seed=1))
        judge._columns = [engine.constant(encode_words(np.array([[-8.0, 0.25, 8.0]])) * np.uint64(rows))]
        judge._counted = rows
        (found,) = await judge._compute_means()
        return decode_words(found.mine, FRACTION)

    np.testing.assert_allclose(_clear(computed), [[-8, 0.25, 8]], atol=2e-4)


@pytest.mark.parametrize("classes", [2, 24, 1])
def test_a_model_that_hardly_moved_is_seldom_useful(classes: int) -> None:
    """Its outputs differ by a few units of the last place, and so do those of the model without the columns."""
    outputs = 1 if classes <= 2 else classes
    shape, passed = NetworkShape((2, 6), (), (), classes), 0
    for seed in range(20):
        generator = np.random.default_rng(seed)
        inputs = [generator.normal(size=(200, width)).clip(-5, 5) for width in shape.inputs]
        drawn = generator.integers(0, max(classes, 2), 200)
        y = (
            np.eye(classes)[drawn]
            if classes > 2
            else generator.normal(size=(200, 1))
            if classes == 1
            else drawn[:, None]
        )
        weights = generator.normal(size=(9, outputs)) * 2.0**-14

        async def judged(engine: Clear) -> int:
            network = Network(shape, RULE, 8, engine, seed=1)
            network.weights["layer 0"] = engine.constant(encode_words(weights))  # noqa: B023 - called at once
            judge = Usefulness(network)
            x = [engine.constant(encode_words(one)) for one in inputs]  # noqa: B023
            await judge.add_to_means(x)
            await judge.add_rows(x, engine.constant(encode_words(y.astype(float))))  # noqa: B023
            return int((await judge.decide()).mine[0])

        passed += int(_clear(judged))
    assert passed <= 8


def test_three_parties_compute_the_bit_that_the_clear_does() -> None:
    seed, inputs = bytes(range(32)), np.random.default_rng(1).normal(size=(40, 4)).clip(-5, 5)
    labels = (inputs[:, 2:3] > 0).astype(float)

    async def judged(engine: Computing | Clear) -> np.ndarray:
        network = Network(NetworkShape((2, 2), (), (3,), 2), RULE, 8, engine, seed=1)
        x = [engine.constant(encode_words(part)) for part in (inputs[:, :2], inputs[:, 2:])]
        y = engine.constant(encode_words(labels))
        for _ in range(5):
            await network.train_batch(x, y)
        judge = Usefulness(network)
        await judge.add_to_means(x)
        await judge.add_rows(x, y)
        return (await judge.decide()).mine

    with pytest.raises(StopIteration) as ended:
        judged(Clear(seed)).send(None)
    np.testing.assert_array_equal(sum(run_three(judged, seed=seed).results), ended.value.value)


def test_clipping_keeps_what_is_within_the_bounds() -> None:
    outputs = np.linspace(-20, 20, 101)[:, None]

    async def clipped(engine: Clear) -> np.ndarray:
        return decode_words((await clip_outputs(engine, engine.constant(encode_words(outputs)), 2)).mine, FRACTION)

    np.testing.assert_allclose(_clear(clipped), outputs.clip(-8, 8), atol=0.0002)


def test_a_job_with_three_classes_opens_one_number_of_a_row() -> None:
    people = make_parties(2, 200, classes=3)
    job = sv.Job(algorithm=sv.LogisticRegression(), protection=sv.Shares(), epochs=2, batch_size=32)
    found = sv.simulate(job, people)
    (ledgers,) = [kept for key, kept in found.ledgers.items() if key != "alignment"]
    shapes = [
        tuple(shape)
        for entry in ledgers[people.active.name].iter_entries()
        if entry.what == "shares/open predictions" and entry.kind is Kind.SHARE
        for shape in entry.shapes.values()
    ]
    assert (len(found.test_ids), 1) in shapes
    (scores,) = found.scores.values()
    assert np.isin(scores.round(6), (0, 1)).all()
    assert set(found.record.runs[-1].test) == {"accuracy"}
    assert found.record.runs[-1].test["accuracy"] > 0.5


def test_a_zero_is_told_to_all_three_and_nothing_else_is() -> None:
    async def party(engine: Computing) -> list[bool]:
        zero = engine.constant(np.zeros((5, 2), np.uint64))
        one = engine.constant(np.array([0, 1 << 63], np.uint64))
        return [await engine.is_zero("targets", zero), await engine.is_zero("targets", one)]

    done = run_three(party, openings={"targets": Opening(2, None, 1)})
    assert done.results == ([True, False],) * 3


def test_a_word_that_is_not_zero_cannot_be_found_by_trying_likely_ones() -> None:
    """One of forty bits is one. A party that knows that tries them all; without the random factors one digest fits."""
    summands: list[np.ndarray] = []

    async def party(engine: Computing) -> bool:
        bits = engine.constant(np.eye(40, dtype=np.uint64)[7])
        (mixed,) = await engine.refresh(bits)
        if engine.index == 0:
            summands.extend([mixed.mine, mixed.next])
        return await engine.is_zero("targets", mixed)

    done = run_three(party, openings={"targets": Opening(1, None, 1)}, record=True)
    assert done.results == (False,) * 3
    label = "confirm targets is zero"
    told = {arrays[-1].tobytes() for _, name, arrays in done.wires[0].received if label in name}
    assert told
    tried = [np.eye(40, dtype=np.uint64)[k] - summands[0] - summands[1] for k in range(40)]
    assert not told & {_hash_arrays(label, [one]).tobytes() for one in tried}
