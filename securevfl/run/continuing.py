"""Training that goes on from an earlier model, with more rows: what has to be the same, and what cannot go on."""

from __future__ import annotations

from securevfl.cut import Protection
from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.party import Job
from securevfl.party.eligibility import AGAIN, TWO_BUDGETS, check_continuing, describe_predicted
from securevfl.party_context import Keeper
from securevfl.run.model import Model

__all__ = ["check_start", "give_starts"]


def check_start(start: Model, job: Job, parties: Parties) -> None:
    """Refuse a start from which training cannot go on.

    Args:
        start: the earlier model.
        job: that goes on.
        parties: with their new tables.

    Raises:
        InputError: another algorithm, another protection, other parties, or a job with differential privacy.
    """
    check_continuing(job)
    if type(start.job.algorithm) is not type(job.algorithm):
        raise InputError(
            f"the earlier model is of {start.job.algorithm.title}, and the job trains {job.algorithm.title}: give the "
            f"same algorithm, or {AGAIN}"
        )
    then_target, now_target = describe_predicted(start.job), describe_predicted(job)
    if then_target != now_target:
        raise InputError(
            f"the earlier model predicts {then_target}, and the job trains {now_target}: give the same task and a loss "
            f"of the same kind, or {AGAIN}"
        )
    owners, passive = [table.name for table in parties.label_owners], [table.name for table in parties.passive]
    coordinator = start.coordinator
    if start.job.protection.dp is not None:
        raise InputError(TWO_BUDGETS)
    _check_protection(start.job.protection, job.protection)
    if job.protection.on_shares:
        outsider = job.protection.coordinator_among([*owners, *passive])
        now = job.protection.computing_parties(owners[0], passive, outsider)
        then = start.job.protection.computing_parties(owners[0], passive, coordinator)
        if now != then:
            raise InputError(
                f"{', '.join(then)} hold the earlier model in shares, and {', '.join(now)} compute now: let the same "
                f"parties compute, or {AGAIN}"
            )
    active, names = parties.active.name, set(parties)
    if names | {coordinator} != {*start.parts, coordinator} or active in map(
        str, start.parts[active].get("passive", ())
    ):
        raise InputError(
            f"the earlier model belongs to {', '.join(start.parts)}; the tables to {', '.join(parties)} with "
            f"{active!r} active: give the tables of the same parties"
        )
    known = [str(name) for name in start.parts[active]["names"]]
    labels = [str(name) for name in parties.active.classes] or known
    if labels != known:
        raise InputError(
            f"the earlier model predicts {', '.join(known)}; the labels of {active!r} are {', '.join(labels)}: give "
            f"labels of the same classes in the same order, or {AGAIN}"
        )


def _check_protection(then: Protection, now: Protection) -> None:
    """Refuse another protection than the earlier model's: its weights are where that left them."""
    kept = ("model", "helper")
    if type(then) is type(now) and all(getattr(then, name, None) == getattr(now, name, None) for name in kept):
        return
    raise InputError(
        f"the earlier model was trained under {then.title}, and the job is under {now.title}: weights in shares stay "
        f"where they are, and weights in the clear are known already; name the same protection, or {AGAIN}"
    )


def give_starts(start: Model | None, keepers: dict[str, Keeper], parties: Parties) -> dict[str, Keeper]:
    """The parties' keepers, with each party's part of the earlier model.

    Args:
        start: the earlier model; None to start from the beginning.
        keepers: party → its keeper; empty where no checkpoints are kept.
        parties: of the job.
    """
    if start is None:
        return keepers
    found = keepers or {name: Keeper() for name in {**dict.fromkeys(parties), **start.parts}}
    for name, keeper in found.items():
        keeper.first_part = start.parts.get(name)
    return found
