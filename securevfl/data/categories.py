"""A column of categories: an integer code per row, and each text once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["Categories", "Column"]


class Categories:
    """A column with repeated texts; reads like an array of texts.

    Args:
        codes: for each row, the index of its text in `words`, int32 (n,).
        words: the texts, sorted, none twice.
    """

    def __init__(self, codes: np.ndarray, words: tuple[str, ...]) -> None:
        self.codes, self.words = codes, words

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return self.codes.shape

    @property
    def ndim(self) -> int:
        """1."""
        return self.codes.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the equivalent array of texts."""
        return np.dtype((np.str_, max(map(len, self.words), default=1)))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        found = self.codes[rows]
        return Categories(found, self.words) if isinstance(found, np.ndarray) else self.words[int(found)]

    def __iter__(self) -> Iterator[str]:
        return (self.words[code] for code in self.codes.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        texts: np.ndarray = np.array(self.words, dtype=dtype or np.str_)[self.codes]
        return texts

    def __eq__(self, other: object) -> Any:
        return np.asarray(self) == np.asarray(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Categories({len(self):,} rows of {len(self.words)} texts)"

    def astype(self, dtype: Any) -> np.ndarray:
        """Convert to an array of texts, or of the values they spell."""
        return np.asarray(self).astype(dtype)

    def tolist(self) -> list[str]:
        """The texts."""
        return list(self)

    def tobytes(self) -> bytes:
        """Codes and texts as bytes; equal columns give equal bytes."""
        return repr(self.words).encode() + np.ascontiguousarray(self.codes).tobytes()


Column = np.ndarray | Categories
"""A column of a table: numbers, a block of numbers, texts, or coded texts."""
