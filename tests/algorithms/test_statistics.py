"""Statistics before a model: what is opened, beside numpy on the pooled table; what is withheld; what noise does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import securevfl as sv
from securevfl.algorithms.statistics.columns import ONE, OwnColumns, coarsen, cut_columns, encode_scores
from securevfl.algorithms.statistics.figures import inflation_factors
from securevfl.algorithms.statistics.roles import StatisticsActive
from securevfl.privacy.gaussian_dp import epsilon_at
from securevfl.privacy.statistics_budget import StatisticsBudget
from securevfl.report.column_statistics import StatisticsRecord
from securevfl.shares.crossing.computing import draw_noise
from securevfl.shares.crossing.of_two import join_limbs, split_limbs
from securevfl.training.crossing import CrossPlan, PartyLayout

ROWS = 700
PREPARED = sv.Preparation()
GENERATOR = np.random.default_rng(5)


def _columns() -> dict[str, dict[str, np.ndarray]]:
    base = GENERATOR.normal(size=ROWS)
    heavy = np.exp((GENERATOR.normal(size=ROWS) * 1.5 + base) / 3)
    gaps = 3 * base + GENERATOR.normal(size=ROWS)
    gaps[GENERATOR.random(ROWS) < 0.3] = np.nan
    few = GENERATOR.normal(size=ROWS)
    few[:5] = np.nan
    alone = np.zeros(ROWS)
    alone[3] = 1.0
    town = np.array(["north", "south", "east"], dtype=object)[(base > 0.5).astype(int) + (GENERATOR.random(ROWS) < 0.2)]
    return {
        "bank": {
            "income": 1e4 + 2e3 * base + 1e3 * GENERATOR.normal(size=ROWS),
            "age": GENERATOR.integers(20, 70, ROWS),
        },
        "shop": {"spent": heavy, "gaps": gaps, "few": few, "alone": alone, "town": town},
        "phone": {"calls": np.rint(5 + 2 * base + GENERATOR.normal(size=ROWS))},
    }


COLUMNS = _columns()
LABEL = (COLUMNS["bank"]["income"] + 2e3 * GENERATOR.normal(size=ROWS) < 9e3).astype(int)


def tables(*names: str, rows: np.ndarray | None = None) -> sv.Parties:
    """The parties' tables, with these rows."""
    kept = np.arange(ROWS) if rows is None else rows
    ids = [f"c{place}" for place in kept]
    made = []
    for name in names:
        columns = {
            column: values[kept] if values.dtype == object else values[kept].astype(float)
            for column, values in COLUMNS[name].items()
        }
        label = {"label": LABEL[kept], "classes": (0, 1), "label_name": "late"} if name == "bank" else {}
        kind = frozenset({"town"} & set(columns))
        made.append(sv.PartyTable(name=name, ids=ids, columns=columns, categorical=kind, preparation=PREPARED, **label))
    return sv.Parties.of(*made)


def run(parties: sv.Parties, protection: sv.Protection, **given: object) -> StatisticsRecord:
    job = sv.Job(algorithm=sv.Statistics(**given), protection=protection, epochs=1, seed=1)
    found = sv.simulate(job, parties, observer=sv.Observer()).record.runs[-1].statistics
    assert found is not None
    return found


THREE = ("bank", "shop", "phone")


OPENED: dict[str, tuple[CrossPlan, np.ndarray]] = {}
"""Run → what was opened."""


@pytest.fixture(scope="module")
def found() -> dict[str, StatisticsRecord]:
    """Of the same rows: in the clear, on shares of three, of two, of two with a helper or a third that computes; and
    within ε."""
    taken, last = StatisticsActive.take_sums, []

    def take(role: StatisticsActive, opened: np.ndarray) -> None:
        last[:] = [(role.cross, opened)]
        taken(role, opened)

    noisy = sv.DP(model=sv.Gaussian(epsilon=20.0, delta=1e-5))
    three, two = tables(*THREE), tables("bank", "shop")
    asked = {
        "clear": (three, sv.Plain()),
        "three": (three, sv.Shares()),
        "clear two": (two, sv.Plain()),
        "two": (two, sv.Shares(computing=2)),
        "helper": (two, sv.Shares(computing=2, helper="notary")),
        "outsider": (two, sv.Shares(computing=("bank", "shop", "notary"))),
        "noisy": (three, sv.Shares(dp=noisy)),
    }
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatisticsActive, "take_sums", take)
        for name, (parties, protection) in asked.items():
            made[name] = run(parties, protection)
            OPENED[name] = last[0]
    return made


