"""From columns of an Arrow table to identifiers, numbers, categories and labels; and what can be wrong with them.

Used by the loaders, which raise the first mistake, and by `sample`, which lists all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.data.limits import DEFAULT_LIMITS, TableLimits
from securevfl.errors import InputError, UnknownNameError

__all__ = ["ColumnUse", "column_names", "identifiers", "labels"]


@dataclass(frozen=True, kw_only=True)
class ColumnUse:
    """Which column of a table is used for what.

    Attributes:
        id: the identifier column.
        label: the label column, or None.
        features: the feature columns; all others but id and label if None.
        categorical: those of them that hold categories.
        classes: the label's values in the order of their indexes; those found, sorted, if None.
    """

    id: str
    label: str | None
    features: tuple[str, ...] | None
    categorical: frozenset[str]
    classes: tuple[object, ...] | None

    @classmethod
    def of(
        cls,
        *,
        id: str,
        label: str | None,
        features: Sequence[str] | None,
        categorical: Iterable[str],
        classes: Sequence[object] | None,
    ) -> ColumnUse:
        """From the loaders' arguments."""
        return cls(
            id=id,
            label=label,
            features=None if features is None else tuple(features),
            categorical=frozenset([categorical] if isinstance(categorical, str) else categorical),
            classes=None if classes is None else tuple(classes),
        )

    def chosen(self, names: Sequence[str]) -> list[str]:
        """The feature columns of a table with these columns."""
        return [c for c in names if c not in (self.id, self.label)] if self.features is None else list(self.features)

    def mistakes(self, names: Sequence[str], where: str) -> list[InputError]:
        """What is wrong with this use of a table with columns `names`, the most basic mistake first."""
        doubled = sorted(column for column, times in Counter(names).items() if times > 1)
        found = [InputError(f"{where} has column {column!r} twice; rename one") for column in doubled]
        there, chosen = set(names), self.chosen(names)
        for what, wanted in (
            ("id column", [self.id]),
            ("label column", [self.label] if self.label else []),
            ("column", [*chosen, *sorted(self.categorical - set(chosen))]),
        ):
            found += [UnknownNameError(f"{what} of {where}:", c, names) for c in wanted if c not in there]
        if self.id in chosen or (self.label and self.label in chosen):
            found.append(
                InputError(f"{where}: {self.id!r} or {self.label!r} is listed as a feature too; a column has one use")
            )
        if not chosen and (self.features is None or not self.label):
            hint = "; an owner of labels alone says features=[]" if self.label else ""
            found.append(InputError(f"{where} has no feature columns; name at least one in features=…{hint}"))
        return found

    def csv_options(self) -> Any:
        """How a CSV file with these columns is converted: identifiers and categories are texts."""
        import pyarrow.csv as pa_csv
        from pyarrow import string

        texts = {self.id, *self.categorical}
        return pa_csv.ConvertOptions(column_types={column: string() for column in texts}, strings_can_be_null=True)

    def feature(self, values: Any, column: str, where: str, limits: TableLimits = DEFAULT_LIMITS) -> np.ndarray:
        """A feature column, as `PartyTable.columns` has it.

        Raises:
            InputError: nulls, text where numbers are expected, or a column of categories above `TableLimits.max_bytes`.
        """
        return (
            _categories(values, column, where, limits)
            if column in self.categorical
            else _numbers(values, column, where)
        )


def column_names(schema: Any, where: str) -> list[str]:
    """Names of the columns of an Arrow schema.

    Raises:
        InputError: they are not UTF-8.
    """
    try:
        return list(schema.names)
    except UnicodeDecodeError:
        raise InputError(f"{where}: the names of the columns are not UTF-8; save the table in UTF-8") from None


def labels(values: Any, column: str, where: str) -> list[object]:
    """The label column as plain values.

    Raises:
        InputError: lists, records or bytes, or text that is not UTF-8.
    """
    import pyarrow as pa

    if pa.types.is_nested(values.type) or _is_bytes(values.type):
        raise InputError(f"{where}: label column {column!r} holds {values.type}; labels are texts or numbers")
    return _plain(values, column, where)


