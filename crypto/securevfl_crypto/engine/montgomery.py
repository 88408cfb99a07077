"""Products modulo a long odd number, one in each lane, by Montgomery's reduction (Modular multiplication without trial
division, 1985).

Numbers are [limb, lane], of L limbs below 2^b each, with R = 2^(bL) ≥ 4m. They are reduced lazily: factors below 2m
give (xy + qm)/R < (4m² + Rm)/R ≤ 2m (Walter, Montgomery exponentiation needs no final subtractions, 1999). Operands are
cut into tiles of K limbs. A kernel keeps one tile of the one operand and the K columns above it in registers, and
sweeps over the other operand; the other columns are in memory. So one kernel serves every modulus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from securevfl_crypto.engine.columns import Columns, accumulate
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs

__all__ = ["CONTEXT", "call_multiply", "call_square", "multiply", "reduction", "square"]

CONTEXT = "ptr noalias %m, i64 %inverse, i64 %tiles, ptr noalias %t"
"""The modulus' limbs, −1/m modulo 2^b, tiles of a number, and 2L vectors for columns."""
_PASSED = "ptr %m", "i64 %inverse", "i64 %tiles", "ptr %t"


def call_multiply(f: Function, out: str, a: str, b: str) -> None:
    """out = a b / R; out may be a or b."""
    f.call("multiply", f"ptr {out}", f"ptr {a}", f"ptr {b}", *_PASSED)


def call_square(f: Function, out: str, a: str) -> None:
    """out = a² / R; out may be a."""
    f.call("square", f"ptr {out}", f"ptr {a}", *_PASSED)


def call_reduction(f: Function, out: str) -> None:
    """out = columns / R."""
    f.call("reduction", f"ptr {out}", *_PASSED)


def _add(f: Function, index: str, more: str | int) -> str:
    return f.scalar(f"add i64 {index}, {more}")


def _tile(
    f: Function,
    limbs: Limbs,
    a: Sequence[Vec],
    columns: Sequence[Vec],
    step: Callable[[int], tuple[Vec, Vec]],
    done: Callable[[int, Vec], None],
    wanted: Callable[[int, int, int], bool] = lambda i, j, half: True,
) -> list[Vec]:
    """Adds the products of two tiles; returns the K columns above.

    Args:
        a: one tile.
        columns: K of them, from the sum of the tiles' places on.
        step: limb j of the other tile, and column K + j.
        done: takes column j when it is complete for this tile.
        wanted: limb of the one, of the other, and half: whether to add this product.
    """
    window = list(columns)
    for j in range(limbs.tile):
        b, above = step(j)
        window.append(above)
        for half in range(limbs.halves):
            for i in range(limbs.tile):
                if wanted(i, j, half):
                    window[i + half] = limbs.add(f, window[i + half], a[i], b, half)
        done(j, window.pop(0))
    return window


def _sweep(
    f: Function,
    limbs: Limbs,
    columns: Columns,
    a: Sequence[Vec],
    window: list[Vec],
    place: str,
    count: str,
    limb: Callable[[str, int], Vec],
    slack: int = 0,
) -> list[Vec]:
    """`_tile` for `count` tiles of the other operand, at least one; the first one's columns begin at `place`.

    Args:
        limb: limb j of the other operand's tile that begins this many limbs on.
        slack: what columns may have gained besides products.
    """

    def body(index: str, window: list[Vec]) -> list[Vec]:
        first = f.scalar(f"mul i64 {index}, {limbs.tile}")
        here = _add(f, place, first)
        return _tile(
            f,
            limbs,
            a,
            window,
            lambda j: (limb(first, j), columns.load(_add(f, here, limbs.tile + j))),
            lambda j, column: columns.store(column, _add(f, here, j)),
        )

    bounds = [columns.grown(limbs.gained(place) + slack) for place in range(limbs.tile)]
    return f.loop(count, body, list(zip(window, bounds, strict=True)))


def _clear(f: Function, limbs: Limbs, tiles: str) -> None:
    def body(index: str, _: list[Vec]) -> list[Vec]:
        first = f.scalar(f"mul i64 {index}, {limbs.tile}")
        for k in range(limbs.tile):
            f.store(f.constant(0), "%t", _add(f, first, k))
        return []

    f.loop(tiles, body)


def load_tile(f: Function, limbs: Limbs, pointer: str, first: str) -> list[Vec]:
    """K limbs of a number, from limb `first` on."""
    return [f.load(pointer, _add(f, first, k), limbs.top) for k in range(limbs.tile)]


def _length(f: Function, limbs: Limbs) -> str:
    return f.scalar(f"mul i64 %tiles, {limbs.tile}")


def multiply(f: Function, limbs: Limbs) -> None:
    """``(out, a, b, context)``: ab/R, below 2m; out may be an operand."""
    tile, most = limbs.tile, limbs.most // limbs.tile
    _clear(f, limbs, f.scalar("shl i64 %tiles, 1"))
    length = _length(f, limbs)

    def rows(index: str, columns: Columns) -> None:
        row = f.scalar(f"mul i64 {index}, {tile}")
        a = load_tile(f, limbs, "%a", row)
        window = [columns.load(_add(f, row, k)) for k in range(tile)]
        window = _sweep(
            f, limbs, columns, a, window, row, "%tiles", lambda first, j: f.load("%b", _add(f, first, j), limbs.top)
        )
        for k in range(tile):
            columns.store(window[k], _add(f, _add(f, row, length), k))

    growth = limbs.halves * tile * limbs.product
    _reduce(f, limbs, accumulate(f, "%t", "%tiles", most, 0, growth, rows))


