"""How many numbers of each row of a party a job plans to open, and what ε it plans to spend, as far as that is known
before it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from securevfl.party.candidates import agreed_candidates
from securevfl.party.job import Job
from securevfl.privacy import GaussianRelease, epsilon_rdp

__all__ = ["PlannedEpsilon", "answer_price", "plan_epsilon", "planned_numbers"]


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
    if job.algorithm.chooses:
        each = [
            planned_numbers(one, party, classes, columns=columns, predicts=predicts)
            for one in agreed_candidates(job).values()
        ]
        known = [one for one in each if one is not None]
        return sum(known) if len(known) == len(each) else None
    if job.algorithm.describes:
        return 1 if job.protection.on_shares else max(columns, 1)
    if job.protection.on_shares:
        outputs = classes if classes > 2 else 1  # as `Task.outputs`, which needs torch
        answer = job.protection.numbers_per_answer(outputs)
        if not predicts:
            sets = sum(job.plan.validates_after(epoch) for epoch in range(1, job.plan.epochs + 1))
            answer = max(answer, job.protection.numbers_of_metrics(sets))
        return max(answer, columns) if job.protection.hands_out and not predicts else answer
    if job.algorithm.opens_only_answers(job.protection):
        return classes if classes > 2 else 1
    if not job.algorithm.fits.counts:
        return None
    plan = replace(job.plan, epochs=1, steps=None) if predicts else job.plan
    return max(job.algorithm.values_opened(plan), 1)


def answer_price(job: Job, passive: Sequence[str], classes: int) -> int | None:
    """How many numbers of a row one prediction costs, at the passive party where it costs most; None if the algorithm
    does not count them.

    Args:
        job: that trained the model.
        passive: the passive parties.
        classes: how many classes the label has, 1 for a number.
    """
    prices = [planned_numbers(job, party, classes, predicts=True) for party in passive]
    known = [price for price in prices if price is not None]
    return max(known, default=0) if len(known) == len(prices) else None


@dataclass(frozen=True, slots=True)
class PlannedEpsilon:
    """ε of what one party would release.

    Attributes:
        epsilon: infinite without noise. With a noise multiplier, of the fewest releases that the job may plan.
        delta: δ with which it is counted; 0 without noise.
        unbounded: what makes it infinite, and the cure; empty where it is finite, or where nothing more is to say than
            that the content carries no noise.
        predictions: whether predictions of rows are opened beside it, which no noise covers and ε does not count.
    """

    epsilon: float
    delta: float = 0.0
    unbounded: str = ""
    predictions: bool = False


def plan_epsilon(job: Job, *, mine: bool, passive: int) -> PlannedEpsilon:
    """ε of what a party would release.

    Args:
        job: the job.
        mine: whether it is the active party, which releases labels; a passive one releases features. On shares, both
            release the model, and each row of it is one person's at all parties.
        passive: number of passive parties.
    """
    if job.algorithm.chooses:
        return _plan_for_all([plan_epsilon(one, mine=mine, passive=passive) for one in agreed_candidates(job).values()])
    return _plan_for_one(job, mine=mine, passive=passive)


def _plan_for_one(job: Job, *, mine: bool, passive: int) -> PlannedEpsilon:
    dp = job.protection.dp
    if dp is not None and mine and dp.label_draw is not None:
        return PlannedEpsilon(dp.label_draw.epsilon, dp.label_draw.delta)
    if job.protection.on_shares:
        return _plan_on_shares(job, mine=mine, passive=passive)
    if dp is not None and dp.model is not None and job.algorithm.covers_training(job.protection):
        return PlannedEpsilon(dp.model.epsilon, dp.model.delta, predictions=not mine)
    noise = None if dp is None else dp.gradient_noise if mine else dp.features
    if noise is None:
        return PlannedEpsilon(math.inf)
    if noise.noise_multiplier is None:
        return PlannedEpsilon(noise.epsilon, noise.delta)
    fewest = job.algorithm.min_releases(job.protection, job.plan, passive)
    times = (fewest.labels if mine else fewest.features) or 1
    return PlannedEpsilon(epsilon_rdp(GaussianRelease(noise.noise_multiplier, times), noise.delta), noise.delta)


def _plan_for_all(plans: Sequence[PlannedEpsilon]) -> PlannedEpsilon:
    """ε of candidates on the same rows: it adds up (basic composition)."""
    return PlannedEpsilon(
        sum(one.epsilon for one in plans),
        sum(one.delta for one in plans),
        next((one.unbounded for one in plans if one.unbounded), ""),
        any(one.predictions for one in plans),
    )


def _plan_on_shares(job: Job, *, mine: bool, passive: int) -> PlannedEpsilon:
    """ε of the rows that train. Validation rows add nothing to it if no metric of them is opened."""
    noise = None if job.protection.dp is None else job.protection.dp.model
    if noise is None:
        why = (
            "the model would be trained without noise and its predictions opened, which spends ε of the rows that "
            "train without bound: train logistic_regression with noise on its steps, or a model whose sums are noisy, "
            "dp=sv.DP(model=sv.Gaussian(epsilon=…)), and metrics='none' in the protection"
        )
        if job.algorithm.describes:
            why = (
                "statistics would be opened without noise, which spends ε of the common rows without bound: give "
                "dp=sv.DP(model=sv.Gaussian(epsilon=…))"
            )
        return PlannedEpsilon(math.inf, unbounded=why, predictions=not mine)
    if job.protection.opens_metrics and not job.algorithm.describes:
        why = (
            "rounded metrics of its validation rows would be opened without noise, which spends ε of those rows "
            "without bound, whatever noise the model has: set metrics='none' in the protection and keep='last' in the "
            "job"
        )
        return PlannedEpsilon(math.inf, noise.delta, why, predictions=not mine)
    epsilon = noise.epsilon
    if noise.noise_multiplier is not None:
        times = job.algorithm.min_releases(job.protection, job.plan, passive).labels or 1
        epsilon = epsilon_rdp(GaussianRelease(noise.noise_multiplier, times), noise.delta)
    return PlannedEpsilon(epsilon, noise.delta, predictions=not mine)
