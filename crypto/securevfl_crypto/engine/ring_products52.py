"""The kernel of large matrix products modulo 2^64 on CPUs with AVX-512 IFMA, which multiply 52 bits at a time.

With words a = a₀ + 2^52 a₁ and b = b₀ + 2^52 b₁,

    a b = low(a₀ b₀) + 2^52 · (high(a₀ b₀) + a₁ b₀ + a₀ b₁)   modulo 2^64,

and of the last two products 12 bits count. `vpmadd52` adds the low and the high 52 bits of a₀ b₀, and ignores the bits
of a₁ and b₁, so that words go in as they are. The two small products are one of pairs of 16-bit numbers: (a₁, a₀ mod
2^12) times (b₀ mod 2^12, b₁), of which `vpdpwssd` adds sixteen at once. A row of 16 columns takes five instructions on
the busy ports instead of the eight of `ring_products`. All sums wrap, at no harm: the result is modulo 2^64.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.ring_products import ROWS
from securevfl_crypto.engine.values import Vec

__all__ = ["DECLARATIONS", "NEEDS", "PARAMETERS", "emit_ring_product52"]

PARAMETERS = (
    "ptr noalias %out, ptr noalias %a, ptr noalias %b, i64 %blocks, i64 %rest, i64 %k, i64 %row, i64 %column, "
    "i64 %panels, i64 %width, ptr noalias %right, ptr noalias %left"
)
"""As in `ring_products`, and scratch for pairs: ``%right`` as many 32-bit numbers as ``%b`` has words, ``%left``
`ROWS` · ``%k``."""
NEEDS = ("avx512bw",)
"""CPU features beyond those of the path; every CPU with IFMA that we know has them."""
_PAIRS, _SHORTS = "<16 x i32>", "<32 x i16>"
DECLARATIONS = (f"declare {_PAIRS} @llvm.x86.avx512.pmaddw.d.512({_SHORTS}, {_SHORTS})",)
_TOP = (1 << 64) - 1
_LOW = 0xFFF
_COLUMNS = 16


def emit_ring_product52(f: Function) -> None:
    """``%out`` = ``%a`` · ``%b``, with panels of 16 columns."""
    _right_pairs(f)

    def each_block(i: str, _: list[Vec]) -> list[Vec]:
        _multiply_rows(f, f.emit_scalar(f"mul i64 {i}, {ROWS}"), ROWS)
        return []

    f.loop("%blocks", each_block, perhaps=True)
    done = f.emit_scalar(f"mul i64 %blocks, {ROWS}")

    def each_row(i: str, _: list[Vec]) -> list[Vec]:
        _multiply_rows(f, f.emit_scalar(f"add i64 {done}, {i}"), 1)
        return []

    f.loop("%rest", each_row, perhaps=True)


def _right_pairs(f: Function) -> None:
    """(b₀ mod 2^12, b₁) of all panels; the lanes of two vectors next to each other."""

    def body(t: str, _: list[Vec]) -> list[Vec]:
        halves = []
        for v in range(2):
            b = f.load("%b", f.emit_scalar(f"add i64 {f.emit_scalar(f'mul i64 {t}, 2')}, {v}"))
            pair = f.bitwise("or", f.mask(b, 12), f.shift_left(f.shift_right(b, 52), 16))
            halves.append(f.emit_scalar(f"trunc {f.type} {pair.name} to <8 x i32>"))
        order = ", ".join(f"i32 {j}" for j in range(_COLUMNS))
        both = f.emit_scalar(f"shufflevector <8 x i32> {halves[0]}, <8 x i32> {halves[1]}, <16 x i32> <{order}>")
        f.emit(f"store {_PAIRS} {both}, ptr {f.emit_scalar(f'getelementptr {_PAIRS}, ptr %right, i64 {t}')}, align 4")
        return []

    f.loop(f.emit_scalar("mul i64 %panels, %k"), body)


def _multiply_rows(f: Function, first: str, height: int) -> None:
    """`height` rows of the result from row `first` on."""
    top = f.emit_scalar(f"mul i64 {first}, %row")
    lefts = [
        f.offset("%a", f.emit_scalar(f"add i64 {top}, {f.emit_scalar(f'mul i64 %row, {r}')}")) for r in range(height)
    ]

    def pairs(t: str, _: list[Vec]) -> list[Vec]:
        place = f.emit_scalar(f"mul i64 {t}, %column")
        for r, left in enumerate(lefts):
            word = f.emit_scalar(f"load i64, ptr {f.offset(left, place)}, align 8")
            low = f.emit_scalar(f"shl i64 {f.emit_scalar(f'and i64 {word}, {_LOW}')}, 16")
            pair = f.emit_scalar(f"or i64 {f.emit_scalar(f'lshr i64 {word}, 52')}, {low}")
            at = _left_pair_address(f, t, r, height)
            f.emit(f"store i32 {f.emit_scalar(f'trunc i64 {pair} to i32')}, ptr {at}, align 4")
        return []

    f.loop("%k", pairs)

    def each_panel(panel: str, _: list[Vec]) -> list[Vec]:
        start = f.emit_scalar(f"mul i64 {panel}, %k")

        def step(t: str, sums: list[Vec]) -> list[Vec]:
            row = f.emit_scalar(f"add i64 {start}, {t}")
            columns = [
                f.load("%b", f.emit_scalar(f"add i64 {f.emit_scalar(f'mul i64 {row}, 2')}, {v}")) for v in range(2)
            ]
            small = f.emit_scalar(
                f"load {_PAIRS}, ptr {f.emit_scalar(f'getelementptr {_PAIRS}, ptr %right, i64 {row}')}, align 4"
            )
            place = f.emit_scalar(f"mul i64 {t}, %column")
            out = []
            for r, left in enumerate(lefts):
                word = f.broadcast(left, place)
                low, high, cross = sums[5 * r : 5 * r + 2], sums[5 * r + 2 : 5 * r + 4], sums[5 * r + 4]
                out += [f.madd_wrapping("l", low[v], word, columns[v]) for v in range(2)]
                out += [f.madd_wrapping("h", high[v], word, columns[v]) for v in range(2)]
                out.append(_add_cross_sums(f, cross, _left_pair_address(f, t, r, height), small))
            return out

        sums = f.loop("%k", step, [(f.constant(0), _TOP)] * (5 * height))
        column = f.emit_scalar(f"mul i64 {panel}, {_COLUMNS}")
        for r in range(height):
            line = f.emit_scalar(f"mul i64 {f.emit_scalar(f'add i64 {first}, {r}')}, %width")
            target = f.offset("%out", f.emit_scalar(f"add i64 {line}, {column}"))
            for v in range(2):
                upper = f.add_wrapping(sums[5 * r + 2 + v], _widen_sums(f, sums[5 * r + 4], v))
                f.store(f.add_wrapping(sums[5 * r + v], f.shift_left_wrapping(upper, 52)), target, v)
        return []

    f.loop("%panels", each_panel)


def _left_pair_address(f: Function, t: str, r: int, height: int) -> str:
    """The address of the pair (a₁, a₀ mod 2^12) of a row and a place."""
    index = f.emit_scalar(f"add i64 {f.emit_scalar(f'mul i64 {t}, {height}')}, {r}")
    return f.emit_scalar(f"getelementptr i32, ptr %left, i64 {index}")


def _add_cross_sums(f: Function, cross: Vec, address: str, small: str) -> Vec:
    """Sixteen 32-bit sums, kept as a vector of words, plus a₁ b₀ + a₀ b₁; numbers of 12 bits have no sign."""
    pair = f.emit_scalar(f"load i32, ptr {address}, align 4")
    one = f.emit_scalar(f"insertelement {_PAIRS} zeroinitializer, i32 {pair}, i32 0")
    every = f.emit_scalar(f"shufflevector {_PAIRS} {one}, {_PAIRS} zeroinitializer, {_PAIRS} zeroinitializer")
    a, b = (f.emit_scalar(f"bitcast {_PAIRS} {x} to {_SHORTS}") for x in (every, small))
    products = f.emit_scalar(f"call {_PAIRS} @llvm.x86.avx512.pmaddw.d.512({_SHORTS} {a}, {_SHORTS} {b})")
    total = f.emit_scalar(f"add {_PAIRS} {products}, {f.emit_scalar(f'bitcast {f.type} {cross.name} to {_PAIRS}')}")
    return Vec(f.emit_scalar(f"bitcast {_PAIRS} {total} to {f.type}"), 0, _TOP)


def _widen_sums(f: Function, cross: Vec, half: int) -> Vec:
    """The eight sums of one vector of columns, as words."""
    order = ", ".join(f"i32 {8 * half + j}" for j in range(8))
    all_sums = f.emit_scalar(f"bitcast {f.type} {cross.name} to {_PAIRS}")
    eight = f.emit_scalar(f"shufflevector {_PAIRS} {all_sums}, {_PAIRS} zeroinitializer, <8 x i32> <{order}>")
    return Vec(f.emit_scalar(f"zext <8 x i32> {eight} to {f.type}"), 0, (1 << 32) - 1)
