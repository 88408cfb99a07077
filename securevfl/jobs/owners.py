"""Many label owners in one process: a federation of each label owner with all data owners, and a coordinator.

Every party is one site with one ledger; in the federation of label owner k it sees only its members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from securevfl.algorithms import MultiVFL, Split, Table
from securevfl.algorithms.coordinators import Coordinator
from securevfl.algorithms.data_owner import DataOwner
from securevfl.algorithms.multivfl import LabelOwner
from securevfl.algorithms.splitnn import Passive
from securevfl.data import FeatureEncoder, Parties, PartyTable
from securevfl.data.table import TEST, TRAIN, VALID
from securevfl.errors import InputError
from securevfl.jobs.job import Job
from securevfl.jobs.programs import program, run_programs, sites_of
from securevfl.jobs.simulation import Aligned, Ran, align_parties, consent, join_parties
from securevfl.site import Keeper, Observer, Site, derive_seed

__all__ = ["COORDINATOR", "align_owners", "run_owners"]

COORDINATOR = "coordinator"
"""Name of the party that brings the label owners' changes together; it has no table."""


def federation(parties: Parties, owner: str) -> Parties:
    """One label owner and all data owners."""
    return Parties.of(parties[owner], *parties.passive, description=parties.description)


def align_owners(parties: Parties, job: Job, observer: Observer | None = None, *, joined: bool = False) -> Aligned:
    """Align each label owner with all data owners.

    Args:
        parties: label owners and data owners.
        job: the job.
        observer: hears how it goes on.
        joined: by a join in the clear, see `join_parties`.

    Raises:
        SecureVFLError: as `align_parties`.
    """
    if COORDINATOR in parties:
        raise InputError(f"a party is called {COORDINATOR!r}, which is the name of the one without a table")
    consent(job, parties)
    found = {}
    for table in parties.label_owners:
        members, name = federation(parties, table.name), f"alignment with {table.name}"
        found[table.name] = join_parties(members, job) if joined else align_parties(members, job, observer, run=name)
    first = next(iter(found.values()))
    ledgers = {f"{name}, {owner}": ledger for owner, one in found.items() for name, ledger in one.ledgers.items()}
    return Aligned(parties=first.parties, ledgers=ledgers, protocol=first.protocol, owners=found)


def run_owners(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    *,
    run: str,
    observer: Observer | None = None,
    keepers: Mapping[str, Keeper] | None = None,
) -> Ran:
    """Train a job with several label owners.

    Args:
        job: its algorithm is `MultiVFL`.
        parties: label owners and data owners; the first label owner validates and tests.
        aligned: from `align_owners`.
        run: name of the run, for the ledgers.
        observer: hears how it goes on at the first label owner.
        keepers: party → what keeps its checkpoints.

    Raises:
        InputError: the first label owner marked no rows for validation and test.
        SecureVFLError: whatever ended it.
    """
    algorithm = job.algorithm
    if not isinstance(algorithm, MultiVFL):
        raise InputError(f"{algorithm.title} has one label owner; several are for sv.MultiVFL")
    consent(job, parties)
    owners = [table.name for table in parties.label_owners]
    data = sorted(table.name for table in parties.passive)
    sites = sites_of(
        job,
        [*parties, COORDINATOR],
        active=owners[0],
        passive=data,
        run=run,
        observer=observer,
        keepers=keepers,
    )
    splits = {name: _split(parties[name], aligned.owners[name], first=name == owners[0]) for name in owners}
    classes = len(parties[owners[0]].classes)
    encoders: dict[str, dict[str, object]] = {}
    roles: dict[str, Coordinator | LabelOwner | DataOwner] = {
        COORDINATOR: algorithm.coordinator(sites[COORDINATOR], job.plan, owners)
    }
    for name in owners:
        roles[name], encoders[name] = _label_owner(
            job, parties[name], aligned.owners[name], splits[name], sites[name], owners, data
        )
    for name in data:
        copies, encoders[name] = _copies(
            job, algorithm, parties[name], aligned, splits, sites[name], owners, data, classes
        )
        roles[name] = DataOwner(copies, sites[name], job.plan)
    trained = run_programs({name: program(sites[name], role.run()) for name, role in roles.items()}, sites)
    for name in (owners[0], *data):
        trained[name].model |= {
            "encoder": encoders[name],
            "classes": classes,
            "names": list(map(str, parties[owners[0]].classes)) if name == owners[0] else [],
        }
    for name in owners[1:]:  # the others' weights are the same
        trained[name].model = {}
    return Ran(trained=trained, ledgers={n: s.ledger for n, s in sites.items()}, split=splits[owners[0]])


