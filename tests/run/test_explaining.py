"""Explained scores: Shapley values by hand, terms that add up to what is predicted, what each party may see, and that
answers to mixed rows count."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl.data import Parties
from securevfl.errors import InputError, UnknownNameError
from securevfl.report.importance import draw_importance, importance_beside, summarise_importance
from securevfl.run import Aligned, join_parties
from securevfl.run.explained.coalitions import Coalitions, draw_background
from securevfl.testing.parties import make_parties

IDS = 6


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, rows=90)


@pytest.fixture(scope="module")
def models(people: Parties) -> Mapping[str, sv.Model]:
    jobs = {
        "linear": sv.Job(algorithm=sv.LogisticRegression(), protection=sv.Plain(), epochs=2),
        "sealed": sv.Job(algorithm=sv.LogisticRegression(), protection=sv.BFV(), epochs=1),
        "additive": sv.Job(algorithm=sv.Additive(), protection=sv.Plain(), epochs=6),
        "shares": sv.Job(algorithm=sv.LogisticRegression(), protection=sv.Shares(model="parts"), epochs=1),
        "network": sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,)), protection=sv.Plain(), epochs=1),
    }
    return {name: sv.simulate(job, people).model() for name, job in jobs.items()}


@pytest.fixture(scope="module")
def aligned(people: Parties, models: Mapping[str, sv.Model]) -> Aligned:
    return join_parties(people, models["linear"].job)


@pytest.fixture(scope="module")
def common(aligned: Aligned, people: Parties) -> list[str]:
    return list(people.active.ids_of(aligned.parties["bank"].rows))


def _sets(players: int = 3, explained: int = 4, background: int = 2) -> Coalitions:
    names = tuple("abcdefgh"[:players])
    return Coalitions(players=names, explained=np.arange(explained), background=np.arange(20, 20 + background))


def _score(sets: Coalitions, columns: np.ndarray) -> np.ndarray:
    """A function with interactions of rows whose players bring these positions' columns, (players, positions)."""
    x = np.stack([columns[k][sets.places(name)] for k, name in enumerate(sets.players)])
    return np.asarray(x.prod(axis=0) + np.maximum(x[0], x[1]) + 3 * x[-1])


def test_values_are_those_of_all_orders_in_which_parties_join() -> None:
    """By the definition: the mean gain of a party over the orders, each set's worth a mean over the background."""
    sets, columns = _sets(), np.random.default_rng(0).normal(size=(3, 30))
    values, baseline = sets.split(_score(sets, columns))
    assert len(sets.places("a")) == sets.rows

    def worth(members: frozenset[int], row: int) -> float:
        found = []
        for other in sets.background:
            x = np.array([columns[k][row if k in members else other] for k in range(3)])
            found.append(x.prod() + max(x[0], x[1]) + 3 * x[2])
        return float(np.mean(found))

    for row in range(4):
        gains = np.zeros(3)
        for order in permutations(range(3)):
            for step, player in enumerate(order):
                before = frozenset(order[:step])
                gains[player] += worth(before | {player}, row) - worth(before, row)
        assert values[row] == pytest.approx(gains / 6)
    assert baseline == pytest.approx(worth(frozenset(), 0))


def test_values_add_up_and_a_party_that_changes_nothing_has_zero() -> None:
    sets = _sets(players=4, background=3)
    columns = np.random.default_rng(1).normal(size=(4, 30))
    scores = np.sin(columns[0][sets.places("a")]) * columns[1][sets.places("b")] + columns[2][sets.places("c")]
    values, baseline = sets.split(scores)
    assert values.sum(axis=1) + baseline == pytest.approx(scores[:4], abs=1e-12)
    assert values[:, 3] == pytest.approx(0, abs=1e-12)


def test_the_price_is_how_often_a_row_takes_part() -> None:
    sets = _sets(explained=5, background=3)
    mine, other = sets.answers("b")
    places = sets.places("b")
    assert (places == 2).sum() == mine == 1 + 3 * 3
    assert (places == 21).sum() == other == 1 + 3 * 5


