"""All parties in one process: each runs its own program as a task, with channels in memory between every two and
nothing else shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.align import Alignment, join_in_clear, protocol_of
from securevfl.data import Parties, PartyTable
from securevfl.data.table import TRAIN
from securevfl.party import (
    Alignments,
    Job,
    align_party,
    consent_party,
    predict_party,
    scoring_program,
    train_party,
)
from securevfl.party_context import Keeper, Observer, PartyContext, PartySecret
from securevfl.privacy import Ledger, Ledgers, Reading, ResultBook
from securevfl.run.model_parts import MODEL_PART, model_part
from securevfl.run.simulated_parties import COORDINATOR, Simulated
from securevfl.run.store import tree_digest
from securevfl.run.threads import learning_threads
from securevfl.training import PassiveRole, Split, Trained
from securevfl.transport import PASSIVE

__all__ = [
    "COORDINATOR",
    "Aligned",
    "RunOutcome",
    "align_parties",
    "consent_parties",
    "find_spent",
    "join_parties",
    "predict_parties",
    "result_books",
    "run_parties",
]


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """The alignment of all parties of a simulation.

    Attributes:
        alignments: party → its own alignments, one for each label owner's federation that it is a member of.
        readings: party → its clock during alignment.
        ledgers: party → its ledger of the alignment.
        protocol: how they were aligned.
        signing: opened these ledgers; calls that reuse the alignment use the same keys.
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
    def common_rows(self) -> int:
        """Number of common rows, in the first label owner's federation."""
        return len(next(iter(self.parties.values())).rows)

    def take(self, places: np.ndarray) -> Aligned:
        """The same alignment with these common rows only, (n,) positions, in this order."""
        some = {
            name: {owner: replace(one, rows=one.rows[places]) for owner, one in found.items()}
            for name, found in self.alignments.items()
        }
        return replace(self, alignments=some)


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """Outcome of a run: each party's result and ledger, the split that the first label owner sent, and the parties'
    secrets, so that another run can begin alike.
    """

    trained: Mapping[str, Trained]
    ledgers: Mapping[str, Ledger]
    split: Split
    secrets: Mapping[str, PartySecret] = field(default_factory=dict, repr=False)


def align_parties(
    parties: Parties,
    job: Job,
    observer: Observer | None = None,
    *,
    run: str = "alignment",
    signing: Ledgers | None = None,
    among: Sequence[str] = (),
    predicts: bool = False,
) -> Aligned:
    """Align the parties' tables by PSI and let all verify the result.

    Args:
        parties: their tables; with several label owners, each aligns with all passive parties.
        job: what they are aligned for.
        observer: receives progress events.
        run: name of the alignment, for the ledgers.
        signing: opens the ledgers; with new keys unless given.
        among: see `consent_party`.
        predicts: likewise.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: a party refuses the job, or has fewer common rows than its policy allows.
        InputError: identifiers that are empty or doubled.
    """
    signing = signing or Ledgers(runs=[run])

    async def program(site: PartyContext, table: PartyTable | None) -> Alignments:
        await consent_party(site, table, job, among=among, predicts=predicts)
        site.observer.phase("alignment")
        return await align_party(site, table, job)

    found, sites = Simulated(
        job=job, parties=parties, run=run, linking=True, observer=observer, signing=signing
    ).run_program(program)
    owners = [table.name for table in parties.label_owners]
    return Aligned(
        alignments={name: found[name] for name in [*owners, *parties]},
        readings={name: site.clock.lap() for name, site in sorted(sites.items())},
        ledgers={name: site.ledger for name, site in sorted(sites.items())},
        protocol=protocol_of(
            len(parties.passive), book=any(t.book is not None for t in parties.label_owners), align=job.align
        ),
        signing=signing,
    )


def join_parties(parties: Parties, job: Job) -> Aligned:
    """The alignment that `align_parties` finds, by a join in the clear, in no time: for experiments. Records that a job
    links have nothing to join by, so they are linked as there.

    Raises:
        AlignmentError: no common rows.
        InputError: identifiers that are empty or doubled.
    """
    if job.link is not None:
        return align_parties(parties, job)
    found: dict[str, dict[str, Alignment]] = {}
    for owner in parties.label_owners:
        ids = {table.name: table.ids for table in (owner, *parties.passive)}
        book = () if owner.book is None else owner.book.ids
        held_out = np.arange(0) if owner.fold is None else np.flatnonzero(owner.fold != TRAIN)
        for name, alignment in join_in_clear(owner.name, ids, job.seed, book, held_out).items():
            found.setdefault(name, {})[owner.name] = alignment
    return Aligned(alignments=found, protocol="joined in one process, without a protocol")


def consent_parties(
    jobs: Sequence[Job], parties: Parties, signing: Ledgers | None = None, *, pairwise: bool = False
) -> None:
    """Let each party check every job against its own policy before any other message is sent for one of them.

    Args:
        jobs: the jobs.
        parties: their tables.
        signing: opens the ledgers; with new keys unless given.
        pairwise: whether rows that some parties lack will be aligned as well.

    Raises:
        PolicyError: a party refuses a job; names the party and the rule, and carries the ledgers.
    """
    for job in jobs:
        Simulated(job=job, parties=parties, run="consent", coordinated=True, signing=signing).run_program(
            partial(_exchange_consent, job=job, pairwise=pairwise)
        )


