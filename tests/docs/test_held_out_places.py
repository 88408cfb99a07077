"""Places that the rule for few common rows was not found on: both sides, the same rows for all, the ratio of tests."""

from __future__ import annotations

import numpy as np
import pytest
import sweep_sentences
from sweep_pages import DOCS
from sweep_places import RULE, Compared, compare_places

from benchmarks.held_out_places import FILE, METHODS, OVERLAPS, TEST, list_cells, load_place, measure_cell
from securevfl.data.table import TEST as TESTED
from securevfl.data.table import TRAIN, VALID
from securevfl.report import SweepRecord
from securevfl.report.sweep_record import Rows


@pytest.mark.parametrize("other", [False, True])
def test_either_party_has_the_labels_and_few_rows_are_common(other: bool) -> None:
    parties = load_place("breast cancer", other=other, overlap=0.2, seed=3)
    chief = parties.active
    assert (chief.name, len(parties)) == ("second" if other else "first", 2)
    (passive,) = (table for table in parties.values() if table.name != chief.name)
    common = set(chief.ids) & set(passive.ids)
    assert chief.fold is not None
    kinds = {
        kind: {one for one, f in zip(chief.ids, chief.fold, strict=True) if f == kind}
        for kind in (TRAIN, VALID, TESTED)
    }
    assert len(kinds[TESTED]) == round(569 * TEST)
    assert kinds[TESTED] | kinds[VALID] <= common
    train = 569 - round(569 * TEST) - round(569 * 0.1)
    assert len(common - kinds[TESTED]) == round(0.2 * train)
    alone = load_place("breast cancer", other=other, overlap=0.2, seed=3, alone=True)
    assert alone.active.ids == chief.ids
    assert np.array_equal(alone.active.fold, chief.fold)


def test_every_method_has_the_same_places_and_images_no_members_that_are_trees() -> None:
    cells = list_cells()
    for method in METHODS:
        places = {(cell.data, cell.x) for cell in cells if cell.method == method}
        assert len(places) == (20 if method == "best with trees" else 24)
    assert {cell.x for cell in cells} == set(OVERLAPS)
    assert {cell.seed for cell in cells} == set(range(5))
    assert all("scale" not in cell.job for cell in cells)


def test_a_cell_has_the_ratio_of_its_split() -> None:
    cell = next(c for c in list_cells() if c.data == "Breast cancer" and c.method == "boosting alone")
    found = measure_cell(cell)
    assert found.test_ratio == pytest.approx(TEST / (1 - TEST))  # type: ignore[union-attr]
    assert 0.8 < found.value <= 1.0  # type: ignore[union-attr]


def test_places_are_counted_by_overlap() -> None:
    gaps = {("a", 0.01): 0.02, ("b", 0.01): 0.01, ("a", 0.2): 0.0}
    assert sweep_sentences._count_near(Compared(gaps, {}, 1.0)) == "1 of 2 at 1 %, 1 of 1 at 20 %"


@pytest.mark.parametrize("rows", ["common", "alone"])
def test_the_page_may_say_how_often_the_rule_is_near_the_first(rows: Rows) -> None:
    rule = compare_places(SweepRecord.read(FILE), rows)[RULE]
    assert (rule.near, len(rule.gaps)) == ({"common": 22, "alone": 24}[rows], 24)
    page = (DOCS / "few-rows.md").read_text("utf-8").replace("\n", " ")
    assert "it is near the highest mean in 22 of 24 places" in page
    assert "are ahead by 1.4 and 2.1 points" in page
