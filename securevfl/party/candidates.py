"""The jobs that ``algorithm="auto"`` stands for: one for each algorithm that is tried, with its share of ε."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securevfl.errors import InputError, PolicyError
from securevfl.party.eligibility import too_few_epochs, wrong_parties
from securevfl.party.job import Job
from securevfl.privacy import DP
from securevfl.privacy.outcomes import BEFORE, OUTCOME
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind

if TYPE_CHECKING:
    from securevfl.training import Trained

__all__ = [
    "CHOICE_EXCHANGES",
    "KEPT",
    "CandidateJobs",
    "agreed_candidates",
    "candidate_ends",
    "describe_unfit_choice",
    "divide_budget",
    "expand_candidates",
    "possible_candidates",
    "trained_job",
]


KEPT = "train/kept"
"""The step of the message that names the candidate which is kept."""

CHOICE_EXCHANGES = tuple(
    Exchange(
        KEPT,
        Kind.CONTROL,
        ACTIVE,
        receiver,
        "which candidate is kept",
        "which of the candidates was best on the validation rows",
        "ok",
    )
    for receiver in (PASSIVE, COORDINATOR)
) + tuple(
    Exchange(step, Kind.CONTROL, sender, receiver, words, reveals, "ok", optional=True)
    for step, words, reveals in (
        (BEFORE, "which candidates diverged before", "which candidates' training diverged in an earlier attempt"),
        (OUTCOME, "whether a candidate diverged", "whether a candidate's training diverged"),
    )
    for sender in (ACTIVE, PASSIVE, COORDINATOR)
    for receiver in (ACTIVE, PASSIVE, COORDINATOR)
    if sender != receiver or sender == PASSIVE
)
"""The messages of a job that chooses, in addition to its candidates'."""


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


def agreed_candidates(job: Job) -> dict[str, Job]:
    """Name → the job of each candidate of an agreement, in its order, each with an equal share of ε and δ.

    Args:
        job: whose algorithm is a choice that names its candidates, with its protection.

    Raises:
        InputError: see `divide_budget`.
    """
    jobs = expand_candidates(job).jobs
    return {name: divide_budget(one, len(jobs)) for name, one in jobs.items()}


def candidate_ends(job: Job) -> tuple[int, ...]:
    """The epochs of an agreement's job after which each candidate is over, one after the other; empty for a job of one
    algorithm."""
    ends: list[int] = []
    for one in agreed_candidates(job).values() if job.algorithm.chooses else ():
        ends.append((ends[-1] if ends else 0) + one.plan.epochs)
    return tuple(ends)


def trained_job(job: Job, trained: Trained) -> Job:
    """The job that a training's model is of: the one that was kept, where several were tried."""
    return job if trained.choice is None else agreed_candidates(job)[trained.choice.kept]


def describe_unfit_choice(job: Job, owners: Sequence[str], passive: Sequence[str]) -> list[str]:
    """Why parties cannot train and choose these candidates under one agreement; empty where they can.

    Args:
        job: whose algorithm is a choice, with its protection.
        owners: names of the parties with labels.
        passive: names of the others.
    """
    named: Sequence[str] = getattr(job.algorithm, "methods", ())
    if len(named) < 2:
        return [
            f"algorithm is {job.algorithm.name!r}, and an agreement names the candidates, two or more: "
            'methods = ["splitnn", "boosting"] in [algorithm]'
        ]
    if not job.protection.opens_metrics or job.protection.compares_epochs(simulated=False):
        return [
            "algorithm is 'auto', which compares candidates by metrics of the validation rows, and none is opened "
            f"under {job.protection.title}: set metrics = 'rounded' in [protection], or name one algorithm"
        ]
    tried = expand_candidates(job)
    found = [f"algorithm is 'auto', and {name!r} cannot be tried: {why}" for name, why in tried.left_out.items()]
    try:
        jobs = agreed_candidates(job)
    except InputError as error:
        return [*found, str(error)]
    for name, one in jobs.items():
        why = [*wrong_parties(one.algorithm, owners, passive, one.protection)]
        why += too_few_epochs(one.algorithm, one.epochs)
        if one.algorithm.uses_others or one.algorithm.uses_book:
            why.append("it trains on rows that are not common, and all candidates have to train on the same rows")
        found += [f"algorithm is 'auto', and {name!r} cannot be tried: {text}" for text in why]
    return found + _too_many_metrics(job, jobs) + _find_contradictions(jobs, len(passive))


def _too_many_metrics(job: Job, jobs: Mapping[str, Job]) -> list[str]:
    """Candidates that together open more metrics of the same validation rows than one job may."""
    most = job.protection.most_metric_sets
    sets = {
        name: sum(one.plan.validates_after(epoch) for epoch in range(1, one.plan.epochs + 1))
        for name, one in jobs.items()
    }
    if most is None or sum(sets.values()) <= most:
        return []
    each = ", ".join(f"{name} {count}" for name, count in sets.items())
    return [
        f"algorithm is 'auto', and its candidates would open {sum(sets.values())} sets of validation metrics ({each}); "
        f"a job under {job.protection.title} opens {most} at most: set valid_every to a larger number, or train for "
        "fewer epochs (epochs, and trees in [algorithm])"
    ]


def _find_contradictions(jobs: Mapping[str, Job], passive: int) -> list[str]:
    """Candidates that declare the same message differently, so a link would not know which declaration holds."""
    found, known = [], dict[tuple[object, ...], tuple[str, Exchange]]()
    for name, job in jobs.items():
        for one in job.algorithm.exchanges(job.protection, passive) if passive else ():
            other, declared = known.setdefault((one.step, one.kind, one.sender, one.receiver), (name, one))
            if declared != one:
                found.append(
                    f"algorithm is 'auto', and {other!r} and {name!r} declare the message {one.step!r} differently: "
                    "leave one out, or agree on one after the other"
                )
    return list(dict.fromkeys(found))
