"""The three parties agree, word by word, with the same calls in the clear that draw the same masks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from securevfl_crypto.replicated import SLOPE_BITS, Clear, Computing, Product, Run, Share, deal_shares, run_three
from securevfl_crypto.replicated.functions import Functions
from securevfl_crypto.ring import decode_words, encode_words

SEED = b"a seed of tests, not secret"
EVERY = {"x": 1000}
Program = Callable[[Functions, dict[str, Share]], Awaitable[list[Share]]]


def clearly(program: Program, values: dict[str, np.ndarray], seed: bytes = SEED) -> list[np.ndarray]:
    clear = Clear(seed)
    try:
        program(clear, {name: clear.constant(words) for name, words in values.items()}).__await__().send(None)
    except StopIteration as end:
        return [share.mine for share in end.value]
    raise AssertionError("the reference waits")


def three(program: Program, values: dict[str, np.ndarray], seed: bytes = SEED) -> Run[list[np.ndarray]]:
    dealt = {name: deal_shares(words) for name, words in values.items()}

    async def one(party: Computing) -> list[np.ndarray]:
        shares = {name: party.read_dealt(parts[party.index]) for name, parts in dealt.items()}
        found = await program(party, shares)
        party.counted = party.rounds  # type: ignore[attr-defined]
        return [np.asarray(await party.open("x", share, (0, 1, 2))) for share in found]

    return run_three(one, seed=seed, openings=EVERY)


def same(program: Program, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The opened words, if all three parties and the reference have the same."""
    expected = clearly(program, values)
    for found in three(program, values).results:
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    return expected


X = np.random.default_rng(1).normal(size=(7, 5)) * 3
W = np.random.default_rng(2).normal(size=(5, 4))
VALUES = {"x": encode_words(X), "w": encode_words(W)}


async def matrix_product(party: Functions, s: dict[str, Share]) -> list[Share]:
    return [await party.multiply_matrices(s["x"], s["w"]), await party.multiply_matrices(s["x"], s["w"], shift=16)]


async def relu_layer(party: Functions, s: dict[str, Share]) -> list[Share]:
    return [*(await party.compute_products([Product(s["x"], s["w"], shift=16, then="relu")]))[0]]


async def relu6_layer(party: Functions, s: dict[str, Share]) -> list[Share]:
    return [*(await party.compute_products([Product(s["x"], s["w"], shift=16, then="relu6")]))[0]]


async def mixed(party: Functions, s: dict[str, Share]) -> list[Share]:
    bits = (await party.compare(s["x"]))[0]
    plain, (value, gate), gated, by_element = await party.compute_products(
        [
            Product(s["x"], s["w"]),
            Product(s["x"], s["w"], shift=16, then="relu6"),
            Product(s["x"], s["x"], "times", 16, gate=bits),
            Product(s["x"], s["x"][:1], "times"),
        ]
    )
    return [plain, value, gate, gated, by_element]


@pytest.mark.parametrize("program", [matrix_product, relu_layer, relu6_layer, mixed])
def test_shares_and_the_reference_agree_bit_by_bit(program: Program) -> None:
    same(program, VALUES)


def test_layers_are_right() -> None:
    z = X @ W
    value, gate = (decode_words(words, bits) for words, bits in zip(same(relu6_layer, VALUES), (16, 0), strict=True))
    np.testing.assert_allclose(value, np.clip(z, 0, 6), atol=3e-4)
    np.testing.assert_array_equal(gate, (z >= 0) & (z < 6))


@pytest.mark.parametrize(("program", "rounds"), [(matrix_product, 3), (relu_layer, 4), (relu6_layer, 4), (mixed, 8)])
def test_rounds(program: Program, rounds: int) -> None:
    assert {party.counted for party in three(program, VALUES).parties} <= set(range(rounds + 1))  # type: ignore[attr-defined]
    assert max(party.counted for party in three(program, VALUES).parties) == rounds  # type: ignore[attr-defined]


async def functions(party: Functions, s: dict[str, Share]) -> list[Share]:
    x = s["x"]
    return [
        await party.sigmoid(x),
        await party.softplus(x),
        await party.softmax(x),
        await party.log_sum_exp(x),
        await party.maximum(x),
    ]


def test_functions_are_near_the_true_ones() -> None:
    found = [decode_words(words) for words in same(functions, VALUES)]
    e = np.exp(X)
    total = e.sum(-1, keepdims=True)
    expected = [1 / (1 + 1 / e), np.log1p(e), e / total, np.log(total), X.max(-1, keepdims=True)]
    for value, true, bound in zip(found, expected, (0.0028, 0.001, 0.006, 0.006, 1e-5), strict=True):
        np.testing.assert_allclose(value, true, rtol=0, atol=bound)


