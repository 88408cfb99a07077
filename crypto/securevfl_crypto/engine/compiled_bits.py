"""The kernels over rows of bits. Calls release Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from securevfl_crypto.engine import bit_rows, blake2s, peeling
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.library import load_part
from securevfl_crypto.engine.parts import KernelTable, Part, argument_types

__all__ = ["CODE_TERMS", "DENSE_TERMS", "SUM_TERMS", "BitKernels", "bit_kernels", "bits_part", "bits_text"]

CODE_TERMS = 10
"""Bytes of a word that the linear code takes."""
DENSE_TERMS = 5
"""Bytes of dense bits of an OKVS."""
SUM_TERMS = 5
"""Bytes of coefficients of each row in random sums."""
_LANES = 8
_KERNELS: dict[str, tuple[str, Callable[[Function], None]]] = {
    "transposed": (bit_rows.TRANSPOSED, bit_rows.emit_transposition),
    "encoded": (bit_rows.SELECTED, partial(bit_rows.emit_selected_rows, terms=CODE_TERMS)),
    "decoded": (bit_rows.GATHERED, partial(bit_rows.emit_gathered_rows, terms=DENSE_TERMS)),
    "summed": (bit_rows.SUMMED, partial(bit_rows.emit_row_sums, terms=SUM_TERMS)),
    "hashed": (blake2s.HASHED, blake2s.emit_blake2s),
    "counted": (peeling.COUNTED, peeling.emit_slot_counts),
    "substituted": (peeling.SUBSTITUTED, peeling.emit_substitution),
}


def bits_text() -> str:
    """All kernels in LLVM IR, the same for every path."""
    out = [*bit_rows.DECLARATIONS, *blake2s.blake2s_declarations()]
    for name, (parameters, emit) in _KERNELS.items():
        function = Function(name, parameters, _LANES)
        emit(function)
        out.append(function.to_text())
    return "\n".join([*out, peeling.peeled_text()])


def bits_part() -> Part:
    """The kernels over rows of bits, the same for every path."""
    parameters = {name: parameters for name, (parameters, _) in _KERNELS.items()} | {"peeled": peeling.PEELED}
    return Part("bits", bits_text, argument_types(parameters))


class BitKernels(KernelTable):
    """The kernels of one path, by name. Pointers are addresses of C-contiguous arrays.

    Attributes:
        path: the path.
    """


@lru_cache(maxsize=len(VECTOR_PATHS))
def bit_kernels(path: VectorPath) -> BitKernels:
    """The kernels of a path, loaded once in a process."""
    return BitKernels(path, load_part(bits_part(), path))
