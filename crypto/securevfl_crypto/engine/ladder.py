"""Kernels over blocks of lanes: X25519's ladder, and division of many numerators by many denominators.

Arrays of coordinates are *planes*: word k of point i stands at [k, i], so that a vector loads the same word of as many
points as it has lanes. Arrays of field elements between kernels are [block, limb, lane].
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Mask, Vec
from securevfl_crypto.engine.field import Element, Field

__all__ = [
    "BLOCKS",
    "emit_division",
    "emit_field_squarings",
    "emit_inversion",
    "emit_ladder",
    "emit_multiplication",
    "load_planes",
]

BLOCKS = 64
"""Blocks that share an inversion; their coordinates stay in the cache."""
_A24 = 121665


def load_planes(field: Field, base: str, stride: str, block: str, words: range) -> list[Vec]:
    """Words of one block of points; `stride` is a plane's length in points."""
    f = field.f
    start = f.emit_scalar(f"mul i64 {block}, {f.lanes}")
    out = []
    for word in words:
        plane = f.emit_scalar(f"mul i64 {stride}, {word}")
        out.append(f.load(f.offset(base, f.emit_scalar(f"add i64 {plane}, {start}"))))
    return out


def store_planes(field: Field, base: str, stride: str, block: str, words: list[Vec]) -> None:
    """Words of one block of points, back into planes."""
    f = field.f
    start = f.emit_scalar(f"mul i64 {block}, {f.lanes}")
    for word, value in enumerate(words):
        plane = f.emit_scalar(f"mul i64 {stride}, {word}")
        f.store(value, f.offset(base, f.emit_scalar(f"add i64 {plane}, {start}")))


def store_fraction(field: Field, numerator: Element, denominator: Element, block: str) -> None:
    """Numerator and denominator for `emit_division`; a denominator of 0 becomes 0/1."""
    f = field.f
    first = f.emit_scalar(f"mul i64 {block}, {field.count}")
    zero = field.is_zero(denominator)
    below = field.select(zero, field.constant(1), field.settle(denominator))
    above = field.select(zero, field.constant(0), field.settle(numerator))
    field.store(above, "%num", first)
    field.store(below, "%den", first)


def _ladder_step(field: Field, x1: Element, point: list[Element], other: Mask) -> list[Element]:
    """RFC 7748, section 5: one differential addition and one doubling, of the second point where `other` is set.

    The conditional swap of the RFC is taken where sums and differences are known: the doubled point is (A, B) or
    (C, D), and DA, CB only trade places, which neither their sum nor their difference's square sees.
    """
    x2, z2, x3, z3 = point
    a, b = field.narrow(field.add(x2, z2)), field.narrow(field.sub(x2, z2))
    c, d = field.narrow(field.add(x3, z3)), field.narrow(field.sub(x3, z3))
    plus, minus = field.select(other, c, a), field.select(other, d, b)
    da, cb = field.side_by_side(lambda: field.mul(d, a), lambda: field.mul(c, b))
    aa, bb = field.side_by_side(lambda: field.square(plus), lambda: field.square(minus))
    total, apart = field.side_by_side(lambda: field.narrow(field.add(da, cb)), lambda: field.narrow(field.sub(da, cb)))
    aa_narrow, bb_narrow, e = field.narrow(aa), field.narrow(bb), field.narrow(field.sub(aa, bb))
    x_sum, apart2 = field.side_by_side(lambda: field.square(total), lambda: field.square(apart))
    scaled, apart2_narrow = field.side_by_side(
        lambda: field.narrow(field.mul_add_small(aa, e, _A24)), lambda: field.narrow(apart2)
    )
    x_double, z_double = field.side_by_side(lambda: field.mul(aa_narrow, bb_narrow), lambda: field.mul(e, scaled))
    return [x_double, z_double, x_sum, field.mul(x1, apart2_narrow)]


