"""Cut-offs, their costs and groups: figures are those of scikit-learn or scipy, or of a few obvious lines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ks_2samp
from sklearn import metrics

import securevfl as sv
from securevfl.agreement.party_file import read_party_file
from securevfl.jobfile.job_file import read_job_sections
from securevfl.report import Evaluation, Record, render_report
from securevfl.report.decision_words import decision_lines, evaluation_lines, format_cutoff
from securevfl.run.decisions import choose_cutoff, count_at, cutoff_rows, make_decision, mean_cost
from securevfl.run.evaluation import evaluate_classes, evaluate_labels, evaluate_numbers
from securevfl.run.grouping import Grouping, check_grouping, measure_groups, name_groups
from securevfl.run.judging import judge_prediction, read_cutoff
from securevfl.training.metrics import recall_curve, roc_curve, wilson_interval

COSTS = sv.Costs(false_positive=1, false_negative=5)


def _drawn(rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Hits and scores of which many are equal."""
    rng = np.random.default_rng(seed)
    hits = rng.random(rows) < 0.3
    return hits, np.clip(rng.normal(0.3 + 0.25 * hits, 0.2), 0, 1).round(2)


def _evaluated(hits: np.ndarray, scores: np.ndarray, **more: object) -> Evaluation:
    both = np.stack([1 - scores, scores], axis=1)
    return evaluate_classes(both, hits.astype(np.int64), ["no", "yes"], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("weighted", [False, True])
def test_average_precision_and_its_curve_are_scikit_learn_s(weighted: bool) -> None:
    hits, scores = _drawn()
    weight = np.random.default_rng(1).integers(0, 3, len(hits)).astype(float) if weighted else None
    curve = recall_curve(hits, scores, weight)
    assert curve is not None
    expected = metrics.average_precision_score(hits, scores, sample_weight=weight)
    assert curve.average_precision == pytest.approx(expected)
    if not weighted:
        found = _evaluated(hits, scores)
        assert found.metrics["average_precision"] == found.per_class[1].average_precision == pytest.approx(expected)
        precision, recall, _ = metrics.precision_recall_curve(hits, scores)
        points = set(zip(recall.round(5), precision.round(5), strict=True))
        assert set(found.recall["yes"]) <= points
    assert recall_curve(np.zeros(5, bool), np.ones(5)) is None


def test_ks_and_where_it_is_are_scipy_s() -> None:
    hits, scores = _drawn()
    expected = ks_2samp(scores[hits], scores[~hits])
    found = _evaluated(hits, scores)
    assert found.metrics["ks"] == pytest.approx(expected.statistic)
    at = count_at(hits, scores, found.ks_cutoff or 0.0)  # scipy names the score below, where rates are of rows up to it
    assert at.hits / hits.sum() - at.false_positives / (~hits).sum() == pytest.approx(expected.statistic)
    assert expected.statistic_location == max(scores[scores < found.ks_cutoff])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=2, max_size=40), st.integers(0, 20))
def test_a_cut_off_counts_what_the_confusion_matrix_counts(rows: list[tuple[bool, int]], cutoff: int) -> None:
    hits, scores = np.array([hit for hit, _ in rows]), np.array([score / 20 for _, score in rows])
    row = count_at(hits, scores, cutoff / 20, COSTS)
    ((_, fp), (fn, tp)) = metrics.confusion_matrix(hits, scores >= cutoff / 20, labels=[False, True])
    assert (row.hits, row.false_positives, row.false_negatives, row.flagged) == (tp, fp, fn, tp + fp)
    assert row.cost == pytest.approx(1000 * (fp + 5 * fn) / len(rows))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 12)), min_size=1, max_size=25),
    st.floats(0, 10),
    st.floats(0.1, 10),
)
def test_no_cut_off_is_cheaper_than_the_chosen_one(rows: list[tuple[bool, int]], fp: float, fn: float) -> None:
    hits, scores = np.array([hit for hit, _ in rows]), np.array([score / 12 for _, score in rows])
    costs = sv.Costs(false_positive=fp, false_negative=fn)
    chosen = mean_cost(hits, scores >= choose_cutoff(hits, scores, costs), costs)
    for cutoff in [-1.0, *np.arange(0, 14) / 12]:
        assert chosen <= mean_cost(hits, scores >= cutoff, costs) + 1e-9


