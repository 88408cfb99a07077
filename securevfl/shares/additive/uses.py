"""What the epochs of an additive model on shares spend of each row that trains."""

from __future__ import annotations

from typing import cast

from securevfl.privacy.sums_budget import SumsUses
from securevfl.shares.sharing import Sharing
from securevfl.training.role import Role
from securevfl.training.sum_plan import SumPlanner, plan_sum_uses
from securevfl.training.task import Task

__all__ = ["plan_uses"]


def plan_uses(role: Role, sharing: Sharing) -> SumsUses | None:
    """Uses of a data party's rows in noisy sums; None without a budget, and in a prediction.

    Args:
        role: the party's, with its plan.
        sharing: of the job.

    Raises:
        PolicyError: the plan spends more than the party's policy allows.
    """
    mechanism, train = sharing.step_mechanism, role.table.split.train
    if mechanism is None or not len(train) or not sharing.trains:
        return None
    planner = cast(SumPlanner, sharing.algorithm)
    outputs = Task(role.table.classes).outputs
    budget = planner.plan_budget(
        sharing.protection,
        rows=len(train),
        outputs=outputs,
        columns=1,
        parties=1 + len(sharing.site.passive),
        epochs=role.plan.epochs,
    )
    return plan_sum_uses(role, budget, mechanism)
