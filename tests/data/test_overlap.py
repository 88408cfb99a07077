"""The partitions of the papers: exact counts, disjoint rests, the label book, and owners of two classes."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.data import Parties, PartyTable, datasets, hold_out, label_owners, limited_overlap
from securevfl.data.table import TEST, TRAIN, VALID
from securevfl.errors import InputError, UnknownNameError


def _whole(rows: int, parties: int = 2, classes: int = 3) -> tuple[PartyTable, dict[str, list[str]]]:
    """A table whose every value says its row and its column: 100 · row + column; labels are row mod classes."""
    table = PartyTable(
        name="p0",
        ids=[f"r{row}" for row in range(rows)],
        columns={f"c{i}": 100.0 * np.arange(rows) + i for i in range(2 * parties)},
        label=np.arange(rows) % classes,
        classes=tuple(range(classes)),
        label_name="y",
    )
    return table, {f"p{i}": [f"c{2 * i}", f"c{2 * i + 1}"] for i in range(parties)}


def _rows(table: PartyTable) -> np.ndarray:
    return np.array([int(ref[1:]) for ref in table.ids])


def _check_features(parties: Parties) -> None:
    """What stands beside an identifier is that row's, in every column of every party."""
    for table in parties.values():
        for name, values in table.columns.items():
            np.testing.assert_array_equal(values, 100.0 * _rows(table) + int(name[1:]))


@given(
    rows=st.integers(30, 120),
    parties=st.integers(2, 5),
    overlap=st.one_of(st.floats(0.1, 1), st.integers(2, 15)),
    labels=st.sampled_from(["own", "all"]),
    seed=st.integers(0, 2**32),
)
def test_rows_are_common_held_out_or_of_one_party(
    rows: int, parties: int, overlap: float, labels: str, seed: int
) -> None:
    table, columns = _whole(rows, parties)
    fold = hold_out(rows, valid=0.1, test=0.2, seed=seed)
    found = limited_overlap(table, columns, fold, overlap=overlap, seed=seed, labels=labels)
    train, held_out = set(np.flatnonzero(fold == TRAIN).tolist()), set(np.flatnonzero(fold != TRAIN).tolist())
    count = overlap if overlap > 1 else round(overlap * len(train))

    held = {name: set(_rows(part).tolist()) for name, part in found.items()}
    common = set.intersection(*held.values())
    rest = {name: own - common for name, own in held.items()}
    assert held_out <= common
    assert len(common - held_out) == count
    assert all(not one & two for one, two in combinations(rest.values(), 2))
    assert set.union(*held.values()) == train | held_out
    assert max(map(len, rest.values())) - min(map(len, rest.values())) <= 1
    assert [part.rows for part in found.values()] == [len(own) for own in held.values()]  # no row twice
    _check_features(found)

    active = found.active
    assert active.name == "p0"
    assert active.label is not None
    assert active.fold is not None
    np.testing.assert_array_equal(active.label, _rows(active) % 3)
    np.testing.assert_array_equal(active.fold, fold[_rows(active)])
    for part in found.passive:
        assert (part.label, part.fold, part.book, part.classes, part.label_name) == (None, None, None, (), "")

    others = set.union(*(rest[part.name] for part in found.passive))
    if labels == "own" or not others:
        assert active.book is None
    else:
        assert active.book is not None
        known = [int(ref[1:]) for ref in active.book.ids]
        assert sorted(known) == sorted(others)
        assert active.book.label.tolist() == [row % 3 for row in known]


