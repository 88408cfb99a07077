"""Long numbers in tiles: products and squares, added to columns.

Operands are cut into tiles of K limbs. A kernel keeps one tile of one operand and the K columns above it in registers
and sweeps over the other operand; the other columns stay in memory. One kernel thus serves moduli of every length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from securevfl_crypto.engine.columns import Columns, accumulate_columns
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs

__all__ = [
    "Row",
    "add_counters",
    "add_products",
    "clear_columns",
    "left_factors",
    "load_right",
    "load_tile",
    "product_rows",
    "right_factors",
    "square_columns",
    "sweep_tiles",
]


def add_counters(f: Function, index: str, more: str | int) -> str:
    """The sum of two counters."""
    return f.emit_scalar(f"add i64 {index}, {more}")


def _multiply_tiles(
    f: Function,
    limbs: Limbs,
    a: Sequence[Any],
    columns: Sequence[Vec],
    step: Callable[[int], tuple[Any, Vec]],
    done: Callable[[int, Vec], None],
    wanted: Callable[[int], int | None] = lambda j: None,
) -> list[Vec]:
    """Adds the products of two tiles; returns the K columns above.

    Args:
        a: one tile, as left factors.
        columns: K of them, from the sum of the tiles' places on.
        step: limb j of the other tile, a right factor, and column K + j.
        done: takes column j when it is complete for this tile.
        wanted: how many limbs of the one to multiply by limb j of the other; None: all.
    """
    window = list(columns)
    for j in range(limbs.tile):
        b, above = step(j)
        window.append(above)
        limbs.add_row(f, window, 0, a[: wanted(j)], b)
        done(j, window.pop(0))
    return window


def sweep_tiles(
    f: Function,
    limbs: Limbs,
    columns: Columns,
    a: Sequence[Any],
    window: list[Vec],
    place: str,
    count: str,
    limb: Callable[[str, int], Any],
    slack: int = 0,
) -> list[Vec]:
    """`_multiply_tiles` for `count` tiles of the other operand, at least one; the first one's columns begin at `place`.

    Args:
        limb: limb j of the other operand's tile that begins this many limbs on, a right factor.
        slack: what columns may have gained besides products.
    """

    def body(index: str, window: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
        here = add_counters(f, place, first)
        return _multiply_tiles(
            f,
            limbs,
            a,
            window,
            lambda j: (limb(first, j), columns.load(add_counters(f, here, limbs.tile + j))),
            lambda j, column: columns.store(column, add_counters(f, here, j)),
        )

    carried = []
    for k, column in enumerate(window):
        bias = limbs.column_bias(k)
        carried.append((f.set_offset(column, bias), columns.grow_bound(limbs.column_growth(k) + slack, bias)))
    return f.loop(count, body, carried)


@dataclass(frozen=True)
class Row:
    """A tile of one operand and all of the other.

    Attributes:
        a: the tile, as left factors.
        place: column of the lowest product.
        limb: limb j of the other operand's tile that begins this many limbs on, a right factor.
    """

    a: Sequence[Any]
    place: str
    limb: Callable[[str, int], Any]


def clear_columns(f: Function, limbs: Limbs, t: str, tiles: str) -> None:
    """Set `tiles` tiles of columns to 0."""

    def body(index: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
        for k in range(limbs.tile):
            f.store(f.constant(0), t, add_counters(f, first, k))
        return []

    f.loop(tiles, body)


def load_tile(f: Function, limbs: Limbs, pointer: str, first: str) -> list[Vec]:
    """K limbs of a number, from limb `first` on."""
    return [f.load(pointer, add_counters(f, first, k), limbs.top) for k in range(limbs.tile)]


def right_factors(f: Function, limbs: Limbs, pointer: str, tiles: str, scratch: str) -> str:
    """The address of a number's limbs as words of right factors: its own, or `scratch`, to which they are written."""
    if not limbs.by_doubles:
        return pointer

    def body(index: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
        for k, limb in enumerate(load_tile(f, limbs, pointer, first)):
            f.store(limbs.right_word(f, limb), scratch, add_counters(f, first, k))
        return []

    f.loop(tiles, body)
    return scratch


def load_right(f: Function, limbs: Limbs, pointer: str, index: str) -> Any:
    """A right factor from its word."""
    return limbs.read_right(f, f.load(pointer, index))


def left_factors(f: Function, limbs: Limbs, tile: Sequence[Vec]) -> list[Any]:
    """The limbs of a tile as left factors."""
    return [limbs.left(f, limb) for limb in tile]


def product_rows(f: Function, limbs: Limbs, a: str, b: str) -> Callable[[str], Row]:
    """Rows of a · b; b as `right_factors`."""

    def row(index: str) -> Row:
        place = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
        return Row(
            left_factors(f, limbs, load_tile(f, limbs, a, place)),
            place,
            lambda first, j: load_right(f, limbs, b, add_counters(f, first, j)),
        )

    return row


def add_products(
    f: Function,
    limbs: Limbs,
    t: str,
    tiles: str,
    row: Callable[[str], Row],
    start: int,
    rounds: str = "",
    sums: int = 1,
) -> int:
    """Adds products to columns at `t`, each at most `start`; returns the bound after it.

    Args:
        tiles: of the operand that rows sweep over.
        row: takes the round.
        rounds: how many rows, as many as tiles unless given.
        sums: products of two numbers that these rows make up.
    """
    length = f.emit_scalar(f"mul i64 {tiles}, {limbs.tile}")

    def one(index: str, columns: Columns) -> None:
        this = row(index)
        window = [columns.load(add_counters(f, this.place, k)) for k in range(limbs.tile)]
        window = sweep_tiles(f, limbs, columns, this.a, window, this.place, tiles, this.limb)
        for k in range(limbs.tile):
            columns.store(window[k], add_counters(f, add_counters(f, this.place, length), k))

    most = sums * (limbs.most // limbs.tile)
    return accumulate_columns(f, t, rounds or tiles, most, start, limbs.tile_growth, one)


def square_columns(f: Function, limbs: Limbs, t: str, tiles: str, right: str) -> int:
    """Adds the square of `%a`, of two tiles or more, to columns that are 0; returns the bound after it.

    `right` has its `right_factors`.

    Products of different limbs once, then doubled, and squares of limbs.
    """
    tile, most = limbs.tile, limbs.most // limbs.tile
    length, last = f.emit_scalar(f"mul i64 {tiles}, {tile}"), f.emit_scalar(f"sub i64 {tiles}, 1")

    def triangle(columns: Columns, row: str) -> tuple[list[Any], list[Vec]]:
        """Pairs of limbs of one tile."""
        a = left_factors(f, limbs, load_tile(f, limbs, "%a", row))
        place = f.emit_scalar(f"shl i64 {row}, 1")
        window = _multiply_tiles(
            f,
            limbs,
            a,
            [columns.load(add_counters(f, place, k)) for k in range(tile)],
            lambda j: (
                load_right(f, limbs, right, add_counters(f, row, j)),
                columns.load(add_counters(f, place, tile + j)),
            ),
            lambda j, column: columns.store(column, add_counters(f, place, j)),
            lambda j: j,
        )
        return a, window

    def rows(index: str, columns: Columns) -> None:
        row = f.emit_scalar(f"mul i64 {index}, {tile}")
        a, window = triangle(columns, row)
        following = add_counters(f, row, tile)
        base = f.emit_scalar(f"getelementptr {f.type}, ptr {right}, i64 {following}")
        window = sweep_tiles(
            f,
            limbs,
            columns,
            a,
            window,
            add_counters(f, row, following),
            f.emit_scalar(f"sub i64 {last}, {index}"),
            lambda first, j: load_right(f, limbs, base, add_counters(f, first, j)),
        )
        for k in range(tile):
            columns.store(window[k], add_counters(f, add_counters(f, row, length), k))

    def final(_: str, columns: Columns) -> None:
        row = f.emit_scalar(f"mul i64 {last}, {tile}")
        window = triangle(columns, row)[1]
        for k in range(tile):
            columns.store(window[k], add_counters(f, add_counters(f, row, length), k))

    growth = limbs.tile_growth
    bound = accumulate_columns(f, t, last, most - 1, 0, growth, rows)
    return _double_columns(f, limbs, t, tiles, right, accumulate_columns(f, t, 1, 1, bound, growth, final))


def _double_columns(f: Function, limbs: Limbs, t: str, tiles: str, right: str, bound: int) -> int:
    """Doubles all columns, adds the squares of limbs, and returns the bound after it."""
    top = 0

    def body(index: str, _: list[Vec]) -> list[Vec]:
        nonlocal top
        row = f.emit_scalar(f"mul i64 {index}, {limbs.tile}")
        place = f.emit_scalar(f"shl i64 {row}, 1")
        for k, a in enumerate(load_tile(f, limbs, "%a", row)):
            where = [add_counters(f, place, 2 * k + half) for half in range(2)]
            columns = [f.load(t, at, bound) for at in where]
            columns = [f.add(column, column) for column in columns]
            limbs.add_row(f, columns, 0, [limbs.left(f, a)], load_right(f, limbs, right, add_counters(f, row, k)))
            for at, column in zip(where, columns, strict=True):
                top = max(top, column.top)
                f.store(f.set_offset(column), t, at)
        return []

    f.loop(tiles, body)
    return top
