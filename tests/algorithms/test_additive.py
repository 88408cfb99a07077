"""The additive model: an epoch by hand, bin means in the limit, caps that no shape passes, plain runs that equal the
clear one, what a budget refuses, and what an owner reads of its shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import securevfl as sv
from securevfl.algorithms.additive.channel import sum_contrasts
from securevfl.algorithms.additive.clear import train_in_clear
from securevfl.algorithms.additive.columns import BinnedColumn, code_rows, read_columns, write_columns
from securevfl.algorithms.additive.contrasts import Contrasts, draw_contrasts
from securevfl.algorithms.additive.edges import (
    category_column,
    common_column,
    count_bins,
    declared_column,
    noisy_column,
)
from securevfl.algorithms.additive.own_columns import ColumnSource, bin_columns
from securevfl.algorithms.additive.shapes import OwnShapes, PublicPlan, to_logits
from securevfl.algorithms.additive.steps import StepRule, step_rate
from securevfl.algorithms.additive.tables import read_terms, shape_tables
from securevfl.algorithms.additive.units import CONTRAST_ONE, PART_ONE, SUM_ONE, cap_parts, split_caps, target_units
from securevfl.config import Mistaken
from securevfl.data import FeatureEncoder, Parties
from securevfl.errors import InputError
from securevfl.testing.parties import make_parties

BUDGET = sv.DP(model=sv.Gaussian(epsilon=1.0))


def _shares(dp: sv.DP | None = BUDGET) -> sv.Shares:
    return sv.Shares(dp=dp, metrics="none")


def _job(algorithm: sv.Additive | None = None, **more: Any) -> sv.Job:
    return sv.Job(algorithm=algorithm or sv.Additive(), **({"protection": sv.Plain(), "epochs": 8, "seed": 3} | more))


def test_an_epoch_by_hand() -> None:
    """Two rows, one column at each party, λ = 2, lr = √3: residuals are ±½ and each step is ½ / (2·1 + 2)."""
    plan = PublicPlan(rows=2, parties=("a", "b"), columns=(2, 1), outputs=1, seed=0, start=np.array([0.5]))
    rule = StepRule(lr=3**0.5, l2=2.0, damping=0.0)
    column = BinnedColumn("x", np.array([0.5]), np.array([0.5, 0.5, 0.0]))
    a = OwnShapes("a", plan, rule, [BinnedColumn.intercept(), column], np.array([[0.0], [1.0]]))
    b = OwnShapes("b", plan, rule, [column], np.array([[0.0], [1.0]]))
    assert (a.part() + b.part()).tolist() == [[PART_ONE // 2]] * 2
    train_in_clear([a, b], target_units(np.array([0, 1]), 1), 1)
    for one, first in ((a, 1), (b, 0)):
        step = 1.0 * 1.0 / (2 * 1.0 + 2)  # η = 1; Σ s r = ½ + ½ on a contrast of ±1, whose curvature is 1
        shape = one.values[first : first + 2, 0]
        assert shape.tolist() == [-step, step]
    assert a.values[0, 0] == 0  # residuals add up to zero
    cap = split_caps((2, 1))[0]
    assert cap == round(PART_ONE * 2 / 3)
    assert a.part().tolist() == [[round(cap * 0.5 - PART_ONE / 4)], [round(cap * 0.5 + PART_ONE / 4)]]


def test_one_column_goes_to_the_means_of_its_bins() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 1))
    y = (rng.random(2000) < 0.3 + 0.4 * (x[:, 0] > 0) * (x[:, 0] < 1)).astype(np.int64)
    column = common_column("x", x[:, 0], 6)
    plan = PublicPlan(rows=2000, parties=("a",), columns=(2,), outputs=1, seed=1, start=np.array([y.mean()]))
    one = OwnShapes("a", plan, StepRule(lr=0.6, l2=0.0, damping=0.0), [BinnedColumn.intercept(), column], x)
    train_in_clear([one], target_units(y, 1), 400)
    codes = column.encode(x[:, 0])
    means = [y[codes == b].mean() for b in range(column.bins - 1)]
    assert one.values[1:-1, 0] + one.values[0, 0] + y.mean() == pytest.approx(means, abs=2e-3)


@pytest.mark.parametrize("outputs", [1, 2, 3, 7])
def test_residuals_stay_within_one_for_any_shapes(outputs: int) -> None:
    rng = np.random.default_rng(outputs)
    for columns in ((1, 1), (3, 18), (1, 0, 40), (7, 7, 7, 7)):
        caps = split_caps(columns)
        assert sum(caps) == PART_ONE
        for size in (0.1, 1.0, 1e3, 1e9):
            parts = [cap_parts(rng.normal(scale=size, size=(200, outputs)) * PART_ONE, cap) for cap in caps]
            assert all((part >= 0).all() for part in parts)
            assert all((part.sum(axis=1) <= cap).all() for part, cap in zip(parts, caps, strict=True))
            y = rng.integers(0, max(outputs, 2), 200)
            residual = target_units(y, outputs) - sum(parts)
            if outputs == 1:
                assert np.abs(residual).max() <= PART_ONE
            assert (np.square(residual).sum(axis=1) <= (1 if outputs == 1 else 2) * PART_ONE**2).all()


def test_two_parties_have_caps_by_their_columns_and_three_the_same() -> None:
    assert split_caps((3, 1)) == (PART_ONE * 3 // 4, PART_ONE // 4)
    assert sorted(split_caps((2, 3, 40))) == [PART_ONE // 3, PART_ONE // 3, PART_ONE // 3 + 1]
    assert split_caps((2, 0, 4)) == (PART_ONE // 2, 0, PART_ONE // 2)


def test_projection_is_the_nearest_point_of_the_simplex() -> None:
    inside = np.array([[1000.0, 2000.0, 1096.0]])
    assert cap_parts(inside, PART_ONE).tolist() == inside.astype(int).tolist()
    assert cap_parts(np.array([[9e4, 0.0, -9e4]]), PART_ONE).tolist() == [[PART_ONE, 0, 0]]
    assert cap_parts(np.array([[5000.0, 5000.0, -7.0]]), PART_ONE).tolist() == [[2048, 2048, 0]]


def test_contrasts_stay_within_one_after_rounding_and_come_from_the_seed() -> None:
    rng = np.random.default_rng(0)
    masses = [rng.dirichlet(np.full(bins, size)) for bins in (3, 4, 9, 34) for size in (0.01, 1.0, 100.0)]
    columns = [
        BinnedColumn(f"x{j}", np.arange(len(mass) - 2.0), mass, is_category=bool(j % 2))
        for j, mass in enumerate(masses)
    ]
    columns += [BinnedColumn.intercept(), declared_column("flat", [])]
    for epoch in range(1, 60):
        drawn = draw_contrasts(columns, 5, "a", epoch)
        assert np.abs(drawn.values).max() == CONTRAST_ONE
        assert (drawn.curvature <= 1 + 1e-9).all()
        again = draw_contrasts(columns, 5, "a", epoch)
        assert np.array_equal(drawn.values, again.values)
    assert not np.array_equal(drawn.values, draw_contrasts(columns, 6, "a", epoch).values)
    assert not np.array_equal(drawn.values, draw_contrasts(columns, 5, "b", epoch).values)


def test_sums_are_exact_integers() -> None:
    rng = np.random.default_rng(0)
    s, r = rng.integers(-256, 257, (5000, 4)), rng.integers(-4096, 4097, (5000, 3))
    assert np.array_equal(sum_contrasts(s, r), s.T @ r)


def test_steps_shorten_beyond_fifty_columns() -> None:
    assert step_rate(0.6, 24) == pytest.approx(0.6 / 24**0.5)
    assert step_rate(0.6, 401) == pytest.approx(1.5 / 400)
    assert step_rate(0.01, 401) == pytest.approx(0.01 / 401**0.5)


def test_a_heavy_value_has_a_bin_of_its_own() -> None:
    values = np.concatenate([np.zeros(600), np.arange(1, 401.0)])
    for column in (common_column("x", values, 5), noisy_column("x", values, 5, 0.0, 400.0, mu=50.0)):
        zero, small = column.encode(np.array([0.0])), column.encode(np.array([3.0]))
        assert zero[0] != small[0]
        assert column.masses[zero[0]] == pytest.approx(0.6, abs=0.05)
        assert column.bins <= 5 + 2 + 1
    assert common_column("x", np.full(9, np.nan), 5).bins == 2


def test_noisy_bins_have_the_noise_that_their_budget_says() -> None:
    """The count of missing values has σ = √18 / μ, beside 20,000 rows; the bounds are at six standard deviations."""
    values = np.linspace(0, 1, 20_000)
    found = [noisy_column("x", values, 4, 0.0, 1.0, mu=0.2).masses[-1] * 20_000 for _ in range(1000)]
    above = [one for one in found if one > 0]
    assert 400 < len(above) < 600
    assert np.sqrt(np.mean(np.square(above))) == pytest.approx(18**0.5 / 0.2, rel=0.2)


def test_declared_bins_do_not_move_with_the_rows() -> None:
    settings = sv.Additive(edges="declared", cuts={"a.x": (0.0, 1.0)})
    source = ColumnSource("a", ("x", "c"), (0, 3), ((), ("u", "v")), "declared", 8)
    rng = np.random.default_rng(0)
    one, other = (
        write_columns(bin_columns(source, settings, np.c_[rng.normal(size=50), rng.integers(0, 3, 50)]))
        for _ in range(2)
    )
    assert one == other
    assert [column.name for column in read_columns(one)] == ["x", "c"]
    with pytest.raises(InputError, match=r"declares of each column of numbers cuts.*'a\.y'"):
        bin_columns(ColumnSource("a", ("y",), (0,), ((),), "declared", 8), settings, np.zeros((5, 1)))
    with pytest.raises(InputError, match=r"ranges .*'a\.y'"):
        bin_columns(ColumnSource("a", ("y",), (0,), ((),), "private", 8, 1.0), settings, np.zeros((5, 1)))


def test_what_a_budget_bins_by_has_noise() -> None:
    """Each column's masses and, of numbers, edges: no two runs have the same, and none is exact."""
    settings = sv.Additive(ranges={"a.x": (-4.0, 4.0)})
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=900), rng.integers(0, 3, 900)]
    source = ColumnSource("a", ("x", "c"), (0, 3), ((), ("u", "v", "w")), "private", 8, 1.0)
    (x1, c1), (x2, c2) = (bin_columns(source, settings, x) for _ in range(2))
    assert not np.array_equal(x1.edges, x2.edges)
    assert not np.array_equal(c1.masses, c2.masses)
    for column, values in ((x1, x[:, 0]), (c1, x[:, 1])):
        assert not np.array_equal(column.masses, column.with_masses(count_bins(column, values)).masses)