def emit_ladder(field: Field) -> None:
    """``(planes in, i64 stride, i8 swaps[255], num, den, i64 blocks)``: X and Z of k·P for all points.

    `swaps` holds, for the bits of k from 254 down to 0, whether the bit differs from the one before. The RFC's last
    swap, by bit 0, is left out: clamping clears that bit.
    """
    f = field.f
    zero, one = field.constant(0), field.constant(1)

    def block(index: str, _: list[Vec]) -> list[Vec]:
        x1 = field.unpack(load_planes(field, "%in", "%stride", index, range(4)))
        factor = field.narrow(x1)

        def bit(step: str, point: list[Element]) -> list[Element]:
            return _ladder_step(field, factor, point, f.load_flag("%swaps", step))

        x2, z2, _, _ = field.loop(255, bit, [one, zero, x1, one])
        store_fraction(field, x2, z2, index)
        return []

    f.loop("%blocks", block)


def emit_multiplication(field: Field) -> None:
    """``(out, a, b)``: one settled element each."""
    field.store(field.settle(field.mul(field.load("%a"), field.load("%b"))), "%out")


def emit_field_squarings(field: Field, width: int) -> None:
    """``(out, a, i64 n)``: a^(2^n) of `width` elements side by side, whose latencies overlap."""

    def body(_: str, elements: list[Element]) -> list[Element]:
        def job(element: Element) -> Element:
            return field.square(field.narrow(element))

        return field.side_by_side(*((lambda element=element: job(element)) for element in elements))

    start = [field.load("%a", k * field.count) for k in range(width)]
    for k, element in enumerate(field.loop("%n", body, start)):
        field.store(field.settle(element), "%out", k * field.count)


def emit_inversion(field: Field) -> None:
    """``(out, z)``: z^(p − 2) by the chain of 254 squarings and 11 products of Bernstein 2006, for one element."""
    f = field.f

    def square(x: str, times: int) -> str:
        out = f.allocate(field.count)
        f.call("squarings1", f"ptr {out}", f"ptr {x}", f"i64 {times}")
        return out

    def mul(x: str, y: str) -> str:
        out = f.allocate(field.count)
        f.call("multiplication", f"ptr {out}", f"ptr {x}", f"ptr {y}")
        return out

    z2 = square("%z", 1)
    z9 = mul(square(z2, 2), "%z")
    z11 = mul(z9, z2)
    e5 = mul(square(z11, 1), z9)  # e_n: exponent 2^n − 1
    e10 = mul(square(e5, 5), e5)
    e20 = mul(square(e10, 10), e10)
    e40 = mul(square(e20, 20), e20)
    e50 = mul(square(e40, 10), e10)
    e100 = mul(square(e50, 50), e50)
    e200 = mul(square(e100, 100), e100)
    e250 = mul(square(e200, 50), e50)
    f.call("multiplication", "ptr %out", f"ptr {square(e250, 5)}", f"ptr {z11}")


def emit_division(field: Field) -> None:
    """``(planes out, i64 stride, num, den, scratch, i64 blocks)``: canonical quotients, at least two blocks.

    One inversion for all blocks: Montgomery's trick (Speeding the Pollard and elliptic curve methods, 1987, 10.3.1).
    """
    f, n = field.f, field.count
    first = field.load("%den")
    field.store(first, "%scratch")

    def at(index: str) -> str:
        return f.emit_scalar(f"mul i64 {index}, {n}")

    def forward(index: str, state: list[Vec]) -> list[Vec]:
        here = at(f.emit_scalar(f"add i64 {index}, 1"))
        product = field.settle(field.mul(state, field.load("%den", here)))
        field.store(product, "%scratch", here)
        return product

    rest = f.emit_scalar("sub i64 %blocks, 1")
    whole = f.allocate(n)
    inverse = f.allocate(n)
    field.store(f.loop(rest, forward, list(zip(first, field.tops, strict=True))), whole)
    f.call("inversion", f"ptr {inverse}", f"ptr {whole}")

    def quotient(reciprocal: Element, block: str) -> None:
        value = field.mul(reciprocal, field.load("%num", at(block)))
        store_planes(field, "%out", "%stride", block, field.pack(field.freeze(value)))

    def backward(index: str, state: list[Vec]) -> list[Vec]:
        block = f.emit_scalar(f"sub i64 {rest}, {index}")
        before = field.load("%scratch", at(f.emit_scalar(f"sub i64 {block}, 1")))
        quotient(field.settle(field.mul(state, before)), block)
        return field.settle(field.mul(state, field.load("%den", at(block))))

    last = f.loop(rest, backward, list(zip(field.load(inverse), field.tops, strict=True)))
    quotient(last, "0")