def filled(name: str) -> np.ndarray:
    """A column by ``"party.column"``, missing values at the mean, standardised."""
    party, _, column = name.partition(".")
    values = LABEL.astype(float) if name == "(label)" else COLUMNS[party][column].astype(float)
    values = np.where(np.isnan(values), np.nanmean(values), values)
    return (values - values.mean()) / values.std()


def test_correlations_and_inflation_are_those_of_the_pooled_table(found: Mapping[str, StatisticsRecord]) -> None:
    clear = found["clear"]
    pooled = np.stack([filled(name) for name in clear.names])
    wanted = np.corrcoef(pooled)
    assert sorted(clear.names) == sorted(
        ["bank.income", "bank.age", "(label)", "shop.spent", "shop.gaps", "shop.few", "phone.calls"]
    )
    assert np.abs(np.array(clear.correlations, dtype=float) - wanted).max() < 6e-4  # own blocks are told in thousandths
    kept = [place for place, name in enumerate(clear.names) if name != "(label)"]
    exact = np.diag(np.linalg.inv(wanted[np.ix_(kept, kept)]))
    shown = {f"{one.party}.{one.column}": one.vif for one in clear.columns}
    for place, factor in zip(kept, exact, strict=True):
        assert shown[clear.names[place]] == pytest.approx(factor, rel=0.02)


def test_weights_of_evidence_are_those_of_pandas(found: Mapping[str, StatisticsRecord]) -> None:
    """Counts of the label in the bins that the owner knows; information values from them."""
    import pandas as pd

    events, others = LABEL.sum(), ROWS - LABEL.sum()
    checked = 0
    for one in found["three"].columns:
        if one.kind != "numbers" or not one.bins:
            continue
        values = pd.Series(COLUMNS[one.party][one.column].astype(float))
        total = 0.0
        for part in one.bins:
            words = part.bin.removesuffix(", missing")
            low, _, high = words.partition(" to ")
            inside = values.isna() if "missing" in part.bin else pd.Series(False, index=values.index)
            if words != "missing":
                margin = 1e-5 * max(abs(float(low)), abs(float(high or low)))
                inside |= values.between(float(low) - margin, float(high or low) + margin)
            assert part.rows == inside.sum()
            assert part.events == LABEL[inside.to_numpy()].sum()
            assert one.party == "bank" or min(part.events, part.rows - part.events) >= 20
            n = part.rows - part.events
            woe = math.log((part.events + 0.5) / (n + 0.5)) - math.log((events + 0.5) / (others + 0.5))
            assert part.woe == pytest.approx(woe)
            total += (part.events / events - n / others) * woe
        assert sum(part.rows for part in one.bins) == ROWS
        assert one.iv == pytest.approx(total)
        checked += 1
    assert checked >= 4


def test_means_by_class_are_those_of_numpy(found: Mapping[str, StatisticsRecord]) -> None:
    for one in found["three"].columns:
        if one.means is None or one.deviations is None:
            continue
        values = COLUMNS[one.party][one.column].astype(float)
        assert one.mean is not None
        assert one.deviation is not None
        for k in (0, 1):
            part = values[(k == LABEL) & ~np.isnan(values)]
            assert one.mean + one.deviation * float(one.means[k] or 0) == pytest.approx(part.mean(), rel=1e-3)
            assert one.deviation * float(one.deviations[k] or 0) == pytest.approx(part.std(), rel=1e-2)


@pytest.mark.parametrize(
    ("shares", "clear"),
    [("three", "clear"), ("two", "clear two"), ("helper", "clear two"), ("outsider", "clear two")],
)
def test_shares_open_what_a_run_in_the_clear_shows(
    shares: str, clear: str, found: Mapping[str, StatisticsRecord]
) -> None:
    """Bins and counts exactly; correlations as rounded."""
    one, other = found[shares], found[clear]
    assert one.names == other.names
    gap = np.array(one.correlations, dtype=float) - np.array(other.correlations, dtype=float)
    assert np.abs(gap).max() <= 1.1e-3
    for left, right in zip(one.columns, other.columns, strict=True):
        assert (left.column, left.bins, left.iv, left.withheld) == (right.column, right.bins, right.iv, right.withheld)
        assert left.means == right.means