def test_too_many_parties_and_no_background_are_refused() -> None:
    with pytest.raises(InputError, match="7 parties have 2\\^7 sets"):
        _sets(players=7)
    with pytest.raises(InputError, match="background is 0"):
        _sets(background=0)
    assert not set(draw_background(3, 10, 0, [0, 1, 2])) & {0, 1, 2}
    assert len(draw_background(16, 4, 0, [0, 1])) == 4


@pytest.mark.parametrize("name", ["linear", "additive"])
def test_terms_add_up_to_what_is_predicted(
    name: str, models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str]
) -> None:
    found, predicted = (
        sv.explain(models[name], people, aligned=aligned),
        sv.predict(models[name], people, aligned=aligned),
    )
    assert (found.method, found.why, found.answers) == ("terms", "", {})
    assert list(found.ids) == list(predicted.ids)
    assert found.scores == pytest.approx(predicted.probabilities[:, 1], abs=1e-6)
    assert found.baseline + found.totals.sum(axis=1) == pytest.approx(found.sums, abs=1e-12)
    p = found.sums if name == "additive" else 1 / (1 + np.exp(-found.sums))
    inside = (p > 0.01) & (p < 0.99)
    raw = sv.predict(models[name], people, calibrated=False, aligned=aligned).probabilities[:, 1]
    assert p[inside] == pytest.approx(raw[inside], abs=1e-6)
    for place, party in enumerate(found.players):
        assert found.own[party].totals[:, 0] == pytest.approx(found.totals[:, place])
    other = sv.explain(models[name], people, found.ids[:2], output="0", aligned=aligned)
    assert other.scores + found.scores[:2] == pytest.approx(1)
    assert other.totals == pytest.approx(-found.totals[:2])


def test_shapley_values_of_a_sum_are_its_terms(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str]
) -> None:
    """Of an additive model, up to the parties' means; the other way to compute is another path through the code."""
    exact = sv.explain(models["additive"], people, aligned=aligned)
    inside = [i for i, p in enumerate(exact.sums) if 0.2 < p < 0.8][:IDS]
    ids = [exact.ids[i] for i in inside]
    split = sv.explain(models["additive"], people, ids, method="shapley", background=3, aligned=aligned)
    assert split.baseline + split.totals.sum(axis=1) == pytest.approx(split.scores, abs=1e-12)
    gap = split.totals - exact.totals[inside]
    assert gap == pytest.approx(np.tile(gap[0], (len(ids), 1)), abs=0.02)  # mixed rows beyond 0 or 1 are clipped


def test_a_network_is_split_among_parties_and_scores_are_those_predicted(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str]
) -> None:
    common = common[3 : 3 + IDS]
    found, predicted = (
        sv.explain(models["network"], people, common, background=3, aligned=aligned),
        sv.predict(models["network"], people, aligned=aligned),
    )
    place = {name: at for at, name in enumerate(predicted.ids)}
    assert found.method == "shapley"
    assert "not a sum of terms" in found.why
    assert found.scores == pytest.approx(predicted.probabilities[[place[one] for one in common], 1], abs=1e-7)
    assert found.baseline + found.totals.sum(axis=1) == pytest.approx(found.scores, abs=1e-12)
    assert found.answers == {"shop1": 1 + 3 * IDS, "shop2": 1 + 3 * IDS}
    with pytest.raises(UnknownNameError, match="party that sees terms"):
        found.reasons("shop1")
    with pytest.raises(InputError, match="not a sum of terms"):
        sv.explain(models["network"], people, common, method="terms", aligned=aligned)


