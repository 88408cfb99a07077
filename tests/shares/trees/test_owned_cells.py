"""Cells in few bytes: sums, sides and whole trees are word for word those in the clear, however the cells were dealt;
each party sees uniform words; and breaks are seen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated import (
    Clear,
    Computing,
    DealtNarrow,
    DealtOwned,
    NarrowShare,
    Run,
    Share,
    Task,
    deal_narrow,
    deal_owned,
    deal_shares,
    run_three,
)
from support.cuts import link_in_memory

import securevfl as sv
from securevfl.errors import InputError
from securevfl.shares.engine import Engine
from securevfl.shares.trees import (
    CellLayout,
    Cells,
    NarrowCells,
    TreeRule,
    choose_gradient_bits,
    deal_cells,
    grow_trees,
    score_sides,
)
from securevfl.shares.trees.owned_cells import CellPart
from securevfl.shares.wire import read_narrow, send_narrow
from securevfl.transport import Kind, Message
from securevfl.transport.memory import MemoryChannel

SEED = b"narrow cells, not secret"
LAYOUT = CellLayout((4, 3, 5, 2, 6), (False, True, False, True, False), (0, 1, 0, 0, -1), (0, 0, 1, 2, 3))
"""Five columns of four data parties: whoever computes owns its cells, the others deal them."""
ROWS = 70
MODES: dict[str, tuple[int | None, ...]] = {
    "the first three own": (0, 1, 2, None),
    "in another order": (2, None, 0, 1),
    "one owns": (None, None, 1, None),
    "all are dealt": (None, None, None, None),
}


def draw_codes(rows: int = ROWS, seed: int = 1) -> list[np.ndarray]:
    """The codes of each data party."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, rows) for size in LAYOUT.sizes]).astype(np.uint8)
    return [codes[[owner == party for owner in LAYOUT.owners]] for party in range(4)]


def one_hot(codes: Sequence[np.ndarray]) -> np.ndarray:
    every = np.concatenate(codes)
    found = np.zeros((LAYOUT.cells, every.shape[1]), np.uint64)
    for start, row in zip(LAYOUT.starts, every, strict=True):
        found[start + row.astype(int), np.arange(len(row))] = 1
    return found


@dataclass(frozen=True)
class Dealing:
    """What the data parties dealt, for all computing parties."""

    codes: list[np.ndarray]
    places: tuple[int | None, ...]
    messages: list[dict[int, DealtNarrow | DealtOwned]]

    @classmethod
    def make(cls, codes: list[np.ndarray], places: tuple[int | None, ...], bits: int = 32) -> Dealing:
        found = [
            deal_cells(LAYOUT, party, own, computing=place, bits=bits)  # type: ignore[arg-type]
            for party, (own, place) in enumerate(zip(codes, places, strict=True))
        ]
        return cls(codes, places, found)

    def cells(self, engine: Engine) -> NarrowCells:
        """At one party, or in the clear."""
        if isinstance(engine, Clear):
            return NarrowCells(LAYOUT, self.codes, 0)
        parts: list[CellPart] = []
        for own, place, dealt in zip(self.codes, self.places, self.messages, strict=True):
            if place == engine.index:
                parts.append(own)
            else:
                message = dealt[engine.index]
                parts.append(message if isinstance(message, DealtOwned) else message.share())
        return NarrowCells(LAYOUT, parts, engine.index)


def clearly(awaitable: object) -> object:
    try:
        awaitable.__await__().send(None)  # type: ignore[attr-defined]
    except StopIteration as end:
        return end.value
    raise AssertionError("the reference waits")


def opened(shares: Sequence[Share]) -> np.ndarray:
    """From the shares of the three parties."""
    return np.asarray(shares[0].mine + shares[0].next + shares[1].next)


# Sums and sides


