"""All parties in one process: a task each, in-memory channels between every two, nothing else in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch

from securevfl.algorithms import Split, Table, Trained
from securevfl.align import Alignment, align, join, protocol_of
from securevfl.data import FeatureEncoder, Parties, PartyTable
from securevfl.data.table import TRAIN
from securevfl.errors import InputError, PartyFailed, PolicyError, ProtocolError, SecureVFLError
from securevfl.jobs.job import Job
from securevfl.jobs.receipt import totals
from securevfl.jobs.refusal import await_refusal, refuse, rule_against
from securevfl.party import Keeper, Observer, Site, derive_seed
from securevfl.privacy import Clock, Ledger, Link, Policy, Reading
from securevfl.transport import Kind, MemoryChannel, memory_pair

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

T = TypeVar("T")

_MOST = 1 << 24
"""Largest set of rows that a peer may announce, as in alignment."""


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
    sites = _sites(job, parties, run, observer)
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
    sites = _sites(job, parties, run, observer, keepers)
    parts = split or split_rows(parties, aligned, job)
    programs = {
        name: program(site, _train(site, parties[name], aligned.parties[name], job, parts))
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
    sites = _sites(job, parties, "refusal", None, active=parties.label_owners[0].name)
    programs = [
        program(site, refuse(site, broken[name]) if name in broken else await_refusal(site))
        for name, site in sites.items()
    ]

    async def together() -> list[object]:
        return await asyncio.gather(*(run() for run in programs), return_exceptions=True)

    ended = dict(zip(sites, _blocking(together), strict=True))
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


async def _train(site: Site, table: PartyTable, alignment: Alignment, job: Job, split: Split) -> Trained:
    """One party's program after alignment: encode its own rows, then its role in the algorithm."""
    alignment.require_verified(site)
    mine, encoder = await _ready(site, table, alignment, job, split)
    make = job.algorithm.passive if site.role == "passive" else job.algorithm.active
    trained = await make(site, job.plan, job.protection, mine).run()
    trained.model |= {"encoder": encoder.state(), "classes": mine.classes, "names": list(map(str, table.classes))}
    return trained


async def _predict(
    site: Site, table: PartyTable, alignment: Alignment, job: Job, model: Mapping[str, Any]
) -> np.ndarray:
    """One party's program to predict: encode its rows as in training, then its part of the model. Probabilities of the
    aligned rows at the active party, (n, classes); nothing at the others."""
    alignment.require_verified(site)
    x = torch.from_numpy(FeatureEncoder.from_state(model["encoder"]).transform(table, alignment.rows))
    rows = np.arange(len(x))
    classes = int(model["classes"])
    y = torch.full((len(x),), -1) if site.role == "active" else None
    mine = Table(x=x, split=Split(rows[:0], rows[:0], rows), name=site.name, y=y, classes=classes)
    plan = replace(job.plan, batch_size=int(model["batch_size"]))
    if site.role == "passive":
        await job.algorithm.passive(site, plan, job.protection, mine).predict(dict(model), rows)
        return np.empty((0, classes))
    return await job.algorithm.active(site, plan, job.protection, mine).predict(dict(model), rows)


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
    sites = _sites(job, parties, run, None)
    programs = {
        name: program(site, _predict(site, parties[name], aligned.parties[name], job, models[name]))
        for name, site in sites.items()
    }
    found = run_programs(programs, sites)
    return found[parties.active.name], {name: site.ledger for name, site in sites.items()}


async def _ready(
    site: Site, table: PartyTable, alignment: Alignment, job: Job, split: Split
) -> tuple[Table, FeatureEncoder]:
    """The party's rows in the common order: the aligned ones and, where the algorithm uses them, its others; and what
    encoded them."""
    algorithm = job.algorithm
    labels = alignment.labelled if algorithm.uses_book else {}
    known = labels.get(site.name, np.arange(0))
    free = np.arange(table.rows) if table.fold is None else np.flatnonzero(table.fold == TRAIN)
    others = np.setdiff1d(free, np.concatenate([alignment.rows, known]))
    others = np.concatenate([known, others]) if algorithm.uses_others else others[:0]
    rows = np.concatenate([alignment.rows, others])
    fit_on = np.concatenate([alignment.rows[split.train], others])
    encoder = FeatureEncoder.fit(table, fit_on, clip=job.clip, scale=job.scale)
    x = torch.from_numpy(encoder.transform(table, rows))
    used = [alignment.rows, others, *(labels[name] for name in sorted(labels))] if table.label is not None else []
    shared = int(np.bincount(np.concatenate(used)).max()) if used else 1
    counts, shared = await _counts(site, len(others), min(len(known), len(others)), len(table.classes), shared)
    order = (site.active, *site.passive) if algorithm.uses_others else ()
    rest = {name: counts[name][0] for name in order}
    labelled = {name: counts[name][1] for name in order[1:]}
    classes = counts[site.active][2]
    mine = Table(x=x, split=split, name=site.name, rest=rest, labelled=labelled, classes=classes, shared=shared)
    if table.label is None:
        if site.role == "active":
            raise PolicyError(f"{site.name!r} has no labels and cannot be the active party")
        return mine, encoder
    label = table.label if table.book is None else np.concatenate([table.label, table.book.label])
    y = np.full(mine.rows, -1, dtype=np.int64)
    y[: len(alignment.rows)] = label[alignment.rows]
    if len(others):
        y[mine.others(site.name)] = label[others]
    place = np.arange(mine.rows)
    for name, count in labelled.items():
        if count != len(labels.get(name, ())):
            raise ProtocolError(f"{name!r} says that {count} of its rows are labelled; {site.name!r} knows otherwise")
        if count:
            y[mine.others(name)[:count]] = label[labels[name]]
    if shared > 1:
        first: dict[int, int] = {}
        for name, own in ((site.name, others), *((name, labels[name]) for name in labelled)):
            for number, row in zip(mine.others(name).tolist(), own.tolist(), strict=False):
                place[number] = first.setdefault(row, number)
    return replace(mine, y=torch.from_numpy(y), person=place), encoder


