"""Build the parties' tables from pandas, polars or Arrow data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from securevfl.data.loaders import from_arrow, from_pandas
from securevfl.data.table import PartyTable, run_all
from securevfl.errors import InputError, UnknownNameError

__all__ = ["Ids", "tables_of_frames"]

Ids = str | Sequence[str]
"""The identifier column, or several for a compound identifier."""


def tables_of_frames(
    kind: str, frames: Mapping[str, Any], id: Ids | Mapping[str, Ids], label: Ids | None, options: Mapping[str, Any]
) -> list[PartyTable]:
    """Build the parties' tables from frames; see `Parties.from_pandas`.

    Args:
        kind: ``"pandas"``, ``"polars"`` or ``"arrow"``.
        frames: party → its frame.
        id: the identifier column, or party → its own.
        label: the label column, in exactly one frame; or several columns, for several labels per row; None for none.
        options: further arguments of `securevfl.data.read_table`, for all parties.

    Raises:
        InputError: lists every mistake in any of the frames.
    """
    if not isinstance(frames, Mapping) or not frames:
        raise InputError("frames is empty; give frames by party name: {'bank': frame, 'shop': frame}")
    wanted = {label} if isinstance(label, str) else set(label or ())
    owners = [name for name, frame in frames.items() if wanted <= set(_frame_columns(kind, name, frame))]
    if label is None:
        owners = []
    elif len(owners) != 1:
        told = f"the frames of {', '.join(owners)} have" if owners else "no frame has"
        raise InputError(
            f"{told} the column{'s' * (len(wanted) > 1)} {label!r}; exactly one party's has the label: name another "
            "column, or rename one; of rows to score, whose labels nobody knows, leave label out, and name the party "
            "that asks in active=…"
        )
    if isinstance(id, Mapping):
        for name in id:
            if name not in frames:
                raise UnknownNameError("party in id", name, frames)
        missing = [name for name in frames if name not in id]
        if missing:
            raise InputError(f"id names no column for {', '.join(missing)}; give party → column for every party")
    works = [
        partial(
            _read_frame,
            kind,
            name,
            frame,
            id=id[name] if isinstance(id, Mapping) else id,
            label=label if name in owners else None,
            options=options,
        )
        for name, frame in frames.items()
    ]
    return run_all(works)


def _read_frame(
    kind: str, name: str, frame: Any, *, id: Ids, label: Ids | None, options: Mapping[str, Any]
) -> PartyTable:
    of_active = {"classes", "target", "weight", "group", "time"}
    kept = {key: value for key, value in options.items() if label is not None or key not in of_active}
    if kind == "pandas":
        return from_pandas(frame, name=name, id=id, label=label, **kept)
    return from_arrow(frame.to_arrow() if kind == "polars" else frame, name=name, id=id, label=label, **kept)


_KINDS = {"pandas": "a pandas DataFrame", "polars": "a polars DataFrame", "arrow": "a pyarrow Table"}
_MARKS = {"pandas": ("columns", "iloc"), "polars": ("columns", "to_arrow"), "arrow": ("column_names", "schema")}


def _frame_columns(kind: str, name: str, frame: Any) -> list[str]:
    library, called = type(frame).__module__.partition(".")[0], type(frame).__name__
    if called == "LazyFrame":  # before anything of it is asked for: that would run its query
        raise InputError(f"the frame of {name!r} is a LazyFrame, which has not run yet: give frame.collect()")
    if not all(hasattr(frame, mark) for mark in _MARKS[kind]):
        given = f"{library} {called}" if library in _KINDS else called
        cure = f": use sv.Parties.from_{library}" if library in _KINDS and called == "DataFrame" else ""
        raise InputError(f"the frame of {name!r} is a {given}; {_KINDS[kind]} was expected{cure}")
    return [str(column) for column in (frame.column_names if kind == "arrow" else frame.columns)]
