"""How one party finds the common rows: record linkage if there is no common identifier, then the intersection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from securevfl.align import Alignment, LinkedRows, align, link_rows
from securevfl.data import PartyTable
from securevfl.data.table import TRAIN
from securevfl.party.job import Job
from securevfl.party_context import PartyContext
from securevfl.transport import ACTIVE, PASSIVE

__all__ = ["Alignments", "align_party", "only_links", "with_link_weights"]

Alignments = Mapping[str, Alignment]
"""Label owner → the party's alignment in that owner's federation; one entry if there is one label owner."""


async def align_party(site: PartyContext, table: PartyTable | None, job: Job) -> Alignments:
    """Align this party's table with the other parties', once in each federation that it is a member of.

    Args:
        site: its place.
        table: the party's table; None at a coordinator.
        job: configures the alignment.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: fewer common rows than the party's policy allows.
        InputError: identifiers that are empty or doubled.
    """
    found: dict[str, Alignment] = {}
    if table is None:
        if job.link is not None and job.link.needs_coordinator() and site.passive:
            _note_link(site, await link_rows(site, None, 0, job.link))
        return found
    book = () if table.book is None else table.book.ids
    held_out = np.arange(0) if table.fold is None else np.flatnonzero(table.fold != TRAIN)
    for owner in site.label_owners:
        if site.role == PASSIVE or owner == site.name:
            member = replace(site.federation(owner), seed=site.seed)
            mine = member.role == ACTIVE
            known = book if mine else ()
            kept = held_out if mine else held_out[:0]
            ids, words, weights = table.ids, "", None
            if job.link is not None and site.passive:
                linked = await link_rows(site, table.link, table.rows, job.link)
                _note_link(site, linked)
                ids, words = linked.ids, f"{linked.words}; then "
                weights = linked.weights if mine else None
            made = len(table.id_columns) or 1 if job.link is None else 1
            one = await align(member, ids, book=known, held_out=kept, how=job.align, columns=made)
            found[owner] = replace(one, protocol=words + one.protocol, weights=weights)
    return found


def with_link_weights(table: PartyTable, alignment: Alignment) -> PartyTable:
    """The active party's table, whose rows count by how likely their links are, on top of weights that they have."""
    if alignment.weights is None:
        return table
    own = np.ones(table.rows) if table.weight is None else table.weight
    return replace(table, weight=own * alignment.weights)


def only_links(job: Job, site: PartyContext) -> bool:
    """Whether a party without data only compares records and takes no part in training."""
    asked = job.protection.coordinator_among([*site.label_owners, *site.passive])
    return job.link is not None and not job.algorithm.many_owners and not asked


def _note_link(site: PartyContext, linked: LinkedRows) -> None:
    site.ledger.record_note("linkage", {"what": linked.words})
