"""A table's identifiers as one Arrow array, several times smaller than a list of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from securevfl.data.arrow_numbers import plain_numbers

__all__ = ["Names"]

_PART = 1 << 16


class Names(Sequence[str]):
    """A column of non-null texts that behaves like a tuple: equal to a tuple with the same texts.

    Args:
        array: a `pyarrow.LargeStringArray` without nulls, valid UTF-8.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Names:
        """Build it from a sequence of texts."""
        import pyarrow as pa

        return texts if isinstance(texts, Names) else cls(pa.array(texts, pa.large_string()))

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, row):  # type: ignore[no-untyped-def]
        if isinstance(row, slice):
            return Names(self._array[row]) if row.step in (None, 1) else self.take(np.arange(len(self))[row])
        return self._array[int(row)].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _PART):
            yield from self._array.slice(start, _PART).to_numpy(zero_copy_only=False)

    def __contains__(self, text: object) -> bool:
        import pyarrow as pa
        import pyarrow.compute as pc

        return isinstance(text, str) and pc.index(self._array, pa.scalar(text, pa.large_string())).as_py() >= 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return bool(self._array.equals(other._array))
        if not isinstance(other, tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"Names({len(self):,}: {shown}{', …' if len(self) > 3 else ''})"

    def take(self, rows: np.ndarray) -> Names:
        """Return the texts of these rows, (n,) int64, in this order."""
        import pyarrow as pa

        # Take some at a time: Arrow would first allocate 8-byte positions for all wanted rows. From buffers, since
        # `pa.array` imports pandas where it is installed.
        cuts = (np.ascontiguousarray(rows[at : at + _PART], dtype=np.int64) for at in range(0, len(rows), _PART))
        places = (pa.Array.from_buffers(pa.int64(), len(cut), [None, pa.py_buffer(cut)]) for cut in cuts)
        parts = [self._array.take(each) for each in places]
        return Names(pa.concat_arrays(parts) if parts else self._array[:0])

    def buffers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all bytes of the texts, uint8; the offset of each text, int64 (n,); and its length, int32 (n,). Does
        not copy the bytes.
        """
        _, borders, data = self._array.buffers()
        first = self._array.offset
        at = np.frombuffer(borders, dtype=np.int64)[first : first + len(self) + 1]
        found = np.frombuffer(b"" if data is None else data, dtype=np.uint8)
        return found, at[:-1], np.diff(at).astype(np.int32)

    def first_blank(self) -> int | None:
        """Return the first row whose text is empty or only white space, or None."""
        import pyarrow.compute as pc

        for start in range(0, len(self), _PART):
            part = self._array.slice(start, _PART)
            empty = plain_numbers(pc.binary_length(pc.utf8_trim(part, characters=_SPACES))) == 0
            if empty.any():
                return start + int(empty.argmax())
        return None

    def all_differ(self) -> bool:
        """Return True if no text occurs twice."""
        import pyarrow.compute as pc

        return bool(pc.count_distinct(self._array).as_py() == len(self))


_SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""The characters that `str.strip` removes."""
