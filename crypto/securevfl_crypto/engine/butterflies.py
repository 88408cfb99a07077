"""Transforms modulo primes below 2^50 in doubles, for polynomials modulo X^N + 1; every bound is proved at emission.

A number modulo p is a double with an exact integer, of either sign and up to 2^53 in size. With a constant w (|w| ≤
p/2) and w/p rounded to a double, a product takes six operations:

    q = ⌊a · (w/p)⌉     h = a · w rounded     l = a · w − h     r = (h − q · p) + l

q differs from a w / p by at most ½ + |a| 2^-53 (1 + 2^-50), so |r| ≤ p/2 + |a| / 8 and a little. l is exact, since h is
the double next to a w. So is h − q p = r − l: an integer below 2^53. Hence r is exactly a w − q p. Products modulo p by
such doubles are known from floating-point FFT multiplication (van der Hoeven, Lecerf and Quintin, Modular SIMD
arithmetic in Mathemagix, ACM TOMS 43 (2016), section 3).

A level of butterflies (x, y) → (x + w y, x − w y) makes numbers larger by p/2 + |y| / 8. `Modular` keeps the interval
of each value, and x is reduced in those levels where the sum could exceed 2^53; so the number of levels, and N with
it, is a constant of the kernel. Two levels at a time stay in registers. The last levels act within a vector: blocks of
as many vectors as there are lanes are transposed, and transposed back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from securevfl_crypto.engine.doubles import Doubles
from securevfl_crypto.engine.emitter import BoundError, Function, Vec

__all__ = ["ADD_PRODUCTS", "TRANSFORM", "declarations", "emit_forward", "emit_inverse", "emit_sum_of_products"]

TRANSFORM = (
    "ptr noalias %out, ptr noalias %values, ptr noalias %table, ptr noalias %scratch, i64 %count, i64 %out_row, "
    "i64 %row"
)
"""Rows of N words, ``%out_row`` and ``%row`` words apart. ``%table``: doubles p, 1/p, 1/N and 1/N/p (modulo p), four
not used; then N roots, N roots over p, and for each block of the last levels its roots and its roots over p, one
vector after another. ``%scratch``: N doubles."""
ADD_PRODUCTS = (
    "ptr noalias %total, ptr noalias %a, ptr noalias %b, ptr noalias %table, i64 %count, i64 %a_row, i64 %b_row, "
    "i64 %vectors"
)
"""``%total`` of ``%vectors`` vectors below p, and ``%count`` rows of the same."""
_HEAD = 8
_PRIME = 1 << 50
_EXACT = 1 << 53
_MIDDLE = 3 << 51
"""Between 2^52 and 2^53 doubles are the integers."""
_MIDDLE_BITS = 0x4338000000000000


def declarations(lanes: int) -> list[str]:
    """What LLVM must know beside `doubles.declarations`."""
    vector = f"<{lanes} x double>"
    return [f"declare {vector} @llvm.roundeven.v{lanes}f64({vector})"]


class Modular:
    """Numbers modulo a prime that the kernel is given, as doubles.

    Args:
        f: into which instructions go.
        table: whose first two doubles are p and 1/p.
    """

    def __init__(self, f: Function, table: str) -> None:
        self.f, self.d = f, Doubles(f)
        self.type = f"<{f.lanes} x double>"
        self.prime, self.over = self.spread(table, 0), self.spread(table, 1)

    def spread(self, pointer: str, index: str | int) -> str:
        """The double `index` doubles on, in all lanes."""
        address = self.f.emit_scalar(f"getelementptr double, ptr {pointer}, i64 {index}")
        one = self.f.emit_scalar(f"load double, ptr {address}, align 8")
        first = self.f.emit_scalar(f"insertelement {self.type} zeroinitializer, double {one}, i32 0")
        zeros = f"<{self.f.lanes} x i32> zeroinitializer"
        return self.f.emit_scalar(f"shufflevector {self.type} {first}, {self.type} zeroinitializer, {zeros}")

    def spread_pair(self, pointer: str, index: str, apart: int) -> tuple[str, str]:
        """A root, and the root over p, which is `apart` doubles on."""
        return self.spread(pointer, index), self.spread(pointer, self.f.emit_scalar(f"add i64 {index}, {apart}"))

    def load(self, pointer: str, index: str | int, most: int) -> Vec:
        """Doubles of at most `most` in size, `index` vectors on."""
        address = self.f.emit_scalar(f"getelementptr {self.type}, ptr {pointer}, i64 {index}")
        return Vec(self.f.emit_scalar(f"load {self.type}, ptr {address}, align 8"), -most, most, double=True)

    def store(self, value: Vec, pointer: str, index: str | int) -> None:
        """Store doubles."""
        address = self.f.emit_scalar(f"getelementptr {self.type}, ptr {pointer}, i64 {index}")
        self.f.emit(f"store {self.type} {value.name}, ptr {address}, align 8")

    def load_words(self, pointer: str, index: str | int, most: int) -> Vec:
        """Signed words of at most `most` in size, which is below 2^51 by the caller's contract."""
        if most >> 51:
            raise BoundError(f"{self.f.name}: words of up to {most:#x} become doubles")
        word = self.f.load(pointer, index)
        moved = self.f.add_wrapping(word, self.f.constant(_MIDDLE_BITS))
        name = self.f.emit_scalar(f"bitcast {self.f.type} {moved.name} to {self.type}")
        name = self.f.emit_scalar(f"fsub {self.type} {name}, {self.d.constant(_MIDDLE).name}")
        return Vec(name, -most, most, double=True)

    def store_words(self, value: Vec, pointer: str, index: str | int) -> None:
        """Store the numbers from 0 to p − 1."""
        small = self.reduce(value) if max(-value.low, value.top) > _PRIME // 2 + 2 else value
        # Of p/2 + 2 at most, so adding p where it is negative is enough.
        below = self.f.emit_scalar(f"fcmp olt {self.type} {small.name}, zeroinitializer")
        more = self.f.emit_scalar(
            f"select <{self.f.lanes} x i1> {below}, {self.type} {self.prime}, {self.type} zeroinitializer"
        )
        name = self.f.emit_scalar(f"fadd {self.type} {small.name}, {more}")
        name = self.f.emit_scalar(f"fadd {self.type} {name}, {self.d.constant(_MIDDLE).name}")
        word = self.f.emit_scalar(f"bitcast {self.type} {name} to {self.f.type}")
        word = self.f.emit_scalar(f"sub {self.f.type} {word}, {self.f.constant(_MIDDLE_BITS).name}")
        self.f.store(Vec(word, 0, _PRIME), pointer, index)

    def times(self, a: Vec, factor: str, over: str) -> Vec:
        """a · factor less a multiple of p, for |factor| ≤ p/2 and over = factor / p."""
        most = self._most(a)
        quotient = self._round(self.f.emit_scalar(f"fmul {self.type} {a.name}, {over}"))
        return self._less(a.name, factor, quotient, _PRIME // 2 + (most >> 3) + (most >> 40) + 1)

    def product(self, a: Vec, b: Vec) -> Vec:
        """a · b less a multiple of p, for both at most p in size."""
        if max(self._most(a), self._most(b)) > _PRIME:
            raise BoundError(f"{self.f.name}: a product of numbers that are not reduced")
        high = self.f.emit_scalar(f"fmul {self.type} {a.name}, {b.name}")
        quotient = self._round(self.f.emit_scalar(f"fmul {self.type} {high}, {self.over}"))
        # Three roundings of at most 2^50 · 2^-53 each.
        return self._less(a.name, b.name, quotient, _PRIME // 2 + 3 * (_PRIME >> 3) + 8)

    def reduce(self, a: Vec) -> Vec:
        """a less a multiple of p: p/2 and 2 at most in size."""
        self._most(a)
        quotient = self._round(self.f.emit_scalar(f"fmul {self.type} {a.name}, {self.over}"))
        most = _PRIME // 2 + 2
        return Vec(self._fma(self._negate(quotient), self.prime, a.name), -most, most, double=True)

    def _most(self, a: Vec) -> int:
        most = max(-a.low, a.top)
        if not a.double or most > _EXACT:
            raise BoundError(f"{self.f.name}: {a.name} in [{a.low}, {a.top}] is no exact double")
        return most

    def _less(self, a: str, b: str, quotient: str, most: int) -> Vec:
        high = self.f.emit_scalar(f"fmul {self.type} {a}, {b}")
        low = self._fma(a, b, self._negate(high))
        rest = self._fma(self._negate(quotient), self.prime, high)
        return Vec(self.f.emit_scalar(f"fadd {self.type} {rest}, {low}"), -most, most, double=True)

    def _round(self, name: str) -> str:
        return self.f.emit_scalar(f"call {self.type} @llvm.roundeven.v{self.f.lanes}f64({self.type} {name})")

    def _negate(self, name: str) -> str:
        return self.f.emit_scalar(f"fneg {self.type} {name}")

    def _fma(self, a: str, b: str, c: str) -> str:
        arguments = ", ".join(f"{self.type} {name}" for name in (a, b, c))
        return self.f.emit_scalar(f"call {self.type} @llvm.fma.v{self.f.lanes}f64({arguments})")

    # Butterflies

    def spread_out(self, x: Vec, y: Vec, root: tuple[str, str]) -> tuple[Vec, Vec]:
        """The butterfly of `emit_forward`: x + w y and x − w y."""
        product = self.times(y, *root)
        if self._most(x) + product.top > _EXACT:
            x = self.reduce(x)
        return self.d.add(x, product), self.d.sub(x, product)

    def gather_in(self, x: Vec, y: Vec, root: tuple[str, str], *, last: tuple[str, str] | None = None) -> list[Vec]:
        """The butterfly of `emit_inverse`: x + y and w (x − y); `last`: the factor of the sum."""
        if self._most(x) + self._most(y) > _EXACT:
            x, y = self.reduce(x), self.reduce(y)
        total = self.d.add(x, y)
        return [self.times(total, *last) if last else total, self.times(self.d.sub(x, y), *root)]


def transpose(f: Function, rows: Sequence[Vec]) -> list[Vec]:
    """The transposed block of as many vectors as there are lanes."""
    found, kind = list(rows), f"<{f.lanes} x double>"
    distance = f.lanes // 2
    while distance:
        # Swaps the blocks of `distance` lanes beside the diagonal.
        upper = [k if not k & distance else f.lanes + k - distance for k in range(f.lanes)]
        lower = [k + distance if not k & distance else f.lanes + k for k in range(f.lanes)]
        for k in range(f.lanes):
            if not k & distance:
                a, b = found[k], found[k + distance]
                found[k], found[k + distance] = _shuffle(f, kind, a, b, upper), _shuffle(f, kind, a, b, lower)
        distance //= 2
    return found


def _shuffle(f: Function, kind: str, a: Vec, b: Vec, lanes: Sequence[int]) -> Vec:
    order = ", ".join(f"i32 {lane}" for lane in lanes)
    text = f"shufflevector {kind} {a.name}, {kind} {b.name}, <{f.lanes} x i32> <{order}>"
    return Vec(f.emit_scalar(text), min(a.low, b.low), max(a.top, b.top), double=True)


def _levels(f: Function, degree: int) -> tuple[list[list[int]], int]:
    """The levels that act on whole vectors, two at a time but for the first; and the number of those within one."""
    within = f.lanes.bit_length() - 1
    whole = list(range(degree.bit_length() - 1 - within))
    first = whole[: len(whole) % 2]
    pairs = [whole[k : k + 2] for k in range(len(first), len(whole), 2)]
    return ([first] if first else []) + pairs, within


def _most_of(values: Sequence[Vec]) -> int:
    return max(max(-value.low, value.top) for value in values)


def _times(f: Function, index: str, factor: int) -> str:
    return f.emit_scalar(f"mul i64 {index}, {factor}")


def _plus(f: Function, index: str, more: str | int) -> str:
    return f.emit_scalar(f"add i64 {index}, {more}")


def _each_row(f: Function, body: Callable[[str, str], None]) -> None:
    def row(index: str, _: object) -> list[Vec]:
        out = f.offset("%out", f.emit_scalar(f"mul i64 {index}, %out_row"))
        body(out, f.offset("%values", f.emit_scalar(f"mul i64 {index}, %row")))
        return []

    f.loop("%count", row, perhaps=True)


class _Passes:
    """Passes over the numbers of one polynomial; each knows how large the numbers are that the one before left."""

    def __init__(self, m: Modular, degree: int, most: int) -> None:
        self.m, self.f, self.degree, self.most = m, m.f, degree, most

    def whole_vectors(
        self,
        levels: Sequence[int],
        compute: Callable[[list[Vec], str], Sequence[Vec]],
        load: Callable[[str, int], Vec],
        store: Callable[[Vec, str], None],
    ) -> None:
        """One or two levels: `compute` takes the 2 or 4 vectors of a butterfly and the number of its group."""
        f, parts = self.f, 1 << len(levels)
        groups = 1 << levels[0]
        apart = self.degree // f.lanes // groups // parts
        results: list[Vec] = []

        def group(index: str, _: object) -> list[Vec]:
            first = _times(f, index, apart * parts)

            def vector(place: str, _: object) -> list[Vec]:
                here = [_plus(f, _plus(f, first, place), part * apart) for part in range(parts)]
                results[:] = compute([load(one, self.most) for one in here], index)
                for value, one in zip(results, here, strict=True):
                    store(value, one)
                return []

            f.loop(apart, vector)
            return []

        f.loop(groups, group)
        self.most = _most_of(results)

    def within_vectors(
        self,
        compute: Callable[[list[Vec], str], Sequence[Vec]],
        load: Callable[[str, int], Vec],
        store: Callable[[Vec, str], None],
    ) -> None:
        """The levels within a vector: `compute` takes a transposed block and the address of its roots."""
        f = self.f
        results: list[Vec] = []

        def block(index: str, _: object) -> list[Vec]:
            first = _times(f, index, f.lanes)
            here = [_plus(f, first, k) for k in range(f.lanes)]
            rows = transpose(f, [load(one, self.most) for one in here])
            roots = f.offset("%table", _plus(f, _times(f, index, 2 * (f.lanes - 1) * f.lanes), _HEAD + 2 * self.degree))
            results[:] = compute(rows, roots)
            for value, one in zip(transpose(f, results), here, strict=True):
                store(value, one)
            return []

        f.loop(self.degree // f.lanes // f.lanes, block)
        self.most = _most_of(results)


def _block_roots(m: Modular, roots: str) -> list[tuple[str, str]]:
    """Of a block: for level 0 one vector of roots, for level 1 two …, each with its roots over p."""
    lanes = m.f.lanes
    return [(m.load(roots, k, 0).name, m.load(roots, lanes - 1 + k, 0).name) for k in range(lanes - 1)]


def _pair_of(m: Modular, degree: int, level: int, group: str, more: int, factor: int) -> tuple[str, str]:
    """The root of group ``factor · group + more`` of a level."""
    index = _plus(m.f, _times(m.f, group, factor), _HEAD + (1 << level) + more)
    return m.spread_pair("%table", index, degree)


def emit_forward(f: Function, degree: int) -> None:
    """``%out`` = the transforms of ``%values``, signed words of at most 2^50 in size."""
    d = Doubles(f)
    passes, _ = _levels(f, degree)

    def emit() -> None:
        m = Modular(f, "%table")

        def polynomial(out: str, values: str) -> None:
            work = _Passes(m, degree, _PRIME)
            for number, levels in enumerate(passes):

                def compute(x: list[Vec], group: str, levels: list[int] = levels) -> list[Vec]:
                    half = len(x) // 2
                    root = _pair_of(m, degree, levels[0], group, 0, 1)
                    pairs = [m.spread_out(x[k], x[k + half], root) for k in range(half)]
                    x = [*(a for a, _ in pairs), *(b for _, b in pairs)]
                    if len(levels) == 2:
                        roots = [_pair_of(m, degree, levels[1], group, more, 2) for more in (0, 1)]
                        x = [*m.spread_out(x[0], x[1], roots[0]), *m.spread_out(x[2], x[3], roots[1])]
                    return x

                def load(place: str, most: int, first: bool = not number) -> Vec:
                    return m.load_words(values, place, most) if first else m.load("%scratch", place, most)

                work.whole_vectors(levels, compute, load, lambda value, place: m.store(value, "%scratch", place))

            def finish(x: list[Vec], roots: str) -> list[Vec]:
                known, used, distance = _block_roots(m, roots), 0, f.lanes // 2
                while distance:
                    for start in range(0, f.lanes, 2 * distance):
                        for k in range(start, start + distance):
                            x[k], x[k + distance] = m.spread_out(x[k], x[k + distance], known[used])
                        used += 1
                    distance //= 2
                return x

            work.within_vectors(
                finish,
                lambda place, most: m.load("%scratch", place, most),
                lambda value, place: m.store_words(value, out, place),
            )

        _each_row(f, polynomial)

    d.to_nearest(emit)


def emit_inverse(f: Function, degree: int) -> None:
    """``%out`` = the inverse transforms of ``%values``, below p. The table has the inverse roots, and the first of
    them, that of the last level, times 1/N."""
    d = Doubles(f)
    passes, _ = _levels(f, degree)

    def emit() -> None:
        m = Modular(f, "%table")
        scale = m.spread("%table", 2), m.spread("%table", 3)

        def polynomial(out: str, values: str) -> None:
            work = _Passes(m, degree, _PRIME)

            def begin(x: list[Vec], roots: str) -> list[Vec]:
                known, used, distance = _block_roots(m, roots), f.lanes - 1, 1
                while distance < f.lanes:
                    used -= f.lanes // 2 // distance
                    for number, start in enumerate(range(0, f.lanes, 2 * distance)):
                        for k in range(start, start + distance):
                            x[k], x[k + distance] = m.gather_in(x[k], x[k + distance], known[used + number])
                    distance *= 2
                return x

            work.within_vectors(
                begin,
                lambda place, most: m.load_words(values, place, most),
                lambda value, place: m.store(value, "%scratch", place),
            )
            for levels in reversed(passes):
                last = scale if levels[0] == 0 else None

                def compute(
                    x: list[Vec], group: str, levels: list[int] = levels, last: tuple[str, str] | None = last
                ) -> list[Vec]:
                    half = len(x) // 2
                    if len(levels) == 2:
                        roots = [_pair_of(m, degree, levels[1], group, more, 2) for more in (0, 1)]
                        x = [*m.gather_in(x[0], x[1], roots[0]), *m.gather_in(x[2], x[3], roots[1])]
                    root = _pair_of(m, degree, levels[0], group, 0, 1)
                    pairs = [m.gather_in(x[k], x[k + half], root, last=last) for k in range(half)]
                    return [*(a for a, _ in pairs), *(b for _, b in pairs)]

                def store(value: Vec, place: str, last: bool = last is not None) -> None:
                    if last:
                        m.store_words(value, out, place)
                    else:
                        m.store(value, "%scratch", place)

                work.whole_vectors(levels, compute, lambda place, most: m.load("%scratch", place, most), store)

        _each_row(f, polynomial)

    d.to_nearest(emit)


def emit_sum_of_products(f: Function) -> None:
    """``%total`` += Σ ``%a`` · ``%b``, row by row."""
    d = Doubles(f)

    def emit() -> None:
        m = Modular(f, "%table")

        def row(index: str, _: object) -> list[Vec]:
            a = f.offset("%a", f.emit_scalar(f"mul i64 {index}, %a_row"))
            b = f.offset("%b", f.emit_scalar(f"mul i64 {index}, %b_row"))

            def vector(place: str, _: object) -> list[Vec]:
                before = m.load_words("%total", place, _PRIME)
                product = m.product(m.load_words(a, place, _PRIME), m.load_words(b, place, _PRIME))
                m.store_words(d.add(before, product), "%total", place)
                return []

            f.loop("%vectors", vector)
            return []

        f.loop("%count", row, perhaps=True)

    d.to_nearest(emit)
