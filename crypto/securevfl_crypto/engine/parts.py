"""What is compiled together: a part is one LLVM module, of which Python calls some kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from securevfl_crypto.engine.cpu import VectorPath

__all__ = ["KernelTable", "LoadedPart", "Part", "argument_types", "symbol"]


@dataclass(frozen=True)
class Part:
    """The kernels of one purpose on one path.

    Attributes:
        name: for example ``curve``.
        text: emits the LLVM IR.
        kernels: for each function that Python calls, the types of its arguments.
    """

    name: str
    text: Callable[[], str]
    kernels: Mapping[str, list[type]]


@dataclass(frozen=True)
class LoadedPart:
    """Kernels that can be called.

    Attributes:
        functions: by name. Calls release Python's lock.
        owner: keeps their machine code in memory.
    """

    functions: Mapping[str, Callable[..., None]]
    owner: object


class KernelTable:
    """The kernels of one path, by name. Pointers are addresses of C-contiguous arrays.

    Attributes:
        path: the path.
    """

    def __init__(self, path: VectorPath, loaded: LoadedPart) -> None:
        self.path = path
        self._loaded = loaded

    def __getitem__(self, name: str) -> Callable[..., None]:
        return self._loaded.functions[name]


def symbol(part: str, kernel: str) -> str:
    """The name of a kernel in a library."""
    return f"svfl_{part}_{kernel}"


def argument_types(parameters: Mapping[str, str], names: Iterable[str] | None = None) -> dict[str, list[type]]:
    """The types that ctypes passes, from parameters in LLVM's syntax: addresses and 64-bit integers.

    Args:
        parameters: for each function, for example ``"ptr noalias %out, i64 %n"``.
        names: the functions to take; None: all.
    """
    return {name: [_type(one) for one in parameters[name].split(", ")] for name in (names or parameters)}


def _type(parameter: str) -> type:
    return ctypes.c_void_p if parameter.split(maxsplit=1)[0] == "ptr" else ctypes.c_int64
