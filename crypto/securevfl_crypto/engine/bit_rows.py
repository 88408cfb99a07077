"""Kernels over rows of 512 bits: transposing columns into rows, and sums over GF(2) of rows that bytes select.

A vector has eight lanes here on every path, one row; a CPU with shorter ones takes several instructions for it.

Addresses depend on data in all of these but the transpose: a table's entry is read at the byte that selects it.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Function, Vec

__all__ = [
    "DECLARATIONS",
    "GATHERED",
    "SELECTED",
    "SUMMED",
    "TRANSPOSED",
    "emit_gathered_rows",
    "emit_row_sums",
    "emit_selected_rows",
    "emit_transposition",
]

DECLARATIONS = ("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",)
TRANSPOSED = "ptr noalias %out, ptr noalias %in, i64 %stride, i64 %blocks"
SELECTED = "ptr noalias %out, ptr noalias %tables, ptr noalias %bytes, i64 %stride, i64 %n"
GATHERED = f"{SELECTED}, ptr noalias %slots, ptr noalias %positions"
SUMMED = "ptr noalias %buckets, ptr noalias %rows, ptr noalias %bytes, i64 %stride, i64 %n"
AHEAD = 16
"""Rows whose slots are fetched before they are needed; `positions` is that much longer than what is read."""


def _byte_address(f: Function, base: str, offset: str) -> str:
    return f.emit_scalar(f"getelementptr i8, ptr {base}, i64 {offset}")


def emit_transposition(f: Function) -> None:
    """512 columns to rows of 64 bytes, 512 rows in each block; bit 0 of a byte comes first.

    Column i begins at ``in + i stride``. Of 64 columns at a time, each lane transposes 64 × 64 bits by exchanging
    halves, quarters, … (Knuth, The Art of Computer Programming 4A, section 7.1.3): the first three exchanges among
    words that are 8 apart, the others among eight that follow each other, so that eight registers suffice.
    """
    scratch = f.allocate(64)

    def block(number: str, _: list[Vec]) -> list[Vec]:
        source = _byte_address(f, "%in", f.emit_scalar(f"shl i64 {number}, 6"))
        target = _byte_address(f, "%out", f.emit_scalar(f"shl i64 {number}, 15"))

        def group(columns: str, _: list[Vec]) -> list[Vec]:
            first = _byte_address(
                f, source, f.emit_scalar(f"mul i64 {f.emit_scalar(f'shl i64 {columns}, 6')}, %stride")
            )
            base = _byte_address(f, target, f.emit_scalar(f"shl i64 {columns}, 3"))

            def apart(low: str, _: list[Vec]) -> list[Vec]:
                at = [f.emit_scalar(f"add i64 {low}, {8 * k}") for k in range(8)]
                words = [f.load(_byte_address(f, first, f.emit_scalar(f"mul i64 %stride, {place}"))) for place in at]
                for place, word in zip(at, _exchange_words(f, words, 8), strict=True):
                    f.store(word, scratch, place)
                return []

            def together(high: str, _: list[Vec]) -> list[Vec]:
                start = f.emit_scalar(f"shl i64 {high}, 3")
                words = [f.load(scratch, f.emit_scalar(f"add i64 {start}, {k}")) for k in range(8)]
                rows = _byte_address(f, base, f.emit_scalar(f"shl i64 {start}, 6"))
                for k, word in enumerate(_exchange_words(f, words, 1)):
                    f.scatter_words(
                        word, [_byte_address(f, rows, str(64 * (64 * lane + k))) for lane in range(f.lanes)]
                    )
                return []

            f.loop(8, apart)
            f.loop(8, together)
            return []

        f.loop(8, group)
        return []

    f.loop("%blocks", block, perhaps=True)


def _exchange_words(f: Function, words: list[Vec], step: int) -> list[Vec]:
    """Eight words whose places are `step` apart, after exchanges over distances 4 step, 2 step and step."""
    words = list(words)
    for distance in (4, 2, 1):
        bits = distance * step
        mask = f.constant(sum(((1 << bits) - 1) << place for place in range(0, 64, 2 * bits)))
        for k in range(8):
            if not k & distance:
                low, high = words[k], words[k + distance]
                differ = f.bitwise("and", f.bitwise("xor", f.shift_right(low, bits), high), mask)
                words[k + distance] = f.bitwise("xor", high, differ)
                words[k] = f.bitwise("xor", low, f.shift_left_wrapping(differ, bits))
    return words


def _entry_addresses(f: Function, row: str, terms: int) -> list[str]:
    """Where the entries stand that the bytes of one row select, one of each of `terms` tables of 256 rows."""
    found = []
    for term in range(terms):
        byte = f.emit_scalar(f"load i8, ptr {_byte_address(f, row, str(term))}")
        entry = f.emit_scalar(f"add i64 {f.emit_scalar(f'zext i8 {byte} to i64')}, {256 * term}")
        found.append(f.emit_scalar(f"shl i64 {entry}, 6"))
    return found


def _add_entries(f: Function, start: Vec, addresses: list[str]) -> Vec:
    total = start
    for address in addresses:
        total = f.bitwise("xor", total, f.load(address))
    return total


def emit_selected_rows(f: Function, terms: int) -> None:
    """out[i] ^= tables[0][bytes[i][0]] ^ … ^ tables[terms − 1][bytes[i][terms − 1]]: a linear code, a dense part."""

    def body(number: str, _: list[Vec]) -> list[Vec]:
        row = _byte_address(f, "%bytes", f.emit_scalar(f"mul i64 {number}, %stride"))
        f.store(
            _add_entries(
                f, f.load("%out", number), [_byte_address(f, "%tables", e) for e in _entry_addresses(f, row, terms)]
            ),
            "%out",
            number,
        )
        return []

    f.loop("%n", body, perhaps=True)


def emit_gathered_rows(f: Function, terms: int) -> None:
    """As `emit_selected_rows`, and the three slots that ``positions`` names for each row: an OKVS is decoded."""

    def slots(number: str, ahead: int) -> list[str]:
        first = f.emit_scalar(f"mul i64 {number}, 3")
        found = []
        for k in range(3):
            place = f.emit_scalar(
                f"getelementptr i32, ptr %positions, i64 {f.emit_scalar(f'add i64 {first}, {3 * ahead + k}')}"
            )
            index = f.emit_scalar(f"zext i32 {f.emit_scalar(f'load i32, ptr {place}')} to i64")
            found.append(_byte_address(f, "%slots", f.emit_scalar(f"shl i64 {index}, 6")))
        return found

    def body(number: str, _: list[Vec]) -> list[Vec]:
        for address in slots(number, AHEAD):
            f.emit(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")
        row = _byte_address(f, "%bytes", f.emit_scalar(f"mul i64 {number}, %stride"))
        total = _add_entries(f, f.load("%out", number), slots(number, 0))
        f.store(
            _add_entries(f, total, [_byte_address(f, "%tables", e) for e in _entry_addresses(f, row, terms)]),
            "%out",
            number,
        )
        return []

    f.loop("%n", body, perhaps=True)


def emit_row_sums(f: Function, terms: int) -> None:
    """buckets[k][bytes[i][k]] ^= rows[i] for k < terms: from the buckets follow 8 terms random sums of all rows."""

    def body(number: str, _: list[Vec]) -> list[Vec]:
        row = f.load("%rows", number)
        selectors = _byte_address(f, "%bytes", f.emit_scalar(f"mul i64 {number}, %stride"))
        for entry in _entry_addresses(f, selectors, terms):
            place = _byte_address(f, "%buckets", entry)
            f.store(f.bitwise("xor", f.load(place), row), place)
        return []

    f.loop("%n", body, perhaps=True)
