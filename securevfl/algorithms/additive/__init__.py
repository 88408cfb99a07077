"""An additive model with piecewise constant shapes, whose training needs one noisy sum a column in each epoch.

`settings` and `configuration` are what a job says; `own_columns`, `edges` and `columns` bin a party's columns;
`contrasts`, `units` and `shapes` are the arithmetic of an epoch, in integers; `channel` is the seam through which a
protection makes the sums; `sealed_sums`, `sealed_scores` and `sealed_keys` are two parties under BFV; `roles` are the
parties; `clear` trains all parties in one place, for comparison; `tables` and `reasons` are what an owner reads of its
own shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.algorithms.additive.configuration import Additive
from securevfl.lazy import load_on_use

if TYPE_CHECKING:
    from securevfl.algorithms.additive.reasons import explain_rows
    from securevfl.algorithms.additive.tables import Reason

__all__ = ["Additive", "Reason", "explain_rows"]

if not TYPE_CHECKING:
    __getattr__ = load_on_use(
        __name__,
        {
            "securevfl.algorithms.additive.reasons": "explain_rows",
            "securevfl.algorithms.additive.tables": "Reason",
        },
    )