@pytest.mark.parametrize("mode", MODES)
def test_sums_and_sides_are_exact(mode: str) -> None:
    """Sums with sign up to the bound of 2^30, and sides, lifted to 2^64."""
    dealing, z = Dealing.make(draw_codes(), MODES[mode]), one_hot(draw_codes()).astype(np.int64)
    rng = np.random.default_rng(2)
    values = rng.integers(-(2**23), 2**23, (ROWS, 3))
    choice = np.zeros((4, LAYOUT.cells), np.int64)  # cells of one column each go left
    for node, start in enumerate(LAYOUT.starts[:3]):
        choice[node, start : start + 2] = 1
    v, s = (deal_shares(np.ascontiguousarray(x).view(np.uint64)) for x in (values, choice))

    async def program(party: Computing) -> tuple[Share, Share]:
        cells: Cells = dealing.cells(party)
        assert (cells.rows, cells.histogram_shift, cells.side_shift) == (ROWS, 32, 56)
        mine = [party.read_dealt(dealt[party.index]) for dealt in (v, s)]
        tasks = [
            Task(cells.sum_by_cell(mine[0]) << np.uint64(32), 32),
            Task(cells.choose_sides(mine[1]) << np.uint64(56), 56),
        ]
        ((sums,), (sides,)) = await party.run_masked(tasks)
        return sums, sides

    results = run_three(program, seed=SEED).results
    np.testing.assert_array_equal(opened([r[0] for r in results]).view(np.int64), z @ values)
    np.testing.assert_array_equal(opened([r[1] for r in results]).view(np.int64), choice @ z)


@pytest.mark.parametrize("rows", [1, 100, 2**14, 2**14 + 1, 10**6, 2**22])
def test_gradient_bits_keep_sums_within_the_lift(rows: int) -> None:
    bits = choose_gradient_bits(rows)
    assert rows << bits <= 1 << 30
    assert bits == 16 or rows << (bits + 1) > 1 << 30


def test_sums_that_could_leave_the_lift_are_refused_before_a_tree_grows() -> None:
    dealing = Dealing.make(draw_codes(), MODES["all are dealt"])
    engine = Clear(SEED)
    rule = TreeRule(depth=1, l2=1, min_hessian=0, min_gain=0, rate=0.3, gradient_bits=16, rows=2**14 + 1)
    gradients = engine.constant(np.zeros((ROWS, 1, 3), np.uint64))
    with pytest.raises(InputError, match="take `choose_gradient_bits`, or train on fewer rows"):
        clearly(grow_trees(engine, dealing.cells(engine), gradients, rule))


# Trees


def gradient_words(bits: int, outputs: int = 2) -> np.ndarray:
    rng = np.random.default_rng(3)
    g = rng.uniform(-1, 1, (ROWS, outputs))
    parts = np.stack([g, np.abs(g) * (1 - np.abs(g)), np.abs(g)], -1)
    return np.round(parts * 2.0**bits).astype(np.int64).view(np.uint64)


RULE = TreeRule(depth=3, l2=1.0, min_hessian=0.5, min_gain=0.0, rate=0.3, gradient_bits=16, rows=ROWS)


def grow_three(dealing: Dealing, *, record: bool = False) -> Run[list[Share]]:
    dealt = deal_shares(gradient_words(RULE.gradient_bits))

    async def program(party: Computing) -> list[Share]:
        trees, added = await grow_trees(party, dealing.cells(party), party.read_dealt(dealt[party.index]), RULE)
        return [added, *(share for tree in trees for share in (tree.leaves, *tree.sides, *tree.chosen))]

    return run_three(program, seed=SEED, record=record)


def grow_clear() -> list[np.ndarray]:
    engine = Clear(SEED)
    cells = NarrowCells(LAYOUT, draw_codes(), 0)
    gradients = engine.constant(gradient_words(RULE.gradient_bits))
    trees, added = clearly(grow_trees(engine, cells, gradients, RULE))  # type: ignore[misc]
    return [s.mine for s in (added, *(s for tree in trees for s in (tree.leaves, *tree.sides, *tree.chosen)))]


def check_trees(dealing: Dealing) -> None:
    for k, expected in enumerate(grow_clear()):
        np.testing.assert_array_equal(opened([found[k] for found in grow_three(dealing).results]), expected)


@pytest.mark.parametrize("mode", MODES)
def test_trees_are_word_for_word_those_in_the_clear(mode: str) -> None:
    assert grow_clear()[0].any()
    check_trees(Dealing.make(draw_codes(), MODES[mode]))


def test_a_lift_without_its_shift_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = grow_clear()
    monkeypatch.setattr(NarrowCells, "histogram_shift", 0)
    found = grow_three(Dealing.make(draw_codes(), MODES["the first three own"])).results
    assert (opened([each[0] for each in found]) != expected[0]).any()