@given(
    rows=st.integers(40, 900),
    parties=st.integers(2, 4),
    overlap=st.one_of(st.floats(0.2, 1), st.integers(4, 20)),
    labels=st.sampled_from(["own", "all"]),
    seed=st.integers(0, 2**32),
)
def test_validation_inside_the_overlap_takes_nothing_else_away(
    rows: int, parties: int, overlap: float, labels: str, seed: int
) -> None:
    table, columns = _whole(rows, parties)
    fold = hold_out(rows, valid=0.1, test=0.2, seed=seed)

    def made(validation: Literal["beside", "overlap"]) -> tuple[Parties, dict[str, set[int]], set[int]]:
        found = limited_overlap(table, columns, fold, overlap=overlap, seed=seed, labels=labels, validation=validation)
        held = {name: set(_rows(part).tolist()) for name, part in found.items()}
        return found, held, set.intersection(*held.values())

    beside, all_held, common = made("beside")
    inside, held, left = made("overlap")
    before = {kind: set(np.flatnonzero(fold == kind).tolist()) for kind in (TRAIN, VALID, TEST)}
    assert inside.active.fold is not None
    after = {kind: set(_rows(inside.active)[inside.active.fold == kind].tolist()) for kind in (TRAIN, VALID, TEST)}

    assert all(held[name] == all_held[name] - before[VALID] for name in beside)  # nobody lost another row
    assert after[TEST] == before[TEST]
    assert after[TRAIN] | after[VALID] == all_held["p0"] & before[TRAIN]  # the same rows, some of which validate
    aligned = common & before[TRAIN]
    assert after[VALID] < aligned
    assert left == aligned | before[TEST]
    assert len(after[VALID]) == (len(aligned) // 5 if len(aligned) >= 250 else 2)
    books = [
        found.active.book and (found.active.book.ids, found.active.book.label.tolist()) for found in (beside, inside)
    ]
    assert books[0] == books[1]
    _check_features(inside)


def test_parties_have_orders_of_their_own_and_the_seed_decides() -> None:
    table, columns = _whole(200, 3)
    fold = hold_out(200, valid=0.1, test=0.2, seed=0)
    one, same, other = (limited_overlap(table, columns, fold, overlap=0.2, seed=seed) for seed in (1, 1, 2))
    assert all(one[name].ids == same[name].ids for name in one)
    sets = [set.intersection(*(set(part.ids) for part in found.values())) for found in (one, other)]
    assert sets[0] != sets[1]
    orders = [[ref for ref in part.ids if ref in sets[0]] for part in one.values()]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_a_block_column_is_dealt_out_like_the_others() -> None:
    blocks = np.arange(60 * 2 * 3, dtype=np.uint8).reshape(60, 2, 3)
    table, _ = _whole(60)
    table = PartyTable(
        name="p0",
        ids=table.ids,
        columns={"c0": table.columns["c0"], "image": blocks},
        label=table.label,
        classes=(0, 1, 2),
    )
    fold = hold_out(60, valid=0.1, test=0.2, seed=0)
    found = limited_overlap(table, {"p0": ["c0"], "p1": ["image"]}, fold, overlap=0.2, seed=0)
    np.testing.assert_array_equal(found["p1"].columns["image"], blocks[_rows(found["p1"])])


@given(rows=st.integers(10, 200), valid=st.floats(0.1, 0.4), test=st.floats(0.1, 0.4), seed=st.integers(0, 99))
def test_held_out_rows_are_as_many_as_said(rows: int, valid: float, test: float, seed: int) -> None:
    fold = hold_out(rows, valid=valid, test=test, seed=seed)
    assert (fold.dtype, fold.shape) == (np.int8, (rows,))
    assert np.bincount(fold, minlength=3)[[VALID, TEST]].tolist() == [round(rows * valid), round(rows * test)]
    np.testing.assert_array_equal(fold, hold_out(rows, valid=valid, test=test, seed=seed))


@given(st.lists(st.sampled_from("abcdefghijkl"), min_size=40, max_size=80))
def test_groups_are_never_split(groups: list[str]) -> None:
    people = sorted(set(groups))
    if len(people) < 6:
        return
    fold = hold_out(len(groups), valid=0.2, test=0.2, seed=0, groups=np.array(groups))
    kinds = {person: {int(kind) for kind, who in zip(fold, groups, strict=True) if who == person} for person in people}
    assert all(len(found) == 1 for found in kinds.values())
    count = round(0.2 * len(people))
    assert sum(found == {TEST} for found in kinds.values()) == count
    assert sum(found == {VALID} for found in kinds.values()) == count


TABLE_3 = {
    "iid": [None] * 5,
    "1niid": [None, None, None, None, {0, 1}],
    "2niid": [None, None, None, {0, 1}, {2, 3}],
    "3niid": [None, None, {0, 1}, {2, 3}, {4, 5}],
    "4niid": [None, {0, 1}, {2, 3}, {4, 5}, {6, 7}],
}
"""Multi-VFL, arXiv 2106.05468, Table 3: classes of label owners 1 to 5; None: all."""


@pytest.mark.parametrize(("scenario", "expected"), TABLE_3.items())
def test_label_owners_own_the_classes_of_table_3(scenario: str, expected: list[set[int] | None]) -> None:
    table, columns = _whole(4_000, 4, classes=10)
    fold = hold_out(4_000, valid=0.1, test=0.1, seed=0)
    found = label_owners(table, columns, fold, owners=5, rows=300, scenario=scenario, seed=0)
    assert list(found) == ["owner1", "owner2", "owner3", "owner4", "owner5", "p0", "p1", "p2", "p3"]
    assert [part.name for part in found.passive] == ["p0", "p1", "p2", "p3"]
    held_out, seen = set(np.flatnonzero(fold != TRAIN).tolist()), set()
    for number, (owner, classes) in enumerate(zip(found.label_owners, expected, strict=True)):
        rows = _rows(owner)
        assert owner.label is not None
        assert owner.fold is not None
        np.testing.assert_array_equal(owner.label, rows % 10)
        np.testing.assert_array_equal(owner.fold, fold[rows])
        assert (dict(owner.columns), owner.classes, owner.book) == ({}, tuple(range(10)), None)
        train = rows[owner.fold == TRAIN]
        assert len(train) == len(set(train.tolist())) == 300
        assert not seen & set(train.tolist())
        seen |= set(train.tolist())
        assert set(rows[owner.fold != TRAIN].tolist()) == (held_out if number == 0 else set())
        counts = np.bincount(train % 10, minlength=10)
        if classes is None:  # a fair sample: 30 of each class, σ = 5; what the others leave would not be one
            assert (np.abs(counts - 30) < 25).all()
        else:
            assert set(np.flatnonzero(counts).tolist()) == classes
    for part in found.passive:
        assert set(_rows(part).tolist()) == seen | held_out
        assert part.rows == len(seen | held_out)
        assert (part.label, part.fold, part.classes) == (None, None, ())
    orders = [part.ids for part in found.passive]
    assert all(one != two for one, two in combinations(orders, 2))
    _check_features(found)


def test_label_owners_leave_no_single_active_party() -> None:
    table, columns = _whole(100)
    found = label_owners(table, columns, hold_out(100, valid=0.1, test=0.1, seed=0), owners=2, rows=20)
    with pytest.raises(InputError, match="owner1, owner2 own labels, but exactly one may"):
        _ = found.active
    one = label_owners(table, columns, hold_out(100, valid=0.1, test=0.1, seed=0), owners=1, rows=20)
    assert one.active.name == "owner1"


def test_owners_of_labels_number_their_classes_alike() -> None:
    def owner(name: str, classes: tuple[int, ...]) -> PartyTable:
        return PartyTable(name=name, ids=[name, "x"], columns={}, label=np.array([0, 1]), classes=classes)

    data = PartyTable(name="d", ids=["x"], columns={"c": np.zeros(1)})
    assert len(Parties.of(owner("a", (0, 1, 2)), owner("b", (0, 1, 2)), data).label_owners) == 2
    with pytest.raises(InputError, match=r"'a' has classes \[0, 1\] and 'b' \[2, 3\]; give each of them the same"):
        Parties.of(owner("a", (0, 1)), owner("b", (2, 3)), data)


FOLD = hold_out(100, valid=0.1, test=0.2, seed=0)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"overlap": 0}, "overlap is 0; give a share"),
        ({"overlap": -0.5}, "overlap is -0.5"),
        ({"overlap": 1.5}, "overlap is 1.5; give a share, more than 0 and at most 1, or a whole count from 2"),
        ({"overlap": True}, "overlap is True"),
        ({"overlap": "half"}, "overlap is 'half'"),
        ({"overlap": float("nan")}, "overlap is nan"),
        ({"overlap": float("inf")}, "overlap is inf"),
        ({"overlap": 71}, "selects 71 of 70 training rows"),
        ({"overlap": 0.02}, "selects 1 of 70 training rows"),
        ({"labels": "some"}, "labels is 'some'; expected 'own' or 'all'"),
        ({"validation": "within"}, "validation is 'within'; expected 'beside' or 'overlap'"),
        (
            {"overlap": 3, "validation": "overlap"},
            "of 3 common training rows, 2 would validate and 1 would be left to train",
        ),
        ({"seed": -1}, "seed is -1; a whole number from 0"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"columns": {"p1": ["c2"]}}, "'p0' must own the labels and some of the columns"),
        ({"columns": {"p0": ["c0"]}}, "the only party; give columns to at least one more"),
        ({"columns": {"p0": [], "p1": ["c2"]}}, r"party 'p0' gets \[\]; give it a list"),
        ({"columns": {"p0": ["c0"], "p1": "c2"}}, "party 'p1' gets 'c2'; give it a list"),
        ({"columns": {"p0": ["c0"], "p1": ["c9"]}}, "unknown column of 'p0': 'c9'"),
        ({"fold": FOLD[:99]}, r"fold has shape \(99,\); give one value for each of 100 rows"),
        ({"fold": FOLD + 1}, "fold contains int8 3; expected 0 .trains., 1 .validates. or 2 .tests."),
        ({"fold": FOLD - 1}, "fold contains int8 -1"),
        ({"fold": FOLD == TEST}, "fold contains bool"),
        ({"fold": np.full(100, TEST)}, "of 0 training rows"),
    ],
)
def test_a_limited_overlap_out_of_range_is_refused(changes: dict[str, Any], match: str) -> None:
    table, columns = _whole(100)
    options: dict[str, Any] = {"columns": columns, "fold": FOLD, "overlap": 0.5, "seed": 0} | changes
    with pytest.raises(InputError, match=match):
        limited_overlap(table, **options)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"owners": 0}, "owners is 0; a whole number from 1"),
        ({"owners": "five"}, "owners is 'five'"),
        ({"rows": 0}, "rows is 0; a whole number from 1"),
        ({"rows": -5}, "rows is -5"),
        ({"rows": True}, "rows is True"),
        ({"scenario": "5niid"}, "scenario is '5niid'; one of iid, 1niid"),
        ({"scenario": ["iid"]}, "one of iid, 1niid"),
        ({"scenario": "2niid", "owners": 2}, "more than 2 label owners and 4 classes; there are 2 and 3"),
        ({"scenario": "2niid"}, "4 classes; there are 3 and 3"),
        ({"rows": 24}, "3 label owners want 24 rows of all classes each, and 70 are left; give fewer"),
        ({"scenario": "1niid", "rows": 60}, "needs 60 rows of classes 0 and 1, and there are 4[0-9]; give it fewer"),
        ({"columns": {}}, "names no data owner"),
        ({"columns": {"p0": []}}, r"party 'p0' gets \[\]"),
        ({"columns": {"owner1": ["c0"]}}, "two parties are named 'owner1'"),
        ({"fold": FOLD[:5]}, r"fold has shape \(5,\)"),
        ({"seed": "0"}, "seed is '0'"),
    ],
)
def test_label_owners_out_of_range_are_refused(changes: dict[str, Any], match: str) -> None:
    table, columns = _whole(100)
    options: dict[str, Any] = {"columns": columns, "fold": FOLD, "owners": 3, "rows": 10, "seed": 0} | changes
    with pytest.raises(InputError, match=match):
        label_owners(table, **options)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"valid": 0}, "valid is 0 and test is 0.2; both and their sum must lie between 0 and 1"),
        ({"test": 1.0}, "test is 1.0"),
        ({"valid": 0.5, "test": 0.5}, "both and their sum must lie between"),
        ({"valid": "0.1"}, "valid is '0.1'"),
        ({"valid": float("nan")}, "valid is nan"),
        ({"rows": 2}, "rows is 2; a whole number from 3"),
        ({"rows": 4}, "4 rows or groups are too few to hold out 10% and 20%"),
        ({"rows": 50, "groups": np.arange(49)}, r"groups have shape \(49,\) for 50 rows"),
        ({"rows": 50, "groups": np.arange(50) % 2}, "2 rows or groups are too few"),
    ],
)
def test_shares_held_out_are_checked(changes: dict[str, Any], match: str) -> None:
    options: dict[str, Any] = {"rows": 100, "valid": 0.1, "test": 0.2, "seed": 0} | changes
    with pytest.raises(InputError, match=match):
        hold_out(options.pop("rows"), **options)