def _plain(values: Any, column: str, where: str) -> list[Any]:
    try:
        found: list[Any] = values.to_pylist()
    except UnicodeDecodeError:
        raise InputError(f"{where}: column {column!r} holds text that is not UTF-8; save the table in UTF-8") from None
    return found


def identifiers(values: Any, column: str, where: str) -> list[str]:
    """The identifier column as texts.

    Raises:
        InputError: other than texts and whole numbers, or null or empty ones.
    """
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise InputError(
            f"{where}: id column {column!r} holds {kind}; identifiers are texts or whole numbers: convert it"
        )
    found = _plain(values, column, where)
    absent = _absent()
    missing = [row + 1 for row, value in enumerate(found) if value is None or value in absent]
    if missing:
        rows = ", ".join(map(str, missing[:3])) + (", …" if len(missing) > 3 else "")
        raise InputError(
            f"{where}: id column {column!r} is null or empty in {len(missing)} rows (rows {rows}); drop them"
        )
    return [str(value) for value in found]


def _absent() -> frozenset[str]:
    """Texts that stand for no value in a CSV file, and so in any: ``NULL``, ``NA``, ``nan``, the empty one and so
    on."""
    import pyarrow.csv as pa_csv

    return frozenset(pa_csv.ConvertOptions().null_values)


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _numbers(values: Any, column: str, where: str) -> np.ndarray:
    import pyarrow as pa

    kind = values.type
    if pa.types.is_null(kind):
        raise InputError(f"{where}: column {column!r} is null in all rows; drop it with features=…")
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        raise InputError(_no_number(values, column, where))
    missing = np.flatnonzero(_missing(values))
    if len(missing):
        rows = ", ".join(map(str, (missing[:3] + 1).tolist())) + (", …" if len(missing) > 3 else "")
        raise InputError(
            f"{where}: column {column!r} is null or NaN in {len(missing)} of {len(values)} rows (rows {rows}); "
            "fill or drop them"
        )
    if pa.types.is_decimal(kind):
        return np.array(_plain(values, column, where), dtype=np.float64)
    return np.array(values.to_numpy(), dtype=np.float64)


def _missing(values: Any) -> np.ndarray:
    """Which values are null or NaN, bool (rows,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing: np.ndarray = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type)).to_numpy()
    return missing


def _no_number(values: Any, column: str, where: str) -> str:
    for row, value in enumerate(_plain(values, column, where)):
        if isinstance(value, str):
            try:
                float(value)
            except ValueError:
                return (
                    f"{where}: column {column!r} holds text, {value!r} in row {row + 1}; list it in "
                    "categorical=… or correct it"
                )
    return (
        f"{where}: column {column!r} holds {values.type}, no numbers; list it in categorical=… or drop it "
        "with features=…"
    )


def _categories(values: Any, column: str, where: str, limits: TableLimits) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_nested(values.type) or _is_bytes(values.type):
        raise InputError(f"{where}: column {column!r} holds {values.type}; categories are texts or numbers")
    missing = np.flatnonzero(_missing(values))
    found = _plain(values, column, where)
    empty = [row + 1 for row in missing.tolist() if found[row] is None]
    if empty:
        rows = ", ".join(map(str, empty[:3])) + (", …" if len(empty) > 3 else "")
        raise InputError(
            f"{where}: column {column!r} is null in {len(empty)} rows (rows {rows}); write a category for it, "
            "such as 'unknown'"
        )
    words = list(map(_word, found))
    longest = max(map(len, words), default=0)
    limits.check(f"{where}: column {column!r}, whose longest category has {longest:,} letters,", size=_texts(words))
    return np.array(words, dtype=np.str_)


def _texts(words: Sequence[str]) -> int:
    """Bytes of an array of texts, each of which takes as much as the longest."""
    return 4 * len(words) * max(map(len, words), default=0)


def _word(value: object) -> str:
    """A category as text, whole floats without their point, so that CSV and Parquet agree."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
