"""The kernels of the rings of shares, modulo 2^64, 2^32 and 2^8. Calls release Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from securevfl_crypto.engine import comparison, narrow_products, ring_products, ring_products52
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.library import load_part
from securevfl_crypto.engine.octets import DECLARATIONS, PEXT_DECLARATIONS
from securevfl_crypto.engine.parts import KernelTable, LoadedPart, Part, argument_types

__all__ = ["RingKernels", "ring_kernels", "ring_part", "ring_text"]

_COMPARED = (
    "ptr noalias %out, ptr noalias %c, ptr noalias %bits, ptr noalias %factors, ptr noalias %zeros, "
    "ptr noalias %turns, i64 %n, i64 %times"
)
_RESIDUES = "ptr noalias %out, ptr noalias %raw, ptr noalias %found, i64 %n"
_KERNELS: dict[str, tuple[str, Callable[[Function], None]]] = {
    "deal_bits": ("ptr noalias %out, ptr noalias %words, ptr noalias %first, i64 %n", comparison.emit_bit_shares),
    "masked_comparison_0": (_COMPARED, partial(comparison.emit_masked_comparison, first=True)),
    "masked_comparison_1": (_COMPARED, partial(comparison.emit_masked_comparison, first=False)),
    "count_zeros": ("ptr noalias %out, ptr noalias %one, ptr noalias %other, i64 %n", comparison.emit_zero_counts),
    "residues_66": (_RESIDUES, partial(comparison.emit_residues, modulus=66)),
    "residues_67": (_RESIDUES, partial(comparison.emit_residues, modulus=67)),
    "product_1": (ring_products.PARAMETERS, partial(ring_products.emit_ring_product, vectors=1)),
    "product_2": (ring_products.PARAMETERS, partial(ring_products.emit_ring_product, vectors=2)),
    "word_sums": (narrow_products.WORD_SUMS, narrow_products.emit_word_sums),
    "octet_product": (narrow_products.OCTET_PRODUCT, narrow_products.emit_octet_product),
    "bin_sums_32": (narrow_products.BIN_SUMS, partial(narrow_products.emit_bin_sums, bits=32)),
    "bin_sums_64": (narrow_products.BIN_SUMS, partial(narrow_products.emit_bin_sums, bits=64)),
}
_PRODUCT52: dict[str, tuple[str, Callable[[Function], None]]] = {
    "product_52": (ring_products52.PARAMETERS, ring_products52.emit_ring_product52)
}
_PEXT: dict[str, tuple[str, Callable[[Function], None]]] = {
    f"residues_{modulus}_pext": (_RESIDUES, partial(comparison.emit_residues, modulus=modulus, pext=True))
    for modulus in (66, 67)
}


def ring_text(lanes: int, *, ifma: bool = False, pext: bool | None = None) -> str:
    """All kernels in LLVM IR.

    Args:
        lanes: 64-bit lanes of a vector.
        ifma: whether the CPU is of the class with AVX-512 IFMA, and VBMI2, which compresses rows in one instruction.
            Then there is a product of 52 bits at a time.
        pext: whether there are residues by ``pext``, for CPUs without VBMI2 that have BMI2; None: without IFMA.

    Raises:
        BoundError: an octet could overflow. This does not depend on data, so tests find it.
    """
    out, pext = [*DECLARATIONS, *narrow_products.declarations(lanes)], not ifma if pext is None else pext
    if ifma:
        vector = f"<{lanes} x i64>"
        out += ring_products52.DECLARATIONS
        out += [f"declare {vector} @llvm.x86.avx512.vpmadd52{half}.uq.512({', '.join([vector] * 3)})" for half in "lh"]
    if pext:
        out += PEXT_DECLARATIONS
    for name, (parameters, emit) in _select_kernels(ifma=ifma, pext=pext).items():
        function = Function(name, parameters, lanes)
        emit(function)
        out.append(function.to_text())
    return "\n".join(out)


def ring_part(path: VectorPath) -> Part:
    """The kernels of the ring on a path."""
    ifma = path.radix == 52
    parameters = {name: one for name, (one, _) in _select_kernels(ifma=ifma, pext=path.has_pext).items()}
    return Part("ring", lambda: ring_text(path.lanes, ifma=ifma, pext=path.has_pext), argument_types(parameters))


def _select_kernels(*, ifma: bool, pext: bool) -> dict[str, tuple[str, Callable[[Function], None]]]:
    return _KERNELS | (_PRODUCT52 if ifma else {}) | (_PEXT if pext else {})


class RingKernels(KernelTable):
    """The kernels of one path, by name. Pointers are addresses of C-contiguous arrays.

    Attributes:
        path: the path.
        ifma: whether there is the kernel ``product_52``.
        pext: whether there are the kernels ``residues_66_pext`` and ``residues_67_pext``.
    """

    def __init__(self, path: VectorPath, loaded: LoadedPart) -> None:
        super().__init__(path, loaded)
        self.ifma, self.pext = path.radix == 52, path.has_pext


@lru_cache(maxsize=len(VECTOR_PATHS))
def ring_kernels(path: VectorPath) -> RingKernels:
    """The kernels of a path, loaded once in a process."""
    return RingKernels(path, load_part(ring_part(path), path))
