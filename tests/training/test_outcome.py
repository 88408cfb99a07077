"""What a run says of its own worth: constant predictions, classes without rows, training that went nowhere."""

import math

import numpy as np
import pytest

import securevfl as sv
from securevfl.report.derived import list_worst_findings
from securevfl.report.record import LearnedRecord
from securevfl.training.outcome import check_classes, constant_metrics, few_rows, went_nowhere
from securevfl.training.rows import Epoch
from securevfl.training.split import stratified_marks
from securevfl.training.task import Task


def test_constant_metrics_are_those_of_scikit_learn_s_dummy() -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.metrics import accuracy_score, log_loss

    rng = np.random.default_rng(0)
    train, rows = rng.integers(0, 3, 500), rng.integers(0, 3, 200)
    dummy = DummyClassifier(strategy="prior").fit(np.zeros((500, 1)), train)
    probabilities = dummy.predict_proba(np.zeros((200, 1)))
    found = constant_metrics(Task(classes=3), train, rows)
    assert found["log_loss"] == pytest.approx(log_loss(rows, probabilities, labels=[0, 1, 2]))
    assert found["accuracy"] == accuracy_score(rows, dummy.predict(np.zeros((200, 1))))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rows", [1, 4, 300])
@pytest.mark.parametrize("spread", [0.1, 1.0, 900.0])
def test_metrics_are_those_of_scikit_learn_to_the_last_bit(classes: int, rows: int, spread: float) -> None:
    from sklearn.metrics import log_loss, roc_auc_score, roc_curve

    rng = np.random.default_rng(rows)
    logits = rng.normal(scale=spread, size=(rows, classes)).round(1)  # with ties
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities, labels = odds / odds.sum(axis=1, keepdims=True), rng.integers(0, classes, rows)
    found = Task(classes=classes).compute_metrics(probabilities, labels)
    expected = {
        "accuracy": float(np.mean(probabilities.argmax(axis=1) == labels)),
        "log_loss": log_loss(labels, probabilities, labels=list(range(classes))),
    }
    if classes == 2 and len(set(labels)) == 2:
        wrong, right, _ = roc_curve(labels, probabilities[:, 1])
        expected |= {"auc": roc_auc_score(labels, probabilities[:, 1]), "ks": (right - wrong).max()}
    elif len(set(labels)) == classes > 2:
        expected["auc"] = roc_auc_score(labels, probabilities, multi_class="ovr")
    assert found == expected


@pytest.mark.parametrize("label", [0, 1])
def test_certainty_costs_what_it_does_in_scikit_learn(label: int) -> None:
    from sklearn.metrics import log_loss

    sure, labels = np.array([[0.0, 1.0]]), np.array([label])
    assert Task(classes=2).compute_metrics(sure, labels)["log_loss"] == log_loss(labels, sure, labels=[0, 1])


