"""Exported parts of all parties in one place: together they give the scores of `predict`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.export.raw_columns import raw_columns
from securevfl.party import Job
from securevfl.run.exporting import ExportedPart
from securevfl.run.simulation import Aligned, join_parties

__all__ = ["Exported", "JointCheck", "check_together", "score_together"]

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


def check_together(
    parts: Mapping[str, ExportedPart],
    parties: Parties,
    job: Job,
    score: Callable[[Aligned], np.ndarray],
    *,
    rows: int = _ROWS,
) -> JointCheck:
    """Compare the scores that all exported parts give together with those of the program, on common rows.

    Args:
        parts: party → its exported part.
        parties: their tables.
        job: that trained the model.
        score: the program's scores of aligned rows, (n, classes) or (n, 1).
        rows: at most so many.

    Raises:
        InputError: they differ by more than the protection rounds.
    """
    aligned = join_parties(parties, job)
    aligned = aligned.take(np.arange(min(rows, aligned.common_rows)))
    found = score_together(parts, parties, {name: one.rows for name, one in aligned.parties.items()})
    return _compare_scores(job, parts[parties.active.name], score(aligned), found)


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


def _compare_scores(job: Job, active: ExportedPart, expected: np.ndarray, found: np.ndarray) -> JointCheck:
    protection, link = job.protection, active.document["link"]
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
