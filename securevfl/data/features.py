"""Encode columns as numbers for a network, fitted only on the party's own training rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from securevfl.data.categories import Categories, Column
from securevfl.data.encodings import BlockEncoding, OneHot, Quantile, Standard, fit_scaled
from securevfl.data.permuted import Permuted
from securevfl.data.prepare import (
    KIND,
    SCALES,
    Declared,
    Preparation,
    PreparedColumn,
    PreparedLine,
    column_from_state,
    column_state,
    fit_columns,
)
from securevfl.data.prepare.coded import CodedLevels
from securevfl.data.prepare.columns import PreparedCategory, Writer
from securevfl.data.storage import release_memory
from securevfl.data.table import PartyTable, check_numbers
from securevfl.errors import InputError, UnknownNameError

__all__ = ["FeatureEncoder", "View"]

View = Literal["network", "coded"]

_MAX_CATEGORIES = 64
_ROWS = 1 << 16
_RANKED = 1 << 25
"""Maximum number of values to rank; of more rows, a random sample is ranked. By the inequality of Dvoretzky, Kiefer,
Wolfowitz and Massart, no rank is then off by more than 0.00046 of the rows, except for one column in a million.
"""


_Encoding = Standard | Quantile | OneHot | BlockEncoding | PreparedColumn


@dataclass(frozen=True)
class FeatureEncoder:
    """Standardises numbers, one-hot encodes categories and clips; or applies the table's preparation.

    A party whose only column is a block of images keeps their shape, (channels, height, width); otherwise all encodings
    are concatenated into one row of numbers.

    Attributes:
        columns: feature → its encoding.
        clip: largest magnitude of an encoded number, in standard deviations; not applied for trees.
        view: ``"network"``, or ``"coded"`` for trees: numbers unchanged, NaN for missing values, categories as codes.
        lines: how each column was prepared, if the table has a preparation; not part of `state`.
    """

    columns: dict[str, _Encoding]
    clip: float
    view: View = "network"
    lines: tuple[PreparedLine, ...] = ()

    @classmethod
    def fit(
        cls,
        table: PartyTable,
        rows: np.ndarray,
        *,
        clip: float = 5.0,
        scale: str = "standard",
        salt: bytes = b"",
        view: View = "network",
        levels: Mapping[str, tuple[str, ...]] = {},
        blind: bool = False,
    ) -> FeatureEncoder:
        """Fit on `rows` of `table`, the party's own training rows, in one pass over each column, some rows at a time.
        Ranks use all rows up to 2^25 and a random 2^25 beyond. With a preparation, its rules apply, and numbers are
        fitted on at most 2^20 rows.

        Args:
            table: the party's table.
            rows: row numbers.
            clip: standard deviations at which numbers are clipped.
            scale: scaling of numbers, see `securevfl.data.prepare.scaling`. Blocks are always standardised, and a
                table's preparation sets its own scaling.
            salt: the party's secret key for hashed categories.
            view: see above; ``"coded"`` also prepares tables without a preparation.
            levels: column → its declared levels, for ``"coded"``: codes follow from them and from no row.
            blind: whether, for ``"coded"``, nothing but the kinds of columns may depend on rows: no column is dropped
                for what its rows contain, and each column of categories needs declared levels.

        Raises:
            InputError: no rows, a column with more than 64 categories, or columns that cannot be prepared (lists all).
            UnknownNameError: an unknown scale.
        """
        if scale not in SCALES:
            raise UnknownNameError("scale", scale, SCALES)
        if len(rows) == 0:
            raise InputError(f"{table.name!r} has no training rows to fit its features on")
        rows = _in_order(rows, table.rows)
        if table.preparation is not None or view == "coded":
            rules = table.preparation or Preparation()
            return cls._fit_prepared(table, rows, clip, rules, salt, view, Declared(levels, blind))
        columns: dict[str, _Encoding] = {}
        for name, values in table.columns.items():
            if name in table.categorical:
                columns[name] = OneHot(_sorted_categories(values, rows, name, table.name))
            elif isinstance(values, np.ndarray) and values.ndim > 1:
                columns[name] = BlockEncoding.fit(values[rows])
            elif scale == "standard":
                columns[name] = Standard.fit(_of_rows(values, rows))
            else:
                columns[name] = fit_scaled(_sample_values(values, rows), scale)
            release_memory(values)
        return cls(columns, clip)

    @classmethod
    def _fit_prepared(
        cls,
        table: PartyTable,
        rows: np.ndarray,
        clip: float,
        preparation: Preparation,
        salt: bytes,
        view: View,
        declared: Declared,
    ) -> FeatureEncoder:
        where = table.source or f"the table of {table.name!r}"
        for name in preparation.columns:
            if name not in table.columns:
                raise UnknownNameError(f"column of {where}, named in prepare:", name, table.columns)
        blocks = {name: v for name, v in table.columns.items() if isinstance(v, np.ndarray) and v.ndim > 1}
        single = {name: v for name, v in table.columns.items() if name not in blocks}
        coded = view == "coded"
        found = fit_columns(single, table.categorical, rows, preparation, salt, coded=coded, declared=declared)
        if found.problems:
            raise InputError(f"{where}: " + "\n  ".join(found.problems))
        columns: dict[str, _Encoding] = {
            name: (BlockEncoding.unscaled_block if coded else BlockEncoding.fit)(blocks[name][rows])
            if name in blocks
            else found.columns[name]
            for name in table.columns
            if name in blocks or name in found.columns
        }
        if not columns and table.columns and table.label is None:
            why = "; ".join(f"{line.column!r} {line.how}" for line in found.lines[:3])
            raise InputError(
                f"{where}: no column is left after preparation ({why}): give columns whose values differ between rows"
            )
        return cls(columns, clip, view, tuple(found.lines))

    @property
    def column_names(self) -> list[str]:
        """The names of the encoded columns: ``AGE``, ``EDUCATION=2``, ``pixels[0]`` …"""
        found: list[str] = []
        for name, encoding in self.columns.items():
            if isinstance(encoding, OneHot):
                found += [f"{name}={category}" for category in encoding.categories]
            elif isinstance(encoding, BlockEncoding):
                found += [f"{name}[{i}]" for i in range(int(np.prod(encoding.shape)))]
            elif isinstance(encoding, PreparedColumn):
                found += encoding.encoded_names(name)
            else:
                found.append(name)
        return found

    @property
    def source_columns(self) -> list[int]:
        """For each encoded column, the place in `columns` of the column that it comes from."""
        return [
            place
            for place, (name, encoding) in enumerate(self.columns.items())
            for _ in FeatureEncoder({name: encoding}, self.clip).column_names
        ]

    @property
    def code_counts(self) -> list[int]:
        """For each encoded column of ``"coded"``, its number of codes (0, 1, …); 0 for columns of numbers."""
        found: list[int] = []
        for encoding in self.columns.values():
            block = [0] * int(np.prod(encoding.shape)) if isinstance(encoding, BlockEncoding) else [0]
            found += encoding.code_counts if isinstance(encoding, PreparedColumn) else block
        return found

    @property
    def level_names(self) -> dict[str, tuple[str, ...]]:
        """Column of ``"coded"`` categories → the names of its codes; the last code, of all other levels, has none."""
        found = {}
        for name, encoding in self.columns.items():
            how = encoding.how if isinstance(encoding, PreparedColumn) else None
            if isinstance(how, PreparedCategory) and isinstance(how.levels, CodedLevels):
                found[name] = how.levels.levels
        return found

    def decode(self, column: int, values: np.ndarray) -> np.ndarray:
        """Convert numbers of one encoded column back to the units of the party's own column, float64. NaN if that is
        impossible: categories, blocks, prepared columns, and columns that are constant on the training rows.

        Args:
            column: its index in `column_names`.
            values: encoded numbers, (n,).
        """
        at, found = 0, np.full(len(values), np.nan)
        for name, encoding in self.columns.items():
            width = len(FeatureEncoder({name: encoding}, self.clip).column_names)
            if at <= column < at + width:
                wide = values.astype(np.float64)
                if isinstance(encoding, Standard) and encoding.deviation > 0:
                    return wide * encoding.deviation + encoding.mean
                if isinstance(encoding, Quantile):
                    return np.interp(wide, encoding.scores, encoding.values)
                return found
            at += width
        return found

    def state(self) -> dict[str, object]:
        """Return plain values from which `from_state` rebuilds this encoder."""
        encodings = {
            name: column_state(e) if isinstance(e, PreparedColumn) else {"kind": f"_{type(e).__name__}", **vars(e)}
            for name, e in self.columns.items()
        }
        view = {} if self.view == "network" else {"view": self.view}
        return {"clip": self.clip, "columns": encodings, **view}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FeatureEncoder:
        """Rebuild an encoder from its `state`.

        Raises:
            InputError: the values are not such a state.
        """
        kinds: Mapping[str, Any] = {f"_{kind.__name__}": kind for kind in (Standard, Quantile, OneHot, BlockEncoding)}
        try:
            columns: dict[str, _Encoding] = {}
            for name, values in state["columns"].items():
                if values["kind"] == KIND:
                    columns[str(name)] = column_from_state(values)
                    continue
                fields = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items() if key != "kind"}
                columns[str(name)] = kinds[values["kind"]](**fields)
            view = state.get("view", "network")
            if view not in ("network", "coded"):
                raise ValueError(f"it is for {view!r:.40}")
            return cls(columns, float(state["clip"]), view)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"a stored encoder is damaged: {error}") from None

    def transform(self, table: PartyTable, rows: np.ndarray | None = None) -> np.ndarray:
        """Encode `rows` (all if None): (n, len(names)) float32, or images (n, channels, height, width). For trees:
        float64, never images.

        An array larger than `PartyTable.storage` allows is memory-mapped; torch can use it directly. The table is then
        read in its own order and `Permuted` reorders the rows.

        Raises:
            InputError: a column's shape differs from the one at fitting.
            UnknownNameError: the table lacks a column that the encoder was fitted on.
        """
        self._check_table(table)
        count, kind = table.rows if rows is None else len(rows), self._encoded_dtype
        if not self.columns:
            return np.zeros((count, 0), dtype=kind)
        shape = self.row_shape
        writers = {
            name: encoding.build_encoder(table.columns[name])
            for name, encoding in self.columns.items()
            if isinstance(encoding, PreparedColumn)
        }
        mapped = table.storage.is_mapped((count, *shape), kind)
        out = table.storage.allocate((count, *shape), kind)
        if rows is None or not mapped:
            for at in range(0, count, _ROWS):
                end = min(at + _ROWS, count)
                self._encode_rows(table, slice(at, end) if rows is None else rows[at:end], out[at:end], writers)
        else:  # a row here and a row there would be read from the disk each: all are read in their order
            order = Permuted(out, rows, table.rows)
            for at in range(0, table.rows, _ROWS):
                part = slice(at, min(at + _ROWS, table.rows))
                order.add(at, self._encode_rows(table, part, np.empty((part.stop - at, *shape), kind), writers))
            order.finish()
        for values in table.columns.values():
            release_memory(values)
        return out

    @property
    def _encoded_dtype(self) -> type[np.float32 | np.float64]:
        return np.float64 if self.view == "coded" else np.float32

    def _check_table(self, table: PartyTable) -> None:
        mistakes = []
        for name, encoding in self.columns.items():
            if name not in table.columns:
                raise UnknownNameError(f"column of {table.name!r}:", name, table.columns)
            values = table.columns[name]
            if isinstance(encoding, PreparedColumn):
                mistake = encoding.explain_mistake(values)
                mistakes += [f"column {name!r} {mistake}"] if mistake else []
                continue
            if table.preparation is not None and not isinstance(encoding, OneHot):
                check_numbers(name, values, f"{table.name!r}, by a model that was trained without prepare=…")
            fitted = encoding.shape if isinstance(encoding, BlockEncoding) else ()
            if values.shape[1:] != fitted:
                raise InputError(
                    f"column {name!r} of {table.name!r} has values of shape {values.shape[1:]}; the encoder was fitted "
                    f"on {fitted}"
                )
        if mistakes:
            raise InputError(f"{table.source or f'the table of {table.name!r}'}: " + "\n  ".join(mistakes))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one encoded row."""
        only = next(iter(self.columns.values()), None)
        if (
            len(self.columns) == 1
            and isinstance(only, BlockEncoding)
            and len(only.shape) > 1
            and self.view == "network"
        ):
            return only.shape if len(only.shape) == 3 else (1, *only.shape)
        return (len(self.column_names),)

    def _encode_rows(
        self, table: PartyTable, rows: np.ndarray | slice, out: np.ndarray, writers: Mapping[str, Writer]
    ) -> np.ndarray:
        """Encode some rows of a table into `out` and return it."""
        at, most = 0, np.inf if self.view == "coded" else self.clip
        for name, encoding in self.columns.items():
            values: Column = table.columns[name][rows]
            if isinstance(encoding, PreparedColumn):
                to = out[:, at : at + encoding.width]
                writers[name](values, to)
                np.clip(to, -most, most, out=to)
                at += encoding.width
                continue
            if isinstance(encoding, OneHot):
                part = encoding.of_categories(values) if isinstance(values, Categories) else encoding(_to_texts(values))
            else:
                numbers = np.asarray(values)
                part = encoding(numbers if isinstance(encoding, BlockEncoding) else numbers.astype(np.float64))
            if out.ndim > 2:
                np.clip(part.reshape(out.shape), -most, most, out=out)
                return out
            flat = part.reshape(len(part), -1)
            np.clip(flat, -most, most, out=out[:, at : at + flat.shape[1]], casting="same_kind")
            at += flat.shape[1]
        return out


