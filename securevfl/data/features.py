"""From columns to numbers that a network takes, fitted on the party's own training rows and on nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.data.categories import Categories, Column
from securevfl.data.permuted import Permuted
from securevfl.data.prepare import (
    KIND,
    SCALES,
    Preparation,
    PreparedColumn,
    PreparedLine,
    column_from_state,
    column_state,
    fit_columns,
    fit_scaling,
    normal_scores,
)
from securevfl.data.prepare.columns import Writer
from securevfl.data.prepare.scaling import Linear
from securevfl.data.storage import let_go
from securevfl.data.table import PartyTable
from securevfl.errors import InputError, UnknownNameError

__all__ = ["FeatureEncoder"]

_MAX_CATEGORIES = 64
_PART = 1 << 22
_FAR = 1e30
_ROWS = 1 << 16
_RANKED = 1 << 25
"""Most values that are ranked. Of more rows a random part is: by the inequality of Dvoretzky, Kiefer, Wolfowitz and
Massart no rank is off by more than 0.00046 of the rows then, but for one column in a million."""


@dataclass(frozen=True)
class _Standard:
    """(x − mean) / deviation; a column that is constant on the training rows becomes zero."""

    mean: float
    deviation: float

    @classmethod
    def fit(cls, parts: Iterable[np.ndarray]) -> _Standard:
        """In one pass; mean and deviation are put together as by Chan, Golub and LeVeque (1979), and differ from those
        of all values at once by less than 1e-12 deviations."""
        count, mean, squares = 0, 0.0, 0.0
        low, high = np.inf, -np.inf
        for part in parts:
            numbers = part.astype(np.float64)
            low, high = min(low, float(numbers.min())), max(high, float(numbers.max()))
            shift, total = float(numbers.mean()) - mean, count + len(numbers)
            squares += float(numbers.var()) * len(numbers) + shift**2 * count * len(numbers) / total
            mean += shift * len(numbers) / total
            count = total
        return cls(mean, 0.0 if low == high else float(np.sqrt(squares / count)))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if self.deviation == 0:
            return np.zeros((len(values), 1))
        standard: np.ndarray = ((values - self.mean) / self.deviation)[:, None]
        return standard


@dataclass(frozen=True)
class _Quantile:
    """Normal scores of the rank among the training rows: for heavy tails. Between knots by interpolation."""

    values: tuple[float, ...]
    scores: tuple[float, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        scores: np.ndarray = np.interp(values, self.values, self.scores)[:, None]
        return scores


@dataclass(frozen=True)
class _OneHot:
    """One column for each category of the training rows; others become zeros."""

    categories: tuple[str, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return np.stack([values == category for category in self.categories], axis=1).astype(np.float32)

    def of_categories(self, values: Categories) -> np.ndarray:
        """The same for texts as numbers: by a table with a row for each text."""
        place = {category: i for i, category in enumerate(self.categories)}
        found = np.zeros((len(values.words), len(self.categories)), dtype=np.float32)
        for row, word in enumerate(values.words):
            if word in place:
                found[row, place[word]] = 1
        encoded: np.ndarray = found[values.codes]
        return encoded


@dataclass(frozen=True)
class _Block:
    """(x − mean) / deviation of a block: for each column of a table of numbers, over all pixels of images.

    In double precision, some rows at a time: sets of images are large in it.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    shape: tuple[int, ...]

    @classmethod
    def fit(cls, values: np.ndarray) -> _Block:
        axis = 0 if values.ndim == 2 else None
        count = values.size // (values.shape[1] if axis == 0 else 1)
        mean = np.atleast_1d(values.mean(axis=axis, dtype=np.float64))
        squares = sum(((part - mean) ** 2).sum(axis=axis) for part in _parts(values))
        constant = np.atleast_1d(values.max(axis=axis) == values.min(axis=axis))
        deviation = np.where(constant, 0.0, np.sqrt(squares / count))
        return cls(tuple(mean.tolist()), tuple(deviation.tolist()), values.shape[1:])

    def __call__(self, values: np.ndarray) -> np.ndarray:
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        moves = deviation > 0
        divisor = np.where(moves, deviation, 1.0)
        standard = np.empty(values.shape, dtype=np.float32)
        with np.errstate(over="ignore"):  # what leaves the range is far beyond any clip
            for part, out in zip(_parts(values), _parts(standard), strict=True):
                out[...] = np.clip((part - mean) / divisor, -_FAR, _FAR) * moves
        return standard