def test_the_cheapest_cut_off_is_chosen_on_validation_rows_and_paid_for_on_test_rows() -> None:
    valid, test = _drawn(seed=1), _drawn(seed=2)
    found = make_decision(*test, COSTS, valid)
    assert (found.chosen_on, found.chosen_rows) == ("validation rows", 400)
    assert found.cutoff == choose_cutoff(*valid, COSTS) != choose_cutoff(*test, COSTS)
    assert found.cost == mean_cost(test[0], test[1] >= found.cutoff, COSTS)
    assert found.low < found.cost < found.high
    assert found.flag_none == 1000 * 5 * test[0].mean()
    assert found.flag_all == 1000 * (~test[0]).mean()
    few = make_decision(*test, COSTS, (valid[0][:49], valid[1][:49]))
    assert few == make_decision(*test, COSTS)
    assert few.chosen_on == "test rows"
    rows = cutoff_rows(*test, COSTS, [found.cutoff])
    assert [row.cutoff for row in rows] == sorted((row.cutoff for row in rows), reverse=True)
    assert {0.5, found.cutoff} <= {row.cutoff for row in rows}


def test_no_row_pays_for_a_cut_off_that_it_helped_to_choose() -> None:
    """Scores without content: choosing on the rows that pay would make them look cheaper than flagging all or none."""
    rng = np.random.default_rng(0)
    costs, own, crossed = sv.Costs(false_positive=1, false_negative=1), [], []
    for _ in range(60):
        hits, scores = rng.random(60) < 0.5, rng.random(60)
        own.append(mean_cost(hits, scores >= choose_cutoff(hits, scores, costs), costs))
        crossed.append(make_decision(hits, scores, costs).cost)
    assert np.mean(own) < 450
    assert np.mean(crossed) > 480


@pytest.mark.parametrize(("count", "rows"), [(0, 10), (3, 10), (50, 50), (1, 400)])
def test_the_interval_of_a_share_is_wilson_s(count: int, rows: int) -> None:
    expected = binomtest(count, rows).proportion_ci(0.95, method="wilson")
    assert wilson_interval(count, rows) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_bins_of_calibration_hold_equally_many_rows_and_their_intervals() -> None:
    hits, _ = _drawn(1000)
    scores = np.random.default_rng(5).random(1000)
    bins = _evaluated(hits, scores).reliability
    assert [one.rows for one in bins] == [100] * 10
    for one in bins:
        assert (one.least, one.most) == wilson_interval(round(one.observed * one.rows), one.rows)


def test_groups_have_the_figures_of_their_rows_and_small_ones_are_left_out() -> None:
    hits, scores = _drawn(400)
    names = np.array(["a"] * 200 + ["b"] * 151 + ["c"] * 49, dtype=object)
    found = _evaluated(hits, scores, costs=COSTS, grouping=Grouping("bank", "sex", names))
    assert found.groups is not None
    assert found.decision is not None
    assert [(one.name, one.rows) for one in found.groups.groups] == [("a", 200), ("b", 151)]
    assert (found.groups.small, found.groups.small_rows) == (1, 49)
    for one, part in zip(found.groups.groups, (slice(0, 200), slice(200, 351)), strict=True):
        hit, flagged = hits[part], scores[part] >= found.decision.cutoff
        assert one.observed is not None
        assert one.observed.value == pytest.approx(hit.mean())
        assert one.score == pytest.approx(scores[part].mean())
        assert one.auc is not None
        assert one.auc.value == pytest.approx(metrics.roc_auc_score(hit, scores[part]))
        assert one.auc.low < one.auc.value < one.auc.high
        assert one.false_positive_rate is not None
        assert one.false_positive_rate.value == pytest.approx(flagged[~hit].mean())
        assert one.false_negative_rate is not None
        assert one.false_negative_rate.value == pytest.approx((~flagged)[hit].mean())
    numbers = measure_groups(Grouping("bank", "sex", names), scores[:, None], hits.astype(float), classes=0)
    assert numbers.groups[0].bias is not None
    assert numbers.groups[0].bias.value == pytest.approx((scores - hits)[:200].mean())
    ranges = Grouping("b", "age", name_groups(np.arange(400) % 80 * 1.0))
    aged = measure_groups(ranges, scores[:, None], hits.astype(float), classes=0)
    assert [one.name.partition(" ")[0] for one in aged.groups] == ["up", "19.75", "39.5", "above"]
    alike = measure_groups(Grouping("b", "c", np.repeat("a", 400)), np.stack([1 - scores, scores], 1), hits * 0)
    assert alike.groups[0].auc is None
    assert alike.groups[0].false_negative_rate is None