def test_metrics_of_nothing_or_of_what_is_no_number_are_refused() -> None:
    for probabilities in (np.zeros((0, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(ValueError, match="finite probabilities"):
            Task(classes=2).compute_metrics(probabilities, np.zeros(len(probabilities), dtype=int))


def test_a_class_that_training_lacks_costs_a_constant_prediction_everything() -> None:
    assert constant_metrics(Task(classes=3), np.array([0, 1]), np.array([2]))["log_loss"] == math.inf
    assert constant_metrics(Task(classes=2), np.array([0, 1]), np.array([], dtype=int)) == {}


def test_rows_of_one_class_are_refused_with_the_cure() -> None:
    check_classes(np.array([0, 1, 0]))
    with pytest.raises(sv.InputError, match=r"all 3 training rows are of one class.*stratify = true"):
        check_classes(np.array([1, 1, 1]))


def test_few_rows_of_a_class_are_named_by_part() -> None:
    enough = np.repeat([0, 1], 40)
    assert few_rows(2, {"training": enough, "test": enough}) == []
    [warning] = few_rows(2, {"training": enough, "validation": np.repeat([0, 1], [60, 3])})
    assert "of 63 validation rows only 3 of class 1" in warning
    rare = np.repeat(np.arange(7), [60, 1, 2, 3, 4, 5, 60])
    [warning] = few_rows(7, {"test": rare}, words=[f"segment {k + 9}" for k in range(7)])
    assert "only 1 of class 'segment 10', 2 of class 'segment 11'" in warning
    assert "4 of class 'segment 13' and few of 1 more: metrics" in warning


def test_a_class_that_no_split_can_divide_is_named_as_the_table_writes_it() -> None:
    classes = np.repeat([0, 1], [500, 2])
    with pytest.raises(sv.InputError, match="class 'gold' has 2 common rows"):
        stratified_marks(classes, valid=0.1, test=0.1, seed=3, words=["no", "gold"])


@pytest.mark.parametrize(
    ("losses", "test", "warned"),
    [
        ([0.9, 0.5, 0.49, 0.48], 0.48, False),
        ([0.4, 0.6, 0.7, 0.9], 0.48, True),
        ([0.501, 0.502, 0.503], 0.5, False),  # no better and no worse
        ([0.5, 0.5, 0.5], 0.7, True),  # the kept model, on the test rows
        ([0.4, 0.4, 0.4, 0.6], 0.4, False),  # one bad epoch at the end
    ],
)
def test_training_that_went_nowhere(losses: list[float], test: float, warned: bool) -> None:
    constant = {"log_loss": 0.5}
    epochs = [Epoch(1.0, {"log_loss": loss}) for loss in losses]
    assert bool(went_nowhere(epochs, constant, {"log_loss": test}, constant)) is warned


def test_a_run_that_diverges_without_an_error_says_so_in_record_and_terminal() -> None:
    parties = sv.datasets.default_credit(rows=400, overlap=0.9, seed=0)
    net = sv.SplitNN(hidden=16, bottom=(16,), top=(16,), lr=0.1, cut_lr=1.0)
    wild = sv.Job(protection=sv.Plain(), algorithm=net, epochs=8, batch_size=32)
    result = sv.simulate(wild, parties)
    [run] = result.record.runs
    assert any("diverged" in warning for warning in run.warnings)
    from securevfl.report import comparison_table, render_report, render_text, warnings_text

    text = warnings_text(result.record)
    assert text is not None
    assert "diverged" in render_text(text)
    assert "diverged" in render_report(result.record)
    assert f"accuracy {run.constant['accuracy']:.4f}" in " ".join(render_text(comparison_table(result.record)).split())
    labels = np.asarray(parties.active.label)
    assert run.constant["accuracy"] == pytest.approx(max(np.bincount(labels)) / len(labels), abs=0.1)


def test_the_worst_is_of_each_party_and_an_unknown_severity_is_no_comfort() -> None:
    parties = sv.datasets.default_credit(rows=400, overlap=0.9, seed=0)
    record = sv.simulate(sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=1), parties).record
    lines = [
        LearnedRecord(party="bank", about="network", learns="a", severity="note"),
        LearnedRecord(party="bank", about="network, retailer", learns="b", severity="leak"),
        LearnedRecord(party="network, retailer", about="bank", learns="c", severity="ok"),
        LearnedRecord(party="retailer", about="network", learns="d", severity="new"),
    ]
    import msgspec

    [run] = record.runs
    changed = msgspec.structs.replace(record, runs=[msgspec.structs.replace(run, learned=lines)])
    assert [(severity, sentence) for _, severity, sentence in list_worst_findings(changed)] == [
        (
            "leak",
            "bank can read or compute data of network, retailer; retailer can read or compute data of network",
        ),
        ("ok", "network learns only what was agreed about bank"),
    ]


def test_noisy_rows_are_mean_and_deviation_over_draws_and_others_run_once() -> None:
    parties = sv.datasets.default_credit(rows=500, overlap=0.9, seed=0)
    plain = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=1, batch_size=128)
    noisy = plain.replace(protection=sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=2.0))))
    result = sv.compare({"plain": plain, "dp": noisy}, parties, baselines=(), draws=3)
    bare, dp = result.record.runs
    assert (bare.draws, bare.deviation) == (1, {})
    assert dp.draws == 3
    assert dp.deviation["log_loss"] > 0, "three draws of noise gave the same"
    assert set(dp.deviation) == set(dp.test)
    assert any("would pay it 3 times" in note for note in dp.notes)
    assert {"dp", "dp 2", "dp 3"} <= set(result.ledgers)
    from securevfl.report import comparison_table, render_report, render_text

    shown = f"± {dp.deviation['log_loss']:.4f}"
    assert shown in render_text(comparison_table(result.record))
    assert shown in render_report(result.record)


