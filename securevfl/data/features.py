"""From columns to numbers that a network takes, fitted on the party's own training rows and on nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.data.table import PartyTable
from securevfl.errors import InputError, UnknownNameError

__all__ = ["FeatureEncoder"]

_SCALES = ("quantile", "standard")
_MAX_CATEGORIES = 64
_KNOTS = 257
_PART = 1 << 22
_FAR = 1e30


@dataclass(frozen=True)
class _Standard:
    """(x − mean) / deviation; a column that is constant on the training rows becomes zero."""

    mean: float
    deviation: float

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
        return np.stack([values == category for category in self.categories], axis=1).astype(np.float64)


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


_Encoding = _Standard | _Quantile | _OneHot | _Block


@dataclass(frozen=True)
class FeatureEncoder:
    """Standardises numbers, one-hot encodes categories, clips.

    A party whose only column is a block of images keeps their shape, (channels, height, width); otherwise all
    encodings stand side by side in one row of numbers.

    Attributes:
        columns: feature → its encoding.
        clip: largest magnitude of an encoded number, in standard deviations.
    """

    columns: dict[str, _Encoding]
    clip: float

    @classmethod
    def fit(cls, table: PartyTable, rows: np.ndarray, *, clip: float = 5.0, scale: str = "standard") -> FeatureEncoder:
        """Fit on `rows` of `table`, the party's own training rows.

        Args:
            table: the party's table.
            rows: row numbers.
            clip: standard deviations at which numbers are cut off.
            scale: ``"standard"``, or ``"quantile"`` for normal scores of ranks; blocks are standardised either way.

        Raises:
            InputError: no rows, or a column with more than 64 categories.
            UnknownNameError: an unknown scale.
        """
        if scale not in _SCALES:
            raise UnknownNameError("scale", scale, _SCALES)
        if len(rows) == 0:
            raise InputError(f"{table.name!r} has no training rows to fit its features on")
        columns: dict[str, _Encoding] = {}
        for name, values in table.columns.items():
            seen = values[rows]
            if values.ndim > 1:
                columns[name] = _Block.fit(seen)
            elif name in table.categorical:
                categories = np.unique(seen.astype(np.str_))
                if len(categories) > _MAX_CATEGORIES:
                    raise InputError(
                        f"{table.name!r}: column {name!r} has {len(categories)} categories; at most "
                        f"{_MAX_CATEGORIES}: group the "
                        "rare ones, or drop it with features=…"
                    )
                columns[name] = _OneHot(tuple(str(category) for category in categories))
            elif scale == "quantile":
                columns[name] = _quantile(seen.astype(np.float64))
            else:
                numbers = seen.astype(np.float64)
                constant = bool((numbers == numbers[0]).all())
                columns[name] = _Standard(float(numbers.mean()), 0.0 if constant else float(numbers.std()))
        return cls(columns, clip)

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns: ``AGE``, ``EDUCATION=2``, ``pixels[0]`` …"""
        found: list[str] = []
        for name, encoding in self.columns.items():
            if isinstance(encoding, _OneHot):
                found += [f"{name}={category}" for category in encoding.categories]
            elif isinstance(encoding, _Block):
                found += [f"{name}[{i}]" for i in range(int(np.prod(encoding.shape)))]
            else:
                found.append(name)
        return found

    def state(self) -> dict[str, object]:
        """Plain values that `from_state` makes the same encoder of."""
        encodings = {name: {"kind": type(e).__name__, **vars(e)} for name, e in self.columns.items()}
        return {"clip": self.clip, "columns": encodings}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FeatureEncoder:
        """The encoder whose `state` this is.

        Raises:
            InputError: something else.
        """
        kinds: Mapping[str, Any] = {kind.__name__: kind for kind in (_Standard, _Quantile, _OneHot, _Block)}
        try:
            columns = {}
            for name, values in state["columns"].items():
                fields = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items() if key != "kind"}
                columns[str(name)] = kinds[values["kind"]](**fields)
            return cls(columns, float(state["clip"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"a stored encoder is damaged: {error}") from None

    def transform(self, table: PartyTable, rows: np.ndarray | None = None) -> np.ndarray:
        """Encoded features of `rows` (all rows if None), (n, len(names)) float32; images (n, channels, height, width).

        Raises:
            InputError: a column has another shape than the one that the encoder was fitted on.
            UnknownNameError: the table lacks a column that the encoder was fitted on.
        """
        parts = []
        for name, encoding in self.columns.items():
            if name not in table.columns:
                raise UnknownNameError(f"column of {table.name!r}:", name, table.columns)
            values = table.columns[name] if rows is None else table.columns[name][rows]
            fitted = encoding.shape if isinstance(encoding, _Block) else ()
            if values.shape[1:] != fitted:
                raise InputError(
                    f"column {name!r} of {table.name!r} has values of shape {values.shape[1:]}; the encoder was fitted "
                    f"on {fitted}"
                )
            if isinstance(encoding, _Block):
                parts.append(encoding(values))
            else:
                parts.append(
                    encoding(values.astype(np.str_) if isinstance(encoding, _OneHot) else values.astype(np.float64))
                )
        if not parts:
            return np.zeros((table.rows if rows is None else len(rows), 0), dtype=np.float32)
        if len(parts) == 1 and parts[0].ndim > 2:
            image = parts[0] if parts[0].ndim == 4 else parts[0][:, None]
            shaped: np.ndarray = np.clip(image, -self.clip, self.clip).astype(np.float32)
            return shaped
        flat = [part.reshape(len(part), -1) for part in parts]
        encoded: np.ndarray = np.clip(np.concatenate(flat, axis=1), -self.clip, self.clip).astype(np.float32)
        return encoded


def _quantile(values: np.ndarray) -> _Quantile:
    """Knots at distinct values; the score of a value is Φ⁻¹ of its middle rank, standardised."""
    from scipy.special import ndtri

    distinct, counts = np.unique(values, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / len(values)
    scores = ndtri(np.clip(middle, 1e-6, 1 - 1e-6))
    mean = float(np.average(scores, weights=counts))
    deviation = float(np.sqrt(np.average((scores - mean) ** 2, weights=counts)))
    scores = (scores - mean) / deviation if deviation > 0 else np.zeros_like(scores)
    if len(distinct) > _KNOTS:
        keep = np.unique(np.linspace(0, len(distinct) - 1, _KNOTS).round().astype(int))
        distinct, scores = distinct[keep], scores[keep]
    return _Quantile(tuple(distinct.tolist()), tuple(scores.tolist()))
