"""Sums of contrasts on shares: the words of the computation in the clear, and no other words than bits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, Dealt, Share, deal_shares, run_three

import securevfl as sv
from securevfl.shares.additive.contrasts import split_contrasts
from securevfl.shares.additive.ranged import bit_weights, join_bits, split_bits
from securevfl.shares.additive.sums import SharedRows, find_violations, sum_contrasts
from securevfl.shares.engine import Engine

ONE, CONTRAST, COLUMNS = 1 << 20, 1 << 16, 5
Threefold = tuple[Dealt, Dealt, Dealt]


@dataclass
class Rows:
    """Contrasts of one party and residuals, in units of the last place."""

    contrasts: np.ndarray
    residuals: np.ndarray

    @classmethod
    def draw(cls, n: int, outputs: int) -> Rows:
        rng = np.random.default_rng(n + outputs)
        mass = rng.uniform(0.05, 0.5, COLUMNS)
        bits = rng.random((n, COLUMNS)) < mass
        contrasts = np.where(bits, CONTRAST, np.rint(-mass / (1 - mass) * CONTRAST)).astype(np.int64)
        return cls(contrasts, rng.integers(-ONE, ONE + 1, (n, outputs)))

    @property
    def sums(self) -> np.ndarray:
        found: np.ndarray = self.contrasts.T @ self.residuals
        return found


async def _sum(engine: Engine, dealt: Sequence[Sequence[Share]], values: Share, noise: np.ndarray | None) -> Share:
    rows = [SharedRows(bits, residuals) for bits, residuals in dealt]
    return await sum_contrasts(engine, rows, values, None if noise is None else noise.view(np.uint64))


def _deal(array: np.ndarray) -> Threefold:
    return deal_shares(np.ascontiguousarray(array).view(np.uint64))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("groups", [1, 3])
def test_three_parties_and_the_clear_give_the_sums_word_by_word(outputs: int, groups: int) -> None:
    rows = Rows.draw(97, outputs)
    split = split_contrasts(rows.contrasts)
    parts = np.array_split(np.arange(97), groups)
    dealt = [(_deal(split.bits[part]), _deal(rows.residuals[part])) for part in parts]
    values = _deal(split.values)

    async def at_three(party: Computing) -> np.ndarray | None:
        mine = [[party.read_dealt(one[party.index]) for one in pair] for pair in dealt]
        found = await _sum(party, mine, party.read_dealt(values[party.index]), None)
        return await party.open("sums", found, [0])

    run = run_three(at_three, openings={"sums": 1})
    assert run.results[0] is not None
    assert np.array_equal(run.results[0].view(np.int64), rows.sums)
    assert run.results[1:] == (None, None)
    assert run.rounds == groups + 2

    async def in_the_clear() -> np.ndarray:
        engine = Clear()
        found = await _sum(
            engine, [[engine.read_dealt(one) for one in pair] for pair in dealt], engine.read_dealt(values), None
        )
        return found.mine

    assert np.array_equal(asyncio.run(in_the_clear()).view(np.int64), rows.sums)


def test_each_party_adds_its_own_noise_and_no_message_carries_it() -> None:
    rows, rng = Rows.draw(50, 2), np.random.default_rng(0)
    split = split_contrasts(rows.contrasts)
    bits, residuals, values = _deal(split.bits), _deal(rows.residuals), _deal(split.values)
    noise = [rng.integers(-(1 << 40), 1 << 40, (COLUMNS, 2)) for _ in range(3)]

    async def program(party: Computing) -> np.ndarray | None:
        mine = [[party.read_dealt(one[party.index]) for one in (bits, residuals)]]
        found = await _sum(party, mine, party.read_dealt(values[party.index]), noise[party.index])
        return await party.open("sums", found, [1])

    run = run_three(program, openings={"sums": 1})
    assert run.results[1] is not None
    assert np.array_equal(run.results[1].view(np.int64), rows.sums + sum(noise))
    assert run.rounds == 3


def _violations(bits: np.ndarray, zeros: np.ndarray) -> bool:
    dealt = _deal(bits), _deal(zeros)

    async def program(party: Computing) -> bool:
        words, nothing = (party.read_dealt(one[party.index]) for one in dealt)
        return await party.is_zero("bounds", await find_violations(party, [words], [nothing]))

    found = run_three(program, openings={"bounds": 1}).results
    assert len(set(found)) == 1
    return not found[0]


def test_bits_and_zeros_pass() -> None:
    assert not _violations(np.random.default_rng(0).integers(0, 2, (40, 6)), np.zeros(7, np.int64))
    assert not _violations(np.zeros((0, 6), np.int64), np.zeros(0, np.int64))


@pytest.mark.parametrize("word", [2, -1, 3, 1 << 20, 1 << 40, -(1 << 40), (1 << 43) + 1])
def test_one_word_that_is_no_bit_is_found(word: int) -> None:
    bits = np.ones((40, 6), np.int64)
    bits[17, 4] = word
    assert _violations(bits, np.zeros(1, np.int64))


def test_words_that_cancel_each_other_are_found() -> None:
    """b (b − 1) of 2 is 2, and of (1 + √−7) / 2 it is −2: a sum without random coefficients would be zero."""
    root = 1
    for bit in range(3, 66):
        root += (1 << (bit - 1)) * ((root * root + 7) >> bit & 1)
    word = (1 + root) // 2 % (1 << 64)
    assert (word * (word - 1) + 2) % (1 << 64) == 0
    bits = np.ones((4, 3), np.uint64)
    bits[1, 1], bits[2, 0] = 2, word
    assert _violations(bits.view(np.int64), np.zeros(1, np.int64))


def test_one_word_that_is_not_zero_is_found() -> None:
    zeros = np.zeros(30, np.int64)
    zeros[3] = -1
    assert _violations(np.ones((2, 2), np.int64), zeros)


@pytest.mark.parametrize("top", [1, 2, 3, 6, 7, 8, 100, 4095, ONE, 349525])
def test_bits_give_every_number_of_a_range_and_no_other(top: int) -> None:
    weights = bit_weights(top)
    assert sum(weights) == top
    values = np.unique(np.concatenate([np.arange(min(top, 300) + 1), top - np.arange(min(top, 300) + 1)]))
    bits = split_bits(values.reshape(1, -1), top)
    assert bits.shape == (1, len(values), len(weights))
    assert np.isin(bits, (0, 1)).all()
    joined = join_bits(Clear().constant(bits), top)
    assert np.array_equal(joined.mine.view(np.int64), values.reshape(1, -1))


@pytest.mark.parametrize("value", [-1, 101])
def test_a_number_outside_its_range_is_not_dealt(value: int) -> None:
    with pytest.raises(sv.RangeError, match="0 to 100 are possible"):
        split_bits(np.array([50, value]), 100)


def test_a_contrast_of_three_values_is_refused() -> None:
    contrasts = np.array([[1, 5], [1, 5], [1, 7], [1, 6]])
    with pytest.raises(sv.InputError, match="contrast 1 takes more than two values"):
        split_contrasts(contrasts)
    split = split_contrasts(contrasts[:3])
    assert np.array_equal(split.values, [[1, 5], [1, 7]])
    assert np.array_equal(np.where(split.bits == 1, split.values[1], split.values[0]), contrasts[:3])
