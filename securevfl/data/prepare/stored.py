"""Convert prepared columns to plain values and back; values from a file are checked before they are used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data.prepare.coded import CODES, CodedDate, CodedLevels, CodedNumber
from securevfl.data.prepare.columns import PreparedCategory, PreparedColumn, PreparedDate, PreparedNumber
from securevfl.data.prepare.dates import ORDERS
from securevfl.data.prepare.kinds import Reader
from securevfl.data.prepare.levels import Levels
from securevfl.data.prepare.scaling import Linear, Scores

__all__ = ["KIND", "column_from_state", "column_state"]

KIND = "prepared 1"
"""Type and format version of a stored column."""

_MOST_LEVELS = 1 << 16
_MOST_WIDTH = 4097
_MOST_KNOTS = 1 << 12
_LONGEST = 1 << 16
_FORMS = {"number": {"", ".", ","}, "flag": {""}, "date": {"", *ORDERS}}
_CYCLES = ("month", "weekday", "hour")
_PARTS = ("year", *_CYCLES)


def column_state(column: PreparedColumn) -> dict[str, object]:
    """Return plain values from which `column_from_state` rebuilds the column."""
    how = column.how
    if isinstance(how, CodedNumber):
        return {"kind": KIND, "holds": "coded", "of": how.reader.kind, "form": how.reader.form}
    if isinstance(how, CodedDate):
        return {
            "kind": KIND,
            "holds": "coded",
            "of": "date",
            "form": how.reader.form,
            "reference": how.reference,
            "parts": list(how.parts),
        }
    if isinstance(how, PreparedCategory):
        one = how.levels
        if isinstance(one, CodedLevels):
            return {"kind": KIND, "holds": "codes", "levels": list(one.levels)}
        return {
            "kind": KIND,
            "holds": "category",
            "onehot": list(one.onehot),
            "other": one.other,
            "counted": list(one.counted),
            "frequency": np.array(one.frequency, dtype=np.float64),
            "unknown": one.unknown,
            "buckets": one.buckets,
            "salt": one.salt.hex(),
        }
    found: dict[str, object] = {
        "kind": KIND,
        "holds": how.reader.kind,
        "form": how.reader.form,
        "fill": how.fill,
        "indicator": how.indicator,
    }
    if isinstance(how, PreparedNumber):
        return found | {"scaling": _scaling_state(how.scaling)}
    return found | {
        "reference": how.reference,
        "scaling": _scaling_state(how.days),
        "year": None if how.year is None else _scaling_state(how.year),
        "cycles": list(how.cycles),
    }


def column_from_state(state: Mapping[str, Any]) -> PreparedColumn:
    """Rebuild a column from its `column_state`.

    Raises:
        ValueError, KeyError, TypeError: the values are not such a state.
    """
    if state["kind"] != KIND:
        raise ValueError(f"a prepared column has the kind {state['kind']!r:.40}; expected {KIND!r}")
    holds = state["holds"]
    if holds == "codes":
        levels = _read_texts(state["levels"], CODES - 1)
        if not levels or "" in levels:
            raise ValueError("a coded column has no levels, or one without a name")
        return PreparedColumn(PreparedCategory(CodedLevels(levels)))
    if holds == "coded":
        return PreparedColumn(_read_coded(state))
    if holds == "category":
        return PreparedColumn(PreparedCategory(_read_levels(state)))
    if holds not in _FORMS or state["form"] not in _FORMS[holds]:
        raise ValueError(f"a prepared column contains {holds!r:.40}, written as {state['form']!r:.40}")
    reader, fill, indicator = Reader(holds, state["form"]), _read_number(state["fill"]), _read_bool(state["indicator"])
    scaling = _read_scaling(state["scaling"])
    if holds != "date":
        return PreparedColumn(PreparedNumber(reader, scaling, fill, indicator))
    year = None if state["year"] is None else _read_scaling(state["year"])
    if isinstance(year, Scores):
        raise ValueError("the year of a prepared column is scaled by ranks")
    cycles = _read_texts(state["cycles"], len(_CYCLES))
    if list(cycles) != [name for name in _CYCLES if name in cycles]:
        raise ValueError(f"a prepared column has the circles {cycles!r:.80}")
    if abs(fill) > 1e8:
        raise ValueError("a prepared column fills in a date that no calendar has")
    return PreparedColumn(
        PreparedDate(reader, _read_number(state["reference"]), scaling, year, cycles, fill, indicator)
    )


def _read_coded(state: Mapping[str, Any]) -> CodedNumber | CodedDate:
    of, form = state["of"], state["form"]
    if of not in _FORMS or form not in _FORMS[of]:
        raise ValueError(f"a coded column contains {of!r:.40}, written as {form!r:.40}")
    if of != "date":
        return CodedNumber(Reader(of, form))
    parts = _read_texts(state["parts"], len(_PARTS))
    if list(parts) != [name for name in _PARTS if name in parts]:
        raise ValueError(f"a coded column has the parts {parts!r:.80}")
    return CodedDate(Reader(of, form), _read_number(state["reference"]), parts)


def _read_levels(state: Mapping[str, Any]) -> Levels:
    onehot, counted = _read_texts(state["onehot"], _MOST_WIDTH), _read_texts(state["counted"], _MOST_LEVELS)
    frequency, buckets = _read_numbers(state["frequency"], len(counted)), state["buckets"]
    if isinstance(buckets, bool) or not isinstance(buckets, int) or not 0 <= buckets < _MOST_WIDTH:
        raise ValueError(f"a prepared column has {buckets!r:.40} buckets")
    found = Levels(
        onehot=onehot,
        other=_read_bool(state["other"]),
        counted=counted,
        frequency=frequency,
        unknown=_read_number(state["unknown"]),
        buckets=buckets,
        salt=bytes.fromhex(state["salt"]),
    )
    if not found.width or len(found.salt) > 64:
        raise ValueError("a prepared column of categories becomes no numbers, or has an invalid salt")
    return found


def _scaling_state(scaling: Linear | Scores) -> dict[str, object]:
    if isinstance(scaling, Linear):
        return {"kind": scaling.kind, "centre": scaling.centre, "spread": scaling.spread}
    return {"kind": scaling.kind, "values": np.array(scaling.values), "scores": np.array(scaling.scores)}


def _read_scaling(state: Mapping[str, Any]) -> Linear | Scores:
    if state["kind"] in ("standard", "robust", "none"):
        spread = _read_number(state["spread"])
        if spread < 0:
            raise ValueError(f"a prepared column has the spread {spread}")
        return Linear(_read_number(state["centre"]), spread, state["kind"])
    if state["kind"] != "quantile":
        raise ValueError(f"a prepared column is scaled by {state['kind']!r:.40}")
    count = len(state["values"])
    if not 1 <= count <= _MOST_KNOTS:
        raise ValueError(f"a prepared column has {count} knots; 1 to {_MOST_KNOTS} were expected")
    values, scores = _read_numbers(state["values"], count), _read_numbers(state["scores"], count)
    if (np.diff(values) <= 0).any() or (np.diff(scores) < 0).any():
        raise ValueError("the knots of a prepared column do not rise")
    return Scores(values, scores)


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a prepared column contains {value!r:.40}; expected a finite number")
    return float(value)


def _read_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"a prepared column holds {value!r:.40}, where true or false was expected")
    return value


def _read_numbers(values: Any, count: int) -> np.ndarray:
    found = np.asarray(values)
    if found.dtype.kind != "f" or found.shape != (count,) or not np.isfinite(found).all():
        raise ValueError(f"a prepared column holds {found.dtype} {found.shape}; {count} finite numbers were expected")
    return found.astype(np.float64)


def _read_texts(values: Any, most: int) -> tuple[str, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) > most:
        raise ValueError(f"a prepared column holds no list of at most {most} texts")
    if not all(isinstance(value, str) and len(value) <= _LONGEST for value in values) or len(set(values)) < len(values):
        raise ValueError("a prepared column has levels that are no texts, or one of them twice")
    return tuple(values)
