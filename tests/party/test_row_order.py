"""Numbers of rows cross to the peers in every batch: they must not tell how a party sorts its table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from support.helpers import low_overlap_parties

import securevfl as sv
from securevfl.data import Parties, PartyTable
from securevfl.party.numbering import _unaligned_rows
from securevfl.party_context import PartySecret
from securevfl.run.simulation import Aligned, align_parties, join_parties, run_parties
from securevfl.testing.trial import roles_begun
from securevfl.training import NumberedRows

ALGORITHMS = [sv.ZeroImputation(hidden=4), sv.AllLabels(hidden=4)]
"""The others' rows in an order of the party's own; and those that a label book knows in one that both agree on."""


def sorted_by_a_column(table: PartyTable) -> PartyTable:
    """The same rows, sorted by their first column, the label book by its classes."""
    order = np.argsort(next(iter(table.columns.values())), kind="stable")
    book = table.book
    if book is not None:
        by_class = np.argsort(book.label, kind="stable")
        book = replace(book, ids=[book.ids[i] for i in by_class], label=book.label[by_class])
    return replace(
        table,
        ids=[table.ids[i] for i in order],
        columns={name: np.asarray(values)[order] for name, values in table.columns.items()},
        label=None if table.label is None else table.label[order],
        fold=None if table.fold is None else table.fold[order],
        book=book,
    )


def numbered(algorithm: sv.Algorithm, people: Parties, aligned: Aligned, job: sv.Job) -> dict[str, NumberedRows]:
    """Party → its rows as it numbers them."""
    with roles_begun() as roles:
        run_parties(job, people, aligned, run="order")
    return {role.site.name: role.table for role in roles}


def tells(values: np.ndarray) -> bool:
    """Whether the place in this list says something about the value, beyond three standard errors."""
    correlation, _ = spearmanr(np.arange(len(values)), values)
    return len(values) > 3 and abs(correlation) > 3 / np.sqrt(len(values))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("align", [align_parties, join_parties], ids=["protocol", "join"])
def test_numbers_do_not_tell_how_a_table_is_sorted(align: object, algorithm: sv.Algorithm) -> None:
    people = low_overlap_parties(2, rows=900, width=2)
    people = Parties.of(*(sorted_by_a_column(table) for table in people.values()))
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=1, batch_size=64, seed=7)
    tables = numbered(algorithm, people, align(people, job), job)  # type: ignore[operator]
    for name, table in tables.items():
        column = table.x.numpy()[:, 0]
        others = table.own_places(table.rows_only_at(name))
        known = table.labelled.get(name, 0)
        assert len(others) > 100
        parts = {
            "aligned": column[: table.aligned_count],
            "others": column[others],
            "others in the label book": column[others[:known]],
            "others beyond it": column[others[known:]],
            "train": column[table.split.train],
            "valid": column[table.split.valid],
            "test": column[table.split.test],
        }
        assert [part for part, values in parts.items() if tells(values)] == [], name
        if table.y is not None:
            books = [table.y.numpy()[table.rows_only_at(peer)[:count]] for peer, count in table.labelled.items()]
            assert not any(tells(labels) for labels in books), "labels of the label book"


def test_predictions_come_in_the_common_order() -> None:
    people = Parties.of(*(sorted_by_a_column(table) for table in low_overlap_parties(1, rows=600, width=2).values()))
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=1, batch_size=64, seed=7)
    aligned = join_parties(people, job)
    found = sv.predict(sv.simulate(job, people, aligned=aligned).model(), people, aligned=aligned)
    for table in people.values():
        value = dict(zip(table.ids, next(iter(table.columns.values())), strict=True))
        assert not tells(np.array([value[name] for name in found.ids]))


def test_the_order_is_the_party_s_own_and_stays() -> None:
    """Another secret gives another order, the same secret the same: a run that is resumed numbers rows as before."""
    people = low_overlap_parties(1, rows=300, width=2)
    job = sv.Job(protection=sv.Plain(), algorithm=ALGORITHMS[0], epochs=1, batch_size=64, seed=7)
    aligned = join_parties(people, job)
    first, again = (numbered(ALGORITHMS[0], people, aligned, job)["shop1"] for _ in range(2))
    assert np.array_equal(first.x, again.x)
    table, alignment = people["shop1"], aligned.parties["shop1"]
    with roles_begun() as roles:
        run_parties(job, people, aligned, run="order")
    site = next(role.site for role in roles if role.site.name == "shop1")
    none = np.arange(0)
    mine = _unaligned_rows(site, table, alignment, none)
    other = _unaligned_rows(replace(site, secret=PartySecret.generate()), table, alignment, none)
    assert not np.array_equal(mine, other)
    assert np.array_equal(np.sort(mine), np.sort(other))
    assert set(mine.tolist()).isdisjoint(alignment.rows.tolist())
