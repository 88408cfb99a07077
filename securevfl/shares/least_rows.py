"""How many rows a job on shares needs, and what follows where it has fewer.

Whoever knows n rows of a partner's column can train on those rows alone, with the column as its label, and read the
column of the others. This rule makes that costlier for an active party that has no rows to fill up with. One that has
can mark them in its own columns and give them made-up labels: the model learns the mark and the column, and the known
rows are enough (`benchmarks.asked`). Metrics of few validation rows follow single rows.
"""

from __future__ import annotations

from securevfl.errors import PolicyError
from securevfl.party_context import PartyContext
from securevfl.transport import ACTIVE, PASSIVE

__all__ = [
    "FEWEST_JUDGED",
    "LEAST_TRAINING",
    "LEAST_VALIDATION",
    "MOST_METRICS",
    "MOST_METRICS_EVER",
    "check_judged",
    "check_metric_sets",
    "check_rows",
    "foresee_refusals",
]

FEWEST_JUDGED = 8
"""Fewest validation rows, whatever a policy allows: the metrics of one row reveal its logit, and those of a few rows
reveal one when the others are known."""

LEAST_TRAINING = 400
"""Fewest training rows between organisations, unless the job and the party's policy say `few_rows`."""

LEAST_VALIDATION = 200
"""Fewest validation rows, likewise."""

MOST_METRICS = 100
"""Most sets of metrics that one job opens."""

MOST_METRICS_EVER = 300
"""Most sets that a passive party lets one asker have, over all jobs."""

_SURE = 400
_REFUSED = "of ten honest jobs on a credit table four were not with 200 such rows, and none with 400"


def check_rows(site: PartyContext, train: int, valid: int | None, *, few_rows: bool) -> list[str]:
    """Refuse a job of too few rows; in a simulation, where one person sees every table, say what would be refused.

    Args:
        site: the party's context.
        train: training rows that all parties have.
        valid: validation rows; None where no metrics of them are opened.
        few_rows: whether the job asks for fewer, which each party's policy has to allow.

    Returns:
        Warnings for the report.

    Raises:
        PolicyError: they are fewer than the party accepts.
    """
    has, needs = f"{train:,} training rows", f"{LEAST_TRAINING}"
    if valid is not None:
        check_judged(site.name, valid)
        has, needs = f"{has} and {valid:,} validation rows", f"{needs} and {LEAST_VALIDATION}"
    if train >= LEAST_TRAINING and (valid is None or valid >= LEAST_VALIDATION):
        return []
    if site.simulated:
        return [_describe_few_rows(has, needs)]
    if few_rows:
        return []
    raise PolicyError(
        f"{site.name!r} refuses to train on shares with {has}; it needs {needs}: align more common rows, set valid to "
        "a larger part, or set few_rows = true in the protection and in each party's policy. Then whoever knows that "
        "many rows of a column can train on it alone"
    )


def _describe_few_rows(has: str, needs: str) -> str:
    return (
        f"{has}: between organisations a job on shares needs {needs}, or few_rows = true in its protection and in each "
        "party's policy, because whoever knows that many rows of a column can train on it alone"
    )


def foresee_refusals(train: int, valid: int, *, few_rows: bool, judged: bool) -> list[str]:
    """What a job on shares should expect from its rows, told before it trains.

    Args:
        train: training rows, about.
        valid: validation rows, about.
        few_rows: whether the job asks for fewer than are needed.
        judged: whether the model has to prove useful.
    """
    found = []
    if not few_rows and (train < LEAST_TRAINING or valid < LEAST_VALIDATION):
        has = f"about {train} training rows and {valid} validation rows"
        found.append(_describe_few_rows(has, f"{LEAST_TRAINING} and {LEAST_VALIDATION}"))
    if judged and valid < _SURE:
        found.append(
            f"about {valid} validation rows decide whether the model is useful enough to answer: {_REFUSED}; more "
            "common rows, or a larger valid, make it surer"
        )
    return found


def check_judged(party: str, rows: int) -> None:
    """Refuse metrics of so few rows that they reveal single ones.

    Args:
        party: the refusing party.
        rows: number of validation rows.

    Raises:
        PolicyError: they are fewer than `FEWEST_JUDGED`.
    """
    if rows < FEWEST_JUDGED:
        raise PolicyError(
            f"{party!r} refuses to open metrics of {rows} validation rows, because they would reveal single rows. "
            f"Training on shares needs at least {FEWEST_JUDGED}: set valid to a larger part, or train on more common "
            "rows"
        )


def check_metric_sets(site: PartyContext, sets: int) -> list[str]:
    """Refuse a job that opens too many sets of metrics; in a simulation, say what would be refused. A passive party's
    book has those of earlier jobs.

    Args:
        site: the party's context.
        sets: that the job opens from here on.

    Returns:
        Warnings for the report: of the job from the active party, of earlier jobs from each passive one.

    Raises:
        PolicyError: they are more than `MOST_METRICS`, or with earlier ones more than `MOST_METRICS_EVER`.
    """
    had = site.results.metric_sets(site.asker) if site.role == PASSIVE else 0
    found = []
    if had + sets > MOST_METRICS_EVER:
        found.append(
            f"{site.name!r} let {site.asker!r} have {had} sets of validation metrics, and this job would open {sets} "
            f"more; it allows {MOST_METRICS_EVER} in all: set valid_every to a larger number, or metrics = 'none'"
        )
    if sets > MOST_METRICS and (site.role == ACTIVE or not site.simulated):
        found.append(
            f"this job would open {sets} sets of validation metrics; on shares at most {MOST_METRICS} are opened: set "
            "valid_every to a larger number, or train for fewer epochs"
        )
    if found and not site.simulated:
        raise PolicyError(found[0])
    return [f"between organisations it would be refused: {one}" for one in found]
