"""How many numbers of each row of a party a job plans to open, as far as that is known before it begins."""

from __future__ import annotations

from dataclasses import replace

from securevfl.party.job import Job
from securevfl.training.task import Task

__all__ = ["planned_numbers"]


def planned_numbers(job: Job, party: str, classes: int = 0, *, columns: int = 0, predicts: bool = False) -> int | None:
    """The fewest numbers of one row of a passive party that `job` opens: over training, validation and its test, or
    with one prediction. More may follow by other predictions.

    Args:
        job: the job.
        party: the passive party.
        classes: how many classes the label has, 1 for a number; 0 where that is not known, for two.
        columns: how many columns the party's table has; 0 where that is not known.
        predicts: whether the job is trained, and rows are predicted by its model.

    Returns:
        The numbers; None if the algorithm does not count them.
    """
    if job.protection.on_shares:
        answer = job.protection.numbers_per_answer(Task(classes or 2).outputs)
        return max(answer, columns) if job.protection.hands_out and not predicts else answer
    if not job.algorithm.fits.counts:
        return None
    plan = replace(job.plan, epochs=1, steps=None) if predicts else job.plan
    return max(job.algorithm.values_opened(plan), 1)
