"""Transforms of polynomials modulo X^N + 1, level by level, on numbers of `modular`.

A level of butterflies (x, y) → (x + w y, x − w y) makes numbers larger by p/2 + |y| / 8. `Modular` keeps the interval
of each value, and x is reduced in those levels where the sum could exceed 2^53; so the number of levels, and N with
it, is a constant of the kernel. Two levels at a time stay in registers. The last levels act within a vector: blocks of
as many vectors as there are lanes are transposed, and transposed back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from securevfl_crypto.engine.doubles import Doubles
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.transforms.modular import EXACT, PRIME, Modular, size_of

__all__ = ["ADD_PRODUCTS", "TRANSFORM", "emit_forward", "emit_inverse", "emit_sum_of_products"]

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


def _spread_out(m: Modular, x: Vec, y: Vec, root: tuple[str, str]) -> tuple[Vec, Vec]:
    """The butterfly of `emit_forward`: x + w y and x − w y."""
    product = m.times(y, *root)
    if m.check(x) + product.top > EXACT:
        x = m.reduce(x)
    return m.d.add(x, product), m.d.sub(x, product)


def _gather_in(m: Modular, x: Vec, y: Vec, root: tuple[str, str], *, last: tuple[str, str] | None = None) -> list[Vec]:
    """The butterfly of `emit_inverse`: x + y and w (x − y); `last`: the factor of the sum."""
    if m.check(x) + m.check(y) > EXACT:
        x, y = m.reduce(x), m.reduce(y)
    total = m.d.add(x, y)
    return [m.times(total, *last) if last else total, m.times(m.d.sub(x, y), *root)]


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
    return max(size_of(value) for value in values)


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
            work = _Passes(m, degree, PRIME)
            for number, levels in enumerate(passes):

                def compute(x: list[Vec], group: str, levels: list[int] = levels) -> list[Vec]:
                    half = len(x) // 2
                    root = _pair_of(m, degree, levels[0], group, 0, 1)
                    pairs = [_spread_out(m, x[k], x[k + half], root) for k in range(half)]
                    x = [*(a for a, _ in pairs), *(b for _, b in pairs)]
                    if len(levels) == 2:
                        roots = [_pair_of(m, degree, levels[1], group, more, 2) for more in (0, 1)]
                        x = [*_spread_out(m, x[0], x[1], roots[0]), *_spread_out(m, x[2], x[3], roots[1])]
                    return x

                def load(place: str, most: int, first: bool = not number) -> Vec:
                    return m.load_words(values, place, most) if first else m.load("%scratch", place, most)

                work.whole_vectors(levels, compute, load, lambda value, place: m.store(value, "%scratch", place))

            def finish(x: list[Vec], roots: str) -> list[Vec]:
                known, used, distance = _block_roots(m, roots), 0, f.lanes // 2
                while distance:
                    for start in range(0, f.lanes, 2 * distance):
                        for k in range(start, start + distance):
                            x[k], x[k + distance] = _spread_out(m, x[k], x[k + distance], known[used])
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
            work = _Passes(m, degree, PRIME)

            def begin(x: list[Vec], roots: str) -> list[Vec]:
                known, used, distance = _block_roots(m, roots), f.lanes - 1, 1
                while distance < f.lanes:
                    used -= f.lanes // 2 // distance
                    for number, start in enumerate(range(0, f.lanes, 2 * distance)):
                        for k in range(start, start + distance):
                            x[k], x[k + distance] = _gather_in(m, x[k], x[k + distance], known[used + number])
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
                        x = [*_gather_in(m, x[0], x[1], roots[0]), *_gather_in(m, x[2], x[3], roots[1])]
                    root = _pair_of(m, degree, levels[0], group, 0, 1)
                    pairs = [_gather_in(m, x[k], x[k + half], root, last=last) for k in range(half)]
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
                before = m.load_words("%total", place, PRIME)
                product = m.product(m.load_words(a, place, PRIME), m.load_words(b, place, PRIME))
                m.store_words(d.add(before, product), "%total", place)
                return []

            f.loop("%vectors", vector)
            return []

        f.loop("%count", row, perhaps=True)

    d.to_nearest(emit)
