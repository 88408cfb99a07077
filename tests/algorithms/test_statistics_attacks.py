"""What an active party that follows the protocol can compute from exact statistics: single values, withheld counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl.algorithms.statistics.columns import OwnColumns, coarsen, cut_columns
from securevfl.algorithms.statistics.figures import ColumnNames
from securevfl.report.column_statistics import StatisticsRecord
from securevfl.training.crossing import CrossPlan, PartyLayout

ROWS, LEAST = 240, 20
GENERATOR = np.random.default_rng(3)
LABEL = np.tile([0, 1], ROWS // 2)
IDS = [f"c{place}" for place in range(ROWS)]


def describe(
    bank: dict[str, np.ndarray], shop: dict[str, np.ndarray], protection: sv.Protection, **given: object
) -> StatisticsRecord:
    label = {"label": LABEL, "classes": (0, 1), "label_name": "late"}
    parties = sv.Parties.of(
        sv.PartyTable(name="bank", ids=IDS, columns=bank, preparation=sv.Preparation(), **label),
        sv.PartyTable(name="shop", ids=IDS, columns=shop, preparation=sv.Preparation()),
    )
    job = sv.Job(algorithm=sv.Statistics(**given), protection=protection, epochs=1, seed=1)
    found = sv.simulate(job, parties, observer=sv.Observer()).record.runs[-1].statistics
    assert found is not None
    return found


def numbers(count: int) -> dict[str, np.ndarray]:
    return {f"q{place}": GENERATOR.normal(size=ROWS) for place in range(count)}


def test_many_columns_cannot_be_solved_for_the_values_of_rows() -> None:
    """With as many columns as rows, all of which pass the owner's check, least squares read a column with R² 0.999."""
    shop = {"spent": GENERATOR.normal(size=ROWS)}
    with pytest.raises(sv.InputError, match=r"offers 13 columns.*each needs 20 rows.*all 260.*Leave columns"):
        describe(numbers(12), shop, sv.Shares(computing=2))
    bank = numbers(11)
    found = describe(bank, shop, sv.Shares(computing=2), vif=False)
    scores = np.stack([(one - one.mean()) / one.std() for one in (*bank.values(), LABEL.astype(float))], axis=1)
    sums = np.array(found.correlations[-1][:-1], dtype=float) * ROWS
    guess = np.linalg.lstsq(scores.T, sums, rcond=None)[0]
    true = (shop["spent"] - shop["spent"].mean()) / shop["spent"].std()
    assert 1 - np.square(guess - true).mean() < 3 / LEAST


def test_a_far_value_does_not_single_out_its_row() -> None:
    """The share of a column's squares is the R² with which its correlations read the row's values elsewhere."""
    far = GENERATOR.normal(size=ROWS)
    far[7] = 1e9
    others = GENERATOR.normal(size=(ROWS, 400))
    others = (others - others.mean(axis=0)) / others.std(axis=0)
    (one,) = cut_columns(["far"], [0], {}, far[:, None], bins=10, least=LEAST)
    assert one.scores is not None
    read = one.scores @ others / one.scores[7]
    assert 1 - np.square(read - others[7]).mean() < 0.2  # 0.99 with the value itself
    assert one.pulled_in == 1
    assert np.square(one.scores).mean() == pytest.approx(1.0)
    usual = np.exp(GENERATOR.normal(size=ROWS) / 2)
    (kept,) = cut_columns(["usual"], [0], {}, usual[:, None], bins=10, least=LEAST)
    assert kept.pulled_in == 0
    assert kept.mean == pytest.approx(usual.mean())
    assert kept.deviation == pytest.approx(usual.std())


def test_withheld_counts_do_not_follow_from_means_and_the_label() -> None:
    """Of a column of two values, sums of values and squares over a class solve for the rows that have each value."""
    flag = np.zeros(ROWS)
    flag[np.flatnonzero(LABEL == 1)[:8]] = 1.0
    flag[np.flatnonzero(LABEL == 0)[:60]] = 1.0
    often = np.where(GENERATOR.random(ROWS) < 0.5, 1.0, 0.0)
    shop = {"flag": flag, "often": often}
    shown = [describe(numbers(2), shop, one) for one in (sv.Plain(), sv.Shares(computing=2))]
    for found in shown:
        columns = {one.column: one for one in found.columns}
        one = columns["flag"]
        assert not one.bins
        assert (one.means, one.deviations, one.with_label) == (None, None, None)
        assert "one value" in one.withheld
        label = found.names.index("(label)")
        assert found.correlations[label][found.names.index("shop.flag")] is None
        assert columns["often"].means is not None
        assert columns["often"].with_label == pytest.approx(np.corrcoef(LABEL, often)[0, 1], abs=2e-3)
        assert one.vif is not None


@pytest.mark.parametrize("computing", [2, ("bank", "shop", "notary")], ids=["two", "three"])
def test_counts_are_released_from_the_least_on(computing: object) -> None:
    """20 rows of a class with a value are told on shares, 19 are not."""
    flags = {}
    for name, rows in (("enough", LEAST), ("short", LEAST - 1)):
        flags[name] = np.zeros(ROWS)
        flags[name][np.flatnonzero(LABEL == 1)[:rows]] = 1.0
        flags[name][np.flatnonzero(LABEL == 0)[:60]] = 1.0
    found = describe(numbers(1), flags, sv.Shares(computing=computing), vif=False)
    columns = {one.column: one for one in found.columns}
    assert [(part.rows, part.events) for part in columns["enough"].bins] == [(160, 100), (80, 20)]
    assert columns["enough"].means is not None
    assert (columns["short"].bins, columns["short"].means) == ([], None)