def test_a_blind_encoding_depends_on_no_value() -> None:
    def table(values: list[str], constant: float) -> sv.PartyTable:
        ids = tuple(map(str, range(4)))
        columns = {"c": np.array(values), "k": np.full(4, constant)}
        return sv.PartyTable(name="a", ids=ids, columns=columns, categorical=frozenset({"c"}))

    def fit(one: sv.PartyTable, **more: Any) -> FeatureEncoder:
        return FeatureEncoder.fit(one, np.arange(4), view="coded", **more)

    levels = {"c": ("u", "v", "w")}
    found = [fit(table(values, 1.0), levels=levels, blind=True) for values in (["u", "u", "v", "x"], ["w"] * 4)]
    assert found[0].state() == found[1].state()
    assert found[0].column_names == ["c", "k"]  # a constant column stays
    assert found[0].transform(table(["u", "v", "x", ""], 1.0))[:, 0].tolist()[:3] == [0, 1, 3]
    with pytest.raises(InputError, match="'c' has categories, whose levels would be read from its rows"):
        fit(table(["u"] * 4, 1.0), blind=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_plain_run_is_the_clear_one_word_for_word(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    people = make_parties(2, 160, classes=classes)
    begun: dict[str, OwnShapes] = {}
    kept: dict[str, np.ndarray] = {}
    begin = OwnShapes.__init__

    def keep(shapes: OwnShapes, *args: Any) -> None:
        begin(shapes, *args)
        again = object.__new__(OwnShapes)
        begin(again, *args)
        begun.setdefault(shapes.party, again)

    from securevfl.algorithms.additive.roles import AdditiveActive

    prepare = AdditiveActive.prepare

    async def prepared(role: AdditiveActive) -> None:
        await prepare(role)
        kept["y"] = role.targets

    monkeypatch.setattr(OwnShapes, "__init__", keep)
    monkeypatch.setattr(AdditiveActive, "prepare", prepared)
    result = sv.simulate(_job(keep="last"), people)
    parties = [begun[name] for name in ("bank", "shop1", "shop2")]
    train_in_clear(parties, kept["y"], 8)
    for one in parties:
        values = result.model().parts[one.party]["parts"]["shapes"]["values"].numpy()
        assert np.array_equal(values, one.values)


def test_a_model_learns_what_all_parties_know_and_predicts_what_it_scored() -> None:
    people = make_parties(1, 1500)
    result = sv.simulate(_job(epochs=40), people)
    assert result.record.runs[-1].test["auc"] > 0.93
    answers = sv.predict(result.model(), people)
    (scores,) = result.scores.values()
    place = {name: at for at, name in enumerate(answers.ids)}
    again = answers.probabilities[[place[name] for name in result.test_ids]]
    np.testing.assert_allclose(again, scores, atol=1e-6)


def test_three_classes_and_a_number_are_learned() -> None:
    assert sv.simulate(_job(epochs=40), make_parties(1, 1500, classes=3)).record.runs[-1].test["accuracy"] > 0.7
    people = make_parties(1, 1500)
    bank, shop = people["bank"], people["shop1"]
    score = np.array([sum(bank.columns[f"f{j}"][i] for j in range(3)) for i in range(bank.rows)])
    numeric = sv.PartyTable(name="bank", ids=bank.ids, columns=dict(bank.columns), label=score)
    both = sv.Parties({"bank": numeric, "shop1": shop})
    job = _job(epochs=60, task="regression", target_range=(-8.0, 8.0))
    assert sv.simulate(job, both).record.runs[-1].test["r2"] > 0.8


def test_monotone_shapes_only_rise_or_fall() -> None:
    people = make_parties(1, 400)
    result = sv.simulate(_job(sv.Additive(rising=("bank.f0",), falling=("shop1.f1",)), epochs=20), people)
    for party, name, sign in (("bank", "f0", 1), ("shop1", "f1", -1)):
        (table,) = [one for one in result.model().parts[party]["shape tables"] if one["column"] == name]
        shape = [one["values"][0] for one in table["bins"] if one["bin"] != "missing"]
        assert (sign * np.diff(shape) >= -1e-6).all()
        assert party == "shop1" or np.ptp(shape) > 0.05
    with pytest.raises(sv.SecureVFLError, match="'f9'"):
        sv.simulate(_job(sv.Additive(rising=("bank.f9",))), people)


class _Stops(sv.Observer):
    """Ends the run in its third epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 3:
            raise RuntimeError("the power failed")


def test_a_resumed_run_goes_on_with_the_same_bins_and_shapes(tmp_path: Any) -> None:
    people = make_parties(2, 160)
    whole = sv.simulate(_job(), people)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(), people, checkpoints=tmp_path, observer=_Stops())
    again = sv.simulate(_job(), people, checkpoints=tmp_path)
    for name in ("bank", "shop1", "shop2"):
        one, other = (found.model().parts[name]["parts"]["shapes"] for found in (whole, again))
        assert one["columns"] == other["columns"]
        assert np.array_equal(one["values"].numpy(), other["values"].numpy())


def test_a_resumed_run_with_a_budget_draws_bins_and_start_once(tmp_path: Any) -> None:
    people = make_parties(2, 160)
    names = [f"{table.name}.{column}" for table in people.values() for column in table.columns]
    algorithm = sv.Additive(ranges=dict.fromkeys(names, (-4.0, 4.0)))
    job = _job(algorithm, protection=_shares(sv.DP(model=sv.Gaussian(epsilon=60.0))), keep="last")
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    from securevfl.algorithms.additive import roles

    drawn: list[object] = []
    real = roles.draw_discrete_gaussian
    roles.draw_discrete_gaussian = lambda *args: drawn.append(args) or real(*args)  # type: ignore[assignment, func-returns-value]
    try:
        run = sv.simulate(job, people, checkpoints=tmp_path).record.runs[-1]
    finally:
        roles.draw_discrete_gaussian = real
    assert not drawn
    assert run.best_epoch == 8  # the last: no best epoch is chosen
    assert any("predictions are not covered" in note for note in run.notes)


def test_a_budget_makes_start_and_masses_noisy() -> None:
    people = make_parties(2, 160)
    names = [f"{table.name}.{column}" for table in people.values() for column in table.columns]
    algorithm = sv.Additive(ranges=dict.fromkeys(names, (-4.0, 4.0)))
    job = _job(algorithm, protection=_shares(sv.DP(model=sv.Gaussian(epsilon=60.0))), keep="last", epochs=2)
    drawn = [sv.simulate(job, people).model().parts["bank"]["parts"]["shapes"] for _ in range(4)]
    masses = [[column["masses"] for column in found["columns"]] for found in drawn]
    assert masses[0] != masses[1]
    assert len({tuple(found["start"].tolist()) for found in drawn}) > 1  # on a grid, so two can be equal by chance
    assert not np.array_equal(drawn[0]["variance"].numpy(), np.zeros(len(drawn[0]["variance"])))


def test_what_a_budget_excludes_is_refused() -> None:
    for job, words in (
        (lambda: _job(protection=sv.Plain(dp=BUDGET)), "protects nobody"),
        (lambda: _job(sv.Additive(edges="common"), protection=_shares(), keep="last"), "edges is 'common'"),
        (lambda: _job(sv.Additive(edges="private")), "the job has none"),
        (lambda: _job(protection=sv.Shares(dp=BUDGET)), "metrics='none'"),
        (
            lambda: _job(protection=_shares(sv.DP(model=sv.Gaussian(noise_multiplier=2.0))), keep="last"),
            "takes epsilon and delta",
        ),
        (
            lambda: _job(protection=_shares(sv.DP(model=sv.Gaussian(epsilon=1.0, delta=1e-14))), keep="last"),
            "delta of dp.model is 1e-14",
        ),
        (lambda: _job(protection=sv.Plain(fixed_point=True)), "leave fixed_point out"),
        (lambda: _job(protection=sv.Paillier()), "in the place of 'paillier'"),
        (lambda: _job(protection=sv.Plain(dp=sv.DP(labels=sv.Gaussian()))), "adds noise to sums"),
        (lambda: _job(task="regression"), "target_range"),
        (lambda: _job(task="regression", target_range=(0.0, 1.0), loss="huber"), "squared loss alone"),
    ):
        with pytest.raises(sv.SecureVFLError, match=words):
            job()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cuts": {"x": (1.0,)}}, "write it as 'party.column'"),
        ({"cuts": {"a.x": (2.0, 1.0)}}, "ascending"),
        ({"cuts": {"a.x": (1.0, float("inf"))}}, "finite"),
        ({"ranges": {"a.x": (2.0, 2.0)}}, "lowest and the highest"),
        ({"ranges": {"a.x": (float("-inf"), 2.0)}}, "finite"),
        ({"ranges": {"a.x": (1e18, 1e18 + 1000)}}, "far enough apart for 256 cells"),
        ({"levels": {"a.x": ("u", "u")}}, "different names"),
        ({"rising": ("a.x",), "falling": ("a.x",)}, "both name"),
    ],
)
def test_settings_that_contradict_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(Mistaken, match=words):
        sv.Additive(**values)


def test_scores_keep_their_order_beyond_the_clip() -> None:
    sums = np.linspace(-0.5, 1.5, 201)[:, None]
    logits = to_logits(sums, numeric=False)[:, 0]
    assert (np.diff(logits) > 0).all()
    inside = (sums[:, 0] > 0.01) & (sums[:, 0] < 0.99)
    assert 1 / (1 + np.exp(-logits[inside])) == pytest.approx(sums[inside, 0])
    probability = 1 / (1 + np.exp(-logits))
    assert probability.min() > 0.003
    assert roc_auc_score(sums[:, 0] > 0.2, logits) == 1
    assert to_logits(np.array([[0.25]]), numeric=True).tolist() == [[-0.5]]


def test_owners_read_tables_and_reasons() -> None:
    column = declared_column("x", [0.0]).with_masses(np.array([0.5, 0.5, 0.0]))
    levels = category_column("c", 3, ("u", "v"))
    columns = [BinnedColumn.intercept(), column, levels]
    values = np.array([0.1, -0.2, 0.2, 0.0, 0.3, 0.0, -0.3, 0.0])[:, None]
    variance = np.full(8, 0.01)
    first, second = shape_tables(columns, values, variance)
    assert (first["column"], second["column"]) == ("c", "x")
    assert [one["bin"] for one in first["bins"]] == ["u", "v", "other levels", "missing"]
    assert [one["bin"] for one in second["bins"]] == ["up to 0", "above 0", "missing"]
    assert [one["points"] for one in second["bins"]] == [-200.0, 200.0, 0.0]
    assert second["importance"] == pytest.approx(0.2)
    assert second["noise"] == pytest.approx(0.1)
    kept = {"columns": write_columns(columns), "values": torch.from_numpy(values), "start": torch.zeros(1)}
    part = {"parts": {"shapes": kept}, "passive": ["shop"]}
    terms = read_terms(part, np.array([[-1.0, 2.0], [1.0, 0.0]]), "shop", numeric=False)
    less = (terms.values - terms.means)[:, :, 0]
    assert less[0].tolist() == pytest.approx([-0.2, -0.3])
    assert (less[1] >= 0).all()
    assert terms.start.tolist() == [0.1]


@pytest.mark.parametrize(("levels", "told"), [(("0.0", "1.0"), True), (("0", "1"), False)])
def test_levels_that_are_written_otherwise_are_told_to_the_owner(levels: tuple[str, ...], told: bool) -> None:
    people = make_parties(1, 200)
    shop = people["shop1"]
    coded = {**shop.columns, "f0": (np.asarray(shop.columns["f0"]) > 0).astype(float)}
    parties = Parties.of(people.active, replace(shop, columns=coded))
    notes = sv.simulate(_job(sv.Additive(levels={"shop1.f0": levels})), parties).record.runs[-1].notes
    assert (
        any("shop1's column f0: about 100% of the rows have none of the declared levels" in one for one in notes)
        == told
    )


def test_the_band_is_the_noise_s_own() -> None:
    """Shapes without a signal spread as far as the stated variance says."""
    plan = PublicPlan(rows=50, parties=("a",), columns=(2,), outputs=1, seed=1, start=np.array([0.5]), noise=3.0)
    rule, column = StepRule(lr=0.6, l2=10.0, damping=1.0), declared_column("x", [0.0, 1.0])
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        one = OwnShapes("a", plan, rule, [BinnedColumn.intercept(), column], np.zeros((50, 1)))
        for epoch in range(1, 11):
            drawn = one.draw(epoch)
            one.update(drawn, np.rint(rng.normal(0, 3.0 * SUM_ONE, (2, 1))).astype(np.int64))
        found.append(one.values[:, 0])
    assert np.std(found, axis=0) == pytest.approx(np.sqrt(one.variance), rel=0.12)


def test_reasons_of_a_person_come_from_the_owner_s_part() -> None:
    people = make_parties(1, 400)
    result = sv.simulate(_job(epochs=20), people)
    shop = people["shop1"]
    reasons = sv.own_reasons(result.model().part("shop1"), shop, [shop.ids[0], shop.ids[5]], most=2)
    assert list(reasons) == [shop.ids[0], shop.ids[5]]
    assert all(one.column in shop.columns and one.term < 0 for found in reasons.values() for one in found)
    with pytest.raises(InputError, match="no shapes"):
        read_terms({"parts": {}}, np.zeros((1, 3)), "shop1", numeric=False)


def test_a_damaged_part_is_refused() -> None:
    kept = write_columns([declared_column("x", [0.0, 1.0])])
    kept[0]["masses"] = [0.5, 0.5]  # type: ignore[index]
    with pytest.raises(InputError, match="damaged"):
        read_columns(kept)
    with pytest.raises(InputError, match="rows have 2 columns"):
        code_rows([declared_column("x", [0.0])], np.zeros((1, 2)))
    plan = PublicPlan(rows=2, parties=("a",), columns=(1,), outputs=1, seed=0, start=np.array([0.5]))
    one = OwnShapes("a", plan, StepRule(lr=1, l2=1, damping=0), [BinnedColumn.intercept()], np.zeros((2, 0)))
    with pytest.raises(InputError, match="sums of shape"):
        one.update(Contrasts(np.full(1, 256), np.ones(1)), np.zeros((2, 1), np.int64))
