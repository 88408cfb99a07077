"""Sums whose bound grows from round to round: what the induction refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from securevfl_crypto.engine import BoundError
from securevfl_crypto.engine.columns import Columns, accumulate_columns
from securevfl_crypto.engine.compiled_long import long_text
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.emitter import MASK52, Function, Gain, Vec
from securevfl_crypto.engine.limbs import MOST_BITS, limbs_for

WORD = 1 << 64


def _function() -> Function:
    return Function("f", "ptr %t, ptr %out, i64 %n", 4)


def _vec(top: int) -> Vec:
    return Vec("%x", 0, top)


def _rounds(body: Callable[[Function, Columns], None], most: int = 10, start: int = 0, growth: int = 100) -> int:
    f = _function()
    return accumulate_columns(f, "%t", "%n", most, start, growth, lambda _, columns: body(f, columns))


def test_the_bound_grows_with_the_rounds() -> None:
    def body(f: Function, columns: Columns) -> None:
        column = columns.load("0")
        assert column.top == 7 + 9 * 100  # as before the last round
        columns.store(f.add(f.add(column, _vec(60)), _vec(40)), "0")

    assert _rounds(body, start=7) == 7 + 10 * 100


def test_products_count_as_growth() -> None:
    def body(f: Function, columns: Columns) -> None:
        column = f.madd_high(f.madd_low(columns.load("0"), _vec(10), _vec(5)), _vec(MASK52), _vec(51))
        assert (column.origin, column.over) == (columns, 100)
        columns.store(f.add(_vec(0), column), "0")

    _rounds(body)


REFUSED: dict[str, Callable[[Function, Columns], None]] = {
    "a column that grows too fast": lambda f, c: c.store(f.add(c.load("0"), _vec(101)), "0"),
    "a product too much": lambda f, c: c.store(f.madd_low(c.load("0"), _vec(101), _vec(1)), "0"),
    "a value that is no column": lambda f, c: c.store(_vec(1), "0"),
    "the sum of two columns": lambda f, c: c.store(f.add(c.load("0"), c.load("1")), "0"),
    "half a column": lambda f, c: c.store(f.shift_right(c.load("0"), 1), "0"),
    "a column of other sums": lambda f, c: c.store(Columns(f, "%t", 900, 100).load("0"), "0"),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_breaks_the_induction_is_refused(body: Callable[[Function, Columns], None]) -> None:
    with pytest.raises(BoundError):
        _rounds(body)


def test_the_last_round_must_fit() -> None:
    def body(f: Function, columns: Columns) -> None:
        columns.store(f.add(columns.load("0"), _vec(1 << 60)), "0")

    assert _rounds(body, most=15, growth=1 << 60) == 15 << 60
    with pytest.raises(BoundError, match="outside 64 bits"):
        _rounds(body, most=16, growth=1 << 60)


def test_a_round_ends() -> None:
    kept: list[Columns] = []
    _rounds(lambda _, columns: kept.append(columns))
    with pytest.raises(BoundError, match="outside its round"):
        kept[0].load("0")
    with pytest.raises(BoundError, match="outside its round"):
        kept[0].store(_vec(1), "0")


def test_a_loop_within_a_round_keeps_what_it_carries() -> None:
    def loop(over: int, gain: int, *, fresh: bool = False) -> Callable[[Function, Columns], None]:
        def body(f: Function, columns: Columns) -> None:
            def inner(_: str, carried: list[Vec]) -> list[Vec]:
                assert carried[0].over == over
                columns.store(f.add(carried[0], _vec(10)), "0")
                return [_vec(1) if fresh else f.add(columns.load("1"), _vec(gain))]

            last = f.loop(3, inner, [(columns.load("0"), columns.grow_bound(over))])
            columns.store(last[0], "2")

        return body

    _rounds(loop(50, 50))
    with pytest.raises(BoundError, match="gains"):
        _rounds(loop(50, 51))  # more than the loop declares
    with pytest.raises(BoundError, match="gains"):
        _rounds(loop(91, 91))  # more than the round allows, with what the loop adds
    with pytest.raises(BoundError, match="in a loop"):
        _rounds(loop(50, 50, fresh=True))


def test_a_loop_that_may_not_run_carries_nothing() -> None:
    f = _function()
    f.loop("%n", lambda _, __: [], perhaps=True)
    assert "icmp ugt i64 %n, 0" in f.to_text()
    with pytest.raises(BoundError, match="may not run"):
        f.loop("%n", lambda _, carried: carried, [(_vec(1), 1)], perhaps=True)
    assert isinstance(Columns(f, "%t", 5, 1).grow_bound(3), Gain)


@pytest.mark.parametrize("path", [path for path in VECTOR_PATHS if path.has_long_numbers], ids=lambda path: path.name)
def test_all_kernels_can_be_emitted(path: VectorPath) -> None:
    limbs = limbs_for(path)
    assert limbs.bits * limbs.most >= MOST_BITS + 2
    assert limbs.most % limbs.tile == 0
    text = long_text(limbs, path.lanes)
    assert text.count("define void") == text.count("ret void")