def test_answers_to_mixed_rows_count_and_are_refused_beyond_the_bound(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str], tmp_path: Path
) -> None:
    model = models["network"]
    ids = common[:2]
    for bound, ends in ((4 * 7, False), (4 * 6, True)):  # 4 numbers an answer; a background row is in 7 answers
        job = model.job.replace(policies={"shop1": sv.Policy(max_results=bound)})
        bounded, books = replace(model, job=job), tmp_path / str(bound)
        if ends:
            with pytest.raises(sv.PolicyError, match="max_results"):
                sv.explain(bounded, people, ids, background=2, results=books, aligned=aligned)
        else:
            found = sv.explain(bounded, people, ids, background=2, results=books, aligned=aligned)
            assert found.answers["shop1"] == 7
            with pytest.raises(sv.PolicyError, match="max_results"):  # the book remembers them
                sv.explain(bounded, people, ids, background=2, results=books, aligned=aligned)


def test_under_a_sealed_cut_only_the_active_party_sees_its_columns(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str]
) -> None:
    ids = common[:2]
    found = sv.explain(models["sealed"], people, ids, background=1, aligned=aligned)
    assert list(found.own) == ["bank"]
    assert "nobody has them whole" in found.why
    shop = people["shop1"]
    with pytest.raises(InputError, match="a scorecard hands each party its own weights"):
        sv.own_reasons(models["sealed"].part("shop1"), shop, shop.ids[:1])
    job = models["linear"].job.replace(protection=sv.BFV())
    joined = sv.explain(
        replace(models["linear"], job=job), people, ids, aligned=aligned
    )  # as if plain weights came of a sealed cut
    assert joined.players == ("bank", "shop1 + shop2")


def test_on_shares_a_model_that_was_handed_out_explains_its_rounded_answers(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned
) -> None:
    found = sv.explain(models["shares"], people, aligned=aligned)
    answered = sv.predict(models["shares"], people, calibrated=False, aligned=aligned).probabilities[:, 1]
    assert found.players == ("bank", "shop1 + shop2")
    assert found.sums == pytest.approx(np.log(answered / (1 - answered)), abs=2**-4 + 0.002)


def test_reasons_are_the_owner_s_and_point_the_way_that_was_asked(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str]
) -> None:
    shop, part = people["shop1"], models["linear"].part("shop1")
    ids = [shop.ids[0], shop.ids[5]]
    down, up, both = (sv.own_reasons(part, shop, ids, direction=way) for way in ("down", "up", "both"))
    for one in ids:
        assert all(reason.term < 0 for reason in down[one])
        assert all(reason.term > 0 for reason in up[one])
        assert len(both[one]) == 3
        assert {*down[one], *up[one]} == {*both[one]}
        assert [abs(reason.term) for reason in both[one]] == sorted((abs(r.term) for r in both[one]), reverse=True)
        row = list(shop.ids).index(one)
        assert all(float(r.value) == pytest.approx(shop.columns[r.column][row], rel=1e-5) for r in both[one])
    weights = part.tree["parts"]["half"][1][0].numpy()[:, 0]
    x = np.stack([shop.columns[name] for name in shop.columns], axis=1)
    terms = (x - x.mean(axis=0)) / [part.tree["encoder"]["columns"][name]["deviation"] for name in shop.columns]
    right = dict(zip(shop.columns, (terms * weights)[0], strict=True))
    assert {r.column: r.term for r in both[ids[0]]} == pytest.approx(right, abs=1e-5)
    with pytest.raises(InputError, match="no person 'nobody'"):
        sv.own_reasons(part, shop, ["nobody"])
    with pytest.raises(InputError, match="output is 1; the model has 1"):
        sv.own_reasons(part, shop, ids, output=1)


@pytest.mark.parametrize("name", ["linear", "additive"])
def test_a_curve_is_the_term_of_each_value(name: str, models: Mapping[str, sv.Model], people: Parties) -> None:
    shop, part = people["shop1"], models[name].part("shop1")
    curve = sv.own_curve(part, shop, "f1", points=7)
    assert len(curve) == 7
    of_rows = {
        reason.value: reason.term
        for found in sv.own_reasons(part, shop, shop.ids, most=3, direction="both").values()
        for reason in found
        if reason.column == "f1"
    }
    assert [term for _, term in curve] == pytest.approx([of_rows[value] for value, _ in curve])
    assert [float(value) for value, _ in curve] == sorted(float(value) for value, _ in curve)
    with pytest.raises(UnknownNameError, match="column of 'shop1'"):
        sv.own_curve(part, shop, "f9")
    with pytest.raises(InputError, match="not a sum of terms"):
        sv.own_curve(models["network"].part("shop1"), shop, "f1")


