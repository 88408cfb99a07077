"""The kernels of transforms modulo primes below 2^50. Calls release Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from securevfl_crypto.engine import doubles
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.library import load_part
from securevfl_crypto.engine.parts import KernelTable, Part, argument_types
from securevfl_crypto.engine.transforms import butterflies, modular

__all__ = ["KERNELS", "KERNEL_DEGREE", "TransformKernels", "transform_kernels", "transforms_part", "transforms_text"]

KERNEL_DEGREE = 4096
"""N of the kernels."""
KERNELS: dict[str, tuple[str, Callable[[Function], None]]] = {
    "forward": (butterflies.TRANSFORM, partial(butterflies.emit_forward, degree=KERNEL_DEGREE)),
    "inverse": (butterflies.TRANSFORM, partial(butterflies.emit_inverse, degree=KERNEL_DEGREE)),
    "add_products": (butterflies.ADD_PRODUCTS, butterflies.emit_sum_of_products),
}


def transforms_text(lanes: int) -> str:
    """All kernels in LLVM IR, for vectors of so many 64-bit lanes.

    Raises:
        BoundError: a double could be inexact. This does not depend on data, so tests find it.
    """
    out = [*doubles.declarations(lanes), *modular.declarations(lanes)]
    for name, (parameters, emit) in KERNELS.items():
        function = Function(name, parameters, lanes)
        emit(function)
        out.append(function.to_text())
    return "\n".join(out)


def transforms_part(path: VectorPath) -> Part:
    """The kernels of transforms on a path."""
    parameters = {name: parameters for name, (parameters, _) in KERNELS.items()}
    return Part("transforms", lambda: transforms_text(path.lanes), argument_types(parameters))


class TransformKernels(KernelTable):
    """The kernels of one path, by name. Pointers are addresses of rows of words.

    Attributes:
        path: the path.
    """


@lru_cache(maxsize=len(VECTOR_PATHS))
def transform_kernels(path: VectorPath) -> TransformKernels:
    """The kernels of a path, loaded once in a process."""
    return TransformKernels(path, load_part(transforms_part(path), path))