_Counts = tuple[int, int, int]


async def _counts(site: Site, rows: int, labelled: int, classes: int, shared: int) -> tuple[dict[str, _Counts], int]:
    """Party → how many rows it has that are not aligned, for how many of them the active party knows labels, and its
    number of classes, 0 at a passive party; and `Table.shared`. The active party collects and tells all."""
    names = ("rows", "labelled", "classes")
    found = {site.name: (rows, labelled, classes)}
    if site.role == "passive":
        link = site.links[site.active]
        link.send(Kind.CONTROL, "train/rows", meta=dict(zip(names, found[site.name], strict=True)))
        message = await link.receive(Kind.CONTROL, "train/start")
        order = (site.active, *site.passive)
        told = {name: _told([message.meta.get(f"{what} {name}") for what in names], link.peer) for name in order}
        if told[site.name] != found[site.name]:
            raise ProtocolError(f"{link.peer!r} tells other counts of {site.name!r}'s rows than it was told")
        most = message.meta.get("shared")
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= len(order):
            raise ProtocolError(
                f"{link.peer!r} says that one person goes by {most!r} numbers, among {len(order)} parties"
            )
        return told, most
    for name in site.passive:
        message = await site.links[name].receive(Kind.CONTROL, "train/rows")
        found[name] = _told([message.meta.get(what) for what in names], name)
    meta = {f"{what} {name}": v for name, told in found.items() for what, v in zip(names, told, strict=True)}
    for name in site.passive:
        site.links[name].send(Kind.CONTROL, "train/start", meta={**meta, "shared": shared})
    return found, shared


def _told(values: Sequence[object], peer: str) -> _Counts:
    if not all(isinstance(value, int) and 0 <= value <= _MOST for value in values):
        raise ProtocolError(f"{peer!r} announces {values} rows beside the aligned ones, labelled ones and classes")
    rows, labelled, classes = (int(str(value)) for value in values)
    if labelled > rows or classes > 1 << 16:
        raise ProtocolError(f"{peer!r} announces {labelled} labelled rows of {rows}, and {classes} classes")
    return rows, labelled, classes


def _sites(
    job: Job,
    parties: Parties,
    run: str,
    observer: Observer | None,
    keepers: Mapping[str, Keeper] | None = None,
    *,
    active: str = "",
) -> dict[str, Site]:
    """A site for each party, linked with every other."""
    active = active or parties.active.name
    names = sorted(parties)
    ends: dict[tuple[str, str], MemoryChannel] = {}
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            ends[one, other], ends[other, one] = memory_pair()
    sites = {}
    for name in names:
        policy = job.policy(name) if len(names) > 1 else job.policies.get(name, Policy())
        ledger, clock = Ledger(name, run=run, job=job.digest, policy=policy.describe()), Clock()
        sites[name] = Site(
            name=name,
            role="active" if name == active else "passive",
            active=active,
            passive=tuple(n for n in names if n != active),
            links={peer: Link(name, peer, ends[name, peer], ledger, policy, clock) for peer in names if peer != name},
            ledger=ledger,
            policy=policy,
            clock=clock,
            job=job.digest,
            seed=job.seed,
            private_seed=derive_seed(job.seed, "private", name),
            observer=(observer if name == active else None) or Observer(),
            keeper=(keepers or {}).get(name, Keeper()),
        )
    return sites


def program(site: Site, work: Awaitable[T]) -> Callable[[], Awaitable[T]]:
    """`work`, with the site's links and ledger closed when it ends, well or badly."""

    async def program() -> T:
        try:
            result = await work
        except asyncio.CancelledError:
            site.ledger.close("cancelled: another party failed")
            raise
        except BaseException as error:
            site.ledger.close(f"failed: {type(error).__name__}: {error}")
            raise
        _note_spent(site.ledger, result)
        site.ledger.close("done")
        site.close()
        return result

    return program


def _note_spent(ledger: Ledger, result: object) -> None:
    """Write into the party's own ledger what its releases cost."""
    if isinstance(result, Trained):
        for spent in result.spent:
            ledger.note("epsilon", {name: value for name, value in asdict(spent).items() if _scalar(value)})
        for total in totals({ledger.party: result.spent}):
            ledger.note("epsilon total", {n: v for n, v in msgspec.structs.asdict(total).items() if _scalar(v)})


def _scalar(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def run_programs(programs: Mapping[str, Callable[[], Awaitable[T]]], sites: Mapping[str, Site]) -> dict[str, T]:
    """Run all programs to their end; the first error ends them all and is raised."""
    failed: list[tuple[str, Exception]] = []

    async def guarded(name: str) -> T:
        try:
            return await programs[name]()
        except Exception as error:
            failed.append((name, error))
            raise

    async def together() -> dict[str, T]:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(guarded(name), name=name) for name in programs}
        return {name: task.result() for name, task in tasks.items()}

    try:
        return _blocking(together)
    except* Exception:
        name, error = failed[0]
    known = isinstance(error, SecureVFLError)
    raised = error if isinstance(error, SecureVFLError) else PartyFailed(name, error)
    raised.ledgers = tuple(site.ledger for site in sites.values())
    if known:
        raised.add_note(f"raised at party {name!r}; the other parties stopped")
        raise raised
    raise raised from error


def _blocking(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run to the end, also where an event loop runs already (a notebook): then in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()
