"""The bytes of each array that a kernel may touch, from its other arguments: "What each kernel trusts", as numbers.

`emulated_part` puts a process in the place of a library: the engine's own code calls its kernels by addresses, and this
copies as many bytes as a kernel may touch. Where the numbers are too small, the kernel meets a page that ends it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from securevfl_crypto.engine.bit_rows import AHEAD
from securevfl_crypto.engine.compiled import field_of
from securevfl_crypto.engine.compiled_bits import CODE_TERMS, DENSE_TERMS, SUM_TERMS
from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.narrow_products import CELLS, CHUNK, FACTORS, PANEL
from securevfl_crypto.engine.parts import LoadedPart, Part, symbol
from securevfl_crypto.engine.peeling import AHEAD as QUEUE_AHEAD
from securevfl_crypto.engine.transforms.compiled import KERNEL_DEGREE

from emulated.machine import KernelProcess

__all__ = ["array_sizes", "emulated_part", "parameter_names"]

_ROW, _TABLE = 64, 256 * 64
_Given = SimpleNamespace
"""What a kernel was called with, by name; ``lanes``, and ``limbs`` of a field element."""


def parameter_names(text: str, kernel: str) -> list[str]:
    """The names of a kernel's parameters, in order, from the LLVM IR of its part."""
    found = re.search(rf"define void @{kernel}\((.*?)\)", text)
    if found is None:
        raise ValueError(f"the part defines no kernel {kernel!r}")
    return re.findall(r"%(\w+)", found[1])


def _planes(count: int, k: _Given) -> int:
    return 8 * ((count - 1) * k.stride + k.lanes * k.blocks)


def _fractions(k: _Given, *names: str) -> dict[str, int]:
    return dict.fromkeys(names, 8 * k.blocks * k.limbs * k.lanes)


def _strided(count: int, stride: int, last: int) -> int:
    return (count - 1) * stride + last if count else 0


def _compared(k: _Given) -> dict[str, int]:
    many = k.n * k.times
    rows = dict.fromkeys(("out", "factors", "zeros"), _ROW * many)
    return {**rows, "c": 8 * many, "bits": _ROW * k.n, "turns": many}


def _residues(k: _Given) -> dict[str, int]:
    return {"out": _ROW * k.n, "raw": _ROW * k.n, "found": 8}


def _product(k: _Given) -> dict[str, int]:
    rows = 4 * k.blocks + k.rest
    return {
        "out": 8 * rows * k.width,
        "a": 8 * _strided(rows, k.row, (k.k - 1) * k.column + 1),
        "b": 8 * k.width * k.k,
        "right": 4 * k.width * k.k,
        "left": 16 * k.k,
    }


def _word_sums(k: _Given) -> dict[str, int]:
    cells, values = CELLS * k.blocks + k.rest, 2 * k.pairs + k.single
    last = 2 * k.lanes * k.vectors
    return {
        "out": 4 * cells * values,
        "z": 4 * _strided(cells, k.stride, last),
        "v": 4 * _strided(values, k.stride, last),
    }


def _octet_product(k: _Given) -> dict[str, int]:
    rows = FACTORS * k.groups
    return {"out": rows * k.width, "factors": 4 * rows * k.cells, "panels": PANEL * k.cells * k.count}


def _bin_sums(k: _Given) -> dict[str, int]:
    """The codes name the cells: an array of as many is the least that the caller may give."""
    codes = np.frombuffer((ctypes.c_uint8 * _strided(k.columns, k.stride, k.n)).from_address(k.codes), dtype=np.uint8)
    starts = np.frombuffer((ctypes.c_uint64 * k.columns).from_address(k.starts), dtype=np.uint64)
    cells = max(int(starts[c]) + int(codes[c * k.stride :][: k.n].max()) for c in range(k.columns)) + 1
    row = CHUNK * k.chunks
    return {"out": row * cells, "codes": len(codes), "starts": 8 * k.columns, "values": row * k.n}


def _selected(k: _Given, terms: int) -> dict[str, int]:
    return {"out": _ROW * k.n, "tables": terms * _TABLE, "bytes": _strided(k.n, k.stride, terms)}


def _slots(k: _Given, count: int) -> int:
    """The slots that positions name: an array of as many is the least that the caller may give."""
    words = (ctypes.c_uint32 * (3 * count)).from_address(k.positions)
    return int(np.frombuffer(words, dtype=np.uint32).max(initial=0)) + 1


def _decoded(k: _Given) -> dict[str, int]:
    named = k.n + AHEAD
    return {**_selected(k, DENSE_TERMS), "slots": _ROW * _slots(k, named), "positions": 12 * named}


