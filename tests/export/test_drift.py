"""Drift: the stability index by hand, what chance alone gives, and what a part of a model keeps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from securevfl.data import FeatureEncoder, PartyTable
from securevfl.errors import InputError
from securevfl.export.drift import ColumnCounts, count_columns, count_scores, measure_drift, stability_index
from securevfl.run.drifting import NO_COUNTS, column_drift, describe_drift, score_drift


def test_the_index_is_that_of_the_formula() -> None:
    expected, actual = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
    by_hand = (0.4 - 0.5) * np.log(0.4 / 0.5) + (0.4 - 0.3) * np.log(0.4 / 0.3)
    assert stability_index(expected, actual) == pytest.approx(by_hand)
    assert stability_index([1.0, 0.0], [0.0, 1.0]) == pytest.approx(2 * 0.9999 * np.log(10_000))


def test_numbers_fall_into_deciles_and_gaps_into_a_bin_of_their_own() -> None:
    values = np.append(np.arange(100.0), [np.nan] * 25)
    kept = ColumnCounts.fit(values)
    assert len(kept.edges) == 9
    assert kept.counts == (*[10] * 10, 25)
    assert ColumnCounts.from_state(kept.state()) == kept
    found = measure_drift("age", kept, np.full(200, np.nan))
    assert (found.missing_before, found.missing_now) == (0.2, 1.0)
    assert found.level == "major"
    assert measure_drift("age", kept, values).psi == 0


def test_categories_are_counted_by_level_and_new_ones_together() -> None:
    kept = ColumnCounts.fit(np.array(["b", "a", "b", "", "b"], dtype=object))
    assert kept.levels == ("b", "a")
    assert kept.counts == (3, 1, 0, 1)
    assert kept.count(np.array(["new", "a", "", "other"], dtype=object)).tolist() == [0, 1, 2, 1]


def test_a_column_of_one_value_and_an_empty_one() -> None:
    same, empty = ColumnCounts.fit(np.ones(50)), ColumnCounts.fit(np.full(50, np.nan))
    assert measure_drift("x", same, np.ones(50)).psi == 0
    assert measure_drift("x", same, np.full(50, 2.0)).level == "major"
    assert measure_drift("x", empty, np.ones(50)).level == "major"
    with pytest.raises(InputError, match="column 'x' has 0 new rows and 50 rows of training"):
        measure_drift("x", same, np.empty(0))


def test_few_rows_drift_by_chance_and_are_not_blamed() -> None:
    draw = np.random.default_rng(1)
    kept = ColumnCounts.fit(draw.normal(size=5_000))
    found = [measure_drift("x", kept, draw.normal(size=60)) for _ in range(300)]
    assert sum(one.psi > 0.1 for one in found) > 150  # the usual threshold alone would blame more than half
    assert sum(one.level != "stable" for one in found) <= 9
    assert found[0].chance == pytest.approx(chi2.ppf(0.999, 9) * (1 / 60 + 1 / 5_000))
    assert measure_drift("x", kept, draw.normal(1.5, size=60)).level == "major"
    assert measure_drift("x", kept, draw.normal(0.4, size=5_000)).level == "moderate"


@pytest.mark.parametrize(
    "change", [{"counts": [1, 2]}, {"edges": [2.0, 1.0]}, {"counts": "x"}, {"counts": [-1, 1, 1, 1]}, {"edges": None}]
)
def test_damaged_counts_are_refused(change: dict[str, object]) -> None:
    state = {"edges": [1.0, 2.0], "levels": [], "counts": [1, 1, 1, 1]}
    ColumnCounts.from_state(state)
    with pytest.raises(InputError, match="counts of a column at training are damaged"):
        ColumnCounts.from_state(state | change)


def test_a_line_names_what_moved() -> None:
    draw = np.random.default_rng(0)
    columns = {f"c{i}": draw.normal(size=400) for i in range(6)}
    table = PartyTable(name="bank", ids=[str(i) for i in range(400)], columns=columns)
    encoder = FeatureEncoder.fit(table, np.arange(400))
    part = {"encoder": encoder.state(), "training counts": count_columns(columns)}
    moved = {name: values + 3 * (i < 5) for i, (name, values) in enumerate(columns.items())}
    later = PartyTable(name="bank", ids=table.ids, columns=moved)
    found = column_drift(part, later)
    assert found is not None
    assert [one.level for one in found] == ["major"] * 5 + ["stable"]
    line = describe_drift("bank", found)
    assert line.startswith("bank: 5 of 6 columns drifted: c")
    assert line.endswith(" and 1 more")
    assert column_drift({"encoder": encoder.state()}, later) is None
    assert describe_drift("bank", None) == f"bank: {NO_COUNTS}"


def test_scores_drift_at_the_active_party() -> None:
    scores = np.random.default_rng(0).random((500, 1))
    part = {"score counts": count_scores(np.hstack([1 - scores, scores]))}
    same, moved = (np.hstack([1 - one, one]) for one in (scores, scores**3))
    stable, far = score_drift(part, same), score_drift(part, moved)
    assert stable is not None
    assert far is not None
    assert stable.psi == 0
    assert far.level == "major"
    assert describe_drift("bank", [], far) == f"bank: 0 of 0 columns drifted; scores PSI {far.psi:.2f}, major"
    assert score_drift({}, same) is None
    assert score_drift(part, same[:0]) is None
