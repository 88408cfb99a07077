"""Columns to numbers: Montgomery's reduction (Modular multiplication without trial division, 1985), and carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from securevfl_crypto.engine.columns import Columns, accumulate_columns
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs
from securevfl_crypto.engine.tiles import add_counters, sweep_tiles

__all__ = ["reduce_columns", "settle_columns", "tile_address"]


def tile_address(f: Function, limbs: Limbs, t: str, tiles: str) -> str:
    """The address `tiles` tiles after t."""
    return f.emit_scalar(f"getelementptr {f.type}, ptr {t}, i64 {f.emit_scalar(f'mul i64 {tiles}, {limbs.tile}')}")


def reduce_columns(
    f: Function,
    limbs: Limbs,
    t: str,
    tiles: str,
    start: int,
    take: Callable[[str, list[Vec]], None] = lambda row, q: None,
) -> int:
    """Clears the lower half of columns of at most `start` by adding q m; returns the bound of the upper half.

    Args:
        tiles: of the modulus, two or more.
        take: takes the limbs of q from one on, a tile of them: columns modulo 2^b.
    """
    tile, most = limbs.tile, limbs.most // limbs.tile
    length = f.emit_scalar(f"mul i64 {tiles}, {tile}")
    inverse = limbs.read_right(f, f.splat_scalar("%inverse", (1 << 64) - 1))
    carries = 1 << (64 - limbs.bits)
    rest, above_first = f.emit_scalar(f"sub i64 {tiles}, 1"), f.offset("%m", str(tile))

    def modulus(first: str, j: int) -> Any:
        return limbs.read_right(f, f.broadcast(above_first, add_counters(f, first, j)))

    def rows(index: str, columns: Columns) -> None:
        row = f.emit_scalar(f"mul i64 {index}, {tile}")
        low = [limbs.read_right(f, f.broadcast("%m", str(k))) for k in range(tile)]
        window = [columns.load(add_counters(f, row, k)) for k in range(2 * tile)]
        q, digits = [], []
        for i in range(tile):
            digit, factor = limbs.reduction_digit(f, window[i], inverse)
            digits.append(digit)
            q.append(factor)
            # The digit makes the column a multiple of 2^b: the least one that is not below it.
            carry = f.shift_right(f.set_offset(f.add(window[i], f.constant(limbs.top))), limbs.bits)
            limbs.add_row(f, window, i, low[: tile - i], factor)
            window[i + 1] = f.add(window[i + 1], carry)
        take(row, digits)
        for i in range(1, tile):
            limbs.add_row(f, window, tile, low[tile - i :], q[i])
        above = sweep_tiles(f, limbs, columns, q, window[tile:], add_counters(f, row, tile), rest, modulus, carries)
        for k in range(tile):
            columns.store(above[k], add_counters(f, add_counters(f, row, length), k))

    growth = limbs.tile_growth + carries
    return accumulate_columns(f, t, tiles, most, start, growth, rows)


def settle_columns(f: Function, limbs: Limbs, out: str, columns: str, tiles: str, bound: int) -> None:
    """Columns of at most `bound`, which stand for a number that has room there, to limbs; out may be columns."""
    tile = limbs.tile

    def body(index: str, carried: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {index}, {tile}")
        carry = carried[0]
        for k in range(tile):
            here = add_counters(f, first, k)
            value = f.add(f.load(columns, here, bound), carry)
            carry = f.shift_right(value, limbs.bits)
            f.store(f.mask(value, limbs.bits), out, here)
        return [carry]

    f.loop(tiles, body, [(f.constant(0), 1 << (64 - limbs.bits))])