def _split(table: PartyTable, aligned: Aligned, *, first: bool) -> Split:
    """The aligned rows of one label owner; only the first one holds rows out."""
    rows = aligned.parties[table.name].rows
    if not first:
        return Split(np.arange(len(rows)), np.arange(0), np.arange(0))
    if table.fold is None:
        raise InputError(
            f"the first label owner, {table.name!r}, validates and tests: mark its rows in PartyTable(fold=…)"
        )
    fold = table.fold[rows]
    parts = Split(*(np.flatnonzero(fold == kind) for kind in (TRAIN, VALID, TEST)))
    if min(len(parts.train), len(parts.valid), len(parts.test)) == 0:
        raise InputError(f"of {len(rows)} aligned rows of {table.name!r} none is left to train, validate or test on")
    return parts


def _member(site: Site, owner: str, data: list[str]) -> Site:
    """A site as a member of one label owner's federation."""
    inside = [owner, *data]
    links = {name: link for name, link in site.links.items() if name in inside}
    seed = derive_seed(site.seed, "federation", owner)
    return replace(site, active=owner, passive=tuple(data), links=links, seed=seed)


def _label_owner(
    job: Job, table: PartyTable, aligned: Aligned, split: Split, site: Site, owners: list[str], data: list[str]
) -> tuple[LabelOwner, dict[str, object]]:
    """A label owner's program, and how it encodes its columns, if it has any."""
    rows = aligned.parties[table.name]
    rows.require_verified(_member(site, table.name, data))
    if table.label is None:
        raise InputError(f"{table.name!r} has no labels and is no label owner")
    encoder = FeatureEncoder.fit(table, rows.rows[split.train], clip=job.clip, scale=job.scale)
    x = torch.from_numpy(encoder.transform(table, rows.rows))
    y = torch.from_numpy(table.label[rows.rows])
    mine = Table(x=x, y=y, classes=len(table.classes), split=split, name=table.name)
    if not isinstance(job.algorithm, MultiVFL):
        raise InputError(f"{type(job.algorithm).__name__} is for one label owner; MultiVFL is for several")
    role = LabelOwner(
        job.algorithm,
        _member(site, table.name, data),
        job.plan,
        job.protection,
        mine,
        everyone=site,
        server=site.links[COORDINATOR],
        owners=owners,
    )
    return role, encoder.state()


def _copies(
    job: Job,
    algorithm: MultiVFL,
    table: PartyTable,
    aligned: Aligned,
    splits: Mapping[str, Split],
    site: Site,
    owners: list[str],
    data: list[str],
    classes: int,
) -> tuple[dict[str, Passive], dict[str, object]]:
    """One passive side for each label owner, all with the same encoding and the same initial bottom."""
    rows = {owner: aligned.owners[owner].parties[table.name] for owner in owners}
    fit_on = np.concatenate([rows[owner].rows[splits[owner].train] for owner in owners])
    encoder = FeatureEncoder.fit(table, fit_on, clip=job.clip, scale=job.scale)
    copies = {}
    for owner in owners:
        member = _member(site, owner, data)
        rows[owner].require_verified(member)
        x = torch.from_numpy(encoder.transform(table, rows[owner].rows))
        mine = Table(x=x, split=splits[owner], name=table.name, classes=classes)
        copies[owner] = Passive(algorithm, member, job.plan, job.protection, mine)
    return copies, encoder.state()