def test_a_table_without_labels_has_none_to_give() -> None:
    table = PartyTable(name="p0", ids=["a", "b"], columns={"c0": np.zeros(2)})
    with pytest.raises(InputError, match="'p0' has no labels to give"):
        label_owners(table, {"p0": ["c0"]}, np.zeros(2, dtype=np.int8))
    with pytest.raises(InputError, match="'p0' must own the labels"):
        limited_overlap(table, {"p0": ["c0"]}, np.zeros(2, dtype=np.int8), overlap=1.0, seed=0)


def test_limited_credit_is_the_credit_table_dealt_out_anew() -> None:
    whole = datasets.default_credit(overlap=1.0)
    parties = datasets.limited_credit(overlap=0.05, seed=3, rows=2_000, labels="all")
    assert [part.name for part in parties.values()] == ["bank", "network", "retailer"]
    common = set.intersection(*(set(part.ids) for part in parties.values()))
    assert len(common) == 70 + 200 + 400
    place = {name: {ref: row for row, ref in enumerate(part.ids)} for name, part in whole.items()}
    for name, part in parties.items():
        at = [place[name][ref] for ref in part.ids]
        for column, values in part.columns.items():
            np.testing.assert_array_equal(values, whole[name].columns[column][at])
    active, label = parties.active, whole.active.label
    assert active.label is not None
    assert active.book is not None
    assert label is not None
    np.testing.assert_array_equal(active.label, label[[place["bank"][ref] for ref in active.ids]])
    np.testing.assert_array_equal(active.book.label, label[[place["bank"][ref] for ref in active.book.ids]])
    assert active.rows + len(active.book.ids) == 2_000


