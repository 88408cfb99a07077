"""Shares of small words: products of three parties add up to those in the clear, each party alone sees uniform words,
and no message has room for a summand that the protocol fixes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import DisagreementError, MalformedError
from securevfl_crypto.replicated import (
    Clear,
    Computing,
    DealtNarrow,
    DealtOwned,
    NarrowShare,
    NarrowTerm,
    Share,
    Task,
    combine_summand,
    deal_narrow,
    deal_owned,
    deal_shares,
    dealt_terms,
    owned_term,
    owner_term,
    run_three,
    sum_summand,
)
from securevfl_crypto.ring import OneHotMatrix

SEED = b"narrow words, not secret"
Mode = Literal["dealt", 0, 1, 2]
MODES: tuple[Mode, ...] = ("dealt", 0, 1, 2)
SIZES = [3, 1, 5]


def table(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.stack([rng.integers(0, size, rows) for size in SIZES]).astype(np.uint8)


def cells_of(codes: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    found = np.zeros((sum(SIZES), codes.shape[1]), kind)
    for start, row in zip((0, 3, 4), codes, strict=True):
        found[start + row.astype(int), np.arange(len(row))] = 1
    return found


def terms_of(codes: np.ndarray, mode: Mode, kind: type[np.generic] = np.uint32) -> list[list[NarrowTerm]]:
    """What each of the three parties multiplies."""
    words = cells_of(codes, kind)
    if mode == "dealt":
        return [dealt_terms(dealt.share(), i) for i, dealt in enumerate(deal_narrow(words))]
    terms: list[list[NarrowTerm]] = [[], [], []]
    terms[mode] = [owner_term(OneHotMatrix(codes, SIZES))]
    for dealt in deal_owned(words, mode):
        terms[dealt.index] = [owned_term(dealt)]
    return terms


def share_among_three(values: np.ndarray) -> list[Share]:
    return [part.share() for part in deal_shares(values)]


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 150), k=st.integers(1, 6))
def test_summands_add_up_to_the_product(mode: Mode, seed: int, rows: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    codes = table(rng, rows)
    z = cells_of(codes, np.uint32)
    values, sides = (rng.integers(0, 2**64, shape, dtype=np.uint64) for shape in ((rows, k), (k, len(z))))
    v, s = share_among_three(values), share_among_three(sides)
    terms = terms_of(codes, mode)
    sums = [sum_summand(each, mine) for each, mine in zip(terms, v, strict=True)]
    assert (sum(sums) == z @ values.astype(np.uint32)).all()
    for kind in (np.uint32, np.uint8):
        parts = terms_of(codes, mode, kind)
        for low in (False, True):
            factors = [NarrowShare.low_words(mine, 8) if low else mine for mine in s]
            found = [combine_summand(each, mine) for each, mine in zip(parts, factors, strict=True)]
            assert (sum(found) == sides.astype(np.uint8) @ z.astype(np.uint8)).all()
    clear = [owner_term(OneHotMatrix(codes, SIZES))]
    engine = Clear(SEED)
    assert (sum_summand(clear, engine.constant(values)) == sum(sums)).all()


@pytest.mark.parametrize("kind", [np.uint32, np.uint8])
@pytest.mark.parametrize("shape", [(7,), (32,), (5, 9), (0, 3)])
def test_dealt_words_come_back(kind: type[np.generic], shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(3).integers(0, 1 << 8 * np.dtype(kind).itemsize, shape).astype(kind)
    shares = [dealt.share() for dealt in deal_narrow(values)]
    assert (shares[0].mine + shares[0].next + shares[1].next == values).all()
    assert all((shares[i].next == shares[(i + 1) % 3].mine).all() for i in range(3))
    for owner in range(3):
        after, before = deal_owned(values, owner)
        assert (after.index, before.index) == ((owner + 1) % 3, (owner + 2) % 3)
        assert (after.words() + before.words() == values).all()
        assert after.words().dtype == kind
        assert (after.nbytes, before.nbytes) == (32, values.nbytes)


# The lifts to 2^64


def lifted(words: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Summands modulo 2^(64 − shift), lifted by three parties and in the clear; what is opened."""
    kind = np.uint32 if shift == 32 else np.uint8
    rng = np.random.default_rng(4)
    first, second = (rng.integers(0, 2 ** (64 - shift), words.shape, dtype=kind) for _ in range(2))
    summands = (first, second, words.astype(kind) - first - second)

    async def program(party: Computing) -> np.ndarray:
        summand = summands[party.index].astype(np.uint64) << np.uint64(shift)
        ((x,),) = await party.run_masked([Task(summand, shift)])
        return np.asarray(await party.open("x", x, (0, 1, 2)))

    found = run_three(program, seed=SEED, openings={"x": 1}).results
    assert all((each == found[0]).all() for each in found)
    clear = Clear(SEED).run_masked([Task(words.astype(kind).astype(np.uint64) << np.uint64(shift), shift)])
    try:
        clear.__await__().send(None)
    except StopIteration as end:
        return found[0].view(np.int64), end.value[0][0].mine.view(np.int64)
    raise AssertionError("the reference waits")