def _to_texts(values: np.ndarray) -> np.ndarray:
    return values.astype(np.str_)


def _in_order(rows: np.ndarray, count: int) -> np.ndarray:
    """Sort rows into table order, so that a mapped column is read sequentially."""
    there = np.zeros(count, dtype=bool)
    there[rows] = True
    found = np.flatnonzero(there)
    return found if len(found) == len(rows) else np.sort(rows)  # some are there twice


def _of_rows(values: Column, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the values of rows, some at a time."""
    for at in range(0, len(rows), _ROWS):
        yield np.asarray(values[rows[at : at + _ROWS]])


def _sample_values(values: Column, rows: np.ndarray) -> np.ndarray:
    """Return the values of rows, of a random sample if there are more than about `_RANKED`."""
    generator = np.random.default_rng(0)
    share = _RANKED / max(len(rows), 1)
    parts = list(_of_rows(values, rows))
    if share < 1:
        parts = [part[generator.random(len(part)) < share] for part in parts]
    return np.concatenate(parts).astype(np.float64)


def _sorted_categories(values: Column, rows: np.ndarray, name: str, party: str) -> tuple[str, ...]:
    """Return the sorted categories of rows."""
    if isinstance(values, Categories):
        there = np.zeros(len(values.words), dtype=bool)
        for at in range(0, len(rows), _ROWS):
            there[values.codes[rows[at : at + _ROWS]]] = True
        found = [word for word, is_there in zip(values.words, there.tolist(), strict=True) if is_there]
    else:
        found = np.unique(_to_texts(values[rows])).tolist()
    if len(found) > _MAX_CATEGORIES:
        raise InputError(
            f"{party!r}: column {name!r} has {len(found)} categories; at most {_MAX_CATEGORIES}: give prepare='auto', "
            "group the rare ones, or drop it with features=…"
        )
    return tuple(found)
