"""The jobs that ``algorithm="auto"`` stands for: one for each algorithm that is tried, with its share of ε."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from securevfl.errors import InputError, PolicyError
from securevfl.party.job import Job
from securevfl.privacy import DP

__all__ = ["CandidateJobs", "divide_budget", "expand_candidates", "possible_candidates"]


@dataclass(frozen=True)
class CandidateJobs:
    """What is tried, and what is not.

    Attributes:
        jobs: name of the algorithm → its job.
        left_out: name of the algorithm → why it is not tried.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def expand_candidates(job: Job) -> CandidateJobs:
    """One job for each algorithm that can train under the job's terms, each with the job's whole ε.

    Args:
        job: whose algorithm is a choice, with its protection.
    """
    found = CandidateJobs()
    for group in getattr(job.algorithm, "groups", ()):
        for algorithm in group:
            try:
                algorithm.check_protection(job.protection)
                if algorithm.opens_only_answers(job.protection):
                    raise InputError(
                        f"{algorithm.title} under {job.protection.title} scores no validation rows in training, so "
                        "nothing compares it with others"
                    )
                found.jobs[algorithm.name] = job.replace(algorithm=algorithm, **_own_budget(job, algorithm))
            except (InputError, PolicyError) as error:
                found.left_out[algorithm.name] = str(error)
        if found.jobs:
            break
    return found


def _own_budget(job: Job, algorithm: Any) -> dict[str, int | None]:
    """Rounds and patience of trees, which `epochs` does not count; nothing for others."""
    budget = algorithm.fit_budget(1)
    if budget.batch_size is not None:
        return {}
    trees = getattr(job.algorithm, "trees", budget.epochs)
    return {"epochs": trees, "patience": None if job.patience is None else max(trees // 10, job.valid_every, 1)}


def divide_budget(job: Job, count: int) -> Job:
    """The job with one of `count` equal shares of its ε and δ: those of all `count` jobs on the same rows add up to it
    (basic composition).

    Args:
        job: one of the candidates.
        count: how many are trained.

    Raises:
        InputError: noise that is given by its multiplier, so that no ε can be divided.
    """
    dp = job.protection.dp
    if dp is None or count == 1:
        return job
    shares: dict[str, Any] = {}
    for name in DP.__struct_fields__:
        mechanism = getattr(dp, name)
        if mechanism is None:
            continue
        if getattr(mechanism, "noise_multiplier", None) is not None:
            raise InputError(
                f"dp.{name} has a noise_multiplier, and {count} algorithms are tried on the same rows: give epsilon, "
                "which they share, or name one algorithm"
            )
        delta = {"delta": mechanism.delta / count} if hasattr(mechanism, "delta") else {}
        shares[name] = mechanism.replace(epsilon=mechanism.epsilon / count, **delta)
    return job.replace(protection=job.protection.replace(dp=dp.replace(**shares)))


def possible_candidates(job: Job) -> Iterator[Job]:
    """Every job that a choice can end with, whatever the parties' policies: to find out which of them a saved model
    belongs to.

    Args:
        job: whose algorithm is a choice, with its protection.
    """
    jobs = expand_candidates(job).jobs
    for one in jobs.values():
        for count in range(1, (len(jobs) if job.protection.dp is not None else 1) + 1):
            yield divide_budget(one, count)
