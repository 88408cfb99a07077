"""Build a table's columns batch by batch, releasing each batch before the next one arrives.

Each builder has `add`, called once per batch, and `whole`. Mistakes in some rows are reported at the end with their
count, mistakes of a whole column immediately.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.data.arrow_numbers import null_flags, plain_numbers, text_array
from securevfl.data.categories import Categories
from securevfl.data.labels import Coded
from securevfl.data.limits import TEXT, TableLimits
from securevfl.data.names import Names
from securevfl.data.storage import DEFAULT_STORAGE, Storage
from securevfl.errors import InputError

__all__ = ["CategoryColumn", "IdentifierColumn", "LabelColumn", "NumberColumn", "PersonColumn"]

_NEAR = 32
"""Largest distance of a column's mean from 0, in standard deviations, for storing it as float32. Half a unit in the
last place is 2^-24 of a value, so at most 2e-6 deviations for a value within 5 of the mean.
"""
_TINY = 1e-30
_EXACT = 1 << 24
_PART = 1 << 20
_MOST_LABELS = 1 << 20
_FLOATS = " (pandas converts whole numbers to these if some are missing: drop those rows, then .astype('int64'))"
_SHOWN = 3


@dataclass(slots=True)
class _Missing:
    """Counts the rows without a value and keeps the first few."""

    rows: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, flags: np.ndarray, at: int) -> None:
        found = np.flatnonzero(flags)
        self.rows += len(found)
        self.first += (found[: _SHOWN + 1 - len(self.first)] + at + 1).tolist()

    def __str__(self) -> str:
        return ", ".join(map(str, self.first[:_SHOWN])) + (", …" if len(self.first) > _SHOWN else "")


class IdentifierColumn:
    """Builds the identifiers: texts or whole numbers.

    Args:
        column: its name.
        where: the table, for messages.
    """

    _role = "id"

    def __init__(self, column: str, where: str) -> None:
        self._what = f"{where}: {self._role} column {column!r}"
        self._column, self._where = column, where
        self._parts: list[Any] = []
        self._missing = _Missing()
        self._rows = 0

    def add(self, values: Any) -> None:
        """Add one batch.

        Raises:
            InputError: neither texts nor whole numbers, or not UTF-8.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = values.type
        packed = pa.types.is_dictionary(kind)
        kind = kind.value_type if packed else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
            raise InputError(
                f"{self._what} contains {kind}; identifiers are texts or whole numbers: convert it"
                + (_FLOATS if pa.types.is_floating(kind) else "")
            )
        texts = values.cast(kind).cast(pa.large_string()) if packed else values.cast(pa.large_string(), safe=False)
        check_text(texts, self._column, self._where)
        absent = pc.or_kleene(pc.is_null(texts), pc.is_in(texts, value_set=text_array(_missing_texts())))
        if pc.any(absent).as_py():
            self._missing.add(plain_numbers(absent), self._rows)
        self._rows += len(texts)
        self._parts.append(texts)

    def finish(self) -> Names:
        """Return all identifiers.

        Raises:
            InputError: null or empty identifiers.
        """
        import pyarrow as pa

        if self._missing.rows:
            raise InputError(
                f"{self._what} is null or empty in {self._missing.rows} rows (rows {self._missing}); drop them"
            )
        return Names(pa.concat_arrays(self._parts))


class PersonColumn(IdentifierColumn):
    """Builds the names of the rows' persons: texts or whole numbers, which may repeat; arguments as for
    `IdentifierColumn`.
    """

    _role = "person"


