"""The one module that imports llvmlite: compiles LLVM IR to an object, or in memory, for builds, tests and developers.

Compiling in memory (``SECUREVFL_ENGINE=jit``) needs memory that is first writable and then executable. A process that
the system denies it dies by SIGSEGV, so nothing chooses it by itself.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite
from llvmlite import binding

from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.parts import LoadedPart, Part, symbol
from securevfl_crypto.errors import EngineError

__all__ = ["TRIPLES", "VERSION", "compile_in_memory", "emit_object", "target_machine"]

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
"""What LLVM compiles for, by the architecture of a path."""
VERSION: str = llvmlite.__version__


def target_machine(path: VectorPath, *, level: int = 3, in_memory: bool = False) -> Any:
    """LLVM's code generator for the class of a path.

    Args:
        path: the path.
        level: how much LLVM optimises, 0 to 3.
        in_memory: for code that this process runs, instead of an object.
    """
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    # Code of the model `small` reaches its constants relative to the program counter: the linker needs no relocation
    # that the loader would have to write into code. In memory, LLVM may place code and constants more than 2 GiB apart,
    # beyond the reach of `small`: a large process then crashes in a kernel.
    places = {} if in_memory else {"reloc": "pic", "codemodel": "small"}
    return binding.Target.from_triple(TRIPLES[path.machine]).create_target_machine(
        cpu=path.llvm_cpu, features=path.llvm_features, opt=level, **places
    )


def emit_object(part: Part, path: VectorPath) -> bytes:
    """An ELF object of a part: called kernels are public under the names of `symbol`, all other functions hidden.

    No optimiser runs before the code generator: it would undo the order of instructions that the emitters chose.

    Raises:
        RuntimeError: LLVM rejects the text.
    """
    machine = target_machine(path)
    module = _parse(part.text(), machine)
    for function in module.functions:
        if not function.is_declaration:
            if function.name not in part.kernels:
                function.visibility = "hidden"
            function.name = symbol(part.name, function.name)
    emitted: bytes = machine.emit_object(module)
    return emitted


def compile_in_memory(part: Part, path: VectorPath, *, level: int = 3) -> LoadedPart:
    """The kernels of a part, compiled in this process; `level` is how much LLVM optimises, 0 to 3.

    Raises:
        EngineError: LLVM rejects the text.
    """
    machine = target_machine(path, level=level, in_memory=True)
    try:
        engine = binding.create_mcjit_compiler(_parse(part.text(), machine), machine)
        engine.finalize_object()
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise EngineError(
            f"the path {path.name!r} cannot be compiled ({first}); install llvmlite 0.45 or later"
        ) from error
    functions = {
        name: ctypes.CFUNCTYPE(None, *types)(engine.get_function_address(name)) for name, types in part.kernels.items()
    }
    return LoadedPart(functions, engine)


def _parse(text: str, machine: Any) -> Any:
    module = binding.parse_assembly(text)
    module.verify()
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module