@pytest.mark.parametrize(
    ("shares", "clear"),
    [("three", "clear"), ("two", "clear two"), ("helper", "clear two"), ("outsider", "clear two")],
)
def test_of_each_column_one_set_of_bins_is_opened(
    shares: str, clear: str, found: Mapping[str, StatisticsRecord]
) -> None:
    """Sets that are withheld are opened as zeros: two of them could be subtracted."""
    plan, opened = OPENED[shares]
    _, exact = OPENED[clear]
    counts = plan.release.cell_kind == 1
    assert np.array_equal(opened[counts], exact[counts])
    shown: dict[tuple[object, ...], int] = {}
    for name, block in plan.release.read_blocks(opened).items():
        if name[0] == "bins":
            shown[name[:3]] = shown.get(name[:3], 0) + int(block.any())
    assert set(shown.values()) == {1}


def test_what_singles_out_rows_is_withheld(found: Mapping[str, StatisticsRecord]) -> None:
    """A column with one row beside its most frequent value, and means where five rows have none."""
    columns = {one.column: one for one in found["three"].columns}
    assert "fewer than 40 rows differ from its most frequent value" in columns["alone"].withheld
    assert columns["alone"].kind == "numbers"
    assert not columns["alone"].bins
    assert columns["alone"].with_label is None
    assert columns["few"].means is None
    assert "with, or without, a value" in columns["few"].withheld


def test_noise_is_as_large_as_the_budget_says(found: Mapping[str, StatisticsRecord]) -> None:
    """Correlations of scores differ from those without noise by about the stated error; ε is what was asked for."""
    noisy = found["noisy"]
    assert noisy.epsilon == pytest.approx(20.0, rel=1e-6)
    assert 0 < noisy.correlation_error < 0.2
    table = np.array(noisy.correlations, dtype=float)
    where = [place for place, name in enumerate(noisy.names) if name.startswith(("shop.", "phone."))]
    assert np.abs(table[np.ix_([0], where)]).max() > 0.3  # income and what follows it
    assert {one.column for one in noisy.columns if one.party == "shop"} == {"spent", "gaps", "few", "alone"}


def test_released_sums_cost_the_budget() -> None:
    budget = StatisticsBudget(epsilon=1.0, delta=1e-5, passive=2, own_blocks=True)
    assert budget.spent_epsilon() == pytest.approx(1.0)
    # One row of scores at its bound is replaced by its opposite: all sums together move by Δ, which is σ times μ.
    mu = math.sqrt(0.3) * budget.mu
    assert budget.scores_sigma((1, 1, 0)) * mu == pytest.approx(2 * 1.5**2)
    assert epsilon_at(budget.mu, 1e-5) == pytest.approx(1.0)


def test_each_party_adds_its_part_of_the_noise() -> None:
    layouts = (PartyLayout(scores=40), PartyLayout(scores=40))
    plan = CrossPlan(rows=10, classes=0, layouts=layouts, least=0, noise=(1e6, 5.0))
    half = draw_noise(plan, 0.5)
    assert half is not None
    assert half.view(np.int64).std() == pytest.approx(1e6 / math.sqrt(2), rel=0.1)
    assert draw_noise(CrossPlan(rows=10, classes=0, layouts=layouts, least=20), 0.5) is None


def test_rows_of_scores_stay_within_the_norm_that_noise_is_sized_for() -> None:
    scores = GENERATOR.normal(size=(500, 6)) * 3
    units = encode_scores(scores, 2.0)
    assert np.linalg.norm(units / ONE, axis=1).max() <= 2.0


