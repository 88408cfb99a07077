"""Kernels between little-endian bytes and limbs, and out of Montgomery form."""

from __future__ import annotations

from math import gcd

from securevfl_crypto.engine import rows
from securevfl_crypto.engine.batches import where_equal
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs
from securevfl_crypto.engine.montgomery import call_reduction

__all__ = ["SLACK", "emit_leaving", "emit_packing", "emit_unpacking", "subtract_once"]

SLACK = 16
"""Bytes after a row's last limb that the kernels read and write."""


def _byte_period(limbs: Limbs) -> int:
    """The number of limbs after which a limb again begins at a byte."""
    return 8 // gcd(8, limbs.bits)


def _byte_rows(f: Function, base: str, block: str) -> list[str]:
    first = f.emit_scalar(f"mul i64 {block}, {f.lanes}")
    out = []
    for lane in range(f.lanes):
        start = f.emit_scalar(f"mul i64 {f.emit_scalar(f'add i64 {first}, {lane}')}, %width")
        out.append(f.emit_scalar(f"getelementptr i8, ptr {base}, i64 {start}"))
    return out


def _advance_pointers(f: Function, pointers: list[str], by: str | int) -> list[str]:
    return [f.emit_scalar(f"getelementptr i8, ptr {pointer}, i64 {by}") for pointer in pointers]


def emit_unpacking(f: Function, limbs: Limbs) -> None:
    """``(out, above, bytes, i64 width, m, i64 tiles, i64 blocks)``: limbs of numbers in rows of `width` bytes.

    `m` holds the limbs of R − m, and all ones in the limbs that the stride adds; `above` gets, for each number, 1 if it
    is not below m, else 0. Rows have `SLACK` bytes more than the stride's limbs take.
    """
    step, period = rows.row_stride(f, limbs), _byte_period(limbs)

    def body(block: str, _: list[Vec]) -> list[Vec]:
        sources = _byte_rows(f, "%bytes", block)
        place = rows.block_address(f, "%out", block, step)

        def some(index: str, carried: list[Vec]) -> list[Vec]:
            carry = carried[0]
            first = f.emit_scalar(f"mul i64 {index}, {period}")
            here = _advance_pointers(f, sources, f.emit_scalar(f"mul i64 {index}, {period * limbs.bits // 8}"))
            for k in range(period):
                start = k * limbs.bits
                word = f.gather_words(_advance_pointers(f, here, start // 8))
                limb = f.mask(f.shift_right(word, start % 8), limbs.bits)
                number = f.emit_scalar(f"add i64 {first}, {k}")
                f.store(limb, place, number)
                total = f.add(f.add(limb, f.broadcast_below("%m", number, limbs.top)), carry)
                carry = f.shift_right(total, limbs.bits)
            return [carry]

        carry = f.loop(f.emit_scalar(f"udiv i64 {step}, {period}"), some, [(f.constant(0), 1)])
        f.store(carry[0], "%above", block)
        return []

    f.loop("%blocks", body)


def emit_packing(f: Function, limbs: Limbs) -> None:
    """``(bytes, a, i64 width, i64 tiles, i64 blocks)``: rows of bytes from the limbs of reduced numbers.

    All limbs of the stride are written, and up to `SLACK` bytes more.
    """
    step, period = rows.row_stride(f, limbs), _byte_period(limbs)
    words = -(-period * limbs.bits // 64)

    def body(block: str, _: list[Vec]) -> list[Vec]:
        targets = _byte_rows(f, "%bytes", block)
        place = rows.block_address(f, "%a", block, step)

        def some(index: str, _: list[Vec]) -> list[Vec]:
            first = f.emit_scalar(f"mul i64 {index}, {period}")
            here = _advance_pointers(f, targets, f.emit_scalar(f"mul i64 {index}, {period * limbs.bits // 8}"))
            held = [f.constant(0)] * words
            for k in range(period):
                limb = f.load(place, f.emit_scalar(f"add i64 {first}, {k}"), limbs.top)
                word, start = divmod(k * limbs.bits, 64)
                held[word] = f.bitwise("or", held[word], f.shift_left_wrapping(limb, start))
                if start + limbs.bits > 64:
                    held[word + 1] = f.shift_right(limb, 64 - start)
            for k, value in enumerate(held):
                f.scatter_words(value, _advance_pointers(f, here, 8 * k))
            return []

        f.loop(f.emit_scalar(f"udiv i64 {step}, {period}"), some)
        return []

    f.loop("%blocks", body)


def emit_leaving(f: Function, limbs: Limbs) -> None:
    """``(out, a, complement, ...)``: a/R modulo m, from 0 to m − 1; `complement` holds the limbs of R − m.

    The reduction of a number below R is at most m.
    """
    step, tile = rows.row_stride(f, limbs), limbs.tile
    length = f.emit_scalar(f"mul i64 %tiles, {tile}")

    def body(block: str, _: list[Vec]) -> list[Vec]:
        source, place = rows.block_address(f, "%a", block, step), rows.block_address(f, "%out", block, step)

        def fill(index: str, _: list[Vec]) -> list[Vec]:
            f.store(f.load(source, index, limbs.top), "%t", index)
            f.store(f.constant(0), "%t", f.emit_scalar(f"add i64 {index}, {length}"))
            return []

        f.loop(length, fill)
        call_reduction(f, place)
        subtract_once(f, limbs, place, place, length, f.constant(0))
        return []

    f.loop("%blocks", body)


def subtract_once(f: Function, limbs: Limbs, out: str, source: str, length: str, more: Vec) -> Vec:
    """out = source + more, less m if that is m or above; then it must be below 2m. Returns 1 if so, else 0.

    Adding R − m, the limbs at `%complement`, carries out of the last limb just then.

    Args:
        length: limbs of m.
        more: at most 1.
    """

    def over(index: str, carried: list[Vec]) -> list[Vec]:
        total = f.add(f.load(source, index, limbs.top), f.broadcast_below("%complement", index, limbs.top))
        return [f.shift_right(f.add(total, carried[0]), limbs.bits)]

    carry = f.loop(length, over, [(more, 1)])[0]
    full = where_equal(f, limbs, carry, f.constant(1))

    def settle(index: str, carried: list[Vec]) -> list[Vec]:
        limb = f.load(source, index, limbs.top)
        part = f.bitwise("and", full, f.broadcast_below("%complement", index, limbs.top))
        total = f.add(f.add(limb, part), carried[0])
        f.store(f.mask(total, limbs.bits), out, index)
        return [f.shift_right(total, limbs.bits)]

    f.loop(length, settle, [(more, 1)])
    return carry
