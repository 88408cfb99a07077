"""Drift at one party: its columns of new rows against those that its part of the model was trained on, and at the
active party the scores. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data import FeatureEncoder, PartyTable
from securevfl.export.drift import MODERATE, ColumnCounts, Drift, measure_drift, one_score
from securevfl.export.raw_columns import raw_columns

__all__ = ["NO_COUNTS", "column_drift", "describe_drift", "score_drift"]

NO_COUNTS = (
    "this part of the model has no counts of its training rows (an older version trained it, or a job under which not "
    "even bins may depend on exact rows): train again with this version to measure drift"
)
_NAMED = 4


def column_drift(part: Mapping[str, Any], table: PartyTable, rows: np.ndarray | None = None) -> list[Drift] | None:
    """How far each of a party's columns moved since training, the farthest first; None without counts of training.

    Args:
        part: the party's part of a model.
        table: its new rows.
        rows: which of them; all unless given.
    """
    kept = part.get("training counts")
    if not isinstance(kept, Mapping):
        return None
    values = raw_columns(FeatureEncoder.from_state(part["encoder"]), table, rows)
    found = [
        measure_drift(name, ColumnCounts.from_state(counts), values[name])
        for name, counts in kept.items()
        if name in values
    ]
    return sorted(found, key=lambda one: -one.psi)


def score_drift(part: Mapping[str, Any], scores: np.ndarray) -> Drift | None:
    """How far scores moved since the validation rows of training, or since its test rows where no scores of those were
    opened; None without counts of them, or without scores.

    Args:
        part: the active party's part of a model.
        scores: new ones, (n, classes) or (n, 1).
    """
    kept = part.get("score counts")
    if not isinstance(kept, Mapping) or not len(scores):
        return None
    return measure_drift("score", ColumnCounts.from_state(kept), one_score(scores))


def describe_drift(party: str, found: Sequence[Drift] | None, score: Drift | None = None) -> str:
    """One line: how many columns drifted, and which most.

    Args:
        party: whose columns.
        found: as `column_drift` returns it.
        score: as `score_drift` returns it.
    """
    if found is None:
        return f"{party}: {NO_COUNTS}"
    moved = [one for one in found if one.level != "stable"]
    names = ", ".join(f"{one.column} PSI {one.psi:.2f}" for one in moved[:_NAMED])
    more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    line = f"{party}: {len(moved)} of {len(found)} columns drifted" + (f": {names}{more}" if moved else "")
    if score is not None:
        few = score.level == "stable" and score.psi >= MODERATE
        words = f"no more than chance with so few rows ({score.rows:,})" if few else score.level
        line += f"; scores PSI {score.psi:.2f}, {words}"
    return line