def test_groups_are_named_by_their_values_and_many_numbers_in_four_ranges() -> None:
    assert name_groups(np.array(["f", "", None], dtype=object)).tolist() == ["f", "missing", "missing"]
    assert name_groups(np.array([1.0, 2.0, np.nan])).tolist() == ["1", "2", "missing"]
    ages = name_groups(np.arange(20.0, 60.0))
    assert {name: (ages == name).sum() for name in dict.fromkeys(ages)} == {
        "up to 29.75": 10,
        "29.75 to 39.5": 10,
        "39.5 to 49.25": 10,
        "above 49.25": 10,
    }
    assert name_groups(np.arange(12).astype(str), as_they_are=True).tolist() == [str(k) for k in range(12)]
    assert set(name_groups(np.array(["2024-03-01", "2025-01-01"], dtype="datetime64[D]"))) == {"2024", "2025"}


def test_quantiles_of_errors_and_their_tenths() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=500)
    predicted = y + rng.normal(size=500)
    found = evaluate_numbers(predicted, y)
    for one in found.errors:
        assert (np.abs(predicted - y) <= one.error).mean() == pytest.approx(one.share, abs=0.003)
    for part in found.residuals:
        assert part.low_error is not None
        assert part.high_error is not None
        assert part.low_error < part.predicted - part.observed < part.high_error


def test_of_classes_alone_nothing_is_said_that_needs_probabilities() -> None:
    hits, scores = _drawn()
    found = _evaluated(
        hits,
        (scores > 0.5).astype(float),
        only_classes=True,
        costs=COSTS,
        grouping=Grouping("b", "c", np.repeat("a", 400)),
    )
    for left_out in (found.roc, found.recall, found.lift, found.reliability, found.cutoffs, found.decision):
        assert not left_out
    assert {"auc", "average_precision", "log_loss", "ece", "ks"}.isdisjoint(found.metrics)
    assert found.metrics["accuracy"] == metrics.accuracy_score(hits, scores > 0.5)
    assert found.groups is not None
    (one,) = found.groups.groups
    assert one.observed is not None
    assert (one.score, one.auc) == (None, None)


def test_costs_that_decide_nothing_are_refused() -> None:
    with pytest.raises(sv.InputError, match="both 0"):
        sv.Costs(false_positive=0, false_negative=0)
    with pytest.raises(sv.InputError, match="for two classes, and task is 'regression'"):
        sv.Job(task="regression", report=sv.ReportOptions(costs=COSTS))
    with pytest.raises(sv.InputError, match="did you mean 'costs'"):
        sv.ReportOptions(cost=COSTS)  # type: ignore[call-arg]


def test_what_the_report_decides_with_is_no_part_of_what_parties_agree_on() -> None:
    job = sv.Job(protection=sv.Plain())
    assert job.replace(report=sv.ReportOptions(costs=COSTS, group="bank.sex")).digest == job.digest


JOB = """
baselines = []
protection = "plain"
[job]
epochs = 2
batch_size = 64
test = 0.5
[report]
costs = { false_positive = 1, false_negative = 5 }
group = "bank.sex"
[[party]]
name = "bank"
file = "bank.csv"
id = "id"
label = "late"
features = ["a"]
[[party]]
name = "shop"
file = "shop.csv"
id = "id"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables and a job; the column to group by is no feature."""
    rng = np.random.default_rng(0)
    place = tmp_path_factory.mktemp("decide")
    a, b = rng.normal(size=(2, 300)).round(3)
    late = np.where(a + b + rng.normal(size=300) > 0.5, "yes", "no")
    sex = rng.choice(["f", "m"], 300)
    bank = [f"{i},{x},{s},{y}" for i, x, s, y in zip(range(300), a, sex, late, strict=True)]
    (place / "bank.csv").write_text("\n".join(["id,a,sex,late", *bank]))
    (place / "shop.csv").write_text("\n".join(["id,b", *(f"{i},{x}" for i, x in enumerate(b))]))
    (place / "job.toml").write_text(JOB)
    return place


@pytest.fixture(scope="module")
def result(folder: Path) -> sv.Result:
    file = sv.read_job(folder / "job.toml")
    found = sv.simulate(file.job, file.parties, baselines=(), observer=sv.Observer())
    found.report(folder / "run")
    return found


