"""Files of households: the threshold, its estimates, and what happens if household pairs are taken for strangers."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from securevfl_psi.linkage import (
    Code,
    Date,
    Families,
    FamilyErrors,
    Field,
    LinkageError,
    Linked,
    Schema,
    Text,
    assign_greedy,
    encode_records,
    estimate_matches,
    find_duplicates,
    format_links,
    link_records,
    link_tables,
    similar_pairs,
    simulate_families,
)
from securevfl_psi.linkage.decoys import decoys_of
from securevfl_psi.linkage.similarity import dice

KEY = bytes(range(32))
KINDS = {"street_number": Code(), "postcode": Code(), "phone": Code(), "date_of_birth": Date()}
NAMES = ("given_name", "surname", "street_number", "street", "suburb", "postcode", "phone", "date_of_birth")
SCHEMA = Schema(fields=tuple(Field(name=name, kind=KINDS.get(name, Text())) for name in NAMES))
STAYING = FamilyErrors(household_moves=0, member_moves=0)


def quality(files: Families, rows_a: np.ndarray, rows_b: np.ndarray) -> tuple[float, float, float]:
    """Precision, recall, F1."""
    right, common = (files.people[0][rows_a] == files.people[1][rows_b]).sum(), len(np.intersect1d(*files.people))
    return right / len(rows_a), right / common, 2 * right / (len(rows_a) + common)


def linked_and_best(files: Families) -> tuple[Linked, float, float]:
    """The linkage; the best F1 of any threshold; and F1 at the threshold of an estimate that knows no households."""
    a, b = (encode_records(table, SCHEMA, KEY) for table in files.tables)
    candidates = similar_pairs(a, b)
    taken = assign_greedy(candidates)
    right = np.cumsum(files.people[0][candidates.rows_a[taken]] == files.people[1][candidates.rows_b[taken]])
    common = len(np.intersect1d(*files.people))
    f1 = 2 * right / (np.arange(1, len(taken) + 1) + common)
    blind = estimate_matches(candidates, taken).choose_threshold()
    at = int(np.searchsorted(-candidates.scores[taken], -blind, side="right"))
    return link_records(a, b), float(f1.max()), float(f1[at - 1])


@pytest.mark.parametrize("together", [1.0, 0.8, 0.5])
def test_the_threshold_suits_households(together: float) -> None:
    """Taken for strangers, refused pairs of households push the threshold up: F1 falls by 0.03 to 0.13."""
    files = simulate_families(900, common=0.6, together=together, seed=3)
    linked, best, blind = linked_and_best(files)
    f1 = quality(files, linked.rows_a, linked.rows_b)[2]
    assert f1 > best - 0.025
    assert f1 > blind + 0.02


def test_the_estimates_hold_on_files_of_other_seeds() -> None:
    """Where nobody moves. A pair that lost its address looks like strangers, and no estimate from scores sees it."""
    precision, recall = [], []
    for seed in range(6):
        files = simulate_families(500, common=0.6, errors=STAYING, seed=seed)
        linked = link_records(*(encode_records(table, SCHEMA, KEY) for table in files.tables))
        true = quality(files, linked.rows_a, linked.rows_b)
        precision.append(linked.precision - true[0])
        recall.append(linked.recall - true[1])
    assert abs(np.mean(recall)) < 0.03
    assert np.abs(recall).max() < 0.08
    assert abs(np.mean(precision)) < 0.03
    assert np.abs(precision).max() < 0.08


def test_the_simulated_files_are_what_is_said() -> None:
    files = simulate_families(2000, common=0.5, seed=1)
    people, common = files.people, len(np.intersect1d(*files.people))
    assert all(abs(len(side) - 2000) < 200 for side in people)
    assert abs(common / len(people[0]) - 0.5) < 0.06
    assert all(len(np.unique(side)) == len(side) for side in people)
    house = files.households[0]
    assert 1.5 < len(house) / len(np.unique(house)) < 2.8
    again = simulate_families(2000, common=0.5, seed=1)
    assert again.tables == files.tables
    twice = simulate_families(400, errors=FamilyErrors(duplicates=0.1), seed=1)
    assert len(np.unique(twice.people[0])) < len(twice.people[0])
    with pytest.raises(LinkageError, match=r"typo is 1\.5"):
        FamilyErrors(typo=1.5)
    with pytest.raises(LinkageError, match="5 rows"):
        simulate_families(5)


def test_two_tables_become_a_table_of_links() -> None:
    files = simulate_families(300, common=0.7, seed=2)
    linked = link_tables(*files.tables, SCHEMA)
    assert quality(files, linked.rows_a, linked.rows_b)[2] > 0.85
    rows = list(csv.DictReader(io.StringIO(format_links(linked), newline="")))
    assert {(int(row["row_a"]), int(row["row_b"])) for row in rows} == set(
        zip(linked.rows_a.tolist(), linked.rows_b.tolist(), strict=True)
    )
    assert [int(row["row_a"]) for row in rows] == sorted(linked.rows_a.tolist())
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)


def test_duplicates_are_found_and_twins_and_juniors_are_not_merged() -> None:
    wrong = merged = doubled = 0
    for seed in (1, 2):
        files = simulate_families(700, errors=FamilyErrors(duplicates=0.06), seed=seed)
        for table, people in zip(files.tables, files.people, strict=True):
            distinct = find_duplicates(table, SCHEMA)
            merged += distinct.duplicates
            doubled += len(people) - len(np.unique(people))
            wrong += int((people != people[distinct.rows[distinct.person]]).sum())
    assert wrong <= 0.03 * merged
    assert merged > 0.4 * doubled
    father = ["John", "Stone", "12", "Mill Lane", "Oxdale", "2007", "012345678", "19500203"]
    son, twin, typo = ([*father[:7], "19790916"], ["Maria", *father[1:]], [*father[:4], "Oxdalle", *father[5:]])
    table = dict(zip(NAMES, map(list, zip(father, son, twin, typo, father, strict=True)), strict=True))
    distinct = find_duplicates(table, SCHEMA)
    assert distinct.rows.tolist() == [0, 1, 2]
    assert distinct.person.tolist() == [0, 1, 2, 0, 0]
    assert distinct.describe() == "5 rows are 3 people; 1 of them occur more than once"
    with pytest.raises(LinkageError, match="alike is 0"):
        find_duplicates(table, SCHEMA, alike=0)


def test_linking_tables_leaves_duplicates_out_or_not() -> None:
    files = simulate_families(300, common=0.7, errors=FamilyErrors(duplicates=0.1), seed=4)
    linked = link_tables(*files.tables, SCHEMA)
    assert min(linked.duplicates) > 5
    assert linked.sizes == tuple(len(p) - d for p, d in zip(files.people, linked.duplicates, strict=True))
    assert "duplicates left out" in linked.describe()
    assert (files.people[0][linked.rows_a] == files.people[1][linked.rows_b]).mean() > 0.85
    every = link_tables(*files.tables, SCHEMA, deduplicate=False)
    assert every.duplicates == (0, 0)
    assert every.sizes == tuple(map(len, files.people))


@pytest.mark.parametrize(("common", "together"), [(0.05, 1.0), (0.1, 1.0), (0.1, 0.5), (0.2, 0.5), (0.8, 0.8)])
def test_the_bounds_of_the_recall_hold_and_small_overlaps_have_a_threshold(common: float, together: float) -> None:
    """With a tenth in common the earlier estimate told 0.97 where 0.57 was true, and lost 0.2 of F1."""
    files = simulate_families(1200, common=common, together=together, seed=11)
    linked, best, _ = linked_and_best(files)
    _, recall, f1 = quality(files, linked.rows_a, linked.rows_b)
    assert linked.recall_between[0] <= recall <= linked.recall_between[1]
    assert 0 < linked.recall_between[0] < linked.recall_between[1]
    assert f1 > best - 0.1


def test_decoys_are_pairs_within_a_file_and_are_brought_to_the_size_of_the_other() -> None:
    files = simulate_families(300, common=0.3, seed=2)
    a, b = (encode_records(table, SCHEMA, KEY) for table in files.tables)
    b = type(b)(b.words[: len(b) // 2], b.tag)
    decoys = decoys_of((a, b), similar_pairs(a, b, minimum=0.7), None)
    for records, pairs in zip((a, b), decoys.files, strict=True):
        slow = sum(
            dice(records, records, np.array([i]), np.array([j]))[0] >= 0.7
            for i in range(60)
            for j in range(60)
            if i != j
        )
        assert ((pairs.rows_a < 60) & (pairs.rows_b < 60)).sum() == slow
        assert (pairs.rows_a != pairs.rows_b).all()
    sizes = (len(a), len(b))
    bins = lambda scores: np.array([float((scores >= 0.8).sum()), float((scores < 0.8).sum())])  # noqa: E731
    rates = [bins(pairs.scores) / pairs.sizes[0] ** 2 for pairs in decoys.files]
    assert decoys.expected_counts(bins, sizes) == pytest.approx((rates[0] + rates[1]) / 2 * sizes[0] * sizes[1])
    draws = tuple(np.zeros((1, 2, size)) for size in sizes)
    played = decoys.accepted_counts(bins, sizes, (1.0, 1.0), 0.7, draws)  # everybody takes part
    assert 0 < played.sum() < decoys.expected_counts(bins, sizes).sum()
    assert decoys.accepted_counts(bins, sizes, (1.0, 0.0), 0.7, draws).sum() == 0
    blocked = decoys_of(
        (a, b),
        similar_pairs(a, b, minimum=0.7),
        (np.arange(1, len(a) + 1, dtype=np.uint64)[:, None], np.ones((len(b), 1), dtype=np.uint64)),
    )
    assert len(blocked.files[0]) == 0
    assert len(blocked.files[1]) == len(decoys.files[1])
