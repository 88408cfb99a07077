"""The attack on a scorecard beside those at its cut: what the counts that a passive party is told say of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.gate.judge import Got
from securevfl.attacks import Estimate, PartyView, label_inference
from securevfl.attacks.measure import draw_known, score_ranking

__all__ = ["COUNTS", "by_evidence", "evidence"]

COUNTS = "counts by its bins"
"""What ``measured.json`` calls what is attacked."""
_KNOWN_LABELS = 40


def evidence(role: Any, rows: np.ndarray) -> Estimate:
    """Training rows ranked by the sum of the weights of evidence of a passive party's own columns: no label is known.

    Args:
        role: of the passive party, once it was told its counts.
        rows: numbers of training rows.
    """
    with torch.no_grad():
        score = role.half.bottom(role.features(rows)).sum(dim=1)
    return Estimate(rows, score.double().cpu().numpy())


def by_evidence(
    view: PartyView, role: Any, y: np.ndarray, seed: int, said: Callable[[str, str], tuple[str, bool]]
) -> Got:
    """How well labels are ranked so, beside the party's own columns and 40 known labels.

    Args:
        view: of the passive party.
        role: its role.
        y: classes of all numbered rows.
        seed: of the known labels.
        said: learner, whose data it is → the severity that the job states, and whether ``leaks = false`` admits it.
    """
    known = draw_known(view.train, y, _KNOWN_LABELS, seed)
    without = score_ranking(label_inference.fit_on_own_columns(view, known).exclude_rows(known.rows), y, 2)[0]
    value, error = score_ranking(evidence(role, view.train).exclude_rows(known.rows), y, 2)
    severity, admitted = said(view.party, view.owner)
    return Got(
        severity=severity,  # type: ignore[arg-type]
        value=value,
        without=max(without, 0.5),
        error=error,
        attack="labels: weights of evidence",
        view=COUNTS,
        admitted=admitted,
    )
