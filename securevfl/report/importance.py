"""How much each party, and each column at its owner, moves scores: the record beside a run, and its bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from markupsafe import Markup

from securevfl.errors import InputError
from securevfl.report.bar_chart import Bar, BarRow, bar_chart
from securevfl.report.plots import COMPUTE

__all__ = [
    "FILE",
    "ImportanceRecord",
    "PartyImportance",
    "draw_importance",
    "importance_beside",
    "summarise_importance",
]

FILE = "importance.json"
_MOST = 12


class PartyImportance(msgspec.Struct, frozen=True, kw_only=True):
    """One party, or several that are not told apart."""

    party: str
    importance: float | None
    """mean magnitude of what it adds; None where it is only told together with others'"""
    columns: Mapping[str, float]
    """of its own columns, the largest first; for this party alone"""


class ImportanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Global importance over some rows."""

    version: Literal[1] = 1
    method: Literal["terms", "shapley"]
    rows: int
    output: str
    """name of the class; empty for a number"""
    unit: str
    background: int
    parties: list[PartyImportance]
    others: list[PartyImportance] = []
    """parties whose columns are known and whose total is told only together with others'"""

    def to_json(self) -> bytes:
        """As a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def importance_beside(folder: Path) -> ImportanceRecord | None:
    """The record in a run's folder; None where there is none.

    Raises:
        InputError: it is damaged.
    """
    try:
        content = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=ImportanceRecord)
    except msgspec.DecodeError as error:
        raise InputError(f"{folder / FILE} is damaged ({error}): write it again with securevfl explain") from None


def summarise_importance(record: ImportanceRecord) -> str:
    """One sentence on what the bars are."""
    what = f"the score of {record.output!r}" if record.output else "the predicted number"
    how = (
        "exact, as the model is a sum of terms"
        if record.method == "terms"
        else f"Shapley values of parties, against {record.background} other persons"
    )
    return f"Mean size of what moves {what} over {record.rows:,} rows, in units of {record.unit}; {how}."


def draw_importance(record: ImportanceRecord) -> list[tuple[str, Markup]]:
    """Titles and bars: of the parties, and of each party's columns, which are for this party alone."""
    totals = {one.party: one.importance for one in record.parties if one.importance is not None}
    found = [("Parties", _draw_bars(totals, "Importance of parties"))] if totals else []
    for one in (*record.parties, *record.others):
        if one.columns:
            found.append((f"Columns of {one.party}", _draw_bars(one.columns, f"Importance of columns of {one.party}")))
    return found


def _draw_bars(sizes: Mapping[str, float], label: str) -> Markup:
    shown: Sequence[tuple[str, float]] = list(sizes.items())[:_MOST]
    rows = [BarRow(label=name, bars=[Bar(end=size, color=COMPUTE, note=f"{size:.4g}")]) for name, size in shown]
    return bar_chart(rows, label=label)