def square(f: Function, limbs: Limbs) -> None:
    """``(out, a, context)``: a²/R, below 2m, for two tiles or more; out may be a.

    Products of different limbs once, then doubled, and squares of limbs.
    """
    tile, most = limbs.tile, limbs.most // limbs.tile
    _clear(f, limbs, f.scalar("shl i64 %tiles, 1"))
    length, last = _length(f, limbs), f.scalar("sub i64 %tiles, 1")

    def triangle(columns: Columns, row: str) -> tuple[list[Vec], list[Vec]]:
        """Pairs of limbs of one tile."""
        a = load_tile(f, limbs, "%a", row)
        place = f.scalar(f"shl i64 {row}, 1")
        window = _tile(
            f,
            limbs,
            a,
            [columns.load(_add(f, place, k)) for k in range(tile)],
            lambda j: (a[j], columns.load(_add(f, place, tile + j))),
            lambda j, column: columns.store(column, _add(f, place, j)),
            lambda i, j, _: i < j,
        )
        return a, window

    def rows(index: str, columns: Columns) -> None:
        row = f.scalar(f"mul i64 {index}, {tile}")
        a, window = triangle(columns, row)
        following = _add(f, row, tile)
        base = f.scalar(f"getelementptr {f.type}, ptr %a, i64 {following}")
        window = _sweep(
            f,
            limbs,
            columns,
            a,
            window,
            _add(f, row, following),
            f.scalar(f"sub i64 {last}, {index}"),
            lambda first, j: f.load(base, _add(f, first, j), limbs.top),
        )
        for k in range(tile):
            columns.store(window[k], _add(f, _add(f, row, length), k))

    def final(_: str, columns: Columns) -> None:
        row = f.scalar(f"mul i64 {last}, {tile}")
        window = triangle(columns, row)[1]
        for k in range(tile):
            columns.store(window[k], _add(f, _add(f, row, length), k))

    growth = limbs.halves * tile * limbs.product
    bound = accumulate(f, "%t", last, most - 1, 0, growth, rows)
    bound = accumulate(f, "%t", 1, 1, bound, growth, final)
    _reduce(f, limbs, _double(f, limbs, bound))


def _double(f: Function, limbs: Limbs, bound: int) -> int:
    """Doubles all columns, adds the squares of limbs, and returns the bound after it."""
    top = 0

    def body(index: str, _: list[Vec]) -> list[Vec]:
        nonlocal top
        row = f.scalar(f"mul i64 {index}, {limbs.tile}")
        place = f.scalar(f"shl i64 {row}, 1")
        for k, a in enumerate(load_tile(f, limbs, "%a", row)):
            for half in range(2):
                where = _add(f, place, 2 * k + half)
                column = f.load("%t", where, bound)
                column = f.add(column, column)
                if half < limbs.halves:
                    column = limbs.add(f, column, a, a, half)
                top = max(top, column.top)
                f.store(column, "%t", where)
        return []

    f.loop("%tiles", body)
    return top


def reduction(f: Function, limbs: Limbs) -> None:
    """``(out, context)``: the columns, 2L limbs, divided by R modulo m; below 2m if they are below R m."""
    _reduce(f, limbs, limbs.top)


def _reduce(f: Function, limbs: Limbs, start: int) -> None:
    """Columns of at most `start` to `out`: adds multiples of m that clear the lower half, and carries the upper."""
    tile, most = limbs.tile, limbs.most // limbs.tile
    length = _length(f, limbs)
    inverse = f.splat("%inverse", limbs.top)
    carries = 1 << (64 - limbs.bits)
    rest, upper = f.scalar("sub i64 %tiles, 1"), f.offset("%m", str(tile))

    def modulus(first: str, j: int) -> Vec:
        return f.broadcast_below(upper, _add(f, first, j), limbs.top)

    def rows(index: str, columns: Columns) -> None:
        row = f.scalar(f"mul i64 {index}, {tile}")
        low = [f.broadcast_below("%m", str(t), limbs.top) for t in range(tile)]
        window = [columns.load(_add(f, row, k)) for k in range(tile)]
        q: list[Vec] = []
        for i in range(tile):
            q.append(limbs.quotient(f, window[i], inverse))
            for half in range(limbs.halves):
                for t in range(tile - half - i):
                    window[i + t + half] = limbs.add(f, window[i + t + half], q[i], low[t], half)
            carry = f.shift_right(window[i], limbs.bits)
            if i + 1 < tile:
                window[i + 1] = f.add(window[i + 1], carry)
        above = [columns.load(_add(f, row, tile + k)) for k in range(tile)]
        above[0] = f.add(above[0], carry)
        for t in range(tile):
            for half in range(limbs.halves):
                for i in range(tile):
                    place = i + t + half - tile
                    if place >= 0:
                        above[place] = limbs.add(f, above[place], q[i], low[t], half)
        above = _sweep(f, limbs, columns, q, above, _add(f, row, tile), rest, modulus, carries)
        for k in range(tile):
            columns.store(above[k], _add(f, _add(f, row, length), k))

    growth = limbs.halves * tile * limbs.product + carries
    bound = accumulate(f, "%t", "%tiles", most, start, growth, rows)
    half = f.scalar(f"getelementptr {f.type}, ptr %t, i64 {length}")

    def settle(index: str, carried: list[Vec]) -> list[Vec]:
        first = f.scalar(f"mul i64 {index}, {tile}")
        carry = carried[0]
        for k in range(tile):
            here = _add(f, first, k)
            value = f.add(f.load(half, here, bound), carry)
            carry = f.shift_right(value, limbs.bits)
            f.store(f.mask(value, limbs.bits), "%out", here)
        return [carry]

    f.loop("%tiles", settle, [(f.constant(0), carries)])