EDGES32 = [2**30, 2**30 - 1, -(2**30) + 1, -(2**30), 0, 1, -1, 12345, -54321]


@pytest.mark.parametrize(("shift", "edges"), [(32, EDGES32), (56, [64, 63, -64, 0, 1, -1, 17])])
def test_lifts_are_exact_for_every_mask(shift: int, edges: list[int]) -> None:
    """Up to 2^30, and 2^6: the bits that the truncation cuts off are zero, so that nothing is rounded."""
    words = np.repeat(np.array(edges, np.int64), 200)
    found, clear = lifted(words, shift)
    np.testing.assert_array_equal(found, words)
    np.testing.assert_array_equal(clear, words)


@settings(deadline=None, max_examples=20)
@given(values=st.lists(st.integers(-(2**30), 2**30 - 1), min_size=1, max_size=50))
def test_lifts_of_any_words_below_the_bound_are_exact(values: list[int]) -> None:
    words = np.array(values, np.int64)
    np.testing.assert_array_equal(lifted(words, 32)[0], words)


def test_a_lift_beyond_the_bound_is_wrong() -> None:
    """Nothing tells at run time: plans check the bound."""
    words = np.full(200, 2**31 - 1)
    assert (lifted(words, 32)[0] != words).mean() > 0.2


def test_words_that_are_not_shifted_do_not_lift() -> None:
    """A break: the three low halves add up with carries that shares modulo 2^64 keep."""
    words = np.array(EDGES32 * 20, np.int64)
    rng = np.random.default_rng(5)
    first, second = (rng.integers(0, 2**32, words.shape, dtype=np.uint32) for _ in range(2))
    summands = [x.astype(np.uint64) for x in (first, second, words.astype(np.uint32) - first - second)]

    async def program(party: Computing) -> np.ndarray:
        ((x,),) = await party.run_masked([Task(summands[party.index], 0)])
        return np.asarray(await party.open("x", x, (0, 1, 2)))

    found = run_three(program, seed=SEED, openings={"x": 1}).results[0].view(np.int64)
    assert (found != words).mean() > 0.5


# What a party sees

MANY = 40_000
Secret = Callable[[int], np.ndarray]


def deviation(words: np.ndarray) -> float:
    """χ² of each place's octets from uniform ones, in standard deviations above the mean; the largest."""
    octets = np.ascontiguousarray(words).reshape(-1).view(np.uint8).reshape(-1, words.itemsize)
    found = []
    for place in octets.T:
        counts, expected = np.bincount(place, minlength=256), len(place) / 256
        found.append((((counts - expected) ** 2 / expected).sum() - 255) / np.sqrt(2 * 255))
    return float(max(found))


def seen_by(index: int, deal: Callable[[], Sequence[DealtNarrow | DealtOwned]]) -> list[np.ndarray]:
    """All words that party `index` can compute of two dealings of one table: each summand and sum, and differences of
    the two dealings."""
    views = []
    for dealt in (next(each for each in deal() if each.index == index) for _ in range(2)):
        if isinstance(dealt, DealtOwned):
            views.append([dealt.words()])
        else:
            share = dealt.share()
            views.append([share.mine, share.next, np.asarray(share.mine + share.next), share.mine - share.next])
    return [*views[0], *(a - b for a, b in zip(*views, strict=True))]


def check_views(deal: Callable[[], Sequence[DealtNarrow | DealtOwned]], receivers: Sequence[int]) -> None:
    for index in receivers:
        for words in seen_by(index, deal):
            assert deviation(words) < 8  # of a hundred counts, each with a longer tail than a normal one


def check_mode(mode: Mode, words: np.ndarray) -> None:
    if mode == "dealt":
        check_views(lambda: deal_narrow(words), (0, 1, 2))
    else:
        check_views(lambda: deal_owned(words, mode), [i for i in range(3) if i != mode])