def test_a_job_file_s_costs_and_group_reach_record_page_and_terminal(result: sv.Result, folder: Path) -> None:
    read = Record.read(folder / "run" / "metrics.json")
    found = read.runs[0].evaluation
    assert found is not None
    assert found.groups is not None
    assert found.decision is not None
    assert (found.groups.party, found.groups.column, found.groups.simulated) == ("bank", "sex", False)
    assert sum(one.rows for one in found.groups.groups) + found.groups.small_rows == found.rows == 150
    assert found.decision.chosen_on == "test rows"  # 30 rows validate
    lines = "\n".join(decision_lines(read))
    page = (folder / "run" / "report.html").read_text()
    for text in (format_cutoff(found.decision.cutoff), "bank.sex", f"{found.metrics['average_precision']:.3f}"):
        assert text in lines
        assert text in page
    assert "a" in result.record.parties[0].columns
    assert "sex" not in result.record.parties[0].columns


def test_predictions_of_rows_with_labels_have_the_same_figures(result: sv.Result, folder: Path) -> None:
    file = sv.read_job(folder / "job.toml")
    cutoff = read_cutoff(folder / "run")
    tested = set(result.test_ids)
    rows = [row for row, name in enumerate(file.parties.active.ids) if name in tested]
    some = sv.Parties.of(*(table.take(rows) for table in file.parties.values()))
    predicted = sv.predict(result.model(), some)
    judged = judge_prediction(predicted, some, file.job.report, cutoff=cutoff)
    found = result.evaluation
    assert judged is not None
    assert judged.decision is not None
    assert judged.groups is not None
    assert found.decision is not None
    assert judged.metrics == pytest.approx(found.metrics, abs=1e-6)
    assert (judged.confusion, judged.decision.cutoff) == (found.confusion, found.decision.cutoff)
    assert found.groups is not None
    assert [one.rows for one in judged.groups.groups] == [one.rows for one in found.groups.groups]
    assert read_cutoff(folder) is None


def test_another_organisation_s_column_groups_rows_in_a_simulation_alone(folder: Path) -> None:
    file = sv.read_job(folder / "job.toml")
    options = sv.ReportOptions(group="shop.b")
    check_grouping(options, file.parties, "bank")  # a simulation has all tables
    with pytest.raises(sv.InputError, match="'bank' does not have its values"):
        check_grouping(options, {"bank": file.parties["bank"]}, "bank")
    with pytest.raises(sv.UnknownNameError, match=r"did you mean 'a'|column of 'bank'"):
        check_grouping(sv.ReportOptions(group="colour"), file.parties, "bank")
    own = '[keys]\nsigning = "k"\ncertificate = "c"\nkey = "t"\n[data]\nfile = "bank.csv"\nid = "id"\nlabel = "late"\n'
    own += 'features = ["a"]\n'
    (folder / "own.toml").write_text('party = "bank"\n' + own + '[report]\ngroup = "shop.b"\n')
    with pytest.raises(sv.InputError, match="only a simulation can group by another's"):
        read_party_file(folder / "own.toml")
    (folder / "own.toml").write_text('party = "bank"\n' + own + '[report]\ngroup = "sex"\n')
    table = read_party_file(folder / "own.toml").read_table()
    assert table is not None
    assert (set(table.columns), set(table.beside), set(table.beside["sex"])) == ({"a"}, {"sex"}, {"f", "m"})
    assert table.take([1]).beside["sex"] == table.beside["sex"][1:2]
    (folder / "own.toml").write_text(
        'party = "bank"\n' + own.replace('label = "late"\n', "") + '[report]\ngroup = "a"\n'
    )
    with pytest.raises(sv.InputError, match="for the party with the labels"):
        read_party_file(folder / "own.toml")


def test_check_finds_a_group_that_no_table_has(folder: Path) -> None:
    from securevfl.checks import check_file

    (folder / "wrong.toml").write_text(JOB.replace("bank.sex", "bank.sexe"))
    assert any("did you mean 'sex'" in line for line in check_file(folder / "wrong.toml").mistakes)
    (folder / "wrong.toml").write_text(JOB.replace("bank.sex", "bnk.sex"))
    assert any("party of report.group 'bnk'" in line for line in check_file(folder / "wrong.toml").mistakes)
    assert not read_job_sections(folder / "job.toml")[2]


