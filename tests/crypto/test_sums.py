"""Sealed sums are plain sums for every plan; nothing overflows; hostile bytes are refused; answers show no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto import MalformedError, OverflowRefused, WeakKeyError, generate_keypair
from securevfl_crypto.sums import SealedSums, SumHolder, SumOwner, SumPlan, hiding
from securevfl_crypto.sums.slots import pack_slots, unpack_slots

KEY = generate_keypair(1024, unsafe_small_key=True)


def plain_sums(
    values: np.ndarray, codes: np.ndarray, bins: list[int], node: np.ndarray | None = None, nodes: int = 1
) -> np.ndarray:
    """The reference: int64 (nodes, bins of all columns, integers), one addition after another."""
    out = np.zeros((nodes, sum(bins), values.shape[1]), dtype=np.int64)
    for i, row in enumerate(codes):
        k = 0 if node is None else int(node[i])
        for j, code in enumerate(row):
            if k >= 0 and code >= 0:
                out[k, sum(bins[:j]) + code] += values[i]
    return out


def totals(values: np.ndarray, node: np.ndarray | None = None, nodes: int = 1) -> np.ndarray:
    places = np.zeros(len(values), dtype=np.int64) if node is None else node
    return np.stack([values[places == k].sum(axis=0) for k in range(nodes)])


def case(seed: int, rows: int, bins: list[int], bounds: tuple[int, ...], nodes: int) -> Any:
    random = np.random.default_rng(seed)
    values = np.stack([random.integers(-b, b, rows, endpoint=True) for b in bounds], axis=1)
    values[0] = bounds  # the extremes occur
    values[-1] = [-bound for bound in bounds]
    codes = np.stack([random.integers(0, count, rows) for count in bins], axis=1)
    return values, codes, random.integers(-1, nodes, rows)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(1, 60),
    bins=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    bounds=st.lists(st.integers(1, 1 << 20), min_size=1, max_size=4).map(tuple),
    nodes=st.integers(1, 3),
    complete=st.booleans(),
)
def test_sealed_sums_are_plain_sums(
    seed: int, rows: int, bins: list[int], bounds: tuple[int, ...], nodes: int, complete: bool
) -> None:
    values, codes, node = case(seed, rows, bins, bounds, nodes)
    if not complete:
        codes[np.random.default_rng(seed).random(codes.shape) < 0.3] = -1
    right, whole = plain_sums(values, codes, bins, node, nodes), totals(values, node, nodes)
    # the holder knows the nodes
    plan = SumPlan(key_bits=1024, rows=rows, bounds=bounds)
    owner, holder = SumOwner(KEY, plan), SumHolder(KEY.public, plan)
    answer = holder.compute_sums(
        holder.load_rows(owner.encrypt_rows(values)), codes, bins, node, nodes, complete=complete
    )
    assert np.array_equal(owner.open_sums(answer, bins, whole, nodes), right)
    # the nodes are blocks of the plaintexts, and the holder does not know them
    plan = SumPlan(key_bits=1024, rows=rows, bounds=bounds, nodes=nodes)
    owner, holder = owner.with_plan(plan), holder.with_plan(plan)
    answer = holder.compute_sums(holder.load_rows(owner.encrypt_rows(values, node)), codes, bins, complete=complete)
    assert np.array_equal(owner.open_sums(answer, bins, whole), right)


def test_the_widest_sums_fit_and_fill_the_plaintext() -> None:
    """All rows at the bound, of either sign, in every slot of every block: the worst case that the widths allow."""
    plan = SumPlan(key_bits=1024, rows=9, bounds=(7, 1), nodes=85)  # 85 blocks of 12 bits: 1020 of 1022
    assert plan.block_bits == 7 + 5
    assert plan.most_nodes == plan.nodes == 85
    assert plan.groups_per_plaintext == 1
    owner, holder = SumOwner(KEY, plan), SumHolder(KEY.public, plan)
    codes = np.zeros((9, 1), dtype=np.int64)
    for sign in (1, -1):
        for block in (0, 84):
            values, node = np.full((9, 2), sign) * np.array([7, 1]), np.full(9, block)
            batch = holder.load_rows(owner.encrypt_rows(values, node))
            answer = holder.compute_sums(batch, codes, [2], complete=False)
            found = owner.open_sums(answer, [2], np.zeros((85, 2), dtype=np.int64))
            assert found[block, 0].tolist() == [63 * sign, 9 * sign]
            assert np.count_nonzero(found) == 2


def test_known_layout() -> None:
    """10 rows up to 5: sums up to 50 take 6 bits and a sign; row (−3, 2) is −3 + 2 · 2^7."""
    plan = SumPlan(key_bits=1024, rows=10, bounds=(5, 1))
    assert plan.slot_widths == (7, 5)
    assert plan.block_bits == 12
    assert plan.groups_per_plaintext == 1022 // 12
    wire = SumOwner(KEY, plan).encrypt_rows(np.array([[-3, 1], [5, -1]]))
    assert KEY.decrypt_batch(KEY.public.load_ciphertexts(wire, 2)) == [-3 + 128, 5 - 128]


def test_the_layout_of_the_credit_table() -> None:
    plan = SumPlan(key_bits=2048, rows=12887, bounds=(4096, 1024))
    assert plan.slot_widths == (27, 25)
    assert plan.most_nodes == 39


@given(st.data())
def test_slots_come_back(data: st.DataObject) -> None:
    widths = tuple(data.draw(st.lists(st.integers(1, 62), min_size=1, max_size=9)))
    rows = data.draw(
        st.lists(st.tuples(*(st.integers(-(1 << (w - 1)), (1 << (w - 1)) - 1) for w in widths)), min_size=1)
    )
    numbers = pack_slots(np.array(rows, dtype=np.int64), widths)
    for number, row in zip(numbers, rows, strict=True):
        assert number == sum(value << sum(widths[:s]) for s, value in enumerate(row))
    assert np.array_equal(unpack_slots(numbers, widths), np.array(rows))
    with pytest.raises(OverflowRefused, match="room for"):
        unpack_slots([gmpy2.mpz(1) << sum(widths)], widths)


def test_blindings_made_ahead_serve_once() -> None:
    plan = SumPlan(key_bits=1024, rows=30, bounds=(1,))
    owner = SumOwner(KEY, plan)
    owner.make_blindings(7)
    owner.make_blindings(6)
    ones = np.ones((10, 1), dtype=np.int64)
    wires = [owner.encrypt_rows(ones)]
    assert owner.blindings_in_stock == 3
    wires.append(owner.with_plan(SumPlan(key_bits=1024, rows=30, bounds=(1,), nodes=2)).encrypt_rows(ones))
    assert owner.blindings_in_stock == 0
    wires.append(owner.encrypt_rows(ones))
    assert len({row.tobytes() for wire in wires for row in wire}) == 30
    for wire in wires:
        assert KEY.decrypt_batch(KEY.public.load_ciphertexts(wire, 10)) == [1] * 10


def test_rows_of_no_node_are_fresh_encryptions_of_zero() -> None:
    owner = SumOwner(KEY, SumPlan(key_bits=1024, rows=8, bounds=(9,), nodes=2))
    wire = owner.encrypt_rows(np.full((8, 1), 9), np.full(8, -1))
    assert KEY.decrypt_batch(KEY.public.load_ciphertexts(wire, 8)) == [0] * 8
    assert len({row.tobytes() for row in wire}) == 8


def test_an_answer_is_blinded_beyond_the_order_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exponents of the blindings are 128 bits longer than n, so that what they give is uniform to 2^-64."""
    from securevfl_crypto.paillier import public_key

    drawn: list[tuple[int, int]] = []

    def exponents(count: int, bits: int) -> np.ndarray:
        drawn.append((count, bits))
        return np.zeros((count, bits // 8), dtype=np.uint8)

    plan = SumPlan(key_bits=1024, rows=40, bounds=(1,))
    holder = SumHolder(KEY.public, plan)
    batch = holder.load_rows(SumOwner(KEY, plan).encrypt_rows(np.ones((40, 1), dtype=np.int64)))
    codes = np.arange(40)[:, None] % 20
    first, second = (holder.compute_sums(batch, codes, [20]).ciphertexts for _ in range(2))
    assert not (first == second).all(axis=1).any()
    monkeypatch.setattr(public_key, "random_exponents", exponents)
    holder.compute_sums(batch, codes, [20])
    assert drawn == [(8, 1152)]


def test_an_owner_that_knows_its_randomness_cannot_confirm_a_guess() -> None:
    """The attack: with α = 0 for all rows, an answer that were not blinded would be the bare plaintext."""
    plan = SumPlan(key_bits=1024, rows=16, bounds=(1,))
    public, holder = KEY.public, SumHolder(KEY.public, plan)
    rows = public.store_ciphertexts(public.raw_batch([1] * 16))  # (1 + n) for each row: no randomness
    codes = np.arange(16)[:, None] % 2
    answer = holder.compute_sums(holder.load_rows(rows), codes, [2], complete=False)
    plaintexts = KEY.decrypt_batch(public.load_ciphertexts(answer.ciphertexts, 2))
    assert plaintexts == [8, 8]
    bare = public.store_ciphertexts(public.raw_batch(plaintexts))
    assert not (answer.ciphertexts == bare).all(axis=1).any()


@pytest.mark.parametrize("rows", [3, 60])
def test_a_row_of_jacobi_symbol_minus_one_is_refused(rows: int) -> None:
    """Two such rows: the symbol of the product of all rows is 1."""
    plan = SumPlan(key_bits=1024, rows=rows, bounds=(1,))
    public = KEY.public
    wire = np.array(SumOwner(KEY, plan).encrypt_rows(np.ones((rows, 1), dtype=np.int64)))
    odd = next(r for r in range(2, 99) if gmpy2.jacobi(r, public.n) == -1)
    cheat = public.modulus.from_ints([gmpy2.powmod(odd, public.n, public.n2)] * 2)
    wire[:2] = public.store_ciphertexts(cheat)
    with pytest.raises(MalformedError, match="Jacobi symbol"):
        SumHolder(public, plan).load_rows(wire)


def test_forty_random_subsets_have_to_have_the_right_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of symbol −1 that lies in none of 39 subsets is found by the fortieth: it passes with 2^-40."""
    rows = 48
    wire = np.array(SumOwner(KEY, SumPlan(key_bits=1024, rows=rows, bounds=(1,))).encrypt_rows(np.ones((rows, 1), int)))
    odd = next(r for r in range(2, 99) if gmpy2.jacobi(r, KEY.public.n) == -1)
    cheat = KEY.public.modulus.from_ints([gmpy2.powmod(odd, KEY.public.n, KEY.public.n2)])
    wire[-1] = KEY.public.store_ciphertexts(cheat)[0]
    asked: list[int] = []

    def last(count: int) -> bytes:
        """Subsets without the last row, but for the last subset, which has all rows."""
        asked.append(count)
        return (39 * (b"\xff" * 5 + b"\xfe") + b"\xff" * 6)[:count]

    monkeypatch.setattr(hiding, "secrets", SimpleNamespace(token_bytes=last))
    with pytest.raises(MalformedError, match="Jacobi symbol"):
        hiding.check_symbols(KEY.public, wire)
    assert asked == [40 * rows // 8]


PLAN = SumPlan(key_bits=1024, rows=4, bounds=(3, 1))
VALUES = np.array([[3, 1], [-3, -1], [0, 0], [2, 1]])
CODES = np.array([[0, 1], [1, 1], [2, 0], [0, 0]])
BINS = [3, 2]


def _answer() -> SealedSums:
    holder = SumHolder(KEY.public, PLAN)
    return holder.compute_sums(holder.load_rows(SumOwner(KEY, PLAN).encrypt_rows(VALUES)), CODES, BINS)


def _open(answer: SealedSums, bins: list[int] = BINS, nodes: int = 1) -> np.ndarray:
    return SumOwner(KEY, PLAN).open_sums(answer, bins, totals(VALUES), nodes)


def _load(change: Callable[[np.ndarray], np.ndarray]) -> Any:
    wire = np.array(SumOwner(KEY, PLAN).encrypt_rows(VALUES))
    return SumHolder(KEY.public, PLAN).load_rows(change(wire))


def _number(value: int) -> np.ndarray:
    return np.frombuffer(int(value).to_bytes(256, "little"), dtype=np.uint8)


def _with(wire: np.ndarray, value: int) -> np.ndarray:
    wire[1] = _number(value)
    return wire


HOSTILE: dict[str, Callable[[], Any]] = {
    "a row too few": lambda: _load(lambda w: w[:-1]),
    "a row too many": lambda: _load(lambda w: np.concatenate([w, w[:1]])),
    "no array": lambda: _load(lambda w: w.tobytes()),  # type: ignore[arg-type, return-value]
    "wide words": lambda: _load(lambda w: w.view(np.uint32)),
    "a short row": lambda: _load(lambda w: w[:, :-1]),
    "zero": lambda: _load(lambda w: _with(w, 0)),
    "n": lambda: _load(lambda w: _with(w, int(KEY.public.n))),
    "a multiple of a prime": lambda: _load(lambda w: _with(w, int(KEY.p) * 5)),
    "n squared": lambda: _load(lambda w: _with(w, int(KEY.public.n2))),
    "all ones": lambda: _load(lambda w: _with(w, (1 << 2048) - 1)),
    "an answer with a ciphertext too many": lambda: _open(
        SealedSums(np.concatenate([(a := _answer()).ciphertexts] * 2), a.omitted)
    ),
    "an answer without ciphertexts": lambda: _open(SealedSums((a := _answer()).ciphertexts[:0], a.omitted)),
    "an answer of zeros": lambda: _open(SealedSums(0 * (a := _answer()).ciphertexts, a.omitted)),
    "a bin left out that does not exist": lambda: _open(
        SealedSums(_answer().ciphertexts, np.array([[0, 2]], dtype=np.int32))
    ),
    "bins left out by int64": lambda: _open(SealedSums((a := _answer()).ciphertexts, a.omitted.astype(np.int64))),
    "bins left out for two nodes": lambda: _open(
        SealedSums((a := _answer()).ciphertexts, np.repeat(a.omitted, 2, axis=0))
    ),
    "no columns": lambda: _open(_answer(), []),
    "too many bins": lambda: _open(_answer(), [3, 1 << 16]),
    "an answer for another table": lambda: _open(_answer(), [9, 9]),
}


@pytest.mark.parametrize("attempt", HOSTILE.values(), ids=HOSTILE)
def test_hostile_messages_are_refused(attempt: Callable[[], Any]) -> None:
    with pytest.raises(MalformedError):
        attempt()


def test_sums_beyond_the_plan_are_refused() -> None:
    """A holder that sends what is no sum of these rows: too large, in a slot of its own or beyond all slots."""
    answer = _answer()
    packs, places = len(answer.ciphertexts), 3  # bins that are sent
    assert packs == places
    assert np.array_equal(_open(answer), plain_sums(VALUES, CODES, BINS))
    public = KEY.public
    for value in (13, -13, 5 << PLAN.slot_widths[0], 1 << PLAN.block_bits, 1 << 800):
        lie = public.store_ciphertexts(public.encrypt_batch([value] * packs))
        with pytest.raises(OverflowRefused):
            _open(SealedSums(lie, answer.omitted))


@pytest.mark.parametrize(
    ("attempt", "error", "words"),
    [
        (lambda: SumPlan(key_bits=1024, rows=0, bounds=(1,)), MalformedError, "sums of 0 rows"),
        (lambda: SumPlan(key_bits=9000, rows=1, bounds=(1,)), MalformedError, "9000 bits"),
        (lambda: SumPlan(key_bits=1024, rows=1, bounds=()), MalformedError, "one or more"),
        (lambda: SumPlan(key_bits=1024, rows=1, bounds=(0,)), MalformedError, "at least 1"),
        (lambda: SumPlan(key_bits=1024, rows=1 << 20, bounds=(1 << 42,)), OverflowRefused, "fewer bits of fixed point"),
        (lambda: SumPlan(key_bits=1024, rows=9, bounds=(7, 1), nodes=86), OverflowRefused, "has room for 1 to 85"),
        (lambda: SumOwner(KEY, SumPlan(key_bits=2048, rows=1, bounds=(1,))), MalformedError, "plan for this key"),
        (lambda: SumHolder(KEY.public, SumPlan(key_bits=2048, rows=1, bounds=(1,))), MalformedError, "plan for"),
        (lambda: SumOwner(KEY, PLAN).encrypt_rows(VALUES + 1), OverflowRefused, "the plan has ±3"),
        (lambda: SumOwner(KEY, PLAN).encrypt_rows(np.array([[0, -2]])), OverflowRefused, "in place 1"),
        (lambda: SumOwner(KEY, PLAN).encrypt_rows(np.array([[-(1 << 63), 0]])), OverflowRefused, "in place 0"),
        (lambda: SumOwner(KEY, PLAN).encrypt_rows(VALUES[:, :1]), MalformedError, "int64 \\(rows, 2\\)"),
        (lambda: SumOwner(KEY, PLAN).encrypt_rows(VALUES[:0]), MalformedError, "0 rows"),
        (
            lambda: SumOwner(KEY, PLAN).encrypt_rows(np.concatenate([VALUES] * 2)),
            MalformedError,
            "the plan has 1 to 4",
        ),
        (
            lambda: SumOwner(KEY, PLAN).encrypt_rows(VALUES, np.array([0, 0, 0, 1])),
            MalformedError,
            "the plan has −1 to 0",
        ),
        (lambda: SumOwner(KEY, PLAN).encrypt_rows(VALUES, np.array([0, 0])), MalformedError, "int64 \\(4,\\)"),
    ],
)
def test_what_is_out_of_range_is_refused_before_it_is_encrypted(
    attempt: Callable[[], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        attempt()


@pytest.mark.parametrize(
    ("codes", "node", "nodes", "words"),
    [
        (CODES + 1, None, 1, "bins from"),
        (CODES - 2, None, 1, "bins from"),
        (CODES[:3], None, 1, "bins as"),
        (CODES.astype(float), None, 1, "integers"),
        (CODES, None, 2, "give `node`"),
        (CODES, np.array([0, 1, 2, 0]), 2, "nodes from"),
        (CODES, np.array([0, 1]), 2, "nodes as"),
        (np.where(CODES == 2, -1, CODES), None, 1, "complete"),
    ],
)
def test_codes_that_do_not_fit_are_refused(codes: np.ndarray, node: np.ndarray | None, nodes: int, words: str) -> None:
    holder = SumHolder(KEY.public, PLAN)
    batch = holder.load_rows(SumOwner(KEY, PLAN).encrypt_rows(VALUES))
    with pytest.raises(MalformedError, match=words):
        holder.compute_sums(batch, codes, BINS, node, nodes)


def test_short_keys_are_refused_unless_a_test_asks_for_them() -> None:
    with pytest.raises(WeakKeyError, match="at least 2048"):
        generate_keypair(1024)


def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sealed-sums.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(code, {})  # noqa: S102 - of our own page
