"""The ratio of test rows to other rows that tests over the seeds of a record need, also of records from before it."""

from __future__ import annotations

from collections.abc import Mapping

from securevfl.data.resampling import compute_ratio, describe_split
from securevfl.report.sweep_record import SweepRecord

__all__ = ["find_ratios", "ratio_text", "unknown_text"]

Ratios = Mapping[tuple[str, float], float | None]
"""(data, x) → test rows over the other rows that seeds draw them from; None where nobody knows."""


def find_ratios(record: SweepRecord) -> Ratios:
    """The ratio of each data set and position.

    Cells state it. Where none does, as in records of version 0.2 and before, it is derived from the named data set and
    its options, if the record has them. All methods at a place have the same split; the largest ratio counts.
    """
    derived = {name: _derive_ratio(record, name) for name in dict.fromkeys(cell.data for cell in record.cells)}
    found: dict[tuple[str, float], float | None] = {}
    for cell in record.cells:
        place = cell.data, cell.x
        known = [one for one in (found.get(place), cell.test_ratio) if one is not None]
        found[place] = max(known, default=None)
    return {place: derived[place[0]] if ratio is None else ratio for place, ratio in found.items()}


def _derive_ratio(record: SweepRecord, data: str) -> float | None:
    """The ratio of a named data set that marks its own test rows, from the sections of the sweep file in a record."""
    sections = record.job.get("data")
    for section in sections if isinstance(sections, list) else []:
        if not isinstance(section, dict) or data != (section.get("label") or section.get("name")):
            continue
        options = section.get("options") or {}
        split = describe_split(section.get("name"), options) if isinstance(options, dict) else None
        if split is None or split.tested is None:
            return None
        return 0.0 if "seed" in options else compute_ratio(split.tested)
    return None


def ratio_text(ratio: float | None) -> str:
    """``0.25``, or ``unknown``."""
    return "unknown" if ratio is None else f"{ratio:.2g}"


def unknown_text(record: SweepRecord) -> str:
    """Which data sets have no ratio, in a sentence; empty where all have one."""
    names = dict.fromkeys(data for (data, _), ratio in find_ratios(record).items() if ratio is None)
    if not names:
        return ""
    return (
        f"No verdict on {', '.join(names)}: the record does not say how many test rows seeds share. Run the sweep "
        "again in a new folder."
    )
