"""Products modulo the square of an odd number n, on halves: five products of half length where there were eight.

A number modulo n² is a pair a0 + a1 n of H limbs each, of 2^b, with R = 2^(bH) ≥ 16n; in memory a1 follows a0, so that
pairs are moved as numbers of 2H limbs. A product is made by Montgomery's reduction modulo n (1985), whose quotient is
not thrown away. With a0 b0 + q n = t R,

    a b / R ≡ t + n · (a0 b1 + a1 b0 − q) / R    (mod n²),

since a1 b1 n² vanishes: t is the lower half, and a second reduction modulo n gives the upper one. To keep columns from
being negative, C − q is added instead of −q: C is the least multiple of n that is R − 1 or more, below R + n, written
with limbs from 2^b − 1 to 2 (2^b − 1), each at least q's.

Bounds: halves are below 3n. Then t < (9n² + Rn)/R ≤ 25n/16, and the upper half is below (18n² + C + Rn)/R
< 18n/16 + 2 + n < 3n. That columns do not overflow is proved as they are emitted.

`%m` holds the H limbs of n, then those of C; `%inverse` is −1/n modulo 2^b; `%tiles` counts those of a pair; `%t` has
room for 6H vectors: 2H columns of each reduction, and a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from securevfl_crypto.engine import rows
from securevfl_crypto.engine.conversions import subtract_once
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs
from securevfl_crypto.engine.reductions import reduce_columns, settle_columns, tile_address
from securevfl_crypto.engine.tiles import (
    Row,
    add_counters,
    add_products,
    clear_columns,
    left_factors,
    load_right,
    load_tile,
    product_rows,
    right_factors,
    square_columns,
)

__all__ = ["emit_pair_entering", "emit_pair_leaving", "emit_pair_multiplying", "emit_pair_squaring"]


class _Halves:
    """Names of what all kernels here compute with."""

    def __init__(self, f: Function, limbs: Limbs) -> None:
        self.tiles = f.emit_scalar("lshr i64 %tiles, 1")
        self.length = f.emit_scalar(f"mul i64 {self.tiles}, {limbs.tile}")
        self.high = f.emit_scalar(
            f"getelementptr {f.type}, ptr %t, i64 {f.emit_scalar(f'mul i64 %tiles, {limbs.tile}')}"
        )
        """The columns of the upper half; those of the lower one are at `%t`."""
        self.scratch = tile_address(f, limbs, self.high, "%tiles")
        """Room for a pair."""


def _reduce_lower_half(
    f: Function, limbs: Limbs, half: _Halves, start: int, more: Callable[[str], Vec] | None = None
) -> tuple[int, int]:
    """Reduces the lower half's columns, of at most `start`, begins the upper half's with C − q; returns the bounds.

    Args:
        more: a limb to add to that, by its number.
    """
    negative, top = f.offset("%m", half.length), 0

    def take(row: str, q: list[Vec]) -> None:
        nonlocal top
        for k, digit in enumerate(q):
            here = add_counters(f, row, k)
            least = replace(f.broadcast_below(negative, here, 2 * limbs.top), low=limbs.top)
            value = f.sub(least, f.mask(digit, limbs.bits))
            value = f.add(value, more(here)) if more else value
            top = max(top, value.top)
            f.store(value, half.high, here)

    bound = reduce_columns(f, limbs, "%t", half.tiles, start, take)
    clear_columns(f, limbs, tile_address(f, limbs, half.high, half.tiles), half.tiles)
    return bound, top


def _store_halves(f: Function, limbs: Limbs, half: _Halves, out: str, lower: int, start: int) -> None:
    """Both halves to `out`; the lower one is reduced, to columns of at most `lower`, the upper one is not."""
    bound = reduce_columns(f, limbs, half.high, half.tiles, start)
    settle_columns(f, limbs, out, tile_address(f, limbs, "%t", half.tiles), half.tiles, lower)
    above = tile_address(f, limbs, out, half.tiles)
    settle_columns(f, limbs, above, tile_address(f, limbs, half.high, half.tiles), half.tiles, bound)


def _add_cross_products(f: Function, limbs: Limbs, half: _Halves, t: str, a: str, b: str, start: int) -> int:
    """Adds a0 b1 + a1 b0 to columns of at most `start`, b as `right_factors`; returns the bound after it."""
    above = tile_address(f, limbs, b, half.tiles)

    def row(index: str) -> Row:
        place = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
        second = f.emit_scalar(f"icmp uge i64 {index}, {half.tiles}")
        other = f.emit_scalar(f"select i1 {second}, ptr {b}, ptr {above}")
        column = f.emit_scalar(f"sub i64 {place}, {f.emit_scalar(f'select i1 {second}, i64 {half.length}, i64 0')}")
        tile = load_tile(f, limbs, a, place)
        return Row(
            left_factors(f, limbs, tile),
            column,
            lambda first, j: load_right(f, limbs, other, add_counters(f, first, j)),
        )

    return add_products(f, limbs, t, half.tiles, row, start, rounds="%tiles", sums=2)


def emit_pair_multiplying(f: Function, limbs: Limbs) -> None:
    """``(out, a, b, context)``: ab/R; out may be an operand."""
    half = _Halves(f, limbs)
    clear_columns(f, limbs, "%t", "%tiles")
    b = right_factors(f, limbs, "%b", "%tiles", half.scratch)
    bound = add_products(f, limbs, "%t", half.tiles, product_rows(f, limbs, "%a", b), 0)
    lower, start = _reduce_lower_half(f, limbs, half, bound)
    _store_halves(f, limbs, half, "%out", lower, _add_cross_products(f, limbs, half, half.high, "%a", b, start))


def emit_pair_squaring(f: Function, limbs: Limbs) -> None:
    """``(out, a, context)``: a²/R, for halves of two tiles or more; out may be a."""
    half = _Halves(f, limbs)
    clear_columns(f, limbs, "%t", "%tiles")
    right = right_factors(f, limbs, "%a", half.tiles, half.scratch)
    lower, start = _reduce_lower_half(f, limbs, half, square_columns(f, limbs, "%t", half.tiles, right))
    above = tile_address(f, limbs, "%a", half.tiles)

    def row(index: str) -> Row:
        # Limbs of 2 a1. Before the first stands the last of a0 < 3R/16, whose uppermost bit is 0.
        place = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
        before = [f.load(above, add_counters(f, place, -1), limbs.top), *load_tile(f, limbs, above, place)]
        tile = []
        for k in range(limbs.tile):
            twice = f.mask(f.shift_left(before[k + 1], 1), limbs.bits)
            tile.append(f.bitwise("or", twice, f.shift_right(before[k], limbs.bits - 1)))
        return Row(
            left_factors(f, limbs, tile), place, lambda first, j: load_right(f, limbs, right, add_counters(f, first, j))
        )

    bound = add_products(f, limbs, half.high, half.tiles, row, start)
    _store_halves(f, limbs, half, "%out", lower, bound)


def emit_pair_entering(f: Function, limbs: Limbs) -> None:
    """``(out, a, constants, ...)``: numbers below n², in 2H limbs, to pairs that stand for their multiples by R.

    A number is a0 + a1 R, with a0 < R and a1 < n²/R ≤ n/16. With pairs (d0, d1) of R² and (e0, e1) of R³ modulo n²,
    below n, it becomes (a0 d0 + a1 e0) + (a0 d1 + a1 e1) n, divided by R: halves below 2n + n/16 + 2. `constants` holds
    e0, d0, e1, d1, of H vectors each.
    """
    step, half = rows.row_stride(f, limbs), _Halves(f, limbs)
    second = tile_address(f, limbs, "%constants", "%tiles")

    def body(block: str, _: list[Vec]) -> list[Vec]:
        place, source = rows.block_address(f, "%out", block, step), rows.block_address(f, "%a", block, step)
        clear_columns(f, limbs, "%t", "%tiles")
        first = right_factors(f, limbs, "%constants", "%tiles", half.scratch)
        lower, start = _reduce_lower_half(f, limbs, half, _add_cross_products(f, limbs, half, "%t", source, first, 0))
        other = right_factors(f, limbs, second, "%tiles", half.scratch)
        bound = _add_cross_products(f, limbs, half, half.high, source, other, start)
        _store_halves(f, limbs, half, place, lower, bound)
        return []

    f.loop("%blocks", body)


def emit_pair_leaving(f: Function, limbs: Limbs) -> None:
    """``(out, a, complement, ...)``: the numbers that pairs stand for, divided by R, from 0 to n² − 1, in 2H limbs.

    `complement` holds the limbs of R − n; out is not a. The product with the pair (1, 0) has a lower half t ≤ n, and
    an upper half u ≤ n + 1: if t is n, it becomes 0 and u one more; then n is taken from u if it is not below it.
    """
    step, half = rows.row_stride(f, limbs), _Halves(f, limbs)

    def body(block: str, _: list[Vec]) -> list[Vec]:
        source, place = rows.block_address(f, "%a", block, step), rows.block_address(f, "%out", block, step)
        above = tile_address(f, limbs, source, half.tiles)

        def fill(index: str, _: list[Vec]) -> list[Vec]:
            f.store(f.load(source, index, limbs.top), "%t", index)
            f.store(f.constant(0), "%t", add_counters(f, index, half.length))
            return []

        f.loop(half.length, fill)
        lower, start = _reduce_lower_half(f, limbs, half, limbs.top, lambda limb: f.load(above, limb, limbs.top))
        t, u = (tile_address(f, limbs, columns, half.tiles) for columns in ("%t", half.high))
        settle_columns(f, limbs, t, t, half.tiles, lower)
        settle_columns(f, limbs, u, u, half.tiles, reduce_columns(f, limbs, half.high, half.tiles, start))
        one = subtract_once(f, limbs, "%t", t, half.length, f.constant(0))
        subtract_once(f, limbs, u, u, half.length, one)
        clear_columns(f, limbs, t, half.tiles)

        def row(index: str) -> Row:
            first = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
            tile = left_factors(f, limbs, load_tile(f, limbs, u, first))
            return Row(tile, first, lambda at, j: limbs.read_right(f, f.broadcast("%m", add_counters(f, at, j))))

        bound = add_products(f, limbs, "%t", half.tiles, row, limbs.top)
        settle_columns(f, limbs, place, "%t", "%tiles", bound)
        return []

    f.loop("%blocks", body)
