"""Kernels over tables of products: powers of a fixed base, Straus' products of powers, Pippenger's buckets."""

from __future__ import annotations

from securevfl_crypto.engine import rows
from securevfl_crypto.engine.batches import square_often
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs
from securevfl_crypto.engine.montgomery import call_multiply

__all__ = [
    "emit_entry_products",
    "emit_prefix_products",
    "emit_scan",
    "emit_scanned_products",
    "emit_subsets",
    "scan_window",
]


def _lane_addresses(f: Function, block: str, each: str, plus: str) -> list[str]:
    """(block · lanes + lane) · each + plus, for each lane."""
    first = f.emit_scalar(f"mul i64 {block}, {f.lanes}")
    out = []
    for lane in range(f.lanes):
        number = f.emit_scalar(f"mul i64 {f.emit_scalar(f'add i64 {first}, {lane}')}, {each}")
        out.append(f.emit_scalar(f"add i64 {number}, {plus}"))
    return out


def emit_subsets(f: Function, limbs: Limbs) -> None:
    """``(rows, a, one, i64 count, scratch, ...)``: the products of all subsets of `count` numbers, as rows.

    `a` is [block, number, limb, lane]. With n = 2^count, lane l of block b fills rows (b · lanes + l) · n + v, where
    bit j of v says whether number j is in the product. `scratch` is n blocks.
    """
    step = rows.row_stride(f, limbs)
    entries = f.emit_scalar("shl i64 1, %count")
    size = f.emit_scalar(f"mul i64 {step}, %count")
    rows.copy_block(f, "%scratch", "%one", step)

    def body(index: str, _: list[Vec]) -> list[Vec]:
        numbers = rows.block_address(f, "%a", index, size)

        def number(which: str, _: list[Vec]) -> list[Vec]:
            source = rows.block_address(f, numbers, which, step)
            first = f.emit_scalar(f"shl i64 1, {which}")
            rows.copy_block(f, rows.block_address(f, "%scratch", first, step), source, step)

            def smaller(subset: str, _: list[Vec]) -> list[Vec]:
                held = f.emit_scalar(f"add i64 {subset}, 1")
                out = rows.block_address(f, "%scratch", f.emit_scalar(f"add i64 {first}, {held}"), step)
                call_multiply(f, out, rows.block_address(f, "%scratch", held, step), source)
                return []

            f.loop(f.emit_scalar(f"sub i64 {first}, 1"), smaller, perhaps=True)
            return []

        f.loop("%count", number)

        def entry(subset: str, _: list[Vec]) -> list[Vec]:
            targets = _lane_addresses(f, index, entries, subset)
            rows.scatter_rows(f, "%rows", targets, rows.block_address(f, "%scratch", subset, step), step)
            return []

        f.loop(entries, entry)
        return []

    f.loop("%blocks", body)


def emit_entry_products(f: Function, limbs: Limbs) -> None:
    """``(out, rows, index, i64 levels, i64 squarings, i64 factors, scratch, ...)``: products of rows.

    At each level but the first, the product so far is squared `squarings` times; then `factors` rows are multiplied in.
    `index`, [block, level · factor, lane] and one vector more, holds the numbers of the rows. They are addresses, which
    a process that shares the machine's caches can observe.
    """
    step = rows.row_stride(f, limbs)
    each = f.emit_scalar("mul i64 %levels, %factors")

    def fetch(out: str, number: str) -> None:
        place = rows.block_address(f, "%index", number, "1")
        f.call("gather", f"ptr {out}", "ptr %rows", f"ptr {place}", "i64 %tiles")

    def body(block: str, _: list[Vec]) -> list[Vec]:
        place = rows.block_address(f, "%out", block, step)
        before = f.emit_scalar(f"mul i64 {block}, {each}")
        fetch(place, before)

        def multiply(first: str, count: str, *, perhaps: bool = False) -> None:
            def one(index: str, _: list[Vec]) -> list[Vec]:
                fetch("%scratch", f.emit_scalar(f"add i64 {first}, {index}"))
                call_multiply(f, place, place, "%scratch")
                return []

            f.loop(count, one, perhaps=perhaps)

        def level(index: str, _: list[Vec]) -> list[Vec]:
            square_often(f, place, "%squarings")
            number = f.emit_scalar(f"mul i64 {f.emit_scalar(f'add i64 {index}, 1')}, %factors")
            multiply(f.emit_scalar(f"add i64 {before}, {number}"), "%factors")
            return []

        multiply(f.emit_scalar(f"add i64 {before}, 1"), f.emit_scalar("sub i64 %factors, 1"), perhaps=True)
        f.loop(f.emit_scalar("sub i64 %levels, 1"), level, perhaps=True)
        return []

    f.loop("%blocks", body)