def test_counts_of_a_bin_do_not_follow_from_those_of_missing_values() -> None:
    """Means tell how many values are missing in each class; less these, a bin of the last values and of missing ones
    told that three rows of a class had such a value."""
    levels = coarsen(3, missing=True, ordered=True)
    values = {"scores": 1, "means": (True,), "bins": (levels,)}
    sums = [[0, 0, 0, 0, 0, 0, 0, 0], [100, 0, 0, 70, 30, 37, 3, 30], [100, 0, 0, 70, 30, 20, 20, 30]]

    def shown(**more: object) -> list[object]:
        layout = PartyLayout(**values, **more)  # type: ignore[arg-type]
        plan = CrossPlan(rows=200, classes=2, layouts=(PartyLayout(scores=1), layout), least=5)
        blocks = plan.release.read_blocks(plan.release_in_clear(np.array(sums).reshape(-1)))
        return [name for name, block in blocks.items() if block.any() and name[0] != "scores"]

    places = {level: place for place, level in enumerate(levels)}
    assert shown() == [("means", 1, 0), ("bins", 1, 0, places[0, 1, 2, 2])]
    assert shown(missing=(True,)) == [("means", 1, 0), ("bins", 1, 0, places[0, 1, 1, 2])]


def test_a_small_count_is_not_told_in_words() -> None:
    """Why a column was left out does not depend on how many rows are alone."""
    told = []
    for alone in (0, 1, 2):
        values = np.zeros(ROWS)
        values[:alone] = 1.0
        columns = OwnColumns(cut_columns(["ill"], [0], {}, values[:, None], bins=10, least=LEAST))
        told.append(ColumnNames.of(columns).encode())
    assert len(set(told)) == 1
    codes = (np.arange(ROWS) == 5).astype(float)
    (town,) = cut_columns(["town"], [2], {"town": ("north", "south")}, codes[:, None], bins=10, least=LEAST)
    assert "another level" in ColumnNames.of(OwnColumns([town])).left_out["town"]


def test_a_layout_of_two_values_is_checked() -> None:
    bins = (((0, 1),), ((0, 1, 2, 3),))
    good = PartyLayout(scores=2, means=(False, False), bins=bins, twofold=(0, -1))
    assert not good.find_problem()
    for twofold in ((0,), (1, -1), (2, -1), (-2, 0)):
        assert "two" in PartyLayout(scores=2, means=(False, False), bins=bins, twofold=twofold).find_problem()


def test_a_release_counts_as_all_its_numbers() -> None:
    """Whoever opens more sums than there are rows gets more than one number of each."""
    bins = tuple([(tuple(range(5)),)] * 30)
    shop = PartyLayout(scores=30, means=(False,) * 30, bins=bins)
    plan = CrossPlan(rows=400, classes=2, layouts=(PartyLayout(scores=10), shop), least=20)
    sums = 30 * 10 + 2 * (3 * 30 + 30 * 5)
    assert sums == 780
    assert plan.count_numbers(1, own=False) == 2
    assert plan.count_numbers(1, own=True) == 4


@pytest.mark.parametrize(("protection", "words"), [("shares", "rows, count as 3 numbers"), ("plain", "40 numbers")])
def test_the_result_book_refuses_what_opens_more_than_it_allows(protection: str, words: str) -> None:
    """On shares all opened sums count, divided by the rows; in the clear the active party reads whole rows."""
    policies = {"shop": sv.Policy(max_results=2)}
    given = sv.Shares(computing=2) if protection == "shares" else sv.Plain()
    label = {"label": LABEL, "classes": (0, 1), "label_name": "late"}
    parties = sv.Parties.of(
        sv.PartyTable(name="bank", ids=IDS, columns=numbers(2), preparation=sv.Preparation(), **label),
        sv.PartyTable(name="shop", ids=IDS, columns=numbers(40), preparation=sv.Preparation()),
    )
    job = sv.Job(algorithm=sv.Statistics(bins=2, vif=False), protection=given, epochs=1, seed=1, policies=policies)
    with pytest.raises(sv.PolicyError, match=words):
        sv.simulate(job, parties, observer=sv.Observer())


def test_the_result_book_counts_all_numbers_of_a_release(tmp_path: Path) -> None:
    """A release of three numbers of each row leaves two of five, and no second one."""
    policies = {"shop": sv.Policy(max_results=5)}
    label = {"label": LABEL, "classes": (0, 1), "label_name": "late"}
    parties = sv.Parties.of(
        sv.PartyTable(name="bank", ids=IDS, columns=numbers(2), preparation=sv.Preparation(), **label),
        sv.PartyTable(name="shop", ids=IDS, columns=numbers(40), preparation=sv.Preparation()),
    )
    job = sv.Job(
        algorithm=sv.Statistics(bins=2, vif=False), protection=sv.Shares(computing=2), epochs=1, seed=1,
        policies=policies,
    )  # fmt: skip
    sv.simulate(job, parties, observer=sv.Observer(), results=tmp_path)
    with pytest.raises(sv.PolicyError, match="max_results = 5"):
        sv.simulate(job, parties, observer=sv.Observer(), results=tmp_path)
