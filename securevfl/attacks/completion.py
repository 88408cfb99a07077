"""Model completion: infer labels from a passive party's own trained bottom model and a few known labels.

Training adapted the bottom to the labels, so a head on its outputs needs fewer known labels than one on the features:
Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022, section 4.1 (the passive
attack). The baseline is the same learner on the party's raw features. Neither uses messages, so no protection of the
cut prevents the attack; only what the bottom learned matters.
"""

from __future__ import annotations

import numpy as np

from securevfl.attacks.learners import classify
from securevfl.attacks.measure import Estimate, Known
from securevfl.attacks.transcript import View

__all__ = ["complete", "raw"]


def complete(view: View, known: Known) -> Estimate | None:
    """Infer the classes of the party's aligned rows from the outputs of its bottom; None without a trained bottom.

    Args:
        view: the passive party's view.
        known: known labels of some rows.
    """
    if view.embed is None:
        return None
    outputs = view.embed(view.x)
    if outputs.shape == view.x.shape and np.array_equal(outputs.astype(np.float32), view.x.astype(np.float32)):
        return None  # an identity bottom
    return classify(np.arange(view.aligned), outputs, known, view.classes)


def raw(view: View, known: Known) -> Estimate:
    """Run the same learner on the party's own columns: the baseline."""
    return classify(np.arange(view.aligned), view.x, known, view.classes)
