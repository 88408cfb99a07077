"""The kernels of long numbers. Calls release Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from securevfl_crypto.engine import batches, conversions, montgomery, pairs, rows, tables
from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.library import load_part
from securevfl_crypto.engine.limbs import MOST_BITS, Limbs, limbs_for
from securevfl_crypto.engine.parts import KernelTable, LoadedPart, Part, argument_types

__all__ = ["LongKernels", "limb_widths", "long_kernels", "long_part", "long_text"]

_C = montgomery.CONTEXT
_EACH = _C + ", i64 %blocks"


def _emit_gather(f: Function, limbs: Limbs) -> None:
    rows.gather_rows(f, limbs, "%out", "%rows", "%index", rows.row_stride(f, limbs))
    rows.prefetch_rows(f, "%rows", f.offset("%index", str(f.lanes)), rows.row_stride(f, limbs))


_KERNELS: dict[str, tuple[str, Callable[[Function, Limbs], None]]] = {
    "multiply": (f"ptr %out, ptr %a, ptr %b, {_C}", montgomery.emit_multiplying),
    "square": (f"ptr %out, ptr %a, {_C}", montgomery.emit_squaring),
    "reduction": (f"ptr %out, {_C}", montgomery.emit_reduction),
    "powers": (f"ptr %table, ptr %a, ptr %one, i64 %entries, {_C}", batches.emit_powers),
    "select": ("ptr noalias %out, ptr %table, ptr %digit, i64 %entries, i64 %tiles", batches.emit_selection),
    "scan": ("ptr noalias %out, ptr %table, ptr %digits, i64 %tiles", tables.emit_scan),
    "gather": ("ptr noalias %out, ptr %rows, ptr %index, i64 %tiles", _emit_gather),
    "enter": (f"ptr %out, ptr %a, ptr %constants, {_EACH}", batches.emit_entering),
    "products": (f"ptr %out, ptr %a, ptr %b, i64 %step, {_EACH}", batches.emit_products),
    "squarings": (f"ptr %out, i64 %times, {_EACH}", batches.emit_squarings),
    "power": (
        f"ptr %out, ptr %a, ptr %one, ptr %digits, i64 %count, i64 %window, ptr %scratch, {_EACH}",
        batches.emit_power,
    ),
    "subsets": (f"ptr %rows, ptr %a, ptr %one, i64 %count, ptr %scratch, {_EACH}", tables.emit_subsets),
    "entry_products": (
        f"ptr %out, ptr %rows, ptr %index, i64 %levels, i64 %squarings, i64 %factors, ptr %scratch, {_EACH}",
        tables.emit_entry_products,
    ),
    "scanned_products": (
        f"ptr %out, ptr %tables, ptr %digits, i64 %factors, ptr %scratch, {_EACH}",
        tables.emit_scanned_products,
    ),
    "prefix_products": (
        f"ptr %prefixes, ptr %rows, ptr %index, i64 %count, ptr %one, ptr %scratch, {_EACH}",
        tables.emit_prefix_products,
    ),
    "unpack": (
        "ptr %out, ptr %above, ptr %bytes, i64 %width, ptr %m, i64 %tiles, i64 %blocks",
        conversions.emit_unpacking,
    ),
    "pack": ("ptr %bytes, ptr %a, i64 %width, i64 %tiles, i64 %blocks", conversions.emit_packing),
    "leave": (f"ptr %out, ptr %a, ptr %complement, {_EACH}", conversions.emit_leaving),
}
_PAIRS = {
    "multiply": pairs.emit_pair_multiplying,
    "square": pairs.emit_pair_squaring,
    "enter": pairs.emit_pair_entering,
    "leave": pairs.emit_pair_leaving,
}
"""The kernels that differ modulo squares."""


_CALLED = (
    "enter",
    "products",
    "squarings",
    "power",
    "subsets",
    "entry_products",
    "scanned_products",
    "prefix_products",
    "unpack",
    "pack",
    "leave",
)
"""The kernels that Python calls; the others are called by these."""


def long_text(limbs: Limbs, lanes: int, *, squares: bool = False) -> str:
    """All kernels in LLVM IR, modulo any number, or modulo squares (`pairs`).

    Raises:
        BoundError: the arithmetic could overflow for numbers of `limbs.most` limbs. This does not depend on data.
    """
    vector = f"<{lanes} x i64>"
    out = ["declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"]
    if lanes == 8:
        out.append(f"declare {vector} @llvm.x86.avx512.vpermi2var.q.512({vector}, {vector}, {vector})")
    else:
        out.append("declare <8 x i32> @llvm.x86.avx2.permd(<8 x i32>, <8 x i32>)")
    if limbs.halves == 2:
        three = ", ".join([vector] * 3)
        out += [f"declare {vector} @llvm.x86.avx512.vpmadd52{half}.uq.512({three})" for half in "lh"]
    for name, (parameters, emit) in _KERNELS.items():
        function = Function(name, parameters, lanes, "nounwind noinline")
        (_PAIRS.get(name, emit) if squares else emit)(function, limbs)
        out.append(function.to_text())
    return "\n".join(out)


def limb_widths(path: VectorPath) -> list[Limbs]:
    """The limb widths of a path: one for numbers up to some length, and perhaps a narrower one for longer numbers; none
    where GMP computes with them."""
    if not path.has_long_numbers:
        return []
    found = {limbs.bits: limbs for limbs in (limbs_for(path, 1024), limbs_for(path, MOST_BITS))}
    return list(found.values())


def long_part(path: VectorPath, limbs: Limbs, *, squares: bool = False) -> Part:
    """The kernels of one limb width on a path, modulo any number, or modulo squares."""
    parameters = {name: parameters for name, (parameters, _) in _KERNELS.items()}
    return Part(
        f"long{limbs.bits}{'_squares' if squares else ''}",
        lambda: long_text(limbs, path.lanes, squares=squares),
        argument_types(parameters, _CALLED),
    )


class LongKernels(KernelTable):
    """The kernels of one path and limb width, by name. Pointers are addresses of arrays.

    Attributes:
        path: the path.
        limbs: the limb width.
    """

    def __init__(self, path: VectorPath, loaded: LoadedPart, limbs: Limbs) -> None:
        super().__init__(path, loaded)
        self.limbs = limbs


def long_kernels(path: VectorPath, bits: int, *, squares: bool = False) -> LongKernels:
    """The kernels of a path for a modulus of this many bits, or for squares of one, loaded once in a process."""
    return _load_long(path, limbs_for(path, bits).bits, squares)


@lru_cache(maxsize=12)
def _load_long(path: VectorPath, width: int, squares: bool) -> LongKernels:
    limbs = next(limbs for limbs in limb_widths(path) if limbs.bits == width)
    return LongKernels(path, load_part(long_part(path, limbs, squares=squares), path), limbs)
