"""The kernels of Curve25519 and SHA-512. Calls release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from securevfl_crypto.engine import elligator, ladder, sha512
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.doubles import declarations
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.field import Field
from securevfl_crypto.engine.field51 import Field51
from securevfl_crypto.engine.field52 import Field52
from securevfl_crypto.engine.library import load_part
from securevfl_crypto.engine.parts import KernelTable, LoadedPart, Part, argument_types

__all__ = ["Kernels", "curve_kernels", "curve_part", "curve_text", "field_of"]

_PARAMETERS = {
    "ladder": "ptr noalias %in, i64 %stride, ptr noalias %swaps, ptr noalias %num, ptr noalias %den, i64 %blocks",
    "division": (
        "ptr noalias %out, i64 %stride, ptr noalias %num, ptr noalias %den, ptr noalias %scratch, i64 %blocks"
    ),
    "map_and_add": "ptr noalias %in, i64 %stride, ptr noalias %num, ptr noalias %den, i64 %blocks",
    "compression": "ptr noalias %state, ptr noalias %words, ptr noalias %constants, i64 %stride, i64 %blocks",
    "multiplication": "ptr %out, ptr %a, ptr %b",
    "squarings1": "ptr %out, ptr %a, i64 %n",
    "squarings2": "ptr %out, ptr %a, i64 %n",
    "inversion": "ptr noalias %out, ptr %z",
    "power": "ptr noalias %out, ptr %z",
}
_CALLED = ("ladder", "division", "map_and_add", "compression")


def field_of(path: VectorPath, function: Function) -> Field:
    """The field arithmetic of a path, emitting into `function`."""
    return Field52(function) if path.radix == 52 else Field51(function)


def _enclosed(emit: Callable[[Field], None]) -> Callable[[Field], None]:
    """`emit` for a kernel that Python calls: see `Field.enclose`."""
    return lambda field: field.enclose(lambda: emit(field))


def curve_text(path: VectorPath) -> str:
    """All kernels in LLVM IR.

    Raises:
        BoundError: the arithmetic could overflow. This does not depend on data, so tests find it.
    """
    emitters: dict[str, Callable[[Field], None]] = {
        "multiplication": ladder.emit_multiplication,
        "squarings1": lambda field: ladder.emit_field_squarings(field, 1),
        "squarings2": lambda field: ladder.emit_field_squarings(field, 2),
        "inversion": ladder.emit_inversion,
        "power": elligator.emit_root_power,
        "ladder": _enclosed(ladder.emit_ladder),
        "division": _enclosed(ladder.emit_division),
        "map_and_add": _enclosed(elligator.emit_map_and_add),
        "compression": lambda field: sha512.emit_compression(field.f),
    }
    vector = f"<{path.lanes} x i64>"
    three = ", ".join([vector] * 3)
    out = [f"declare {vector} @llvm.fshr.v{path.lanes}i64({three})"]
    if path.radix == 52:
        out += [f"declare {vector} @llvm.x86.avx512.vpmadd52{half}.uq.512({three})" for half in "lh"]
    else:
        out += declarations(path.lanes)
    for name, emit in emitters.items():
        function = Function(name, _PARAMETERS[name], path.lanes)
        emit(field_of(path, function))
        out.append(function.to_text())
    return "\n".join(out)


def curve_part(path: VectorPath, *, internal: bool = False) -> Part:
    """The kernels of Curve25519 and SHA-512 on a path.

    Args:
        path: the path.
        internal: whether to list those too that only other kernels call; a library hides them.
    """
    return Part("curve", lambda: curve_text(path), argument_types(_PARAMETERS, None if internal else _CALLED))


class Kernels(KernelTable):
    """The kernels of one path, by name. Pointers are addresses of C-contiguous arrays.

    Attributes:
        path: the path.
        limbs: limbs of a field element.
    """

    def __init__(self, path: VectorPath, loaded: LoadedPart) -> None:
        super().__init__(path, loaded)
        self.limbs = field_of(path, Function("none", "", path.lanes)).count


@lru_cache(maxsize=len(VECTOR_PATHS))
def curve_kernels(path: VectorPath) -> Kernels:
    """The kernels of a path, loaded once in a process."""
    return Kernels(path, load_part(curve_part(path), path))