def scan_window(lanes: int) -> int:
    """Bits of a digit of `emit_scan`: as many as the path's permutations look up cheaply."""
    return 7 if lanes == 8 else 6


def emit_scan(f: Function, limbs: Limbs) -> None:
    """``(out, table, digits, i64 tiles)``: for each lane the entry of its secret digit; every entry is read.

    The table is [limb, entry]. Entries are looked up by permuting
    registers, and the upper bits of the digit choose between the results by arithmetic: neither addresses nor times
    depend on it.
    """
    window = scan_window(f.lanes)
    vectors = (1 << window) // f.lanes
    digits = f.load("%digits", 0, (1 << window) - 1)
    places = f.permutation(digits)
    each, known = (2, 4) if f.lanes == 8 else (1, 2)
    choices = []
    for bit in range(known, window):
        one = f.mask(f.shift_right(digits, bit), 1)
        ones = [f.mask(f.add(x, f.constant(limbs.top)), limbs.bits) for x in (one, f.sub(f.constant(1), one))]
        choices.append(ones)

    def limb(index: str, _: list[Vec]) -> list[Vec]:
        here = rows.block_address(f, "%table", index, str(vectors))
        table = [f.load(here, k, limbs.top) for k in range(vectors)]
        found = [f.permute(table[k : k + each], places) for k in range(0, vectors, each)]
        for low, high in choices:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [f.bitwise("or", f.bitwise("and", x, low), f.bitwise("and", y, high)) for x, y in pairs]
        f.store(found[0], "%out", index)
        return []

    f.loop(f.emit_scalar(f"mul i64 %tiles, {limbs.tile}"), limb)


def emit_scanned_products(f: Function, limbs: Limbs) -> None:
    """``(out, tables, digits, i64 factors, scratch, ...)``: products of entries of secret digits.

    `digits` is [block, factor, lane]; the k-th of them looks up the k-th table (`emit_scan`). A table serves all blocks
    before the next is read.
    """
    step = rows.row_stride(f, limbs)
    size = f.emit_scalar(f"mul i64 {step}, {(1 << scan_window(f.lanes)) // f.lanes}")

    def look_up(out: str, block: str, factor: str) -> None:
        number = f.emit_scalar(f"add i64 {f.emit_scalar(f'mul i64 {block}, %factors')}, {factor}")
        table, digits = rows.block_address(f, "%tables", factor, size), rows.block_address(f, "%digits", number, "1")
        f.call("scan", f"ptr {out}", f"ptr {table}", f"ptr {digits}", "i64 %tiles")

    def first(block: str, _: list[Vec]) -> list[Vec]:
        look_up(rows.block_address(f, "%out", block, step), block, "0")
        return []

    def factor(index: str, _: list[Vec]) -> list[Vec]:
        number = f.emit_scalar(f"add i64 {index}, 1")

        def one(block: str, _: list[Vec]) -> list[Vec]:
            look_up("%scratch", block, number)
            place = rows.block_address(f, "%out", block, step)
            call_multiply(f, place, place, "%scratch")
            return []

        f.loop("%blocks", one)
        return []

    f.loop("%blocks", first)
    f.loop(f.emit_scalar("sub i64 %factors, 1"), factor, perhaps=True)


def emit_prefix_products(f: Function, limbs: Limbs) -> None:
    """``(prefixes, rows, index, i64 count, one, scratch, ...)``: the products of the first rows, of one, two, ...

    `index` is [block, count, lane] and one vector more. With n = count + 1, prefix v of lane l of block b becomes row
    (b · lanes + l) · n + v of `prefixes`; prefix 0 is one. `scratch` is two blocks.
    """
    step = rows.row_stride(f, limbs)
    each = f.emit_scalar("add i64 %count, 1")
    other = rows.block_address(f, "%scratch", 1, step)

    def body(block: str, _: list[Vec]) -> list[Vec]:
        rows.copy_block(f, "%scratch", "%one", step)
        rows.scatter_rows(f, "%prefixes", _lane_addresses(f, block, each, "0"), "%scratch", step)
        before = f.emit_scalar(f"mul i64 {block}, %count")

        def one(index: str, _: list[Vec]) -> list[Vec]:
            place = rows.block_address(f, "%index", f.emit_scalar(f"add i64 {before}, {index}"), "1")
            f.call("gather", f"ptr {other}", "ptr %rows", f"ptr {place}", "i64 %tiles")
            call_multiply(f, "%scratch", "%scratch", other)
            targets = _lane_addresses(f, block, each, f.emit_scalar(f"add i64 {index}, 1"))
            rows.scatter_rows(f, "%prefixes", targets, "%scratch", step)
            return []

        f.loop("%count", one)
        return []

    f.loop("%blocks", body)
