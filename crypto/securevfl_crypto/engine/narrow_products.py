"""Kernels of tables of cells: products modulo 2^32 and 2^8, and sums by bin. All wrap, as they should.

Vectors are those of the path, cut into lanes of 32 or 16 bits: LLVM multiplies them by ``vpmulld`` and ``vpmullw``.
"""

from __future__ import annotations

from collections.abc import Sequence

from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.values import Vec

__all__ = [
    "BIN_SUMS",
    "CELLS",
    "CHUNK",
    "FACTORS",
    "OCTET_PRODUCT",
    "PANEL",
    "WORD_SUMS",
    "declarations",
    "emit_bin_sums",
    "emit_octet_product",
    "emit_word_sums",
]

WORD_SUMS = (
    "ptr noalias %out, ptr noalias %z, ptr noalias %v, i64 %blocks, i64 %rest, i64 %pairs, i64 %single, i64 %vectors, "
    "i64 %stride"
)
"""``%out`` += ``%z`` · ``%v``ᵀ: ``%blocks`` blocks of `CELLS` rows of ``%z`` and ``%rest`` rows after them,
2 ``%pairs`` + ``%single`` rows of ``%v`` and words in a row of ``%out``. Rows of ``%z`` and ``%v`` are ``%stride``
words apart, and ``%vectors`` vectors of them count, at least 1."""
OCTET_PRODUCT = (
    "ptr noalias %out, ptr noalias %factors, ptr noalias %panels, i64 %groups, i64 %cells, i64 %count, i64 %width"
)
"""``%out`` = factors · panels: ``%groups`` groups of `FACTORS` rows, ``%width`` = `PANEL` ``%count`` octets long; in a
group the factors of a cell follow each other, each as twice the same 16 bits. All counts are at least 1."""
BIN_SUMS = (
    "ptr noalias %out, ptr noalias %codes, ptr noalias %starts, ptr noalias %values, i64 %columns, i64 %stride, "
    "i64 %n, i64 %chunks"
)
"""``%out``[starts[c] + codes[c][r]] += ``%values``[r] for all columns c and ``%n`` rows r, of ``%chunks`` chunks of
`CHUNK` octets each; codes of a column ``%stride`` octets after those of the one before. All counts are at least 1."""

CELLS, FACTORS, PANEL, CHUNK = 4, 4, 64, 16
_TOP = (1 << 64) - 1


def declarations(lanes: int) -> tuple[str, ...]:
    """What the kernels here call."""
    return (f"declare i32 @llvm.vector.reduce.add.v{2 * lanes}i32(<{2 * lanes} x i32>)",)


def _offset(f: Function, kind: str, pointer: str, count: str | int) -> str:
    return f.emit_scalar(f"getelementptr {kind}, ptr {pointer}, i64 {count}")


def _multiply(f: Function, a: str | int, b: str | int) -> str:
    return f.emit_scalar(f"mul i64 {a}, {b}")


def _add(f: Function, a: str | int, b: str | int) -> str:
    return f.emit_scalar(f"add i64 {a}, {b}")


class _Lanes:
    """Arithmetic on lanes of fewer bits, of values that loops carry as vectors of words."""

    def __init__(self, f: Function, bits: int) -> None:
        self._f = f
        self.type = f"<{f.lanes * 64 // bits} x i{bits}>"

    def load(self, address: str) -> str:
        return self._f.emit_scalar(f"load {self.type}, ptr {address}, align 1")

    def do(self, operation: str, a: str, b: str) -> str:
        return self._f.emit_scalar(f"{operation} {self.type} {a}, {b}")

    def narrow(self, value: Vec) -> str:
        return self._f.emit_scalar(f"bitcast {self._f.type} {value.name} to {self.type}")

    def wide(self, lanes: str) -> Vec:
        return Vec(self._f.emit_scalar(f"bitcast {self.type} {lanes} to {self._f.type}"), 0, _TOP)

    def add_products(self, sums: Sequence[Vec], factors: Sequence[tuple[str, str]]) -> list[Vec]:
        return [
            self.wide(self.do("add", self.narrow(total), self.do("mul", a, b)))
            for total, (a, b) in zip(sums, factors, strict=True)
        ]


