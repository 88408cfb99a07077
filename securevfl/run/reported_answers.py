"""The scores of a report are answers, too: kept, so that a prediction gives the same digits and asks nothing again.

The test rows were scored once when the model was trained. To score them again would cost their partners' budget of
results a second time (`Policy.max_results`), and give other digits where an answer is rounded or noised at random: on
secret shares, and under differential privacy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from securevfl.data import FeatureEncoder, Parties
from securevfl.run.partial_scoring import Asking
from securevfl.run.result import Result

__all__ = ["keep_reported_answers"]


def keep_reported_answers(result: Result, parties: Parties, folder: str | Path) -> int:
    """Keep the scores of a result's test rows as answers of its last model, beside which `predict` finds them.

    Args:
        result: of a finished run.
        parties: the tables that it was trained on.
        folder: of the model's answers.

    Returns:
        How many were kept; none where a model is not that of one label owner.
    """
    key = next(reversed(result.models), "")
    scores = result.scores.get(key)
    if scores is None or not len(scores) or len(parties.label_owners) != 1:
        return 0
    model, active = result.models[key], parties.active
    if active.name not in model.parts or any(name not in parties for name in model.owners):
        return 0
    who = (active.name, *sorted(name for name in model.owners if name != active.name))
    kept = Asking(answers=Path(folder), model=model.digest).open_answers(who, parties)
    if kept is None:
        return 0
    at = {name: row for row, name in enumerate(active.ids)}
    rows = np.array([at[name] for name in result.test_ids], dtype=np.int64)
    own = FeatureEncoder.from_state(model.parts[active.name]["encoder"]).transform(active, rows)
    kept.put(kept.row_keys(result.test_ids, own), scores)
    return len(scores)
