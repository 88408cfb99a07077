"""All parties in one process: each party's own program as a task, channels in memory between every two, nothing else in
common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from securevfl.align import Alignment, join, protocol_of
from securevfl.data import Parties, PartyTable
from securevfl.data.table import TRAIN
from securevfl.errors import InputError, UnknownNameError
from securevfl.jobs.parts import MODEL_PART, model_part
from securevfl.jobs.programs import run_programs, sites_of
from securevfl.jobs.store import tree_digest
from securevfl.party import Alignments, Job, align_party, consent_party, predict_party, train_party
from securevfl.party.roster import check_roster
from securevfl.privacy import Ledger, Ledgers, Reading
from securevfl.site import Keeper, Observer, PartySecret, Site
from securevfl.training import Split, Trained

__all__ = [
    "COORDINATOR",
    "Aligned",
    "Ran",
    "align_parties",
    "consent_parties",
    "join_parties",
    "predict_parties",
    "run_parties",
]

COORDINATOR = "coordinator"
"""Name of the party without a table that several label owners need."""


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """The alignment of all parties of a simulation.

    Attributes:
        alignments: party → its own alignments, one for each label owner's federation that it is a member of.
        readings: party → its clock during alignment.
        ledgers: party → its ledger of the alignment.
        protocol: how they were aligned.
        signing: what opened these ledgers: a call that uses the alignment again goes on with the same keys.
    """

    alignments: Mapping[str, Alignments]
    readings: Mapping[str, Reading] = field(default_factory=dict)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    protocol: str = ""
    signing: Ledgers | None = field(default=None, repr=False, compare=False)

    @property
    def parties(self) -> dict[str, Alignment]:
        """Party → its alignment in the first label owner's federation; members only."""
        first = next(iter(next(iter(self.alignments.values()))))
        return {name: found[first] for name, found in self.alignments.items() if first in found}

    @property
    def common(self) -> int:
        """Number of common rows, in the first label owner's federation."""
        return len(next(iter(self.parties.values())).rows)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a run left: each party's result and ledger, the split that the first label owner told, and the parties'
    secrets, for a run that begins like this one."""

    trained: Mapping[str, Trained]
    ledgers: Mapping[str, Ledger]
    split: Split
    secrets: Mapping[str, PartySecret] = field(default_factory=dict, repr=False)


def _owners(parties: Parties) -> list[str]:
    return [table.name for table in parties.label_owners]


def _sites(
    job: Job,
    parties: Parties,
    *,
    run: str,
    coordinated: bool = False,
    observer: Observer | None = None,
    observers: Mapping[str, Observer] | None = None,
    keepers: Mapping[str, Keeper] | None = None,
    secrets: Mapping[str, PartySecret] | None = None,
    signing: Ledgers | None = None,
) -> dict[str, Site]:
    """A site for each party and, where the run is `coordinated` and the algorithm needs one, for the coordinator.

    A user's mistakes end here, before anything runs: each party's program would find them too.

    Raises:
        InputError: parties that the algorithm cannot serve, or a party with the coordinator's name.
        UnknownNameError: a policy of a party that is none.
    """
    if COORDINATOR in parties:
        raise InputError(f"a party is called {COORDINATOR!r}, which is the name of the one without a table: rename it")
    for name in job.policies:
        if name not in parties:
            raise UnknownNameError("party with a policy", name, parties)
    coordinator = COORDINATOR if coordinated and job.algorithm.many_owners else ""
    names = [*parties, *([coordinator] if coordinator else [])]
    sites = sites_of(
        job,
        names,
        owners=_owners(parties),
        run=run,
        coordinator=coordinator,
        observer=observer,
        observers=observers,
        keepers=keepers,
        secrets=secrets,
        ledgers=signing,
    )
    for site in sites.values():
        check_roster(site, job)
    return sites


def align_parties(
    parties: Parties,
    job: Job,
    observer: Observer | None = None,
    *,
    run: str = "alignment",
    signing: Ledgers | None = None,
) -> Aligned:
    """Align the parties' tables by PSI and let all verify the result.

    Args:
        parties: their tables; with several label owners, each aligns with all passive parties.
        job: what they are aligned for.
        observer: hears how it goes on.
        run: name of the alignment, for the ledgers.
        signing: opens the ledgers; with new keys unless given.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: a party refuses the job, or has fewer common rows than its policy allows.
        InputError: identifiers that are empty or doubled.
    """
    owners = _owners(parties)
    signing = signing or Ledgers(runs=[run])
    sites = _sites(job, parties, run=run, observer=observer, signing=signing)

    async def program(site: Site, table: PartyTable) -> Alignments:
        await consent_party(site, table, job)
        site.observer.phase("alignment")
        return await align_party(site, table)

    found = run_programs({name: partial(program, site, parties[name]) for name, site in sites.items()}, sites)
    return Aligned(
        alignments={name: found[name] for name in [*owners, *parties]},
        readings={name: site.clock.lap() for name, site in sites.items()},
        ledgers={name: site.ledger for name, site in sites.items()},
        protocol=protocol_of(len(parties.passive), book=any(t.book is not None for t in parties.label_owners)),
        signing=signing,
    )


def join_parties(parties: Parties, job: Job) -> Aligned:
    """The alignment that `align_parties` finds, by a join in the clear, in no time: for experiments.

    Raises:
        AlignmentError: no common rows.
        InputError: identifiers that are empty or doubled.
    """
    found: dict[str, dict[str, Alignment]] = {}
    for owner in parties.label_owners:
        ids = {table.name: table.ids for table in (owner, *parties.passive)}
        book = () if owner.book is None else owner.book.ids
        held_out = np.arange(0) if owner.fold is None else np.flatnonzero(owner.fold != TRAIN)
        for name, alignment in join(owner.name, ids, job.seed, book, held_out).items():
            found.setdefault(name, {})[owner.name] = alignment
    return Aligned(alignments=found, protocol="joined in one process, without a protocol")


def consent_parties(jobs: Sequence[Job], parties: Parties, signing: Ledgers | None = None) -> None:
    """Let each party hold each job against its own policy, before anything else is sent for any of them.

    Args:
        jobs: the jobs.
        parties: their tables.
        signing: opens the ledgers; with new keys unless given.

    Raises:
        PolicyError: a party refuses a job; names the party and the rule, and carries the ledgers.
    """
    for job in jobs:
        sites = _sites(job, parties, run="consent", coordinated=True, signing=signing)
        tables = dict(parties)
        run_programs({n: partial(consent_party, site, tables.get(n), job) for n, site in sites.items()}, sites)


def run_parties(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    *,
    run: str,
    split: Split | None = None,
    observer: Observer | None = None,
    observers: Mapping[str, Observer] | None = None,
    keepers: Mapping[str, Keeper] | None = None,
    secrets: Mapping[str, PartySecret] | None = None,
    signing: Ledgers | None = None,
) -> Ran:
    """Train on the aligned rows, each party as a task of its own.

    Args:
        job: what to run.
        parties: their tables; exactly those that `aligned` tells about.
        aligned: the verified alignment.
        run: name of the run, for the ledgers.
        split: of the rows of a party that runs alone.
        observer: hears how it goes on.
        observers: party → what hears of it alone, in place of `observer`.
        keepers: party → what keeps its checkpoints.
        secrets: party → its secret, for runs that are to begin alike; where a checkpoint goes on it holds its own, and
            the others are drawn as `sites_of` says.
        signing: opens the ledgers; with new keys unless given.

    Raises:
        PartyFailed: a party's program ended with an unforeseen error, its `__cause__`.
        SecureVFLError: any other, as the party raised it.
    """
    owners = _owners(parties)
    kept = {name: PartySecret.kept_by(keeper) for name, keeper in (keepers or {}).items() if name in parties}
    own = dict(secrets or {}) | {name: secret for name, secret in kept.items() if secret is not None}
    sites = _sites(
        job,
        parties,
        run=run,
        coordinated=True,
        observer=observer,
        observers=observers,
        keepers=keepers,
        secrets=own,
        signing=signing,
    )
    tables = dict(parties)

    async def program(site: Site) -> Trained:
        table = tables.get(site.name)
        await consent_party(site, table, job)
        trained = await train_party(site, table, aligned.alignments.get(site.name, {}), job, split=split)
        if trained.model:
            site.ledger.note(MODEL_PART, {"sha256": tree_digest(model_part(job, site.name, trained.model))})
        return trained

    trained = run_programs({name: partial(program, site) for name, site in sites.items()}, sites)
    return Ran(
        trained=trained,
        ledgers={name: site.ledger for name, site in sites.items()},
        split=trained[owners[0]].split,
        secrets={name: site.secret for name, site in sites.items()},
    )


def predict_parties(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    models: Mapping[str, Mapping[str, Any]],
    *,
    run: str,
    observers: Mapping[str, Observer] | None = None,
) -> tuple[np.ndarray, dict[str, Ledger]]:
    """Probabilities of the aligned rows, (n, classes), and the ledgers of predicting.

    Args:
        job: that the model was trained by.
        parties: their tables, with one label owner.
        aligned: the verified alignment of these tables.
        models: party → its part of the model.
        run: name, for the ledgers.
        observers: party → what hears of it.
    """
    active = parties.active.name
    sites = _sites(job, parties, run=run, observers=observers)

    async def program(site: Site) -> np.ndarray:
        await consent_party(site, parties[site.name], job)
        return await predict_party(site, parties[site.name], aligned.parties[site.name], job, models[site.name])

    found = run_programs({name: partial(program, site) for name, site in sites.items()}, sites)
    return found[active], {name: site.ledger for name, site in sites.items()}