def _parts(values: np.ndarray) -> list[np.ndarray]:
    step = max(_PART * len(values) // max(values.size, 1), 1)
    return [values[start : start + step] for start in range(0, len(values), step)]


_Encoding = _Standard | _Quantile | _OneHot | _Block | PreparedColumn


@dataclass(frozen=True)
class FeatureEncoder:
    """Standardises numbers, one-hot encodes categories, clips; or prepares columns as their table says.

    A party whose only column is a block of images keeps their shape, (channels, height, width); otherwise all
    encodings stand side by side in one row of numbers.

    Attributes:
        columns: feature → its encoding.
        clip: largest magnitude of an encoded number, in standard deviations.
        lines: of a table with a preparation: how each column was prepared; not kept in `state`.
    """

    columns: dict[str, _Encoding]
    clip: float
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
    ) -> FeatureEncoder:
        """Fit on `rows` of `table`, the party's own training rows, in one pass over each column, some rows at a time;
        ranks are those of all rows up to 2^25, of a random 2^25 beyond. A table with a preparation is fitted as that
        says, numbers on at most 2^20 rows.

        Args:
            table: the party's table.
            rows: row numbers.
            clip: standard deviations at which numbers are cut off.
            scale: of numbers, see `securevfl.data.prepare.scaling`; blocks are standardised, whatever it is, and a
                table's preparation has its own.
            salt: key of hashed categories, of the party's own.

        Raises:
            InputError: no rows, a column with more than 64 categories; or columns that cannot be prepared, all of them.
            UnknownNameError: an unknown scale.
        """
        if scale not in SCALES:
            raise UnknownNameError("scale", scale, SCALES)
        if len(rows) == 0:
            raise InputError(f"{table.name!r} has no training rows to fit its features on")
        rows = _in_order(rows, table.rows)
        if table.preparation is not None:
            return cls._prepared(table, rows, clip, table.preparation, salt)
        columns: dict[str, _Encoding] = {}
        for name, values in table.columns.items():
            if name in table.categorical:
                columns[name] = _OneHot(_categories(values, rows, name, table.name))
            elif isinstance(values, np.ndarray) and values.ndim > 1:
                columns[name] = _Block.fit(values[rows])
            elif scale == "standard":
                columns[name] = _Standard.fit(_of_rows(values, rows))
            else:
                columns[name] = _scaled(_sample(values, rows), scale)
            let_go(values)
        return cls(columns, clip)

    @classmethod
    def _prepared(
        cls, table: PartyTable, rows: np.ndarray, clip: float, preparation: Preparation, salt: bytes
    ) -> FeatureEncoder:
        where = table.source or f"the table of {table.name!r}"
        for name in preparation.columns:
            if name not in table.columns:
                raise UnknownNameError(f"column of {where}, named in prepare:", name, table.columns)
        blocks = {name: v for name, v in table.columns.items() if isinstance(v, np.ndarray) and v.ndim > 1}
        single = {name: v for name, v in table.columns.items() if name not in blocks}
        found = fit_columns(single, table.categorical, rows, preparation, salt)
        if found.problems:
            raise InputError(f"{where}: " + "\n  ".join(found.problems))
        columns: dict[str, _Encoding] = {
            name: _Block.fit(blocks[name][rows]) if name in blocks else found.columns[name]
            for name in table.columns
            if name in blocks or name in found.columns
        }
        if not columns and table.columns and table.label is None:
            why = "; ".join(f"{line.column!r} {line.how}" for line in found.lines[:3])
            raise InputError(f"{where}: no column is left after preparation ({why}): give columns that tell rows apart")
        return cls(columns, clip, tuple(found.lines))

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns: ``AGE``, ``EDUCATION=2``, ``pixels[0]`` …"""
        found: list[str] = []
        for name, encoding in self.columns.items():
            if isinstance(encoding, _OneHot):
                found += [f"{name}={category}" for category in encoding.categories]
            elif isinstance(encoding, _Block):
                found += [f"{name}[{i}]" for i in range(int(np.prod(encoding.shape)))]
            elif isinstance(encoding, PreparedColumn):
                found += encoding.names(name)
            else:
                found.append(name)
        return found

    def state(self) -> dict[str, object]:
        """Plain values that `from_state` makes the same encoder of."""
        encodings = {
            name: column_state(e) if isinstance(e, PreparedColumn) else {"kind": type(e).__name__, **vars(e)}
            for name, e in self.columns.items()
        }
        return {"clip": self.clip, "columns": encodings}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FeatureEncoder:
        """The encoder whose `state` this is.

        Raises:
            InputError: something else.
        """
        kinds: Mapping[str, Any] = {kind.__name__: kind for kind in (_Standard, _Quantile, _OneHot, _Block)}
        try:
            columns: dict[str, _Encoding] = {}
            for name, values in state["columns"].items():
                if values["kind"] == KIND:
                    columns[str(name)] = column_from_state(values)
                    continue
                fields = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items() if key != "kind"}
                columns[str(name)] = kinds[values["kind"]](**fields)
            return cls(columns, float(state["clip"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"a stored encoder is damaged: {error}") from None

    def transform(self, table: PartyTable, rows: np.ndarray | None = None) -> np.ndarray:
        """Encoded features of `rows` (all rows if None), (n, len(names)) float32; images (n, channels, height, width).

        Beyond `PartyTable.storage` the array is mapped; torch takes it as it is. The table is read in its own order
        then, and the rows are put in theirs by `Permuted`.

        Raises:
            InputError: a column has another shape than the one that the encoder was fitted on.
            UnknownNameError: the table lacks a column that the encoder was fitted on.
        """
        self._check(table)
        count = table.rows if rows is None else len(rows)
        if not self.columns:
            return np.zeros((count, 0), dtype=np.float32)
        shape = self._shape()
        writers = {
            name: encoding.encoder(table.columns[name])
            for name, encoding in self.columns.items()
            if isinstance(encoding, PreparedColumn)
        }
        mapped = table.storage.maps((count, *shape), np.float32)
        out = table.storage.empty((count, *shape), np.float32)
        if rows is None or not mapped:
            for at in range(0, count, _ROWS):
                end = min(at + _ROWS, count)
                self._encode(table, slice(at, end) if rows is None else rows[at:end], out[at:end], writers)
        else:  # a row here and a row there would be read from the disk each: all are read in their order
            order = Permuted(out, rows, table.rows)
            for at in range(0, table.rows, _ROWS):
                part = slice(at, min(at + _ROWS, table.rows))
                order.add(at, self._encode(table, part, np.empty((part.stop - at, *shape), np.float32), writers))
            order.finish()
        for values in table.columns.values():
            let_go(values)
        return out

    def _check(self, table: PartyTable) -> None:
        mistakes = []
        for name, encoding in self.columns.items():
            if name not in table.columns:
                raise UnknownNameError(f"column of {table.name!r}:", name, table.columns)
            values = table.columns[name]
            if isinstance(encoding, PreparedColumn):
                mistake = encoding.mistake(values)
                mistakes += [f"column {name!r} {mistake}"] if mistake else []
                continue
            fitted = encoding.shape if isinstance(encoding, _Block) else ()
            if values.shape[1:] != fitted:
                raise InputError(
                    f"column {name!r} of {table.name!r} has values of shape {values.shape[1:]}; the encoder was fitted "
                    f"on {fitted}"
                )
        if mistakes:
            raise InputError(f"{table.source or f'the table of {table.name!r}'}: " + "\n  ".join(mistakes))

    def _shape(self) -> tuple[int, ...]:
        """Of one encoded row."""
        only = next(iter(self.columns.values()))
        if len(self.columns) == 1 and isinstance(only, _Block) and len(only.shape) > 1:
            return only.shape if len(only.shape) == 3 else (1, *only.shape)
        return (len(self.names),)

    def _encode(
        self, table: PartyTable, rows: np.ndarray | slice, out: np.ndarray, writers: Mapping[str, Writer]
    ) -> np.ndarray:
        """Some rows of a table, into `out`, which is returned."""
        at = 0
        for name, encoding in self.columns.items():
            values: Column = table.columns[name][rows]
            if isinstance(encoding, PreparedColumn):
                to = out[:, at : at + encoding.width]
                writers[name](values, to)
                np.clip(to, -self.clip, self.clip, out=to)
                at += encoding.width
                continue
            if isinstance(encoding, _OneHot):
                part = encoding.of_categories(values) if isinstance(values, Categories) else encoding(_texts(values))
            else:
                numbers = np.asarray(values)
                part = encoding(numbers if isinstance(encoding, _Block) else numbers.astype(np.float64))
            if out.ndim > 2:
                np.clip(part.reshape(out.shape), -self.clip, self.clip, out=out)
                return out
            flat = part.reshape(len(part), -1)
            np.clip(flat, -self.clip, self.clip, out=out[:, at : at + flat.shape[1]], casting="same_kind")
            at += flat.shape[1]
        return out


def _texts(values: np.ndarray) -> np.ndarray:
    return values.astype(np.str_)


def _in_order(rows: np.ndarray, count: int) -> np.ndarray:
    """The same rows in the order of the table, so that a mapped column is read from its beginning to its end."""
    there = np.zeros(count, dtype=bool)
    there[rows] = True
    found = np.flatnonzero(there)
    return found if len(found) == len(rows) else np.sort(rows)  # some are there twice


def _of_rows(values: Column, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Values of rows, some at a time."""
    for at in range(0, len(rows), _ROWS):
        yield np.asarray(values[rows[at : at + _ROWS]])


