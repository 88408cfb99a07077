"""All parties in one process: a task each, in-memory channels between every two, nothing else in common."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.algorithms import Split, Trained
from securevfl.align import Alignment, align, join, protocol_of
from securevfl.data import Parties, PartyTable
from securevfl.data.table import TRAIN
from securevfl.errors import InputError, PolicyError
from securevfl.jobs.job import Job
from securevfl.jobs.parties import predict_as_party, train_as_party
from securevfl.jobs.programs import blocking, program, run_programs, sites_of
from securevfl.jobs.refusal import await_refusal, refuse, rule_against
from securevfl.privacy import Ledger, Reading
from securevfl.site import Keeper, Observer

__all__ = [
    "Aligned",
    "Ran",
    "align_parties",
    "check_parties",
    "consent",
    "join_parties",
    "predict_parties",
    "run_parties",
    "split_rows",
]


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """The alignment of all parties of a simulation.

    Attributes:
        parties: party → its `Alignment`.
        readings: party → its clock during alignment.
        ledgers: party → its ledger of the alignment.
        protocol: how they were aligned.
        owners: label owner → the alignment of its federation, where there are several.
    """

    parties: Mapping[str, Alignment]
    readings: Mapping[str, Reading] = field(default_factory=dict)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    protocol: str = ""
    owners: Mapping[str, Aligned] = field(default_factory=dict)

    @property
    def common(self) -> int:
        """Number of common rows."""
        return len(next(iter(self.parties.values())).rows)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a run left: each party's result and ledger."""

    trained: Mapping[str, Trained]
    ledgers: Mapping[str, Ledger]
    split: Split


def align_parties(parties: Parties, job: Job, observer: Observer | None = None, *, run: str = "alignment") -> Aligned:
    """Align the parties' tables by PSI and let all verify the result.

    Args:
        parties: their tables.
        job: what they are aligned for.
        observer: hears how it goes on.
        run: name of the alignment, for the ledgers.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: a party refuses the job, or has fewer common rows than its policy allows.
        InputError: identifiers that are empty or doubled.
    """
    consent(job, parties)
    sites = sites_of(job, parties, active=parties.active.name, run=run, observer=observer)
    sites[parties.active.name].observer.phase("alignment")
    programs = {
        name: program(
            site, align(site, parties[name].ids, book=_book(parties[name]), held_out=_held_out(parties[name]))
        )
        for name, site in sites.items()
    }
    found = run_programs(programs, sites)
    readings = {name: site.clock.lap() for name, site in sites.items()}
    protocol = protocol_of(len(parties) - 1, book=parties.active.book is not None)
    ledgers = {name: site.ledger for name, site in sites.items()}
    return Aligned(parties=found, readings=readings, ledgers=ledgers, protocol=protocol)


def join_parties(parties: Parties, job: Job) -> Aligned:
    """The alignment that `align_parties` finds, by a join in the clear, in no time: for experiments.

    Raises:
        AlignmentError: no common rows.
        InputError: identifiers that are empty or doubled.
    """
    active = parties.active
    ids = {name: table.ids for name, table in parties.items()}
    found = join(active.name, ids, job.seed, _book(active), _held_out(active))
    return Aligned(parties=found, protocol="joined in one process, without a protocol")


def _book(table: PartyTable) -> Sequence[str]:
    return () if table.book is None else table.book.ids


def _held_out(table: PartyTable) -> np.ndarray:
    return np.arange(0) if table.fold is None else np.flatnonzero(table.fold != TRAIN)


def split_rows(parties: Parties, aligned: Aligned, job: Job) -> Split:
    """Which aligned rows train, validate and test: as the active party marked them, else at random from the seed."""
    active = parties.active
    if active.fold is None:
        return Split.of(aligned.common, valid=job.valid, test=job.test, seed=job.seed)
    return Split.marked(active.fold[aligned.parties[active.name].rows])


