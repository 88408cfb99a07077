"""The tournament of secret fractions selects the first largest one, as exact fractions do."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, run_three
from support.shared_trees import run_clear

from securevfl.shares.engine import Engine
from securevfl.shares.trees.tournament import find_largest, plan_stages

_TOP = 1 << 30


def _draw(kind: str, rows: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    shape = (rows, count)
    if kind == "ties":
        return generator.integers(0, 3, shape) << 20, generator.integers(1, 3, shape) << 20
    if kind == "zeros":
        return np.zeros(shape, np.int64), generator.integers(1, _TOP + 1, shape)
    if kind == "negative":
        return -generator.integers(0, 2, shape) * _TOP, generator.integers(1, _TOP + 1, shape)
    if kind == "one unit apart":
        return _TOP - generator.integers(0, 2, shape), _TOP - generator.integers(0, 2, shape)
    if kind == "extremes":
        return generator.choice([-_TOP, 0, _TOP], shape), generator.choice([1, _TOP], shape)
    return generator.integers(-_TOP, _TOP + 1, shape), generator.integers(1, _TOP + 1, shape)


def _best(numerators: np.ndarray, denominators: np.ndarray) -> list[int]:
    fractions = [
        [Fraction(int(a), int(d)) for a, d in zip(*row, strict=True)]
        for row in zip(numerators, denominators, strict=True)
    ]
    return [max(range(len(row)), key=lambda k: (row[k], -k)) for row in fractions]


async def _select(
    engine: Engine, numerators: np.ndarray, denominators: np.ndarray, plan: tuple[int, ...]
) -> np.ndarray:
    a, d = (engine.constant(part.astype(np.int64).view(np.uint64)) for part in (numerators, denominators))
    return (await find_largest(engine, a, d, plan)).mine


@pytest.mark.parametrize("kind", ["any", "ties", "zeros", "negative", "one unit apart", "extremes"])
@pytest.mark.parametrize(
    ("count", "plan"),
    [(1, (1,)), (2, (2,)), (7, (8,)), (12, (12,)), (28, (28,)), (13, (2, 4, 2)), (90, (3, 8, 4)), (100, (8, 13))],
)
def test_the_first_largest_fraction_wins(kind: str, count: int, plan: tuple[int, ...]) -> None:
    numerators, denominators = _draw(kind, 12, count)

    async def clear(engine: Clear) -> np.ndarray:
        return await _select(engine, numerators, denominators, plan)

    found = run_clear(clear)
    assert set(np.unique(found)) <= {0, 1}
    np.testing.assert_array_equal(found.sum(1), 1)
    assert found.argmax(1).tolist() == _best(numerators, denominators)


@pytest.mark.parametrize(
    ("count", "plan", "rounds"), [(2, (2,), 4), (12, (12,), 8), (24, (8, 3), 7 + 6), (90, (8, 4, 3), 7 + 6 + 6 + 1)]
)
def test_three_parties_select_what_the_clear_does(count: int, plan: tuple[int, ...], rounds: int) -> None:
    numerators, denominators = _draw("ties", 8, count)

    async def party(engine: Computing) -> np.ndarray:
        return await _select(engine, numerators, denominators, plan)

    done = run_three(party, seed=bytes(32))
    found = np.sum(done.results, axis=0, dtype=np.uint64)
    assert found.argmax(1).tolist() == _best(numerators, denominators)
    np.testing.assert_array_equal(found.sum(1), 1)
    assert done.rounds == rounds


def test_plans_hold_all_fractions_in_few_rounds() -> None:
    for count in (1, 2, 9, 28, 29, 100, 714, 715, 1500, 2000):
        for widest in (12, 28):
            plan = plan_stages(count, widest)
            assert np.prod(plan) >= count
            assert max(plan) <= widest
    assert plan_stages(714, 12) == (8, 8, 12)
    assert len(plan_stages(714, 28)) == 2
