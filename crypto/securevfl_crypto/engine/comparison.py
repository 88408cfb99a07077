"""Kernels of the comparison behind a mask: `securevfl_crypto.ring.kernels` describes it and names the arrays."""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.octets import OctetRows, Octets
from securevfl_crypto.engine.values import BoundError, Vec

__all__ = ["MODULUS", "emit_bit_shares", "emit_masked_comparison", "emit_residues", "emit_zero_counts"]

MODULUS = 67
_USED = (1 << 63) - 1


def _load_word(f: Function, pointer: str, index: str) -> str:
    return f.emit_scalar(f"load i64, ptr {f.offset(pointer, index)}, align 8")


def emit_bit_shares(f: Function) -> None:
    """``%out`` = bits of 2 · (``%words`` mod 2^62) − ``%first``."""
    rows = OctetRows(f, MODULUS)

    def body(i: str, _: list[Vec]) -> list[Vec]:
        doubled = f.emit_scalar(f"shl i64 {_load_word(f, '%words', i)}, 1")
        bits = rows.places_of_bits(f.emit_scalar(f"and i64 {doubled}, {_USED}"))
        first = rows.load("%first", i, MODULUS - 1)
        zero, one = (rows.subtract_from(MODULUS + bit, first) for bit in (0, 1))
        # 67 + 1 − 0 is reduced to 1, and 67 − 0 to 0
        rows.store(rows.reduce_once(rows.select(bits, one, zero)), "%out", i)
        return []

    f.loop("%n", body, perhaps=True)


def emit_masked_comparison(f: Function, *, first: bool) -> None:
    """The masked rows of one sender, ``%times`` constants behind each of ``%n`` masks."""
    rows = OctetRows(f, MODULUS)
    one = int(first)
    keep = rows.places_of_bits(str(_USED))

    def body(i: str, row: str) -> None:
        opened = _load_word(f, "%c", row)
        doubled = f.emit_scalar(f"or i64 {f.emit_scalar(f'shl i64 {opened}, 1')}, 1")
        y = rows.places_of_bits(f.emit_scalar(f"and i64 {doubled}, {_USED}"))
        turn = f.emit_scalar(f"load i8, ptr {f.emit_scalar(f'getelementptr i8, ptr %turns, i64 {row}')}")
        turn = f.emit_scalar(f"zext i8 {turn} to i64")
        coin = rows.all_or_none(f.emit_scalar(f"and i64 {f.emit_scalar(f'lshr i64 {turn}, 6')}, 1"))
        x = rows.select(keep, rows.load("%bits", i, MODULUS - 1), rows.constant(0))
        less = rows.reduce_once(rows.subtract_from(MODULUS + one, x))  # one − x
        minus = rows.reduce_once(rows.subtract_from(MODULUS, x)) if first else less
        more = rows.add_modular(x, rows.constant(MODULUS - one)) if first else x  # x − one
        differs = rows.select(y, less, x)
        before = rows.shift_down(differs, 1)
        for step in range(6):
            before = rows.add_modular(before, rows.shift_down(before, 1 << step))
        sign = rows.select(coin, rows.select(y, more, x), rows.select(y, less, minus))
        e = rows.add(sign, before)
        e = rows.reduce_once(rows.add(e, rows.constant(1)) if first else e)
        factors = rows.add(rows.load("%factors", row, MODULUS - 2), rows.constant(1))
        turned = rows.rotate(rows.multiply_modular(e, factors), turn)
        zeros = rows.load("%zeros", row, MODULUS - 1)
        rows.store(rows.add_modular(turned, zeros if first else rows.subtract_from(MODULUS, zeros)), "%out", row)

    def each_constant(t: str, _: list[Vec]) -> list[Vec]:
        start = f.emit_scalar(f"mul i64 {t}, %n")

        def each_mask(i: str, _: list[Vec]) -> list[Vec]:
            body(i, f.emit_scalar(f"add i64 {start}, {i}"))
            return []

        f.loop("%n", each_mask)
        return []

    f.loop("%times", each_constant)


def emit_zero_counts(f: Function) -> None:
    """``%out`` = how many places of ``%one`` + ``%other`` are 0 modulo 67."""
    rows = OctetRows(f, MODULUS)

    def body(i: str, _: list[Vec]) -> list[Vec]:
        total = rows.add(*(rows.load(name, i, MODULUS - 1) for name in ("%one", "%other")))
        zero = f.emit_scalar(f"or i64 {rows.bits_equal(total, 0)}, {rows.bits_equal(total, MODULUS)}")
        f.emit(f"store i64 {rows.count_bits(zero)}, ptr {f.offset('%out', i)}, align 8")
        return []

    f.loop("%n", body, perhaps=True)


def emit_residues(f: Function, modulus: int, *, pext: bool = False) -> None:
    """The octets of ``%raw``, 64 for each of ``%n`` rows, below 3 · modulus, modulo it, one after another to ``%out``.

    The number of those found so far is at ``%found``. It is the one address that depends on data: on which octets are
    dropped, and it says nothing about the value of those that are kept. Neither does the time of ``pext``, which on
    some CPUs depends on its mask.

    Args:
        f: receives the instructions.
        modulus: the modulus.
        pext: compress eight octets at a time by ``pext``. Without AVX-512 VBMI2, LLVM compresses a row octet by octet.

    Raises:
        BoundError: three times the modulus is not its largest multiple up to 256.
    """
    if 256 // modulus != 3:
        raise BoundError(f"{f.name}: residues modulo {modulus}; 65 to 85 are possible")
    rows = OctetRows(f, modulus)

    def body(i: str, _: list[Vec]) -> list[Vec]:
        raw = rows.load("%raw", i, 255)
        kept = rows.bits_below(raw, 3 * modulus)
        inside = Octets(raw.name, 3 * modulus - 1)  # what is above is dropped, whatever becomes of it
        found = f.emit_scalar("load i64, ptr %found, align 8")
        small = rows.reduce_once(rows.subtract_where_above(inside, 2 * modulus))
        places = rows.places_of_bits(kept)
        if pext:
            # an eighth begins at most where its octets were in %raw, so that its 8 octets end inside %out, too
            for word, count in rows.compress_eighths(small, places):
                f.emit(f"store i64 {word}, ptr {f.emit_scalar(f'getelementptr i8, ptr %out, i64 {found}')}, align 1")
                found = f.emit_scalar(f"add i64 {found}, {count}")
        else:
            address = f.emit_scalar(f"getelementptr i8, ptr %out, i64 {found}")
            rows.store_at(rows.compress(small, places), address)
            found = f.emit_scalar(f"add i64 {found}, {rows.count_bits(kept)}")
        f.emit(f"store i64 {found}, ptr %found, align 8")
        return []

    f.loop("%n", body, perhaps=True)
