"""Kernels over batches of long numbers, [block, limb, lane] in Montgomery form, each below 2m, or pairs (`pairs`).

Every kernel ends its parameters with ``CONTEXT`` (`montgomery`) and the number of blocks.
"""

from __future__ import annotations

from securevfl_crypto.engine import rows
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs
from securevfl_crypto.engine.montgomery import call_multiply, call_square

__all__ = [
    "call_powers",
    "emit_entering",
    "emit_power",
    "emit_powers",
    "emit_products",
    "emit_selection",
    "emit_squarings",
    "square_often",
    "where_equal",
]


def emit_products(f: Function, limbs: Limbs) -> None:
    """``(out, a, b, i64 step, ...)``: products; `step` is 1 for as many blocks b, 0 for a single block b."""
    step = rows.row_stride(f, limbs)
    right = f.emit_scalar(f"mul i64 %step, {step}")

    def body(index: str, _: list[Vec]) -> list[Vec]:
        call_multiply(
            f,
            rows.block_address(f, "%out", index, step),
            rows.block_address(f, "%a", index, step),
            rows.block_address(f, "%b", index, right),
        )
        return []

    f.loop("%blocks", body)


def emit_entering(f: Function, limbs: Limbs) -> None:
    """``(out, a, constants, ...)``: numbers to Montgomery form, by a product with R² modulo m."""
    step = rows.row_stride(f, limbs)

    def body(index: str, _: list[Vec]) -> list[Vec]:
        call_multiply(
            f, rows.block_address(f, "%out", index, step), rows.block_address(f, "%a", index, step), "%constants"
        )
        return []

    f.loop("%blocks", body)


def emit_squarings(f: Function, limbs: Limbs) -> None:
    """``(out, i64 times, ...)``: each number squared `times` times, in place."""
    step = rows.row_stride(f, limbs)

    def body(index: str, _: list[Vec]) -> list[Vec]:
        square_often(f, rows.block_address(f, "%out", index, step), "%times")
        return []

    f.loop("%blocks", body)


def square_often(f: Function, place: str, times: str) -> None:
    """Squares the number at `place` as often as the ``i64`` `times` says, which may be 0."""

    def body(_: str, __: list[Vec]) -> list[Vec]:
        call_square(f, place, place)
        return []

    f.loop(times, body, perhaps=True)


def emit_powers(f: Function, limbs: Limbs) -> None:
    """``(table, a, one, i64 entries, context)``: a^0 to a^(entries − 1) of one block, three entries at least."""
    step = rows.row_stride(f, limbs)
    rows.copy_block(f, "%table", "%one", step)
    rows.copy_block(f, rows.block_address(f, "%table", 1, step), "%a", step)

    def body(index: str, _: list[Vec]) -> list[Vec]:
        before = f.emit_scalar(f"add i64 {index}, 1")
        after = f.emit_scalar(f"add i64 {index}, 2")
        call_multiply(
            f, rows.block_address(f, "%table", after, step), rows.block_address(f, "%table", before, step), "%a"
        )
        return []

    f.loop(f.emit_scalar("sub i64 %entries, 2"), body)


def call_powers(f: Function, table: str, a: str, entries: str) -> None:
    """Calls `emit_powers`; `%one` is the caller's."""
    context = "ptr %m", "i64 %inverse", "i64 %tiles", "ptr %t"
    f.call("powers", f"ptr {table}", f"ptr {a}", "ptr %one", f"i64 {entries}", *context)


_MOST = 1 << 62
"""More than any digit or number of an entry."""


def where_equal(f: Function, limbs: Limbs, a: Vec, b: Vec) -> Vec:
    """All bits of a limb where two numbers up to 2^62 are equal, none elsewhere.

    By arithmetic, not by a lane mask: a CPU may leave out loads that are masked, and then tell which ones by its time.
    """
    differs = f.shift_right(f.add(f.bitwise("xor", a, b), f.constant((1 << 63) - 1)), 63)
    return f.mask(f.add(differs, f.constant(limbs.top)), limbs.bits)


def _merge_entry(f: Function, held: Vec, entry: Vec, here: Vec) -> Vec:
    return f.bitwise("or", held, f.bitwise("and", entry, here))


def emit_selection(f: Function, limbs: Limbs) -> None:
    """``(out, table, digit, i64 entries, i64 tiles)``: the entry of a secret number, by reading all of them.

    The table is in lanes and the digit the same in all of them.
    """
    step = rows.row_stride(f, limbs)
    digit = f.broadcast_below("%digit", "0", _MOST)

    def group(number: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {number}, {rows.GROUP}")

        def entry(index: str, held: list[Vec]) -> list[Vec]:
            here = f.emit_scalar(
                f"getelementptr {f.type}, ptr {rows.block_address(f, '%table', index, step)}, i64 {first}"
            )
            equal = where_equal(f, limbs, digit, f.splat_scalar(index, _MOST))
            return [_merge_entry(f, value, f.load(here, k, limbs.top), equal) for k, value in enumerate(held)]

        chosen = f.loop("%entries", entry, [(f.constant(0), limbs.top)] * rows.GROUP)
        for k, value in enumerate(chosen):
            f.store(value, "%out", f.emit_scalar(f"add i64 {first}, {k}"))
        return []

    f.loop(f.emit_scalar(f"udiv i64 {step}, {rows.GROUP}"), group)


def emit_power(f: Function, limbs: Limbs) -> None:
    """``(out, a, one, digits, i64 count, i64 window, scratch, ...)``: each number to one secret exponent.

    Fixed windows; every entry of the table is read for each digit (`emit_selection`).

    Args of the kernel:
        digits: words, the most significant first, `count` of them, each of `window` bits, two at least.
        scratch: 2^window + 1 blocks.
    """
    step = rows.row_stride(f, limbs)
    entries = f.emit_scalar("shl i64 1, %window")
    other = rows.block_address(f, "%scratch", entries, step)
    rest = f.emit_scalar("sub i64 %count, 1")

    def chosen(out: str, digit: str) -> None:
        f.call("select", f"ptr {out}", "ptr %scratch", f"ptr {digit}", f"i64 {entries}", "i64 %tiles")

    def body(index: str, _: list[Vec]) -> list[Vec]:
        place = rows.block_address(f, "%out", index, step)
        call_powers(f, "%scratch", rows.block_address(f, "%a", index, step), entries)
        chosen(place, "%digits")

        def digit(number: str, _: list[Vec]) -> list[Vec]:
            square_often(f, place, "%window")
            chosen(other, f.offset("%digits", f.emit_scalar(f"add i64 {number}, 1")))
            call_multiply(f, place, place, other)
            return []

        f.loop(rest, digit, perhaps=True)
        return []

    f.loop("%blocks", body)