def result_books(folder: str | Path, parties: Iterable[str]) -> dict[str, ResultBook]:
    """Party → its result book, ``<party>.results.jsonl`` in a folder.

    Raises:
        InputError: one that is damaged.
    """
    return {name: ResultBook(Path(folder) / f"{name}.results.jsonl", party=name) for name in parties}


def find_spent(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    models: Mapping[str, Mapping[str, Any]],
    *,
    among: Sequence[str] = (),
    results: Mapping[str, ResultBook] | None = None,
) -> dict[str, np.ndarray]:
    """Party → about which of the aligned rows it would answer nothing more, (n,) bool; nothing is sent.

    Args:
        job: that the model was trained by.
        parties: their tables, with one label owner.
        aligned: the verified alignment of these tables.
        models: party → its part of the model.
        among: see `consent_party`.
        results: party → its result book.
    """
    bounded = [name for name in parties if name in (results or {}) and job.policy(name).writes_bound]
    if not bounded:
        return {}

    async def program(site: PartyContext, table: PartyTable | None) -> np.ndarray:
        if table is None or site.name not in bounded or site.role != PASSIVE:
            return np.zeros(0, bool)
        alignment = aligned.parties[site.name]
        role = scoring_program(site, table, alignment, job, models[site.name]).role
        if not isinstance(role, PassiveRole):
            return np.zeros(0, bool)
        places = role.features.find_places(np.arange(len(alignment.rows)))
        spent: np.ndarray = ~role.opened.fits_budget(places, role.numbers_per_answer)
        return spent

    at = Simulated(job=job, parties=parties, run="bounds", coordinated=job.protection.on_shares, results=results)
    found, _ = at.run_program(program)
    return {name: spent for name, spent in found.items() if spent.any()}


async def _exchange_consent(site: PartyContext, table: PartyTable | None, *, job: Job, pairwise: bool) -> None:
    await consent_party(site, table, job, pairwise=pairwise, predicts=pairwise)


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
    results: Mapping[str, ResultBook] | None = None,
) -> RunOutcome:
    """Train on the aligned rows, with one task for each party.

    Args:
        job: what to run.
        parties: their tables; exactly the parties of `aligned`.
        aligned: the verified alignment.
        run: name of the run, for the ledgers.
        split: of the rows of a party that runs alone.
        observer: receives progress events.
        observers: party → receiver of that party's events, instead of `observer`.
        keepers: party → what keeps its checkpoints.
        secrets: party → its secret, for runs that must begin alike. A checkpoint contains its own; the others are drawn
            as `draw_secret` describes.
        signing: opens the ledgers; with new keys unless given.
        results: party → its result book.

    Raises:
        PartyFailed: a party's program ended with an unforeseen error, its `__cause__`.
        SecureVFLError: any other, as the party raised it.
    """
    kept = {name: PartySecret.from_keeper(keeper) for name, keeper in (keepers or {}).items() if name in parties}
    at = Simulated(
        job=job,
        parties=parties,
        run=run,
        coordinated=True,
        observer=observer,
        observers=observers,
        keepers=keepers,
        secrets=dict(secrets or {}) | {name: secret for name, secret in kept.items() if secret is not None},
        signing=signing,
        results=results,
    )

    async def program(site: PartyContext, table: PartyTable | None) -> Trained:
        await consent_party(site, table, job)
        trained = await train_party(site, table, aligned.alignments.get(site.name, {}), job, split=split)
        if trained.model:
            site.ledger.record_note(MODEL_PART, {"sha256": tree_digest(model_part(job, site.name, trained.model))})
        return trained

    columns = sum(table.values for table in parties.values())
    with learning_threads(job.batch_size * columns):
        trained, sites = at.run_program(program)
    return RunOutcome(
        trained=trained,
        ledgers={name: site.ledger for name, site in sorted(sites.items())},
        split=trained[at.roster.owners[0]].split,
        secrets=at.party_secrets,
    )


def predict_parties(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    models: Mapping[str, Mapping[str, Any]],
    *,
    run: str,
    observers: Mapping[str, Observer] | None = None,
    among: Sequence[str] = (),
    results: Mapping[str, ResultBook] | None = None,
) -> tuple[np.ndarray, dict[str, Ledger]]:
    """Probabilities of the aligned rows, (n, classes), and the ledgers of predicting.

    Args:
        job: that the model was trained by.
        parties: their tables, with one label owner.
        aligned: the verified alignment of these tables.
        models: party → its part of the model; also of a coordinator that computed.
        run: name, for the ledgers.
        observers: party → receiver of its events.
        among: see `consent_party`.
        results: party → its result book.
    """

    async def program(site: PartyContext, table: PartyTable | None) -> np.ndarray:
        await consent_party(site, table, job, among=among, predicts=True)
        return await predict_party(site, table, aligned.parties.get(site.name), job, models[site.name])

    at = Simulated(
        job=job,
        parties=parties,
        run=run,
        coordinated=job.protection.on_shares,
        observers=observers,
        results=results,
    )
    found, sites = at.run_program(program)
    return found[parties.active.name], {name: site.ledger for name, site in sorted(sites.items())}
