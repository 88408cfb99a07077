"""Numbers of Arrow arrays as numpy arrays, from their buffers.

`Array.to_numpy` and `pyarrow.array` first look for pandas, and import it where it is installed: half a second of a
command that reads a small table. Buffers need no library, and tables of 30,000 columns less time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["TYPES", "null_flags", "plain_numbers", "text_array"]

TYPES: Mapping[str, np.dtype[Any]] = {
    "halffloat": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Arrow's name of a type of numbers → numpy's."""


def plain_numbers(array: Any) -> np.ndarray:
    """Return numbers or truth values, (n,); a view where possible. Nulls give any value: see `null_flags`.

    Args:
        array: a `pyarrow.Array` of integers, floats or truth values.
    """
    kind, count = str(array.type), len(array)
    data = array.buffers()[1] if count else None
    if kind == "bool":
        return np.zeros(count, dtype=bool) if data is None else _unpack_bits(data, array.offset, count)
    if data is None:
        return np.zeros(count, dtype=TYPES[kind])
    dtype = TYPES[kind]
    return np.frombuffer(data, dtype=dtype, count=count, offset=array.offset * dtype.itemsize)


def null_flags(array: Any) -> np.ndarray:
    """Return True for each null, (n,)."""
    count = len(array)
    if array.null_count in (0, count):
        return np.full(count, array.null_count > 0)
    return ~_unpack_bits(array.buffers()[0], array.offset, count)


def text_array(texts: Sequence[str]) -> Any:
    """Make a `pyarrow.LargeStringArray` of texts."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _unpack_bits(data: Any, offset: int, count: int) -> np.ndarray:
    first = offset // 8
    packed = np.frombuffer(data, dtype=np.uint8, count=(offset + count + 7) // 8 - first, offset=first)
    found: np.ndarray = np.unpackbits(packed, bitorder="little")[offset % 8 : offset % 8 + count].view(bool)
    return found
