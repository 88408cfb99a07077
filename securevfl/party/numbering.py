"""One party's program after alignment, in training and in predicting: encode its own rows, then its role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from securevfl.algorithms import Split, Table, Trained
from securevfl.align import Alignment
from securevfl.data import FeatureEncoder, PartyTable
from securevfl.data.table import TRAIN
from securevfl.errors import PolicyError, ProtocolError
from securevfl.jobs.job import Job
from securevfl.jobs.programs import note_spent
from securevfl.site import Site
from securevfl.transport import Kind

__all__ = ["predict_as_party", "train_as_party"]

_MOST = 1 << 24
"""Largest set of rows that a peer may announce, as in alignment."""


async def train_as_party(site: Site, table: PartyTable, alignment: Alignment, job: Job, split: Split) -> Trained:
    """One party's program after alignment: encode its own rows, then its role in the algorithm."""
    alignment.require_verified(site)
    mine, encoder = await _ready(site, table, alignment, job, split)
    make = job.algorithm.passive if site.role == "passive" else job.algorithm.active
    trained = await make(site, job.plan, job.protection, mine).run()
    trained.model |= {"encoder": encoder.state(), "classes": mine.classes, "names": list(map(str, table.classes))}
    return trained


async def predict_as_party(
    site: Site, table: PartyTable, alignment: Alignment, job: Job, model: Mapping[str, Any]
) -> np.ndarray:
    """One party's program to predict: encode its rows as in training, then its part of the model. Probabilities of the
    aligned rows at the active party, (n, classes); nothing at the others.

    With noise, predicting a row is one more release of it, noted in the ledger: ε of this prediction alone.

    Raises:
        PolicyError: as in training, and before anything is sent: the party's policy allows less than the plan spends.
    """
    alignment.require_verified(site)
    x = torch.from_numpy(FeatureEncoder.from_state(model["encoder"]).transform(table, alignment.rows))
    rows = np.arange(len(x))
    classes = int(model["classes"])
    y = torch.full((len(x),), -1) if site.role == "active" else None
    mine = Table(x=x, split=Split(rows[:0], rows[:0], rows), name=site.name, y=y, classes=classes)
    plan = replace(job.plan, batch_size=int(model["batch_size"]))
    if site.role == "passive":
        passive = job.algorithm.passive(site, plan, job.protection, mine)
        await passive.predict(dict(model), rows)
        note_spent(site.ledger, passive.spent())
        return np.empty((0, classes))
    active = job.algorithm.active(site, plan, job.protection, mine)
    found = await active.predict(dict(model), rows)
    note_spent(site.ledger, active.spent())
    return found


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
        await link.send(Kind.CONTROL, "train/rows", meta=dict(zip(names, found[site.name], strict=True)))
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
        await site.links[name].send(Kind.CONTROL, "train/start", meta={**meta, "shared": shared})
    return found, shared


def _told(values: Sequence[object], peer: str) -> _Counts:
    if not all(isinstance(value, int) and 0 <= value <= _MOST for value in values):
        raise ProtocolError(f"{peer!r} announces {values} rows beside the aligned ones, labelled ones and classes")
    rows, labelled, classes = (int(str(value)) for value in values)
    if labelled > rows or classes > 1 << 16:
        raise ProtocolError(f"{peer!r} announces {labelled} labelled rows of {rows}, and {classes} classes")
    return rows, labelled, classes