def test_an_owners_summand_at_both_others_is_seen() -> None:
    """The words that party 2 was dealt, at party 1 too: it is refused there; and taken for its own, trees differ."""
    dealing = Dealing.make(draw_codes(), MODES["the first three own"])
    after, before = dealing.messages[0][1], dealing.messages[0][2]
    with pytest.raises(MalformedError, match="the dealt part is uint32"):
        DealtOwned(0, 1, after.shape, 32, before.parts)
    with pytest.raises(InputError, match="dealt to computing party 2, at party 1"):
        NarrowCells(LAYOUT, [before, *dealing.codes[1:]], 1)  # type: ignore[list-item]
    other = deal_cells(LAYOUT, 0, dealing.codes[0], computing=0)
    dealing.messages[0][1] = other[1]  # a seed that hides something else
    with pytest.raises(AssertionError):
        check_trees(dealing)


# What a party sees


def deviation(words: np.ndarray) -> float:
    octets = np.ascontiguousarray(words).reshape(-1).view(np.uint8).reshape(-1, words.itemsize)
    found = []
    for place in octets.T:
        counts, expected = np.bincount(place, minlength=256), len(place) / 256
        found.append((((counts - expected) ** 2 / expected).sum() - 255) / np.sqrt(2 * 255))
    return float(max(found))


@pytest.mark.parametrize("mode", ["the first three own", "all are dealt"])
def test_what_each_party_receives_of_a_tree_is_uniform_and_as_long_for_other_rows(mode: str) -> None:
    sizes = []
    for seed in (1, 7):
        codes = draw_codes(seed=seed) if seed == 1 else [np.zeros_like(each) for each in draw_codes()]
        dealing = Dealing.make(codes, MODES[mode])
        run = grow_three(dealing, record=True)
        for wire in run.wires:
            words = [a.ravel() for _, _, arrays in wire.received for a in arrays[1:] if a.dtype == np.uint64]
            assert deviation(np.concatenate(words)) < 8
        sizes.append(
            [[(s, label, [a.shape for a in arrays]) for s, label, arrays in wire.received] for wire in run.wires]
        )
        for place, dealt in zip(dealing.places, dealing.messages, strict=True):
            assert sorted(dealt) == [i for i in range(3) if i != place]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("computing", [None, 0, 1, 2])
def test_dealt_cells_of_one_bin_look_like_others(computing: int | None) -> None:
    """Each party alone, over many rows that are all alike."""
    codes = np.zeros((1, 20_000), np.uint8)
    for dealt in deal_cells(LAYOUT, 1, codes, computing=computing).values():
        if isinstance(dealt, DealtOwned):
            views = [dealt.words()]
        else:
            share = dealt.share()
            views = [share.mine, share.next, np.asarray(share.mine + share.next)]
        assert all(deviation(view[cell]) < 8 for view in views for cell in range(len(view)))


# Scores


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_scored_rows_go_left_as_in_the_clear(mode: str, narrow: bool) -> None:
    """Rows whose cells were dealt as bytes, by owners and others, or as one share of all columns."""
    codes = draw_codes(11, seed=5)
    z = one_hot(codes)
    rng = np.random.default_rng(6)
    sides = np.zeros((9, LAYOUT.cells), np.uint64)
    for node in range(9):
        column = rng.integers(0, 5)
        start, size = LAYOUT.starts[column], LAYOUT.sizes[column]
        sides[node, start : start + size] = rng.integers(0, 2, size)
    dealing = Dealing.make(codes, MODES[mode], bits=8)
    stored, rows = deal_shares(sides), deal_narrow(np.ascontiguousarray(z.T).astype(np.uint8))

    async def program(party: Computing) -> Share:
        low = NarrowShare.low_words(party.read_dealt(stored[party.index]), 8)
        given = dealing.cells(party) if narrow else rows[party.index].share()
        before = party.rounds
        found = await score_sides(party, given, low)
        assert party.rounds - before <= 2
        return found

    found = opened(run_three(program, seed=SEED).results)
    np.testing.assert_array_equal(found, (sides @ z).T)
    assert set(np.unique(found)) == {0, 1}
    engine = Clear(SEED)
    clear_rows = dealing.cells(engine) if narrow else NarrowShare.low_words(engine.constant(z.T), 8)
    clear = clearly(score_sides(engine, clear_rows, NarrowShare.low_words(engine.constant(sides), 8)))
    np.testing.assert_array_equal(clear.mine, found)  # type: ignore[attr-defined]


