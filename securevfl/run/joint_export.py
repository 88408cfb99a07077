"""Export the parts of all parties of a simulation, and check that they give the scores of `predict` together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from securevfl.data import Parties
from securevfl.data.raw_columns import raw_columns
from securevfl.errors import InputError
from securevfl.run.exporting import ExportedPart, check_exported, export_part
from securevfl.run.simulation import join_parties

if TYPE_CHECKING:
    from securevfl.run.model import Model

__all__ = ["Exported", "JointCheck", "check_together", "export_model"]

_ROWS = 500
_CLOSE = 1e-5
_SEALED = 2e-3
"""A sealed sum is rounded as its fixed point says; scores differ by less."""
_STEPS_OF_ODDS = {"probabilities": 0.08, "grades": 0.3}
"""Log-odds that an answer on shares may be off by: half a step, the chords of the logarithm, and fixed point."""
_STEP_OF_NUMBER = 0.01
"""The same of a number, in units of the target's scale."""
_SAME = 0.98


@dataclass(frozen=True, kw_only=True)
class JointCheck:
    """How the scores of all exported parts compare with those of `predict`.

    Attributes:
        rows: common rows that were compared.
        difference: largest difference of a probability, or of a number relative to its size; NaN where answers are
            classes alone.
        same: share of the rows with the same likeliest class; 1 of numbers.
        note: why the difference is not zero, where the protection rounds answers; else empty.
    """

    rows: int
    difference: float
    same: float
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """All exported parts of a model.

    Attributes:
        parts: party → its part.
        differences: party → how far its files are from the program on its own rows; empty without tables.
        together: how all parts together compare with `predict`; None without tables.
    """

    parts: Mapping[str, ExportedPart]
    differences: Mapping[str, float] = field(default_factory=dict)
    together: JointCheck | None = None


def export_model(model: Model, folder: str | Path, parties: Parties | None = None) -> Exported:
    """Export every party's part to a folder of its name, and check them where tables are given.

    Args:
        model: of all parties.
        folder: of the parties' folders.
        parties: tables to check on.

    Raises:
        InputError: see `export_part`; or a check failed.
    """
    names = [name for name in model.parts if name != model.coordinator]
    parts = {name: export_part(model.part(name), Path(folder) / name) for name in names}
    if parties is None:
        return Exported(parts=parts)
    differences = {name: check_exported(parts[name], parties[name]) for name in names}
    return Exported(parts=parts, differences=differences, together=check_together(model, parts, parties))


def check_together(
    model: Model, parts: Mapping[str, ExportedPart], parties: Parties, *, rows: int = _ROWS
) -> JointCheck:
    """Compare the scores that all exported parts give together with those of `predict`, on common rows.

    Args:
        model: of all parties.
        parts: party → its exported part.
        parties: their tables.
        rows: at most so many.

    Raises:
        InputError: they differ by more than the protection rounds.
    """
    from securevfl.run.model import predict

    aligned = join_parties(parties, model.job)
    aligned = aligned.take(np.arange(min(rows, aligned.common_rows)))
    expected = predict(model, parties, aligned=aligned).probabilities
    found = score_together(parts, parties, {name: one.rows for name, one in aligned.parties.items()})
    return _compare_scores(model, parts[parties.active.name], expected, found)


def score_together(parts: Mapping[str, ExportedPart], parties: Parties, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Scores of the same persons from all exported parts, (n, classes) or (n, 1).

    Args:
        parts: party → its exported part.
        parties: their tables.
        rows: party → its row of each person, (n,).
    """
    raw = {name: raw_columns(part.encoder, parties[name], rows[name]) for name, part in parts.items()}
    active = next(part for part in parts.values() if part.task is not None)
    others = {
        name: parts[name].own_values(raw[name], by_graph=parts[name].forms[0]) for name in active.document["others"]
    }
    return active.scores(raw[active.party], others, by_graph=active.forms[0])


def _compare_scores(model: Model, active: ExportedPart, expected: np.ndarray, found: np.ndarray) -> JointCheck:
    protection, link = model.job.protection, active.document["link"]
    numeric = link["then"] == "number"
    same = 1.0 if numeric else float((expected.argmax(axis=1) == found.argmax(axis=1)).mean())
    gap = float((np.abs(expected - found) / (np.maximum(np.abs(expected), 1.0) if numeric else 1.0)).max(initial=0.0))
    limit, note = _CLOSE, ""
    if protection.on_shares:
        answers = getattr(protection, "answers", None) or ("class" if len(link["classes"]) > 2 else "probabilities")
        if not numeric and answers == "class":
            note, gap, limit = "on shares the likeliest class alone is answered", float("nan"), float("nan")
        else:
            sharpest = 1 / min(link.get("temperature", 1.0), 1.0)
            limit = _STEP_OF_NUMBER * link["scale"] if numeric else _STEPS_OF_ODDS[answers] * sharpest / 4
            note = "answers on shares are rounded"
    elif protection.is_sealed:
        limit, note = _SEALED, "sealed sums are rounded to their fixed point"
    if gap > limit or (gap != gap and same < _SAME):  # noqa: PLR0124 - NaN
        raise InputError(
            f"the exported parts together differ from predict by {gap:.3g} on {len(found):,} common rows, and by at "
            f"most {limit:.3g} were expected: do not use them, and report this with the job file"
        )
    return JointCheck(rows=len(found), difference=gap, same=same, note=note)
