"""How many rows a job on shares needs, and what follows where it has fewer.

Whoever knows n rows of a partner's column can train on those rows alone, with the column as its label, and read the
column of the others. More training rows raise the price of that. Metrics of few validation rows follow single rows.
"""

from __future__ import annotations

from securevfl.errors import PolicyError
from securevfl.party_context import PartyContext

__all__ = [
    "FEWEST_JUDGED",
    "LEAST_TRAINING",
    "LEAST_VALIDATION",
    "MOST_METRICS",
    "check_judged",
    "check_metric_sets",
    "check_rows",
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
    has, needs = f"{train} training rows", f"{LEAST_TRAINING}"
    if valid is not None:
        check_judged(site.name, valid)
        has, needs = f"{has} and {valid} validation rows", f"{needs} and {LEAST_VALIDATION}"
    if train >= LEAST_TRAINING and (valid is None or valid >= LEAST_VALIDATION):
        return []
    if site.simulated:
        return [
            f"{has}: between organisations a job on shares needs {needs}, or few_rows = true in its protection and in "
            "each party's policy, because whoever knows that many rows of a column can train on it alone"
        ]
    if few_rows:
        return []
    raise PolicyError(
        f"{site.name!r} refuses to train on shares with {has}; it needs {needs}: align more common rows, set valid to "
        "a larger part, or set few_rows = true in the protection and in each party's policy. Then whoever knows that "
        "many rows of a column can train on it alone"
    )


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


def check_metric_sets(sets: int) -> None:
    """Refuse a job that opens too many sets of metrics.

    Raises:
        PolicyError: they are more than `MOST_METRICS`.
    """
    if sets > MOST_METRICS:
        raise PolicyError(
            f"this job would open {sets} sets of validation metrics; on shares at most {MOST_METRICS} are opened: set "
            "valid_every to a larger number, or train for fewer epochs"
        )