def test_files_give_the_active_party_totals_and_each_party_its_own(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str], tmp_path: Path
) -> None:
    found = sv.explain(models["additive"], people, common[:IDS], aligned=aligned)
    files = found.write(tmp_path / "reasons.csv", direction="both", most=2)
    assert [file.name for file in files] == [f"reasons{name}.csv" for name in ("", ".bank", ".shop1", ".shop2")]
    first = list(csv.DictReader(files[0].read_text().splitlines()))
    assert list(first[0]) == ["id", "score", "explained", "baseline", "bank", "shop1", "shop2"]
    assert not any(column in files[0].read_text() for column in ("f0", "f1", "f2"))
    added = sum(float(first[0][name]) for name in ("baseline", "bank", "shop1", "shop2"))
    assert added == pytest.approx(float(first[0]["explained"]), abs=1e-5)
    own = list(csv.DictReader(files[2].read_text().splitlines()))
    assert len(own) == 2 * IDS
    assert list(own[0]) == ["id", "rank", "column", "value", "adds (probability)", "points"]
    for row, one in zip(own, found.reasons("shop1", direction="both", most=2)[own[0]["id"]], strict=False):
        assert (row["column"], row["value"]) == (one.column, one.value)
        assert float(row["adds (probability)"]) == pytest.approx(one.term, rel=1e-4)
    assert float(own[0]["points"]) == pytest.approx(1000 * float(own[0]["adds (probability)"]), abs=0.06)


def test_the_record_of_importance_is_read_again_and_drawn(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str], tmp_path: Path
) -> None:
    found = sv.explain(models["linear"], people, aligned=aligned)
    record = found.record()
    (tmp_path / "importance.json").write_bytes(record.to_json())
    assert importance_beside(tmp_path) == record
    assert importance_beside(tmp_path / "none") is None
    assert [one.importance for one in record.parties] == sorted(found.importance.values(), reverse=True)
    pictures = draw_importance(record)
    assert [title for title, _ in pictures] == ["Parties", *(f"Columns of {one.party}" for one in record.parties)]
    assert "exact" in summarise_importance(record)
    (tmp_path / "importance.json").write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        importance_beside(tmp_path)


def test_mistakes_are_told(
    models: Mapping[str, sv.Model], people: Parties, aligned: Aligned, common: list[str]
) -> None:
    model = models["linear"]
    with pytest.raises(UnknownNameError, match="class"):
        sv.explain(model, people, output="maybe", aligned=aligned)
    with pytest.raises(InputError, match="method is 'lime'"):
        sv.explain(model, people, method="lime", aligned=aligned)
    with pytest.raises(InputError, match="the tables to bank, shop1: give those of the same"):
        sv.explain(model, Parties.of(people.active, people["shop1"]))
    lonely = next(one for one in people.active.ids if one not in set(people["shop1"].ids))
    with pytest.raises(InputError, match="not common to all parties"):
        sv.explain(model, people, [lonely], aligned=aligned)


@pytest.mark.parametrize("page", ["docs/howto/explain-a-score.md", "docs/threat-model.md"])
def test_the_pages_have_the_figures_that_were_measured(page: str) -> None:
    root = Path(__file__).parents[2]
    found = json.loads((root / "benchmarks/results/explained.json").read_text(encoding="utf-8"))["R²"]
    text = (root / page).read_text(encoding="utf-8")
    for name, parties in found.items():
        job, _, count = name.rpartition(", ")
        for party, figures in parties.items():
            cells = [f"{value:.2f}" for value in figures["mean R²"].values()]
            title = job.replace("terms", "exact totals")
            assert f"| {title} | {count.split()[0]} | {party} | {' | '.join(cells)} |" in text
