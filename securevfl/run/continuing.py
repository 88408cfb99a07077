"""Training that goes on from an earlier model, with more rows: what has to be the same, and what cannot go on."""

from __future__ import annotations

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.party import Job
from securevfl.party_context import Keeper
from securevfl.run.model import Model
from securevfl.training.registry import algorithms_fit

__all__ = ["check_start", "give_starts"]


def check_start(start: Model, job: Job, parties: Parties) -> None:
    """Refuse a start from which training cannot go on.

    Args:
        start: the earlier model.
        job: that goes on.
        parties: with their new tables.

    Raises:
        InputError: another algorithm, other parties, a model in shares, or a job with differential privacy.
    """
    algorithm, protection = job.algorithm, job.protection
    again = "train from the beginning, on all rows together"
    if not algorithm.fits.starts:
        able = ", ".join(algorithms_fit(lambda fits: fits.starts))
        raise InputError(f"{algorithm.title} does not go on from an earlier model, as {able} do: {again}")
    if type(start.job.algorithm) is not type(algorithm):
        raise InputError(
            f"the earlier model is of {start.job.algorithm.title}, and the job trains {algorithm.title}: give the same "
            f"algorithm, or {again}"
        )
    if protection.is_sealed or protection.on_shares or start.job.protection.on_shares:
        raise InputError(
            f"under {protection.title} weights are in shares that only the earlier run's parties hold together, and a "
            f"job has no step that deals them again: {again}"
        )
    if protection.dp is not None or start.job.protection.dp is not None:
        raise InputError(
            f"rows that both runs use spend ε in each of them, and the two are not added up: {again}, within one budget"
        )
    active, names = parties.active.name, set(parties)
    if names != set(start.parts) or active in map(str, start.parts[active].get("passive", ())):
        raise InputError(
            f"the earlier model belongs to {', '.join(start.parts)}; the tables to {', '.join(parties)} with "
            f"{active!r} active: give the tables of the same parties"
        )
    known = [str(name) for name in start.parts[active]["names"]]
    now = [str(name) for name in parties.active.classes] or known
    if now != known:
        raise InputError(
            f"the earlier model predicts {', '.join(known)}; the labels of {active!r} are {', '.join(now)}: give "
            f"labels of the same classes in the same order, or {again}"
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
    found = keepers or {name: Keeper() for name in parties}
    for name, keeper in found.items():
        keeper.first_part = start.parts.get(name)
    return found
