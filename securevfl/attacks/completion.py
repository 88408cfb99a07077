"""Model completion: labels from a passive party's own trained bottom and a few labels.

The bottom was trained towards the labels, so that a head fitted on its outputs needs fewer of them than the features
do: Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022, section 4.1 (the
passive attack). The baseline is the same learner on the party's raw features. Neither uses a message: no protection of
the cut prevents it, and only what the bottom learned counts.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.learners import classify
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import View

__all__ = ["complete", "raw"]


def complete(view: View, known: Known) -> Estimate | None:
    """Classes of the party's aligned rows from the outputs of its bottom; None where it has none that learned.

    Args:
        view: of a passive party.
        known: labels of some rows.
    """
    if view.embed is None:
        return None
    outputs = view.embed(view.x)
    if outputs.shape == view.x.shape and np.array_equal(outputs.astype(np.float32), view.x.astype(np.float32)):
        return None  # an identity bottom
    return classify(np.arange(view.aligned), outputs, known, view.classes)


def raw(view: View, known: Known) -> Estimate:
    """The same learner on the party's own columns: the baseline."""
    return classify(np.arange(view.aligned), view.x, known, view.classes)
