"""Products modulo a long odd number, one in each lane, by Montgomery's reduction (Modular multiplication without trial
division, 1985).

Numbers are [limb, lane], of L limbs below 2^b each, with R = 2^(bL) ≥ 4m. They are reduced lazily: factors below 2m
give (xy + qm)/R < (4m² + Rm)/R ≤ 2m (Walter, Montgomery exponentiation needs no final subtractions, 1999). Products
of limbs are added in `tiles`.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.limbs import Limbs
from securevfl_crypto.engine.reductions import reduce_columns, settle_columns, tile_address
from securevfl_crypto.engine.tiles import add_products, clear_columns, product_rows, right_factors, square_columns

__all__ = [
    "CONTEXT",
    "call_multiply",
    "call_reduction",
    "call_square",
    "emit_multiplying",
    "emit_reduction",
    "emit_squaring",
]

CONTEXT = "ptr noalias %m, i64 %inverse, i64 %tiles, ptr noalias %t"
"""The modulus' limbs, −1/m modulo 2^b, tiles of a number, and 3L vectors: 2L for columns, L for a factor."""
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


def _clear(f: Function, limbs: Limbs) -> str:
    """Sets columns to 0; returns the address of the scratch behind them."""
    count = f.emit_scalar("shl i64 %tiles, 1")
    clear_columns(f, limbs, "%t", count)
    return tile_address(f, limbs, "%t", count)


def emit_multiplying(f: Function, limbs: Limbs) -> None:
    """``(out, a, b, context)``: ab/R, below 2m; out may be an operand."""
    b = right_factors(f, limbs, "%b", "%tiles", _clear(f, limbs))
    _finish_reduction(f, limbs, add_products(f, limbs, "%t", "%tiles", product_rows(f, limbs, "%a", b), 0))


def emit_squaring(f: Function, limbs: Limbs) -> None:
    """``(out, a, context)``: a²/R, below 2m, for two tiles or more; out may be a."""
    right = right_factors(f, limbs, "%a", "%tiles", _clear(f, limbs))
    _finish_reduction(f, limbs, square_columns(f, limbs, "%t", "%tiles", right))


def emit_reduction(f: Function, limbs: Limbs) -> None:
    """``(out, context)``: the columns, 2L limbs, divided by R modulo m; below 2m if they are below R m."""
    _finish_reduction(f, limbs, limbs.top)


def _finish_reduction(f: Function, limbs: Limbs, start: int) -> None:
    """Columns of at most `start`, divided by R modulo m, to `out`."""
    bound = reduce_columns(f, limbs, "%t", "%tiles", start)
    settle_columns(f, limbs, "%out", tile_address(f, limbs, "%t", "%tiles"), "%tiles", bound)