def test_parts_that_do_not_fit_are_refused() -> None:
    codes = draw_codes()
    seed = deal_cells(LAYOUT, 1, codes[1], computing=1)[2]
    assert isinstance(seed, DealtOwned)
    crossed = CellLayout((2, 2, 2), (False,) * 3, (0,) * 3, (0, 1, 0))
    for parts, said in (
        (codes[:3], "cells of 3 parties"),
        ([codes[0], codes[1][:, :9], *codes[2:]], r"cells of \[9, 70\] rows"),
        (
            [codes[0], codes[1], seed, codes[3]],
            r"data party 2 dealt cells of shape \(5, 70\); its columns have 3 cells",
        ),
    ):
        with pytest.raises(InputError, match=said):
            NarrowCells(LAYOUT, parts, 2)
    with pytest.raises(InputError, match="the columns of each party in turn"):
        NarrowCells(crossed, codes, 0)
    with pytest.raises(MalformedError, match="column 0 has a row in bin 9"):
        deal_cells(LAYOUT, 1, np.full((1, 3), 9, np.uint8), computing=None)
    engine, low = Clear(SEED), np.zeros((2, LAYOUT.cells), np.uint8)
    for rows, sides in (
        (NarrowShare(low, low), NarrowShare(low[:, :3], low[:, :3])),
        (NarrowShare(low, low), NarrowShare(low.astype(np.uint32), low.astype(np.uint32))),
        (NarrowShare(low.astype(np.uint32), low.astype(np.uint32)), NarrowShare(low, low)),
    ):
        with pytest.raises(InputError, match="expected bytes"):
            clearly(score_sides(engine, rows, sides))


# Messages

WORDS = np.arange(12, dtype=np.uint32).reshape(3, 4)


def _carry(dealt: Sequence[DealtNarrow | DealtOwned], owner: int | None) -> list[DealtNarrow | DealtOwned]:
    world = link_in_memory(passive=("p",))

    async def both() -> list[DealtNarrow | DealtOwned]:
        await send_narrow(world["a"].links["p"], dealt)
        shapes = [one.shape for one in dealt]
        index = dealt[0].index
        return await read_narrow(world["p"].links["a"], shapes, index=index, owner=owner)

    return asyncio.run(both())


@pytest.mark.parametrize("owner", [None, 0, 1, 2])
def test_dealt_words_cross_a_link(owner: int | None) -> None:
    for dealt in deal_narrow(WORDS) if owner is None else deal_owned(WORDS, owner):
        other = deal_narrow(WORDS[:2])[dealt.index] if owner is None else deal_owned(WORDS[:2], owner)[0]
        found = _carry([dealt, other] if other.index == dealt.index else [dealt], owner)
        for sent, came in zip([dealt, other], found, strict=False):
            assert type(sent) is type(came)
            assert all((a == b).all() for a, b in zip(sent.parts, came.parts, strict=True))


def test_a_dealt_table_is_a_masked_share_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Message] = []
    send = MemoryChannel.send

    async def heard(channel: MemoryChannel, message: Message) -> int:
        sent.append(message)
        return await send(channel, message)

    monkeypatch.setattr(MemoryChannel, "send", heard)
    _carry([deal_owned(WORDS, 0)[1]], 0)
    (message,) = sent
    assert (message.kind, message.what, message.guard.cipher) == (Kind.SHARE, "shares/input", "masked")
    assert sum(np.asarray(array).nbytes for array in message.arrays.values()) == WORDS.nbytes


@pytest.mark.parametrize("owner", [0, 1, 2])
@pytest.mark.parametrize("what", ["words for the zero", "words for a seed", "a seed for words", "another ring"])
def test_words_that_the_protocol_has_no_place_for_are_refused(
    owner: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, (after, before) = MemoryChannel.send, deal_owned(WORDS, owner)

    async def changed(channel: MemoryChannel, message: Message) -> int:
        arrays = dict(message.arrays)
        if what == "words for the zero":
            arrays["0b"] = np.zeros_like(WORDS)
        else:
            arrays["0a"] = {"words for a seed": WORDS, "a seed for words": after.parts[0]}.get(
                what, before.parts[0].astype(np.uint64)
            )
        return await send(channel, Message(message.kind, message.what, arrays, message.meta, message.guard))

    monkeypatch.setattr(MemoryChannel, "send", changed)
    with pytest.raises(sv.ProtocolError, match=r"expected secret share|with arrays|dealt no share of its rows"):
        _carry([after if what == "words for a seed" else before], owner)