def test_limited_credit_among_two_joins_network_and_retailer() -> None:
    three, two = (datasets.limited_credit(rows=500, parties=n) for n in (3, 2))
    assert list(two) == ["bank", "network"]
    assert two["network"].feature_names == (*three["network"].feature_names, *three["retailer"].feature_names)
    with pytest.raises(InputError, match="parties is 4; the table is split among 2 or 3"):
        datasets.limited_credit(parties=4)
    with pytest.raises(UnknownNameError, match="did you mean 'parties'"):
        datasets.load("limited_credit", partys=2)


def test_the_label_can_be_on_the_side_that_knows_more() -> None:
    bank, network = (datasets.limited_credit(rows=500, parties=2, active=name) for name in ("bank", "network"))
    assert network.active.name == "network"
    assert [part.name for part in network.values() if part.label is not None] == ["network"]
    assert network.active.feature_names == bank["network"].feature_names
    labels = dict(zip(bank.active.ids, bank.active.label, strict=True))
    assert all(
        labels.get(ref, label) == label for ref, label in zip(network.active.ids, network.active.label, strict=True)
    )
    with pytest.raises(InputError, match="active is 'retailer'; give bank or network"):
        datasets.limited_credit(rows=500, parties=2, active="retailer")
    with pytest.raises(InputError, match="active is 'nurse'; give clinic or lab"):
        datasets.parkinson(active="nurse")


