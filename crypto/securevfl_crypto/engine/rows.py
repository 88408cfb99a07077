"""Long numbers as rows, limb after limb, and their conversion to lanes and back.

A batch is stored as [block, limb, lane]. Tables are stored as rows, with the limbs of one number together in memory,
because each lane looks up another entry. Both have the same stride: limbs rounded up to a multiple of `GROUP`; the
added limbs have no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.limbs import Limbs

__all__ = ["GROUP", "block_address", "copy_block", "gather_rows", "prefetch_rows", "row_stride", "scatter_rows"]

GROUP = 8
"""Words of a cache line. It is a multiple of every path's lanes, and after as many limbs one begins at a byte."""


def row_stride(f: Function, limbs: Limbs) -> str:
    """The stride: words of a row, or vectors of a block."""
    length = f.emit_scalar(f"mul i64 %tiles, {limbs.tile}")
    return f.emit_scalar(f"and i64 {f.emit_scalar(f'add i64 {length}, {GROUP - 1}')}, {-GROUP}")


def block_address(f: Function, base: str, index: str | int, step: str) -> str:
    """The address of block `index`, where blocks are `step` vectors long."""
    return f.emit_scalar(f"getelementptr {f.type}, ptr {base}, i64 {f.emit_scalar(f'mul i64 {index}, {step}')}")


def _transpose_lanes(f: Function, vectors: Sequence[Vec]) -> list[Vec]:
    """Transpose as many vectors as there are lanes, by exchanging halves, quarters, ..."""
    state = list(vectors)
    distance = 1
    while distance < f.lanes:
        low = [k if not k & distance else f.lanes + k - distance for k in range(f.lanes)]
        high = [k + distance if not k & distance else f.lanes + k for k in range(f.lanes)]
        following = list(state)
        for i in range(f.lanes):
            if not i & distance:
                following[i] = f.shuffle(state[i], state[i + distance], low)
                following[i + distance] = f.shuffle(state[i], state[i + distance], high)
        state, distance = following, 2 * distance
    return state


def _row_addresses(f: Function, rows: str, index: str, step: str) -> list[str]:
    """The addresses of the rows whose numbers are stored at `index`, one for each lane."""
    out = []
    for lane in range(f.lanes):
        number = f.emit_scalar(f"load i64, ptr {f.offset(index, str(lane))}, align 8")
        out.append(f.offset(rows, f.emit_scalar(f"mul i64 {number}, {step}")))
    return out


def gather_rows(f: Function, limbs: Limbs, out: str, rows: str, index: str, step: str) -> None:
    """Copy rows into a block. The rows' numbers are addresses, which can be observed through the caches."""
    sources = _row_addresses(f, rows, index, step)

    def body(group: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {group}, {f.lanes}")
        lanes = _transpose_lanes(f, [f.load(f.offset(source, first), 0, limbs.top) for source in sources])
        for k, value in enumerate(lanes):
            f.store(value, out, f.emit_scalar(f"add i64 {first}, {k}"))
        return []

    f.loop(f.emit_scalar(f"udiv i64 {step}, {f.lanes}"), body)


def scatter_rows(f: Function, rows: str, targets: Sequence[str], block: str, step: str) -> None:
    """Copy a block into rows.

    Args:
        targets: the numbers of the rows, one for each lane.
    """
    places = [f.offset(rows, f.emit_scalar(f"mul i64 {target}, {step}")) for target in targets]

    def body(group: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {group}, {f.lanes}")
        vectors = [f.load(block, f.emit_scalar(f"add i64 {first}, {k}")) for k in range(f.lanes)]
        for place, value in zip(places, _transpose_lanes(f, vectors), strict=True):
            f.store(value, f.offset(place, first))
        return []

    f.loop(f.emit_scalar(f"udiv i64 {step}, {f.lanes}"), body)


def prefetch_rows(f: Function, rows: str, index: str, step: str) -> None:
    """Prefetch the rows that will be gathered next."""
    sources = _row_addresses(f, rows, index, step)

    def body(line: str, _: list[Vec]) -> list[Vec]:
        first = f.emit_scalar(f"mul i64 {line}, {GROUP}")
        for source in sources:
            f.emit(f"call void @llvm.prefetch.p0(ptr {f.offset(source, first)}, i32 0, i32 2, i32 1)")
        return []

    f.loop(f.emit_scalar(f"udiv i64 {step}, {GROUP}"), body)


def copy_block(f: Function, out: str, source: str, step: str) -> None:
    """Copy one block."""

    def body(index: str, _: list[Vec]) -> list[Vec]:
        f.store(f.load(source, index), out, index)
        return []

    f.loop(step, body)
