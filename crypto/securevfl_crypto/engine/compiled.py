"""Compiles the kernels for one path in memory, at first use. Calls release the interpreter's lock."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from llvmlite import binding

from securevfl_crypto.engine import elligator, ladder, sha512
from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.field import Field
from securevfl_crypto.engine.field25 import Field25
from securevfl_crypto.engine.field52 import Field52

__all__ = ["Kernels", "assemble_module", "compile_kernels", "module_text"]

_P, _I = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[str, list[type]]] = {
    "ladder": (
        "ptr noalias %in, i64 %stride, ptr noalias %swaps, ptr noalias %num, ptr noalias %den, i64 %blocks",
        [_P, _I, _P, _P, _P, _I],
    ),
    "division": (
        "ptr noalias %out, i64 %stride, ptr noalias %num, ptr noalias %den, ptr noalias %scratch, i64 %blocks",
        [_P, _I, _P, _P, _P, _I],
    ),
    "map_and_add": (
        "ptr noalias %in, i64 %stride, ptr noalias %num, ptr noalias %den, i64 %blocks",
        [_P, _I, _P, _P, _I],
    ),
    "compression": (
        "ptr noalias %state, ptr noalias %words, ptr noalias %constants, i64 %stride, i64 %blocks",
        [_P, _P, _P, _I, _I],
    ),
    "multiplication": ("ptr %out, ptr %a, ptr %b", [_P, _P, _P]),
    "squarings1": ("ptr %out, ptr %a, i64 %n", [_P, _P, _I]),
    "squarings2": ("ptr %out, ptr %a, i64 %n", [_P, _P, _I]),
    "inversion": ("ptr noalias %out, ptr %z", [_P, _P]),
    "power": ("ptr noalias %out, ptr %z", [_P, _P]),
}


def field_of(path: VectorPath, function: Function) -> Field:
    """The field arithmetic of a path, emitting into `function`."""
    return Field52(function) if path.radix == 52 else Field25(function)


def module_text(path: VectorPath) -> str:
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
        "ladder": ladder.emit_ladder,
        "division": ladder.emit_division,
        "map_and_add": elligator.emit_map_and_add,
        "compression": lambda field: sha512.emit_compression(field.f),
    }
    vector = f"<{path.lanes} x i64>"
    three = ", ".join([vector] * 3)
    out = [f"declare {vector} @llvm.fshr.v{path.lanes}i64({three})"]
    if path.radix == 52:
        out += [f"declare {vector} @llvm.x86.avx512.vpmadd52{half}.uq.512({three})" for half in "lh"]
    for name, emit in emitters.items():
        function = Function(name, _SIGNATURES[name][0], path.lanes)
        emit(field_of(path, function))
        out.append(function.to_text())
    return "\n".join(out)


class Kernels:
    """The compiled kernels of one path, by name. Pointers are addresses of C-contiguous arrays.

    Attributes:
        path: the path.
        limbs: limbs of a field element.
    """

    def __init__(self, path: VectorPath) -> None:
        self.path = path
        self.limbs = field_of(path, Function("none", "", path.lanes)).count
        self._engine = assemble_module(module_text(path), path)
        self._functions = {
            name: ctypes.CFUNCTYPE(None, *types)(self._engine.get_function_address(name))
            for name, (_, types) in _SIGNATURES.items()
        }

    def __getitem__(self, name: str) -> Callable[..., None]:
        return self._functions[name]


@lru_cache(maxsize=len(_SIGNATURES))
def compile_kernels(path: VectorPath) -> Kernels:
    """The kernels of a path, compiled once in a process."""
    return Kernels(path)


def assemble_module(text: str, path: VectorPath) -> Any:
    """Compile a module; returns LLVM's execution engine, which owns the machine code.

    Raises:
        RuntimeError: the installed LLVM rejects the text.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(text)
    module.verify()
    features = binding.get_host_cpu_features().flatten() + path.llvm_features
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=features, opt=3
    )
    module.triple = binding.get_default_triple()
    module.data_layout = str(machine.target_data)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