def test_alone_leaves_the_active_party_with_its_rows() -> None:
    both = datasets.load("limited_credit", rows=500, parties=2)
    alone = datasets.load("limited_credit", rows=500, parties=2, alone=True)
    assert list(alone) == ["bank"]
    assert alone.active.ids == both.active.ids
    np.testing.assert_array_equal(alone.active.fold, both.active.fold)
    assert list(datasets.load("limited_credit", rows=500, parties=2, alone=False)) == ["bank", "network"]
    assert datasets.find_mistakes("digits", {"alone": True}) == []
    assert "data.alone" in datasets.find_mistakes("digits", {"alone": "yes"})[0]


def test_digits_reassemble_from_their_halves() -> None:
    from sklearn.datasets import load_digits

    source = load_digits()
    parties = datasets.load("digits", overlap=0.1, seed=5)
    left, right = parties["left"], parties["right"]
    place = {ref: row for row, ref in enumerate(right.ids)}
    both = [(row, place[ref]) for row, ref in enumerate(left.ids) if ref in place]
    assert len(both) == round(0.1 * (1_797 - 180 - 359)) + 180 + 359
    for one, two in both:
        number = int(left.ids[one].removeprefix("digit-"))
        image = np.concatenate([left.columns["left"][one], right.columns["right"][two]], axis=1)
        np.testing.assert_array_equal(image, source.images[number])
        assert left.label is not None
        assert left.label[one] == source.target[number]