@pytest.mark.parametrize("kind", [np.uint32, np.uint8])
@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_each_party_alone_sees_uniform_words(mode: Mode, value: int, kind: type[np.generic]) -> None:
    check_mode(mode, np.full(MANY, value, kind))


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_that_hides_two_tables_is_seen(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A break that keeps every product right: whoever holds the words of both reads their difference."""
    monkeypatch.setattr("os.urandom", lambda count: b"7" * count)
    with pytest.raises(AssertionError):
        check_mode(mode, np.ones(MANY, np.uint32))


def test_no_dealing_uses_a_seed_of_another() -> None:
    words = np.zeros(1, np.uint32)
    seeds = [part.tobytes() for _ in range(30) for part in deal_narrow(words)[0].parts]
    seeds += [deal_owned(words, owner)[0].parts[0].tobytes() for owner in range(3) for _ in range(10)]
    assert len(set(seeds)) == 90


@pytest.mark.parametrize("owner", [0, 1, 2])
def test_an_owners_summand_that_goes_to_both_is_refused_and_wrong(owner: int) -> None:
    """A break: with both summands a party reads the table; with the same one at both, products are wrong."""
    words = np.ones((4, 6), np.uint32)
    after, before = deal_owned(words, owner)
    for dealt, parts in (
        (after, (*after.parts, *before.parts)),
        (before, (*before.parts, *after.parts)),
        (after, before.parts),
        (before, after.parts),
        (after, ()),
        (before, (before.parts[0], np.zeros((4, 6), np.uint32))),
    ):
        with pytest.raises(MalformedError, match=r"zero and is not sent|the dealt part is"):
            dataclasses.replace(dealt, parts=parts)
    assert deviation(np.asarray(after.words() + before.words())) > 6  # what such a party would see
    values = share_among_three(np.random.default_rng(6).integers(0, 2**64, (6, 2), dtype=np.uint64))
    codes = np.zeros((1, 6), np.uint8)
    total = sum_summand([owner_term(OneHotMatrix(codes, [4]))], values[owner])
    both = [DealtOwned(owner, after.index, after.shape, 32, after.parts)] * 2
    for dealt in both:
        total = total + sum_summand([owned_term(dealt)], values[dealt.index])
    everything = values[0].mine + values[0].next + values[1].next
    assert (total != words @ everything.astype(np.uint32)).any()


# Messages

WRONG = {
    "another ring": lambda parts: tuple(p.astype(np.uint64) if p.dtype == np.uint32 else p for p in parts),
    "another shape": lambda parts: tuple(p.reshape(3, 2) if p.ndim == 2 else p for p in parts),
    "a longer seed": lambda parts: tuple(np.zeros(33, np.uint8) if p.dtype == np.uint8 else p for p in parts),
    "words for a seed": lambda parts: tuple(np.zeros((2, 3), np.uint32) for _ in parts),
    "seeds for words": lambda parts: tuple(np.zeros(32, np.uint8) for _ in parts),
    "no array": lambda parts: tuple(p.tolist() for p in parts),
    "a part less": lambda parts: parts[:-1],
    "a part more": lambda parts: (*parts, parts[0]),
}


@pytest.mark.parametrize("what", WRONG)
def test_malformed_messages_are_refused_before_anything_is_allocated(what: str) -> None:
    words = np.ones((2, 3), np.uint32)
    refused = 0
    for dealt in (*deal_narrow(words), *(each for owner in range(3) for each in deal_owned(words, owner))):
        changed = WRONG[what](dealt.parts)
        same = len(changed) == len(dealt.parts) and all(
            isinstance(new, np.ndarray) and (new.dtype, new.shape) == (old.dtype, old.shape)
            for new, old in zip(changed, dealt.parts, strict=True)
        )
        if not same:
            refused += 1
            with pytest.raises(MalformedError):
                dataclasses.replace(dealt, parts=changed)
    assert refused >= 3


def test_other_parties_types_and_bits_are_refused() -> None:
    words = np.ones((2, 3), np.uint32)
    dealt, owned = deal_narrow(words)[0], deal_owned(words, 1)[0]
    for wrong in (
        lambda: deal_narrow(words.astype(np.uint64)),
        lambda: deal_owned(words.astype(np.int8), 0),
        lambda: deal_owned(words, 3),
        lambda: dataclasses.replace(dealt, index=3),
        lambda: dataclasses.replace(owned, index=1),
        lambda: dataclasses.replace(owned, owner=-1),
        lambda: dataclasses.replace(deal_narrow(words)[1], bits=16),
        lambda: NarrowShare(words, words[:1]),
        lambda: NarrowShare(words, words.astype(np.uint8)),
        lambda: NarrowShare(words.astype(np.uint64), words.astype(np.uint64)),
        lambda: dealt_terms(NarrowShare(words, words), 3),
    ):
        with pytest.raises(MalformedError):
            wrong()


@pytest.mark.parametrize("kind", [np.uint32, np.uint8])
def test_a_dealer_that_deals_different_summands_is_found_by_confirm(kind: type[np.generic]) -> None:
    dealt = deal_narrow(np.ones((3, 5), kind))
    other = deal_narrow(np.ones((3, 5), kind))

    def confirmed(parts: Sequence[DealtNarrow]) -> None:
        async def program(party: Computing) -> None:
            await party.confirm("rows", parts[party.index].share().as_words())

        run_three(program, seed=SEED)

    confirmed(dealt)
    for index in range(3):
        with pytest.raises(DisagreementError, match="hold different summands"):
            confirmed([other[i] if i == index else dealt[i] for i in range(3)])