def _sample(values: Column, rows: np.ndarray) -> np.ndarray:
    """Values of rows, of about `_RANKED` of them at most."""
    generator = np.random.default_rng(0)
    share = _RANKED / max(len(rows), 1)
    parts = list(_of_rows(values, rows))
    if share < 1:
        parts = [part[generator.random(len(part)) < share] for part in parts]
    return np.concatenate(parts).astype(np.float64)


def _categories(values: Column, rows: np.ndarray, name: str, party: str) -> tuple[str, ...]:
    """The categories of rows, sorted."""
    if isinstance(values, Categories):
        there = np.zeros(len(values.words), dtype=bool)
        for at in range(0, len(rows), _ROWS):
            there[values.codes[rows[at : at + _ROWS]]] = True
        found = [word for word, is_there in zip(values.words, there.tolist(), strict=True) if is_there]
    else:
        found = np.unique(_texts(values[rows])).tolist()
    if len(found) > _MAX_CATEGORIES:
        raise InputError(
            f"{party!r}: column {name!r} has {len(found)} categories; at most {_MAX_CATEGORIES}: group the rare ones, "
            "or drop it with features=…"
        )
    return tuple(found)


def _scaled(values: np.ndarray, scale: str) -> _Standard | _Quantile:
    """Scaling of another kind than standard, of the numbers of training rows."""
    if scale == "quantile":
        knots, scores = normal_scores(values)
        return _Quantile(tuple(knots.tolist()), tuple(scores.tolist()))
    found = fit_scaling(values, scale)
    if isinstance(found, Linear):
        return _Standard(found.centre, found.spread)
    return _Quantile(tuple(found.values.tolist()), tuple(found.scores.tolist()))