class NumberColumn:
    """Builds a column of numbers: float32, or float64 if float32 would lose digits that matter in training.

    Args:
        column: its name.
        where: the table, for messages.
        out: buffer, float32 (rows or more,).
        storage: where the float64 array is allocated if float32 is not enough.
        gaps: whether values may be missing; they become NaN.
    """

    __slots__ = (
        "_column",
        "_count",
        "_gaps",
        "_mean",
        "_missing",
        "_nulls",
        "_out",
        "_rows",
        "_squares",
        "_storage",
        "_where",
    )

    def __init__(
        self, column: str, where: str, out: np.ndarray, storage: Storage = DEFAULT_STORAGE, *, gaps: bool = False
    ) -> None:
        self._column, self._where = column, where
        self._out, self._storage = out, storage
        self._gaps = gaps
        self._missing = _Missing()
        self._nulls = self._rows = 0
        self._count, self._mean, self._squares = 0, np.float64(0), np.float64(0)

    def add(self, values: Any) -> None:
        """Add one batch.

        Raises:
            InputError: not numbers.
        """
        import pyarrow as pa

        kind = values.type
        if pa.types.is_decimal(kind):
            values = values.cast(pa.float64())
        elif not (
            pa.types.is_null(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_boolean(kind)
        ):
            raise InputError(self._no_number(values))
        missing = None
        numbers = np.zeros(len(values), np.float32) if pa.types.is_null(kind) else plain_numbers(values)
        if values.null_count:
            missing = null_flags(values)
            self._nulls += values.null_count
            numbers = np.where(missing, numbers.dtype.type(0), numbers)
        if numbers.dtype.kind == "f" and np.isnan(numbers).any():
            missing = np.isnan(numbers) | (False if missing is None else missing)
        if missing is not None:
            self._missing.add(missing, self._rows)
        end = self._rows + len(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            self._out[self._rows : end] = numbers
            if self._out.dtype == np.float32 and numbers.dtype.itemsize > 2 and numbers.dtype != np.float32:
                self._update_moments(numbers, self._out[self._rows : end], missing)
        if self._gaps and missing is not None:
            self._out[self._rows : end][missing] = np.nan
        self._rows = end

    def take_plain(self, kept: np.ndarray, moments: tuple[np.float64, np.float64] | None) -> bool:
        """Take a batch whose numbers float32 holds well enough; return False, and take nothing, if that is not known.

        Args:
            kept: the numbers as float32, all finite.
            moments: mean of the numbers themselves, and the sum of their squared distances from it; None where they
                were float32.
        """
        if self._out.dtype != np.float32:
            return False
        count, end = len(kept), self._rows + len(kept)
        if moments is not None:
            shift, total = moments[0] - self._mean, self._count + count
            squares = self._squares + moments[1] + shift * shift * self._count * count / total
            mean = self._mean + shift * count / total
            deviation = (squares / total) ** 0.5
            if not (abs(mean) <= _NEAR * deviation and deviation > _TINY):
                return False
            self._count, self._mean, self._squares = total, mean, squares
        self._out[self._rows : end] = kept
        self._rows = end
        return True

    def _update_moments(self, numbers: np.ndarray, kept: np.ndarray, missing: np.ndarray | None) -> None:
        """Update the running mean and deviation, and switch to float64 if float32 is not enough."""
        whole = numbers
        if self._gaps and missing is not None:
            numbers, kept = numbers[~missing], kept[~missing]
            if not len(numbers):
                return
        exact = numbers.astype(np.float64)
        count, mean = len(exact), exact.mean()
        shift, total = mean - self._mean, self._count + count
        self._squares += exact.var() * count + shift * shift * self._count * count / total  # beyond all numbers is ∞
        self._mean += shift * count / total
        self._count = total
        deviation = (self._squares / total) ** 0.5
        enough = abs(self._mean) <= _NEAR * deviation and deviation > _TINY and np.isfinite(kept).all()
        if enough or not np.isfinite(mean) or (kept == numbers).all():
            return
        more = self._storage.allocate(self._out.shape, np.float64)
        for at in range(0, self._rows, _PART):
            more[at : min(at + _PART, self._rows)] = self._out[at : min(at + _PART, self._rows)]
        more[self._rows : self._rows + len(whole)] = whole
        self._out = more

    def finish(self) -> np.ndarray:
        """Return all numbers, (rows,).

        Raises:
            InputError: some are null or NaN.
        """
        where = f"{self._where}: column {self._column!r}"
        if self._rows and self._nulls == self._rows and not self._gaps:
            raise InputError(f"{where} is null in all rows; drop it with features=…, or give prepare='auto'")
        if self._missing.rows and not self._gaps:
            raise InputError(
                f"{where} is null or NaN in {self._missing.rows} of {self._rows} rows (rows {self._missing}); "
                "fill or drop them, or give prepare='auto'"
            )
        return self._out[: self._rows]

    def _no_number(self, values: Any) -> str:
        where = f"{self._where}: column {self._column!r} holds"
        kind = values.type.value_type if hasattr(values.type, "value_type") else values.type
        if "string" in str(kind):
            check_text(values, self._column, self._where)
            for row, value in enumerate(values):
                if not _is_number(value.as_py()):
                    return (
                        f"{where} text, {value.as_py()!r} in row {self._rows + row + 1}; list it in categorical=…, "
                        "correct it, or give prepare='auto'"
                    )
        cure = "list it in categorical=…, drop it with features=…, or give prepare='auto'"
        return f"{where} {values.type}, no numbers; {cure}"


class CategoryColumn:
    """Builds a column of categories that stores each text once.

    Args:
        column: its name.
        where: the table, for messages.
        out: buffer for the codes, int32 (rows or more,).
        limits: bounds on the memory of the texts.
        gaps: whether values may be missing; they become empty texts.
    """

    def __init__(self, column: str, where: str, out: np.ndarray, limits: TableLimits, *, gaps: bool = False) -> None:
        self._column, self._where, self._limits = column, where, limits
        self._out = out
        self._gaps = gaps
        self._missing = _Missing()
        self._places: dict[str, int] = {}
        self._size = self._rows = 0

    def add(self, values: Any) -> None:
        """Add one batch.

        Raises:
            InputError: lists, records or bytes, not UTF-8, or texts above a limit.
        """
        coded = _encode_dictionary(values, self._column, self._where, "categories are texts or numbers")
        places = []
        for value in coded.dictionary.to_pylist():
            word = "" if value is None else _format_category(value)
            places.append(self._code_word("" if self._gaps and not word.strip() else word))
        places.append(self._code_word("") if self._gaps and (_dictionary_indexes(coded) < 0).any() else 0)
        where = f"{self._where}: column {self._column!r}"
        self._limits.check(f"{where}, with {len(self._places):,} categories,", size=self._size)
        codes = _dictionary_indexes(coded)
        empty = codes < 0
        if empty.any() and not self._gaps:
            self._missing.add(empty, self._rows)
        end = self._rows + len(codes)
        self._out[self._rows : end] = np.array(places, dtype=np.int32)[codes]
        self._rows = end

    def _code_word(self, word: str) -> int:
        if word not in self._places:
            self._places[word] = len(self._places)
            self._size += TEXT + len(word)
        return self._places[word]

    def finish(self) -> Categories:
        """Return the column.

        Raises:
            InputError: some values are null, or the texts as an array would take more than `TableLimits.max_bytes`.
        """
        where = f"{self._where}: column {self._column!r}"
        if self._missing.rows:
            raise InputError(
                f"{where} is null in {self._missing.rows} rows (rows {self._missing}); write a category for it, "
                "such as 'unknown', or give prepare='auto'"
            )
        words = sorted(self._places)
        longest = 0 if self._gaps else max(map(len, words), default=0)  # prepared ones are never side by side
        self._limits.check(f"{where}, whose longest category has {longest:,} letters,", size=4 * self._rows * longest)
        codes = self._out[: self._rows]
        sorted_place = np.empty(len(words), dtype=np.int32)
        sorted_place[[self._places[word] for word in words]] = np.arange(len(words))
        for at in range(0, len(codes), _PART):
            codes[at : at + _PART] = sorted_place[codes[at : at + _PART]]
        return Categories(codes, tuple(words))


class LabelColumn:
    """Builds the label column.

    Args:
        column: its name.
        where: the table, for messages.
    """

    def __init__(self, column: str, where: str) -> None:
        self._column, self._where = column, where
        self._places: dict[object, int] = {}
        self._parts: list[np.ndarray] = []

    def add(self, values: Any) -> None:
        """Add one batch.

        Raises:
            InputError: lists, records, bytes or dates, or text that is not UTF-8.
        """
        import pyarrow as pa

        if pa.types.is_temporal(values.type):
            raise InputError(
                f"{self._where}: label column {self._column!r} contains dates; a classification needs classes: "
                "make classes of them in the table (before and after a day, say), or a number for "
                "target='number'"
            )
        coded = _encode_dictionary(values, self._column, self._where, "labels are texts or numbers", "label ")
        found = [self._places.setdefault(value.as_py(), len(self._places)) for value in coded.dictionary]
        if len(self._places) > _MOST_LABELS:
            raise InputError(
                f"{self._where}: label column {self._column!r} has more than {_MOST_LABELS:,} different values; "
                "a classification needs classes: set target='number' to learn the number itself, or make "
                "classes of it in the table"
            )
        self._parts.append(np.array([*found, -1], dtype=np.int32)[_dictionary_indexes(coded)])

    def finish(self) -> Coded:
        """Return the column with each value once."""
        return Coded(np.concatenate(self._parts), tuple(self._places))


def check_text(values: Any, column: str, where: str) -> None:
    """Check that a column of texts is UTF-8.

    Raises:
        InputError: it is not.
    """
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raise InputError(f"{where}: column {column!r} contains text that is not UTF-8; save it in UTF-8") from None


def _encode_dictionary(values: Any, column: str, where: str, cure: str, what: str = "") -> Any:
    """Return the values as a `pyarrow.DictionaryArray`."""
    import pyarrow as pa

    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if pa.types.is_nested(kind) or binary:
        raise InputError(f"{where}: {what}column {column!r} holds {kind}; {cure}")
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    check_text(coded.dictionary, column, where)
    return coded


def _dictionary_indexes(coded: Any) -> np.ndarray:
    """Return the dictionary indices, int64 (n,); -1 for nulls."""
    import pyarrow as pa

    at = plain_numbers(coded.indices.cast(pa.int64()))
    if coded.indices.null_count:
        at = np.where(null_flags(coded.indices), -1, at)
    if coded.dictionary.null_count:
        null = np.append(null_flags(coded.dictionary), False)
        at = np.where(null[at], -1, at)
    return at


def _missing_texts() -> list[str]:
    """Return the texts that mean a missing value in a CSV file, and so in any: ``NULL``, ``NA``, ``nan``, the empty
    text and so on.
    """
    import pyarrow.csv as pa_csv

    return list(pa_csv.ConvertOptions().null_values)


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return value is None
    return True


def _format_category(value: object) -> str:
    """Format a category as text; whole floats lose their decimal point, so that CSV and Parquet agree."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
