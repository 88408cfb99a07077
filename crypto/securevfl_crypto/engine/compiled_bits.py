"""Compiles the kernels over rows of bits for one path in memory, at first use. Calls release Python's lock."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial

from securevfl_crypto.engine import bit_rows, blake2s, peeling
from securevfl_crypto.engine.compiled import assemble_module
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.emitter import Function

__all__ = ["CODE_TERMS", "DENSE_TERMS", "SUM_TERMS", "BitKernels", "bit_kernels", "bits_text"]

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


class BitKernels:
    """The compiled kernels of one path, by name. Pointers are addresses of C-contiguous arrays.

    Attributes:
        path: the path.
    """

    def __init__(self, path: VectorPath) -> None:
        self.path = path
        self._engine = assemble_module(bits_text(), path)
        signatures = {name: parameters for name, (parameters, _) in _KERNELS.items()} | {"peeled": peeling.PEELED}
        self._functions = {
            name: ctypes.CFUNCTYPE(None, *_types(parameters))(self._engine.get_function_address(name))
            for name, parameters in signatures.items()
        }

    def __getitem__(self, name: str) -> Callable[..., None]:
        return self._functions[name]


@lru_cache(maxsize=len(VECTOR_PATHS))
def bit_kernels(path: VectorPath) -> BitKernels:
    """The kernels of a path, compiled once in a process."""
    return BitKernels(path)


def _types(parameters: str) -> list[type]:
    return [ctypes.c_void_p if part.split()[0] == "ptr" else ctypes.c_int64 for part in parameters.split(", ")]