@pytest.mark.parametrize("fraction", [12, 16, 20])
def test_a_quotient_is_near_the_true_one(fraction: int) -> None:
    rng = np.random.default_rng(3)
    b = np.concatenate([2.0 ** rng.uniform(-3, 12, 40), [0.125, 1, 2, 4096, 4095.9]])
    a = b * rng.uniform(-1, 1, b.shape)

    async def program(party: Functions, s: dict[str, Share]) -> list[Share]:
        return [await party.divide(s["a"], s["b"], least=0.125, most=4096)]

    words = {"a": encode_words(a, fraction), "b": encode_words(b, fraction)}
    dealt = {name: deal_shares(value) for name, value in words.items()}

    async def one(party: Computing) -> np.ndarray | None:
        found = await program(party, {name: party.read_dealt(parts[party.index]) for name, parts in dealt.items()})
        return await party.open("x", found[0], (1,))

    found = run_three(one, fraction=fraction, openings={"x": 1}).results
    assert [words is None for words in found] == [True, False, True]
    assert found[1] is not None
    true = decode_words(words["a"], fraction) / decode_words(words["b"], fraction)
    np.testing.assert_allclose(decode_words(found[1], fraction), true, rtol=0, atol=1.2e-5 + 8 * 2.0**-fraction)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 12, 13, 40])
def test_the_largest_of_many(count: int) -> None:
    values = encode_words(np.random.default_rng(count).integers(-3, 4, size=(6, count)) / 2)

    async def program(party: Functions, s: dict[str, Share]) -> list[Share]:
        return [await party.maximum(s["x"])]

    (found,) = same(program, {"x": values})
    np.testing.assert_array_equal(found.view(np.int64), values.view(np.int64).max(-1, keepdims=True))


async def trained(party: Functions, s: dict[str, Share]) -> list[Share]:
    """Three steps of a perceptron with momentum: 18 rounds each, forward, backward and the weights' step."""
    x, y, weights = s["x"], s["y"], [s["w1"], s["w2"], s["w3"]]
    velocity = [w - w for w in weights]
    for _ in range(3):
        ((a1, p1),) = await party.compute_products([Product(x, weights[0], shift=16, then="relu")])
        ((a2, p2),) = await party.compute_products([Product(a1, weights[1], shift=16, then="relu6")])
        (p,) = await party.compute_products([Product(a2, weights[2], shift=16, then="sigmoid")])
        g3 = p - y * (1 << SLOPE_BITS)
        wide = 16 + SLOPE_BITS
        decay = [v * 7 for v in velocity]  # momentum 7/8, folded into the truncation
        v3, g2 = await party.compute_products(
            [
                Product(a2.T, g3, shift=wide + 3, add=decay[2] * (1 << wide)),
                Product(g3, weights[2].T, shift=wide, gate=p2),
            ]
        )
        v2, g1 = await party.compute_products(
            [Product(a1.T, g2, shift=19, add=decay[1] * (1 << 16)), Product(g2, weights[1].T, shift=16, gate=p1)]
        )
        (v1,) = await party.compute_products([Product(x.T, g1, shift=19, add=decay[0] * (1 << 16))])
        velocity = [v1, v2, v3]
        weights = [w - v for w, v in zip(weights, velocity, strict=True)]
    return weights


def exactly_trained(x: np.ndarray, y: np.ndarray, weights: list[np.ndarray]) -> list[np.ndarray]:
    velocity = [0 * w for w in weights]
    for _ in range(3):
        z1 = x @ weights[0]
        a1 = np.maximum(z1, 0)
        z2 = a1 @ weights[1]
        a2 = np.clip(z2, 0, 6)
        g3 = 1 / (1 + np.exp(-a2 @ weights[2])) - y
        g2 = g3 @ weights[2].T * ((z2 >= 0) & (z2 < 6))
        g1 = g2 @ weights[1].T * (z1 >= 0)
        velocity = [(a.T @ g + 7 * v) / 8 for a, g, v in zip((x, a1, a2), (g1, g2, g3), velocity, strict=True)]
        weights = [w - v for w, v in zip(weights, velocity, strict=True)]
    return weights


def test_a_perceptron_trains_as_in_the_clear() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(9, 6)), rng.integers(0, 2, (9, 1)).astype(float)
    weights = [rng.normal(size=shape) / 2 for shape in ((6, 5), (5, 4), (4, 1))]
    values = {"x": encode_words(x), "y": encode_words(y)} | {
        f"w{k + 1}": encode_words(w) for k, w in enumerate(weights)
    }
    for found, true in zip(same(trained, values), exactly_trained(x, y, weights), strict=True):
        np.testing.assert_allclose(decode_words(found), true, rtol=0, atol=0.02)
    assert max(party.counted for party in three(trained, values).parties) == 3 * 18  # type: ignore[attr-defined]