def test_a_curve_s_cut_offs_are_the_scores_at_its_points() -> None:
    hits, scores = _drawn()
    curve = roc_curve(hits, scores)
    assert curve is not None
    false, true, cutoffs = metrics.roc_curve(hits, scores)
    assert curve.cutoffs.tolist() == cutoffs.tolist()
    assert (curve.false_rate.tolist(), curve.true_rate.tolist()) == (false.tolist(), true.tolist())


def test_of_several_classes_or_labels_each_has_its_figures_in_each_group() -> None:
    draw = np.random.default_rng(3)
    labels = draw.integers(0, 2, (300, 3))
    scores = np.clip(labels * 0.3 + draw.random((300, 3)) * 0.7, 0, 1)
    grouping = Grouping("bank", "sex", np.repeat(["a", "b"], [200, 100]).astype(object))
    found = evaluate_labels(scores, labels, ("x", "y", "z"), grouping=grouping).groups
    assert found is not None
    for one, part in zip(found.groups, (slice(0, 200), slice(200, 300)), strict=True):
        given = scores[part] >= 0.5
        assert one.observed is not None
        assert one.observed.value == pytest.approx((given == labels[part]).all(axis=1).mean())
        assert [each.name for each in one.parts] == ["x", "y", "z"]
        for k, each in enumerate(one.parts):
            right = labels[part, k] == 1
            assert each.rows == right.sum()
            assert each.auc is not None
            assert each.auc.value == pytest.approx(metrics.roc_auc_score(right, scores[part, k]))
            assert each.false_positive_rate is not None
            assert each.false_positive_rate.value == pytest.approx(given[~right, k].mean())
            assert each.false_negative_rate is not None
            assert each.false_negative_rate.value == pytest.approx((~given)[right, k].mean())
    shares = scores / scores.sum(axis=1, keepdims=True)
    classes = evaluate_classes(shares, labels.argmax(axis=1), ("x", "y", "z"), grouping=grouping)
    assert classes.groups is not None
    first = classes.groups.groups[0].parts[1]
    right, given = labels[:200].argmax(axis=1) == 1, shares[:200].argmax(axis=1) == 1
    assert first.flagged is not None
    assert first.flagged.value == pytest.approx(given.mean())
    assert first.false_negative_rate is not None
    assert first.false_negative_rate.value == pytest.approx((~given)[right].mean())
    assert any("    y: rate" in line for line in evaluation_lines(classes))
    alone = evaluate_classes(shares, labels.argmax(axis=1), ("x", "y", "z"), grouping=grouping, only_classes=True)
    assert alone.groups is not None
    assert {(each.score, each.auc) for one in alone.groups.groups for each in one.parts} == {(None, None)}
    predicted, y = scores[:, 0], labels[:, 0].astype(float)
    numbers = evaluate_numbers(predicted, y, grouping=grouping)
    assert numbers.groups is not None
    one = numbers.groups.groups[0]
    error = np.abs(predicted - y)[:200]
    assert (one.mae, one.within, one.mean) == pytest.approx((error.mean(), np.quantile(error, 0.9), y[:200].mean()))
    assert "90 % within" in " ".join(evaluation_lines(numbers))


def test_the_page_shows_each_label_of_a_group_and_errors_of_numbers(result: sv.Result) -> None:
    draw = np.random.default_rng(4)
    labels, grouping = draw.integers(0, 2, (120, 2)), Grouping("bank", "sex", np.repeat(["a", "b"], 60).astype(object))
    scores = np.clip(labels * 0.3 + draw.random((120, 2)) * 0.7, 0, 1)

    def page_of(evaluation: Evaluation) -> str:
        (run,) = result.record.runs
        shown = msgspec.structs.replace(run, evaluation=evaluation)
        return render_report(msgspec.structs.replace(result.record, runs=[shown]))

    many = evaluate_labels(scores, labels, ("asthma", "gout"), grouping=grouping)
    page = page_of(many)
    assert many.groups is not None
    assert page.count("<td>asthma</td>") == page.count("<td>gout</td>") == 2
    assert "Right: share of rows with all answers right" in page
    numbers = evaluate_numbers(scores[:, 0], labels[:, 0].astype(float), grouping=grouping)
    assert numbers.groups is not None
    assert f"{numbers.groups.groups[0].within:,.4g}" in page_of(numbers)