def run_parties(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    *,
    run: str,
    split: Split | None = None,
    observer: Observer | None = None,
    keepers: Mapping[str, Keeper] | None = None,
) -> Ran:
    """Train on the aligned rows, each party as a task of its own.

    Args:
        job: what to run.
        parties: their tables; exactly those that `aligned` tells about.
        aligned: the verified alignment.
        run: name of the run, for the ledgers.
        split: which of the aligned rows train, validate and test; from the job's seed if None.
        observer: hears how it goes on.
        keepers: party → what keeps its checkpoints.

    Raises:
        PartyFailed: a party's program ended with an unforeseen error, its `__cause__`.
        SecureVFLError: any other, as the party raised it.
    """
    check_parties(job, parties)
    consent(job, parties)
    sites = sites_of(job, parties, active=parties.active.name, run=run, observer=observer, keepers=keepers)
    parts = split or split_rows(parties, aligned, job)
    programs = {
        name: program(site, train_as_party(site, parties[name], aligned.parties[name], job, parts))
        for name, site in sites.items()
    }
    trained = run_programs(programs, sites)
    for name, site in sites.items():
        trained[name].notes += site.notes
    return Ran(trained=trained, ledgers={name: site.ledger for name, site in sites.items()}, split=parts)


def consent(job: Job, parties: Parties) -> None:
    """Let each party hold the job against its own policy, before anything is sent.

    If one refuses, it tells its peers so, and that is all that crosses any channel.

    Raises:
        PolicyError: names the first party that refuses, and the rule that the job breaks; carries the ledgers.
    """
    if len(parties) == 1:
        return
    broken: dict[str, str] = {}
    passive = [table.name for table in parties.passive]
    for owner in parties.label_owners:
        pairwise = owner.book is not None
        for name in (owner.name, *passive):
            rule = rule_against(job, name, active=owner.name, passive=passive, pairwise=pairwise)
            broken |= {name: rule} if rule else {}
    if not broken:
        return
    sites = sites_of(job, parties, active=parties.label_owners[0].name, run="refusal")
    programs = [
        program(site, refuse(site, broken[name]) if name in broken else await_refusal(site))
        for name, site in sites.items()
    ]

    async def together() -> list[object]:
        return await asyncio.gather(*(run() for run in programs), return_exceptions=True)

    ended = dict(zip(sites, blocking(together), strict=True))
    name = min(broken)
    error = ended[name]
    if not isinstance(error, PolicyError):
        raise TypeError(f"{name!r} refused the job and ended with {error!r}")
    error.ledgers = tuple(site.ledger for site in sites.values())
    error.add_note(f"raised at party {name!r}; the other parties stopped")
    raise error


def check_parties(job: Job, parties: Parties) -> None:
    """Refuse parties that the job's algorithm cannot serve.

    Raises:
        InputError: too many passive parties, too few epochs, or no label book where the algorithm lives on it.
    """
    algorithm, passive = job.algorithm, parties.passive
    if algorithm.many_owners:
        raise InputError(f"{algorithm.title} trains with several label owners: use sv.simulate, which knows how")
    most = algorithm.most_passive
    if most is not None and len(passive) > most:
        raise InputError(
            f"{algorithm.title} is for one active and {most} passive part{'y' if most == 1 else 'ies'}; there are "
            f"{len(passive)} passive ones ({', '.join(table.name for table in passive)}): leave some out"
        )
    if job.epochs < algorithm.least_epochs:
        raise InputError(
            f"{algorithm.title} gets to its last stage in epoch {algorithm.least_epochs}, and the job has {job.epochs} "
            "epochs: give it more, or shorten the stages before"
        )
    mine = set(parties.active.ids)
    lacking = any(not mine.issuperset(table.ids) for table in passive)
    if algorithm.uses_book and lacking and parties.active.book is None:
        raise InputError(
            f"{algorithm.title} trains on rows of other parties whose labels {parties.active.name!r} knows, and it has "
            "no label book: give PartyTable(book=LabelBook(…)), or labels='all' for a named data set"
        )


def predict_parties(
    job: Job, parties: Parties, aligned: Aligned, models: Mapping[str, Mapping[str, Any]], *, run: str
) -> tuple[np.ndarray, dict[str, Ledger]]:
    """Probabilities of the aligned rows, (n, classes), and the ledgers of predicting.

    Args:
        job: that the model was trained by.
        parties: their tables.
        aligned: the verified alignment of these tables.
        models: party → its part of the model.
        run: name, for the ledgers.
    """
    consent(job, parties)
    sites = sites_of(job, parties, active=parties.active.name, run=run)
    programs = {
        name: program(site, predict_as_party(site, parties[name], aligned.parties[name], job, models[name]))
        for name, site in sites.items()
    }
    found = run_programs(programs, sites)
    return found[parties.active.name], {name: site.ledger for name, site in sites.items()}
