"""An additive model with piecewise constant shapes, whose training needs one noisy sum a column in each epoch.

`settings` and `configuration` are what a job says; `own_columns`, `edges` and `columns` bin a party's columns;
`contrasts`, `units` and `shapes` are the arithmetic of an epoch, in integers; `channel` is the seam through which a
protection makes the sums; `sealed_sums`, `sealed_scores` and `sealed_keys` are two parties under BFV; `roles` are the
parties; `clear` trains all parties in one place, for comparison; `tables` has what an owner reads of its
own shapes.
"""

from __future__ import annotations

from securevfl.algorithms.additive.configuration import Additive

__all__ = ["Additive"]
