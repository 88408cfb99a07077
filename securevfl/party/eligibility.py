"""Check which parties, epochs and labels an algorithm can serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securevfl.cut import Protection, sealing_protections
from securevfl.data import PartyTable
from securevfl.errors import InputError, UnknownNameError
from securevfl.party.job import Job
from securevfl.training import Algorithm
from securevfl.training.objectives import check_numbers_fit
from securevfl.training.registry import algorithms_fit

__all__ = [
    "AGAIN",
    "TWO_BUDGETS",
    "check_continuing",
    "check_labels",
    "check_roster",
    "check_trains",
    "describe_predicted",
    "too_few_epochs",
    "too_many_classes",
    "undecided_choice",
    "wrong_parties",
]


AGAIN = "train from the beginning, on all rows together"
"""The cure where training cannot go on from an earlier model."""

TWO_BUDGETS = (
    "rows that both runs use spend ε in each of them, and the two are not added up: train from the beginning, on all "
    "rows together, within one budget"
)
"""The reason to refuse it if one of the two runs has noise."""


def wrong_parties(
    algorithm: Algorithm, owners: Sequence[str], passive: Sequence[str], protection: Protection | None = None
) -> list[str]:
    """Why the algorithm cannot serve these parties; empty where it can.

    Args:
        algorithm: of a job.
        owners: names of the parties with labels.
        passive: names of the others.
        protection: of the job, where it is known.
    """
    found = []
    if len(owners) > 1 and not algorithm.many_owners:
        found.append(
            f"{algorithm.title} has one label owner, and {', '.join(owners)} own labels: use an algorithm for several "
            "(sv.MultiVFL), or give label=… for one table only"
        )
    most = algorithm.most_passive if protection is None else algorithm.most_passive_under(protection)
    bounded = protection is not None and algorithm.most_passive != most
    under = f" under {protection.title}" if protection is not None and bounded else ""
    cure = ", or use protection 'shares' (three computing parties)" if bounded and algorithm.fits.shares else ""
    if most is not None and len(passive) > most:
        found.append(
            f"{algorithm.title}{under} is for one active and {most} passive part{'y' if most == 1 else 'ies'}; there "
            f"are {len(passive)} passive ones ({', '.join(passive)}): leave some out{cure}"
        )
    return found


def too_few_epochs(algorithm: Algorithm, epochs: int) -> list[str]:
    """Why the algorithm cannot end within these epochs; empty where it can."""
    if epochs >= algorithm.least_epochs:
        return []
    return [
        f"{algorithm.title} gets to its last stage in epoch {algorithm.least_epochs}, and the job has {epochs} "
        "epochs: give it more, or shorten the stages before"
    ]


def check_roster(owners: Sequence[str], passive: Sequence[str], job: Job, coordinator: str = "") -> None:
    """Refuse parties that the job's algorithm cannot serve.

    Args:
        owners: names of the parties with labels.
        passive: names of the others.
        job: the job.
        coordinator: the party without data; empty if there is none or it takes no part yet.

    Raises:
        InputError: several label owners for an algorithm with one, too many passive parties, or too few epochs;
            parties that cannot be those that compute on shares.
    """
    found = wrong_parties(job.algorithm, owners, passive, job.protection)
    found += too_few_epochs(job.algorithm, job.epochs)
    if not found and passive:
        job.protection.computing_parties(owners[0], passive, coordinator)
    if job.link is not None and len(owners) > 1:
        found.append(f"[link] is for one label owner, and {', '.join(owners)} own labels: leave it out, or all but one")
    if found:
        raise InputError("; ".join(found))


def undecided_choice(algorithm: Algorithm, what: str) -> list[str]:
    """Why a choice among algorithms cannot stand here; empty for an algorithm that trains.

    Args:
        algorithm: of a job.
        what: what needs one, for the message: "an agreement names".
    """
    if not algorithm.chooses:
        return []
    return [
        f"algorithm is {algorithm.name!r}, and {what} one algorithm: choose by `securevfl run` (sv.simulate) on tables "
        "that may be in one place, such as simulated, public or past data, and name the one that it takes; or name "
        'one now, such as "splitnn"'
    ]


def check_labels(table: PartyTable | None, job: Job) -> None:
    """Refuse labels that the job is not for, before anything is sent.

    Args:
        table: the party's table; None at a coordinator. A table without labels fits every job.
        job: the job.

    Raises:
        InputError: classes in a regression, a number in a classification, or several labels where one is learned;
            numbers that the loss is not defined for.
    """
    if table is None or table.label is None:
        return
    name, where = table.label_name or "label", table.source or f"the table of {table.name!r}"
    for known in job.class_weight if isinstance(job.class_weight, Mapping) else ():
        if known not in map(str, table.classes):
            raise UnknownNameError(f"class of {name!r} in class_weight:", known, list(map(str, table.classes)))
    if (table.target == "labels") != job.has_several_labels:
        holds = {
            "labels": f"names {len(table.classes)} labels of which a row can have several",
            "number": "is a number",
        }
        raise InputError(
            f"{where}: {name!r} {holds.get(table.target, 'has classes')}, and the job's task is {job.task!r}: "
            + (
                'set task = "multilabel" in [job], sv.Job(task="multilabel"), or name one label'
                if table.target == "labels"
                else 'name the label columns in a list, label = ["a", "b"], or leave task out'
            )
        )
    if job.number_loss is None and table.target == "number":
        raise InputError(
            f"{where}: {name!r} is a number to learn (target='number'), and the job is a classification: set "
            'task = "regression" in [job], sv.Job(task="regression"); or leave target out, of a column of classes'
        )
    if job.number_loss is not None and table.target == "classes":
        raise InputError(
            f"{where}: {name!r} has {len(table.classes)} classes, and the job is a regression: read the column as a "
            'number (target="number"), or leave task out'
        )
    if job.split_by != "rows" and table.fold is None and getattr(table, job.split_by) is None:
        raise InputError(
            f"{where}: the job splits by {job.split_by}, and the table names no column for it: say "
            f'{job.split_by} = "COLUMN" beside its label, or leave split_by out'
        )
    if table.fold is not None and (job.split_by != "rows" or job.fold is not None):
        asked = "fold" if job.fold is not None else "split_by"
        raise InputError(
            f"{where} marks which rows train, validate and test, but the job also splits them by {asked}: leave one out"
        )
    if table.weight is not None:
        job.algorithm.check_weights(f"{where} has weights of rows", job.protection)
    if job.number_loss is not None:
        check_numbers_fit(job.number_loss.name, table.label, f"{where}: {name!r}")


def too_many_classes(job: Job, name: str, classes: int) -> str:
    """Explain why an algorithm or a protection cannot separate this many classes; empty if both can.

    Args:
        job: the job.
        name: of the party with the labels.
        classes: how many its label has.
    """
    most = job.algorithm.most_classes
    if most is not None and classes > most:
        return (
            f"{job.algorithm.title} is for {most} classes; the label of {name!r} has {classes}: put some of them "
            "together, or use an algorithm for several (splitnn)"
        )
    most = job.protection.most_classes
    if most is not None and classes > most:
        return (
            f"protection {job.protection.name!r} is for {most} classes at most; the label of {name!r} has "
            f"{classes:,}: put some of them together, use a protection of the cut "
            f"({', '.join(map(repr, sealing_protections()))}), or, if the label is a number, set "
            'task = "regression"'
        )
    return ""


def check_trains(algorithm: Algorithm, what: str) -> None:
    """Refuse statistics where a model is needed.

    Args:
        algorithm: of a job.
        what: cannot be done without one: ``"to attack"``.

    Raises:
        InputError: it trains no model.
    """
    if algorithm.describes:
        raise InputError(
            f"{algorithm.title} train no model, and there is nothing {what}: name an algorithm that trains one, for "
            "example logistic_regression; `securevfl stats` and `securevfl run` show statistics"
        )


def describe_predicted(job: Job) -> str:
    """Describe the target of a job's model: training that goes on must have the same."""
    if job.has_several_labels:
        return "several labels"
    if job.number_loss is None:
        return "classes"
    return "the logarithm of a number's mean" if job.number_loss.name in {"poisson", "tweedie"} else "a number"


def check_continuing(job: Job) -> None:
    """Refuse a job that cannot go on from any earlier model.

    Args:
        job: that would go on.

    Raises:
        InputError: its algorithm does not go on, or has differential privacy.
    """
    algorithm, protection = job.algorithm, job.protection
    check_trains(algorithm, "to go on from")
    if not algorithm.fits.starts:
        able = ", ".join(algorithms_fit(lambda fits: fits.starts))
        raise InputError(f"{algorithm.title} does not go on from an earlier model, as {able} do: {AGAIN}")
    if protection.on_shares and algorithm.fits.shares_kind == "trees":
        raise InputError(
            f"{algorithm.title} does not go on from an earlier model under {protection.title}: new trees correct the "
            "earlier ones' scores of the training rows, which are in shares that only the earlier training had; "
            f"{AGAIN}"
        )
    if protection.dp is not None:
        raise InputError(TWO_BUDGETS)
