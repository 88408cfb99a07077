"""The kernel of matrix products modulo 2^64: blocks of rows by panels of one or two vectors of columns.

On CPUs with AVX-512DQ LLVM compiles a product of lanes to ``vpmullq``; elsewhere to three 32-bit products.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.values import Vec

__all__ = ["PARAMETERS", "emit_ring_product"]

PARAMETERS = (
    "ptr noalias %out, ptr noalias %a, ptr noalias %b, i64 %blocks, i64 %rest, i64 %k, i64 %row, i64 %column, "
    "i64 %panels, i64 %width"
)
"""Where ``%row`` and ``%column`` are the strides of ``%a`` in words, ``%b`` is packed in ``%panels`` panels of ``%k``
rows, ``%width`` the words of a row of ``%out``, ``%blocks`` the blocks of `ROWS` rows and ``%rest`` the rows after
them. ``%k`` is at least 1."""
ROWS = 4
_TOP = (1 << 64) - 1


def emit_ring_product(f: Function, vectors: int) -> None:
    """``%out`` = ``%a`` · ``%b``, with panels of `vectors` vectors."""
    panel_words = vectors * f.lanes

    def block(panel: str, first: str, height: int) -> None:
        start = f.emit_scalar(f"mul i64 {panel}, {f.emit_scalar(f'mul i64 %k, {panel_words}')}")
        right = f.offset("%b", start)
        top = f.emit_scalar(f"mul i64 {first}, %row")
        lefts = [
            f.offset("%a", f.emit_scalar(f"add i64 {top}, {f.emit_scalar(f'mul i64 %row, {r}')}"))
            for r in range(height)
        ]

        def step(t: str, sums: list[Vec]) -> list[Vec]:
            base = f.emit_scalar(f"mul i64 {t}, {vectors}")
            columns = [f.load(right, f.emit_scalar(f"add i64 {base}, {v}")) for v in range(vectors)]
            place = f.emit_scalar(f"mul i64 {t}, %column")
            out = []
            for r, left in enumerate(lefts):
                factor = f.broadcast(left, place)
                for v, column in enumerate(columns):
                    out.append(f.add_wrapping(sums[r * vectors + v], f.mul_wrapping(factor, column)))
            return out

        sums = f.loop("%k", step, [(f.constant(0), _TOP)] * (height * vectors))
        column = f.emit_scalar(f"mul i64 {panel}, {panel_words}")
        for r in range(height):
            line = f.emit_scalar(f"mul i64 {f.emit_scalar(f'add i64 {first}, {r}')}, %width")
            target = f.offset("%out", f.emit_scalar(f"add i64 {line}, {column}"))
            for v in range(vectors):
                f.store(sums[r * vectors + v], target, v)

    def each_panel(panel: str, _: object) -> list[Vec]:
        def each_block(i: str, _: object) -> list[Vec]:
            block(panel, f.emit_scalar(f"mul i64 {i}, {ROWS}"), ROWS)
            return []

        f.loop("%blocks", each_block, perhaps=True)
        done = f.emit_scalar(f"mul i64 %blocks, {ROWS}")

        def each_row(i: str, _: object) -> list[Vec]:
            block(panel, f.emit_scalar(f"add i64 {done}, {i}"), 1)
            return []

        f.loop("%rest", each_row, perhaps=True)
        return []

    f.loop("%panels", each_panel, perhaps=True)