def test_a_number_of_draws_below_one_is_refused() -> None:
    parties = sv.datasets.default_credit(rows=300, overlap=0.9, seed=0)
    with pytest.raises(sv.InputError, match="draws is 0"):
        sv.simulate(sv.Job(protection=sv.Plain(), epochs=1), parties, draws=0)


def test_a_stratified_split_gives_each_part_enough_of_every_class() -> None:
    classes = np.repeat([0, 1, 2], [900, 97, 12])
    for seed in range(20):
        marks = stratified_marks(classes, valid=0.1, test=0.2, seed=seed)
        counts = np.array([[np.sum((classes == k) & (marks == part)) for part in (0, 1, 2)] for k in (0, 1, 2)])
        assert (counts >= [[315, 45, 90], [33, 4, 9], [4, 1, 1]]).all()
    assert not np.array_equal(marks, stratified_marks(classes, valid=0.1, test=0.2, seed=99))


def test_who_knows_all_labels_but_one_learns_nothing_of_that_one_from_the_marks() -> None:
    rng = np.random.default_rng(5)
    right = []
    for seed in range(400):
        classes = rng.permutation(np.repeat([0, 1], [63, 38]))
        marks = stratified_marks(classes, valid=0.1, test=0.2, seed=seed)
        fits = []  # how well the counts of each class fit its shares, for both classes of the last row
        for guess in (0, 1):
            guessed = np.append(classes[:-1], guess)
            sizes = np.bincount(guessed, minlength=2)
            counts = np.bincount(guessed * 3 + marks, minlength=6).reshape(2, 3)
            fits.append(np.abs(counts - np.round(np.outer(sizes, (0.7, 0.1, 0.2)))).sum())
        if fits[0] != fits[1]:
            right.append(int(np.argmin(fits)) == classes[-1])
    spread = 3 * np.sqrt(0.25 / len(right))
    prior = max(np.mean([63, 38]) / 101, 63 / 101)  # who always guesses the larger class
    assert np.mean(right) < prior + spread, "the marks tell the last row's class"


def test_a_class_with_fewer_rows_than_parts_cannot_be_stratified() -> None:
    with pytest.raises(sv.InputError, match="class 1 has 2 common rows"):
        stratified_marks(np.repeat([0, 1], [50, 2]), valid=0.1, test=0.2, seed=0)


def test_a_stratified_job_trains_on_one_split_with_its_baselines() -> None:
    parties = sv.datasets.default_credit(rows=500, overlap=0.9, seed=0)
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=1, stratify=True)
    result = sv.compare({"plain": job, "bfv": job.replace(protection=sv.BFV())}, parties, baselines=("alone",))
    labels = np.asarray(parties.active.label)
    place = {name: row for row, name in enumerate(parties.active.ids)}
    tested = labels[[place[name] for name in result.test_ids]]
    assert abs(tested.mean() - labels.mean()) < 0.12
    constants = {run.constant["accuracy"] for run in result.record.runs if run.key != "alone"}
    assert len(constants) == 1, "the runs tested on different rows"
    assert {len(scores) for scores in result.scores.values()} == {len(tested)}


def test_a_stratified_split_beside_noise_on_labels_is_refused() -> None:
    with pytest.raises(sv.InputError, match=r"stratify is set and dp\.labels"):
        sv.Job(stratify=True, protection=sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=1.0))))