def emit_word_sums(f: Function) -> None:
    """Dot products of rows, `CELLS` by two at a time, modulo 2^32."""
    lanes = _Lanes(f, 32)
    k = _add(f, f.emit_scalar("shl i64 %pairs, 1"), "%single")

    def tile(cell: str, value: str, height: int, width: int) -> None:
        left = [_offset(f, "i32", "%z", _multiply(f, _add(f, cell, i), "%stride")) for i in range(height)]
        right = [_offset(f, "i32", "%v", _multiply(f, _add(f, value, j), "%stride")) for j in range(width)]

        def step(t: str, sums: list[Vec]) -> list[Vec]:
            a, b = ([lanes.load(_offset(f, lanes.type, row, t)) for row in rows] for rows in (left, right))
            return lanes.add_products(sums, [(x, y) for x in a for y in b])

        sums = f.loop("%vectors", step, [(f.constant(0), _TOP)] * (height * width))
        for place, total in enumerate(sums):
            row = _multiply(f, _add(f, cell, place // width), k)
            address = _offset(f, "i32", "%out", _add(f, row, _add(f, value, place % width)))
            call = f"call i32 @llvm.vector.reduce.add.v{2 * f.lanes}i32"
            more = f.emit_scalar(f"{call}({lanes.type} {lanes.narrow(total)})")
            before = f.emit_scalar(f"load i32, ptr {address}, align 4")
            f.emit(f"store i32 {f.emit_scalar(f'add i32 {before}, {more}')}, ptr {address}, align 4")

    def sweep(cell: str, height: int) -> None:
        def pair(j: str, _: list[Vec]) -> list[Vec]:
            tile(cell, f.emit_scalar(f"shl i64 {j}, 1"), height, 2)
            return []

        def last(j: str, _: list[Vec]) -> list[Vec]:
            tile(cell, _add(f, f.emit_scalar("shl i64 %pairs, 1"), j), height, 1)
            return []

        f.loop("%pairs", pair, perhaps=True)
        f.loop("%single", last, perhaps=True)

    def block(i: str, _: list[Vec]) -> list[Vec]:
        sweep(_multiply(f, i, CELLS), CELLS)
        return []

    def one(i: str, _: list[Vec]) -> list[Vec]:
        sweep(_add(f, _multiply(f, "%blocks", CELLS), i), 1)
        return []

    f.loop("%blocks", block, perhaps=True)
    f.loop("%rest", one, perhaps=True)


def emit_octet_product(f: Function) -> None:
    """Products of octets in lanes of 16 bits, of which the low 8 count: even and odd octets each in a vector."""
    lanes = _Lanes(f, 16)
    eight, low = (f"splat (i16 {value})" for value in (8, 255))
    copies = f"<{f.lanes * 2} x i32>"

    def spread(address: str) -> str:
        word = f.emit_scalar(f"load i32, ptr {address}, align 4")
        one = f.emit_scalar(f"insertelement {copies} zeroinitializer, i32 {word}, i32 0")
        zeros = f"<{f.lanes * 2} x i32> zeroinitializer"
        all_lanes = f.emit_scalar(f"shufflevector {copies} {one}, {copies} zeroinitializer, {zeros}")
        return f.emit_scalar(f"bitcast {copies} {all_lanes} to {lanes.type}")

    def panel(p: str, _: list[Vec]) -> list[Vec]:
        source = _offset(f, "i8", "%panels", _multiply(f, p, _multiply(f, "%cells", PANEL)))
        target = _offset(f, "i8", "%out", _multiply(f, p, PANEL))

        def group(g: str, _: list[Vec]) -> list[Vec]:
            factors = _offset(f, "i32", "%factors", _multiply(f, g, _multiply(f, "%cells", FACTORS)))
            for start in range(0, PANEL, 8 * f.lanes):

                def step(cell: str, sums: list[Vec], start: int = start) -> list[Vec]:
                    row = _offset(f, "i8", source, _add(f, _multiply(f, cell, PANEL), start))
                    even = lanes.load(row)
                    odd = lanes.do("lshr", even, eight)
                    first = _offset(f, "i32", factors, _multiply(f, cell, FACTORS))
                    given = [spread(_offset(f, "i32", first, r)) for r in range(FACTORS)]
                    return lanes.add_products(sums, [(x, part) for x in given for part in (even, odd)])

                sums = f.loop("%cells", step, [(f.constant(0), _TOP)] * (2 * FACTORS))
                for r in range(FACTORS):
                    even, odd = (lanes.narrow(total) for total in sums[2 * r : 2 * r + 2])
                    octets = lanes.do("or", lanes.do("and", even, low), lanes.do("shl", odd, eight))
                    line = _multiply(f, _add(f, _multiply(f, g, FACTORS), r), "%width")
                    address = _offset(f, "i8", target, _add(f, line, start))
                    f.emit(f"store {lanes.type} {octets}, ptr {address}, align 1")
            return []

        f.loop("%groups", group)
        return []

    f.loop("%count", panel)


def emit_bin_sums(f: Function, bits: int) -> None:
    """Rows of words of `bits` bits added to the cells of their bins, modulo 2^bits. Addresses depend on the bins."""
    chunk = f"<{8 * CHUNK // bits} x i{bits}>"

    def column(c: str, _: list[Vec]) -> list[Vec]:
        codes = _offset(f, "i8", "%codes", _multiply(f, c, "%stride"))
        start = f.emit_scalar(f"load i64, ptr {_offset(f, 'i64', '%starts', c)}, align 8")

        def row(r: str, _: list[Vec]) -> list[Vec]:
            code = f.emit_scalar(f"load i8, ptr {_offset(f, 'i8', codes, r)}")
            cell = _add(f, start, f.emit_scalar(f"zext i8 {code} to i64"))
            source = _offset(f, chunk, "%values", _multiply(f, r, "%chunks"))
            target = _offset(f, chunk, "%out", _multiply(f, cell, "%chunks"))

            def add(i: str, _: list[Vec]) -> list[Vec]:
                a, b = (_offset(f, chunk, pointer, i) for pointer in (source, target))
                x, y = (f.emit_scalar(f"load {chunk}, ptr {address}, align {bits // 8}") for address in (a, b))
                f.emit(f"store {chunk} {f.emit_scalar(f'add {chunk} {x}, {y}')}, ptr {b}, align {bits // 8}")
                return []

            f.loop("%chunks", add)
            return []

        f.loop("%n", row)
        return []

    f.loop("%columns", column)