@given(values=st.integers(1, 40), missing=st.booleans(), ordered=st.booleans())
@settings(deadline=None, max_examples=60)
def test_coarser_bins_are_unions_of_the_finest(values: int, missing: bool, ordered: bool) -> None:
    levels = coarsen(values, missing=missing, ordered=ordered)
    assert not PartyLayout(scores=0, bins=(levels,)).find_problem()
    assert len(set(levels)) == len(levels)
    for level in levels:
        if ordered:  # numbers merge with neighbours
            assert list(level[:values]) == sorted(level[:values])


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_one_level_is_released_and_none_with_a_small_count(data: st.DataObject) -> None:
    fine = data.draw(st.integers(2, 9))
    layout = PartyLayout(scores=0, bins=(coarsen(fine, missing=data.draw(st.booleans()), ordered=True),))
    plan = CrossPlan(rows=100, classes=2, layouts=(PartyLayout(scores=0), layout), least=5)
    counts = data.draw(st.lists(st.integers(0, 20), min_size=2 * (layout.width - 1), max_size=2 * (layout.width - 1)))
    products = np.concatenate([np.array([[0], [0]]), np.array(counts).reshape(2, -1)], axis=1).reshape(-1)
    blocks = plan.release.read_blocks(plan.release_in_clear(products))
    shown = [block for name, block in blocks.items() if name[0] == "bins" and block.any()]
    possible = [
        np.stack([np.bincount(level, weights=row, minlength=max(level) + 1) for row in np.array(counts).reshape(2, -1)])
        for level in layout.bins[0]
    ]
    passing = [one for one in possible if one.min() >= 5]
    assert len(shown) == min(len(passing), 1)
    if shown:
        assert np.array_equal(shown[0], passing[0])


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_rows_in_two_parts_have_the_same_sums(seed: int) -> None:
    generator = np.random.default_rng(seed)
    wide = np.array([True, False, True])
    matrix = np.where(wide, generator.integers(-(2**26), 2**26, (7, 3)), generator.integers(0, 2, (7, 3)))
    limbs = split_limbs(matrix, wide)
    assert np.abs(limbs).max() <= 1 << 13
    other = generator.integers(-(2**20), 2**20, (7, 2))
    sums = (limbs.T @ other).astype(np.int64).view(np.uint64)
    assert np.array_equal(join_limbs(sums, wide).view(np.int64), matrix.T @ other)


def test_a_column_that_others_determine_has_no_factor() -> None:
    x = GENERATOR.normal(size=(200, 3))
    x = np.column_stack([x, x[:, 0] + x[:, 1]])
    factors = inflation_factors(np.corrcoef(x.T))
    assert factors[0] is None
    assert factors[3] is None
    assert factors[2] == pytest.approx(1.0, abs=0.1)


def test_a_bin_has_twice_as_many_rows_as_a_class_needs() -> None:
    x = np.concatenate([np.zeros(90), np.arange(10)])[:, None]
    (one,) = cut_columns(["x"], [0], {}, x, bins=10, least=4)
    assert np.bincount(one.codes).min() >= 8
    assert OwnColumns([one]).passive_matrix().shape == (100, OwnColumns([one]).layout().width)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(sv.PolicyError, match="its table has 150 rows, so no more are common"):
        run(tables(*THREE, rows=np.arange(150)), sv.Shares())
    one, *others = tables(*THREE, rows=np.arange(220)).values()
    moved = [replace(other, ids=[f"c{place}" for place in range(70, 290)]) for other in others]
    with pytest.raises(sv.PolicyError, match="refuses: 150 rows are common, and statistics of fewer than 200"):
        run(sv.Parties.of(one, *moved), sv.Shares())
    with pytest.raises(sv.InputError, match="a class has"):
        run(tables(*THREE), sv.Shares(), least=400)


@pytest.mark.parametrize(
    ("protection", "words"),
    [
        (sv.BFV(), "no cut layer that 'bfv' could seal"),
        (sv.Plain(dp=sv.DP(model=sv.Gaussian(epsilon=1.0))), "protects nobody"),
        (sv.Shares(dp=sv.DP(model=sv.Gaussian(noise_multiplier=1.0))), "take epsilon and delta"),
    ],
)
def test_other_protections_are_refused_with_the_cure(protection: sv.Protection, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.Job(algorithm=sv.Statistics(), protection=protection)


def test_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/statistics.md").read_text(encoding="utf-8")
    code, output = page.split("```python\n")[1].split("```\n\n```text\n")
    exec(code, {})  # noqa: S102 - the page's own example
    assert capsys.readouterr().out == output.split("```")[0]