def _transform(k: _Given) -> dict[str, int]:
    table = 8 + 2 * KERNEL_DEGREE + 2 * (k.lanes - 1) * KERNEL_DEGREE // k.lanes
    rows = {"out": k.out_row, "values": k.row}
    found = {name: 8 * _strided(k.count, row, KERNEL_DEGREE) for name, row in rows.items()}
    return {**found, "table": 8 * table, "scratch": 8 * KERNEL_DEGREE}


def _sum_of_products(k: _Given) -> dict[str, int]:
    words = k.lanes * k.vectors
    rows = {"a": k.a_row, "b": k.b_row}
    found = {name: 8 * _strided(k.count, row, words) for name, row in rows.items()}
    return {**found, "total": 8 * words, "table": 16}


_SIZES: dict[str, Callable[[_Given], dict[str, int]]] = {
    **dict.fromkeys(("forward", "inverse"), _transform),
    "add_products": _sum_of_products,
    "ladder": lambda k: {"in": _planes(4, k), "swaps": 255, **_fractions(k, "num", "den")},
    "division": lambda k: {"out": _planes(4, k), **_fractions(k, "num", "den", "scratch")},
    "map_and_add": lambda k: {"in": _planes(12, k), **_fractions(k, "num", "den")},
    "compression": lambda k: {"state": _planes(8, k), "words": _planes(16, k), "constants": 640},
    "deal_bits": lambda k: {"out": _ROW * k.n, "words": 8 * k.n, "first": _ROW * k.n},
    "masked_comparison_0": _compared,
    "masked_comparison_1": _compared,
    "count_zeros": lambda k: {"out": 8 * k.n, "one": _ROW * k.n, "other": _ROW * k.n},
    **dict.fromkeys(("residues_66", "residues_67", "residues_66_pext", "residues_67_pext"), _residues),
    **dict.fromkeys(("product_1", "product_2", "product_52"), _product),
    "word_sums": _word_sums,
    "octet_product": _octet_product,
    **dict.fromkeys(("bin_sums_32", "bin_sums_64"), _bin_sums),
    "transposed": lambda k: {"out": 512 * _ROW * k.blocks, "in": _strided(512, k.stride, _ROW * k.blocks)},
    "encoded": lambda k: _selected(k, CODE_TERMS),
    "decoded": _decoded,
    "summed": lambda k: {
        "buckets": SUM_TERMS * _TABLE,
        "rows": _ROW * k.n,
        "bytes": _strided(k.n, k.stride, SUM_TERMS),
    },
    "hashed": lambda k: {
        "out": 512 * k.n,
        "in": _strided(16 * k.n, k.stride, _ROW),
        "salts": _strided(16 * k.n, k.apart, 16),
    },
}


def _field_limbs(path: VectorPath) -> int:
    return field_of(path, Function("none", "", path.lanes)).count


def array_sizes(path: VectorPath, kernel: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """The bytes of a kernel's arrays, which follow from its other parameters alone."""
    return _SIZES[kernel](SimpleNamespace(**numbers, lanes=path.lanes, limbs=_field_limbs(path)))


class _Peeling:
    """The three kernels that solve a system. The sizes of their arrays are those that `counted` was called with."""

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}

    def sizes(self, name: str, k: _Given) -> dict[str, int]:
        """As in `_SIZES`."""
        if name == "counted":
            self._keys[k.positions] = k.n
        keys = self._keys[k.positions]
        slots = _slots(k, keys)
        found = {"state": 8 * slots, "positions": 12 * keys, "queue": 4 * (slots + QUEUE_AHEAD), "found": 8}
        found |= dict.fromkeys(("order", "owned"), 4 * (keys + 1))
        return found | ({"slots": 8 * slots * k.width, "values": 8 * keys * k.width} if name == "substituted" else {})


def emulated_part(process: KernelProcess, part: Part, path: VectorPath) -> LoadedPart:
    """The kernels of a part, of which each call is one of the process. Long numbers have no contract here."""
    text, limbs, peeling = part.text(), _field_limbs(path), _Peeling()

    def function(name: str) -> Callable[..., None]:
        names, sizes = parameter_names(text, name), _SIZES.get(name)

        def call(*arguments: int) -> None:
            given = SimpleNamespace(**dict(zip(names, arguments, strict=True)), lanes=path.lanes, limbs=limbs)
            found = peeling.sizes(name, given) if sizes is None else sizes(given)
            sent: dict[str, Any] = dict(zip(names, arguments, strict=True))
            for one in names:
                if one in found:
                    sent[one] = np.frombuffer((ctypes.c_uint8 * found[one]).from_address(sent[one]), dtype=np.uint8)
            process.call(symbol(part.name, name), sent)

        return call

    return LoadedPart({name: function(name) for name in part.kernels}, process)
