"""Several labels of a row: learned side by side, in plain and sealed, measured, predicted, drafted and checked."""

from __future__ import annotations

import asyncio
import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics

import securevfl as sv
from securevfl import cli
from securevfl.attacks import label_inference
from securevfl.attacks.measure import draw_known, score_ranking
from securevfl.cut import Protection
from securevfl.experiments import record_job
from securevfl.privacy.loss import EachLabel
from securevfl.training.multilabel import Labels

ROWS = 300
NAMES = ("card", "loan", "fund")


def _people(rows: int = ROWS, seed: int = 0, labels: int = 3) -> sv.Parties:
    draw = np.random.default_rng(seed)
    x, ids = draw.normal(size=(rows, 4)), [f"p{i}" for i in range(rows)]
    toward = np.array([[1, 0.2, 1, 0.1], [0.1, -1, 0.3, 1], [0, 0.5, -1, 0.6]])[:labels]
    y = (x @ toward.T + 0.4 * draw.normal(size=(rows, labels)) > [0.0, 0.5, -0.5][:labels]).astype(np.int64)
    bank = sv.PartyTable(
        name="bank",
        ids=ids,
        columns={"a": x[:, 0], "b": x[:, 1]},
        label=y,
        classes=NAMES[:labels],
        label_name=", ".join(NAMES[:labels]),
    )
    return sv.Parties.of(bank, sv.PartyTable(name="shop", ids=ids, columns={"c": x[:, 2], "d": x[:, 3]}))


def _job(**options: object) -> sv.Job:
    algorithm = sv.SplitNN(hidden=8, top=(8,))
    usual = {"task": "multilabel", "algorithm": algorithm, "protection": sv.Plain(), "epochs": 8, "batch_size": 32}
    return sv.Job(**usual | options)  # type: ignore[arg-type]


PEOPLE = _people()


@pytest.fixture(scope="module")
def found() -> sv.Result:
    return sv.simulate(_job(), PEOPLE, baselines=("alone", "alone_boosted"))


def test_all_labels_are_learned_better_than_by_the_party_alone(found: sv.Result) -> None:
    alone, boosted, plain = (found.run(key) for key in ("alone", "alone_boosted", "plain"))
    for other in (alone, boosted):
        assert plain.test["auc"] > other.test["auc"] + 0.1
        assert plain.test["macro_f1"] > other.test["macro_f1"]
    assert plain.test["log_loss"] < plain.constant["log_loss"]
    assert plain.test["accuracy"] > plain.constant["accuracy"]
    new = _people(seed=1)
    predicted = sv.predict(found.model(), new)
    assert predicted.classes == NAMES
    assert predicted.probabilities.shape == (ROWS, 3)
    assert (predicted.probabilities.sum(axis=1) > 1.2).any(), "labels do not exclude each other"
    truth = dict(zip(new.active.ids, new.active.label, strict=True))
    y = np.array([truth[name] for name in predicted.ids])
    assert metrics.roc_auc_score(y, predicted.probabilities) > 0.85
    assert list(predicted.to_pandas().columns) == [*NAMES, "scored from"]


def test_the_evaluation_is_scikit_learn_s(found: sv.Result) -> None:
    seen, scores = found.evaluation, found.scores["plain"]
    table = PEOPLE.active
    at = {name: row for row, name in enumerate(table.ids)}
    y = table.label[[at[name] for name in found.test_ids]]
    given = (scores >= 0.5).astype(int)
    assert (seen.task, seen.classes, seen.rows) == ("multilabel", list(NAMES), len(y))
    assert seen.metrics["hamming_loss"] == pytest.approx(metrics.hamming_loss(y, given))
    assert seen.metrics["subset_accuracy"] == pytest.approx(metrics.accuracy_score(y, given))
    for average in ("macro", "micro"):
        assert seen.metrics[f"{average}_f1"] == pytest.approx(metrics.f1_score(y, given, average=average))
    assert seen.metrics["auc"] == pytest.approx(metrics.roc_auc_score(y, scores, average="macro"))
    assert seen.metrics["micro_auc"] == pytest.approx(metrics.roc_auc_score(y, scores, average="micro"))
    assert seen.metrics["log_loss"] == pytest.approx(
        np.mean([metrics.log_loss(y[:, k], scores[:, k]) for k in range(3)])
    )
    for k, one in enumerate(seen.per_class):
        assert (one.name, one.rows) == (NAMES[k], y[:, k].sum())
        assert one.f1 == pytest.approx(metrics.f1_score(y[:, k], given[:, k]))
        assert one.auc == pytest.approx(metrics.roc_auc_score(y[:, k], scores[:, k]))
    assert set(seen.roc) == set(seen.lift) == set(NAMES)
    assert not seen.confusion
    run = found.run("plain")
    assert all(seen.metrics[name] == pytest.approx(value) for name, value in run.test.items())


def test_weights_of_rows_count_in_every_metric() -> None:
    draw = np.random.default_rng(0)
    y, p, weight = draw.integers(0, 2, (80, 3)), draw.random((80, 3)), draw.random(80)
    got = Labels(3).compute_metrics(p, y, weight)
    given = (p >= 0.5).astype(int)
    assert got["micro_f1"] == pytest.approx(metrics.f1_score(y, given, average="micro", sample_weight=weight))
    assert got["auc"] == pytest.approx(metrics.roc_auc_score(y, p, sample_weight=weight))
    assert got["accuracy"] == pytest.approx(np.average((given == y).mean(axis=1), weights=weight))
    assert "auc" not in Labels(3).compute_metrics(p, y * [0, 1, 1])
    with pytest.raises(ValueError, match="at least one"):
        Labels(3).compute_metrics(p[:0], y[:0])


def test_table_and_page_have_a_line_for_each_label(found: sv.Result, tmp_path: Path) -> None:
    page = found.report(tmp_path).read_text(encoding="utf-8")
    assert "macro" in found.table()
    assert "all answers together" in page
    assert f"{100 * found.evaluation.metrics['subset_accuracy']:.1f} % of the test rows have all their labels" in page
    assert "By label" in page
    assert "3 labels, of which a row can have several" in page
    assert "each label by itself" in page
    assert all(f">{name}</th>" in page for name in NAMES)


@pytest.mark.parametrize("protection", [sv.BFV(), sv.CKKS(), sv.Paillier(bits=2048)], ids=lambda one: one.name)
def test_a_sealed_cut_learns_the_same_labels(protection: Protection) -> None:
    """Of two labels, whose model has two outputs where one of two classes has one."""
    job = _job(algorithm="logistic_regression", epochs=1, batch_size=16)
    both = sv.compare({"plain": job, "sealed": job.replace(protection=protection)}, _people(60, labels=2), baselines=())
    assert both.scores["sealed"] == pytest.approx(both.scores["plain"], abs=1e-4)


@pytest.mark.parametrize("algorithm", ["local", "zero_imputation", "random_match", "logistic_regression"])
def test_baselines_of_papers_learn_several_labels(algorithm: str) -> None:
    people = _people()
    half = sv.Parties.of(people["bank"], people["shop"].take(np.arange(0, ROWS, 2)))
    run = sv.simulate(_job(algorithm=algorithm, epochs=2), half).run("plain")
    assert np.isfinite(run.test["log_loss"])


def test_noise_on_labels_is_sized_by_all_labels_of_a_row() -> None:
    loss, draw = EachLabel(4), torch.Generator().manual_seed(0)
    logits = torch.randn((200, 4), generator=draw, dtype=torch.float64).requires_grad_()
    largest = 0.0
    ends = [torch.zeros(200, 4), torch.ones(200, 4), (torch.rand((200, 4), generator=draw) > 0.5).float()]
    gradients = [torch.autograd.grad(loss(logits, y).sum(), logits)[0] for y in ends]
    for one in gradients:
        for other in gradients:
            largest = max(largest, float((one - other).norm(dim=1).max()))
    assert largest == pytest.approx(loss.sensitivity)
    assert not loss.accepts_targets(torch.full((2, 4), 1.5))
    noisy = sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=8.0)))
    run = sv.simulate(
        _job(protection=noisy, epochs=1, algorithm=sv.SplitNN(hidden=4, top=(4,), bottom=(3,))), _people(120)
    )
    assert any(line.epsilon_rdp > 0 for line in run.run(run.record.runs[-1].key).epsilon)


def test_folds_and_everyone(found: sv.Result) -> None:
    folds = sv.cross_validate(_job(epochs=1), _people(90), folds=2)
    assert {"auc", "macro_f1", "micro_f1"} <= set(folds.mean)
    half = sv.Parties.of(PEOPLE["bank"], PEOPLE["shop"].take(np.arange(0, ROWS, 2)))
    model = sv.simulate(_job(algorithm="zero_imputation", epochs=2), half).model()
    assert sv.predict(model, half, everyone=True).probabilities.shape == (ROWS, 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "fedcvt"}, r"learns one label.*splitnn.*one job for each label"),
        ({"algorithm": "boosting"}, r"learns one label.*one job for each label"),
        ({"protection": sv.Shares()}, r"several labels cannot be trained on shares.*'bfv'.*one job for each label"),
        (
            {"protection": sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=1)))},
            "randomised response, for classes",
        ),
        ({"stratify": True}, "stratify draws the split by class"),
        ({"class_weight": "balanced"}, "class_weight is of classes"),
        ({"loss": "huber"}, r"task is 'multilabel': set task='regression'"),
    ],
)
def test_what_is_not_for_several_labels_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(**options)


def test_tables_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(sv.InputError, match=r"names 3 labels.*task is 'classification': set task = \"multilabel\""):
        sv.simulate(_job(task="classification"), PEOPLE)
    one = replace(PEOPLE["bank"], label=PEOPLE["bank"].label[:, 0].copy(), classes=(0, 1), label_name="card")
    with pytest.raises(sv.InputError, match=r"'card' has classes.*name the label columns in a list"):
        sv.simulate(_job(), sv.Parties.of(one, PEOPLE["shop"]))
    with pytest.raises(sv.InputError, match=r"attacks are scored by one label.*each label by itself"):
        sv.attack(_job(), PEOPLE)
    bank = PEOPLE["bank"]
    for label, words in (
        (bank.label * 2, "neither 0 nor 1"),
        (bank.label * [1, 0, 1], "'loan' is 0 in all 300 rows"),
        (bank.label[:, :2].copy(), r"int64 \(300, 2\) and 3 are named"),
    ):
        with pytest.raises(sv.InputError, match=words):
            replace(bank, label=label)


def test_a_gradient_of_several_labels_tells_each_of_them() -> None:
    """What `sv.attack` says in the place of attacking; and behind a seal, an identity bottom is given none."""
    people = _people(400)
    job = _job(algorithm=sv.SplitNN(hidden=8, top=(8,), bottom=(8,)), epochs=3, batch_size=64)
    _, transcript, _ = record_job(job, people)
    view, y = replace(transcript.view("shop"), classes=2), transcript.truth().y
    for label in range(3):
        known = draw_known(view.train, y[:, label], 40, 0)
        got, _ = score_ranking(label_inference.fit_on_gradients(view, known).exclude_rows(known.rows), y[:, label], 2)
        own, _ = score_ranking(label_inference.fit_on_own_columns(view, known).exclude_rows(known.rows), y[:, label], 2)
        assert got > max(0.93, own + 0.05), NAMES[label]
    _, sealed, _ = record_job(_job(protection=sv.BFV(), epochs=1), people)
    assert not sealed.view("shop").gradients()


def _files(folder: Path, rows: int = 200) -> list[Path]:
    people = _people(rows)
    paths = []
    for name, table in people.items():
        several = [] if table.label is None else list(table.label.T)
        head = ["id", *table.columns, *(NAMES if several else ())]
        lines = [",".join(map(str, row)) for row in zip(table.ids, *table.columns.values(), *several, strict=True)]
        paths.append(folder / f"{name}.csv")
        paths[-1].write_text("\n".join([",".join(head), *lines]) + "\n")
    return paths


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return int(ended.value.code or 0)


def test_three_commands_and_a_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _files(tmp_path)
    labels = [word for name in NAMES for word in ("--label", name)]
    assert command("init", "bank.csv", "shop.csv", *labels, "--out", "job.toml") == 0
    text = Path("job.toml").read_text()
    assert 'task = "multilabel"' in text
    assert 'label = ["card", "loan", "fund"]' in text
    file = sv.read_job("job.toml")
    assert file.parties["bank"].target == "labels"
    assert np.array_equal(file.parties["bank"].label, _people(200)["bank"].label)
    assert tuple(file.parties["bank"].columns) == ("a", "b")
    assert command("check", "job.toml") == 0
    Path("job.toml").write_text(re.sub("epochs = [0-9]+", "epochs = 2", text.replace('"bfv"', '"plain"')))
    assert command("run", "job.toml", "--out", "run") == 0
    assert command("predict", "job.toml", "run/model", "--out", "scores.csv") == 0
    rows = list(csv.DictReader(Path("scores.csv").read_text().splitlines()))
    assert len(rows) == 200
    assert list(rows[0]) == ["id", *NAMES]
    assert all(0 <= float(row[name]) <= 1 for row in rows for name in NAMES)
    broken = Path("bank.csv").read_text().replace(",1\n", ",2\n", 1)
    Path("bank.csv").write_text(broken)
    Path("job.toml").write_text(text.replace('"loan"', '"loans"'))
    capsys.readouterr()
    assert command("check", "job.toml") == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "label column" in said
    assert "loans" in said
    assert "'fund' is neither 0 nor 1 in 1 of 200 rows" in said


def test_how_several_labels_are_told(tmp_path: Path) -> None:
    bank, _ = _files(tmp_path)
    table = sv.read_table(bank, name="bank", id="id", label=["fund", "card"], features=["a"])
    assert (table.target, table.classes, table.label_name) == ("labels", ("fund", "card"), "fund, card")
    for options, words in (
        ({"label": ["card"]}, "two columns or more"),
        ({"label": ["card", "card"]}, "each named once"),
        ({"label": "card", "target": "labels"}, "two columns or more"),
        ({"label": ["card", "loan"], "classes": [0, 1]}, "leave classes out"),
        ({"label": ["card", "loan"], "target": "number"}, "two columns or more"),
        ({"label": "card", "target": "ordinal"}, "'number' with ranks"),
    ):
        with pytest.raises(sv.InputError, match=words):
            sv.read_table(bank, name="bank", id="id", **options)  # type: ignore[arg-type]


def test_frames_with_several_labels() -> None:
    import pandas as pd

    table = PEOPLE["bank"]
    bank = pd.DataFrame({"id": table.ids, "a": table.columns["a"], **dict(zip(NAMES, table.label.T, strict=True))})
    bank["loan"] = bank["loan"].astype(bool)
    shop = pd.DataFrame({"id": table.ids, "c": PEOPLE["shop"].columns["c"]})
    people = sv.Parties.from_pandas({"bank": bank, "shop": shop}, id="id", label=list(NAMES))
    assert people.active.target == "labels"
    assert np.array_equal(people.active.label, table.label)
    with pytest.raises(sv.InputError, match=r"no frame has the columns \['card', 'c'\]"):
        sv.Parties.from_pandas({"bank": bank, "shop": shop}, id="id", label=["card", "c"])
    with pytest.raises(sv.InputError, match=r"names 3 labels.*task is 'classification'"):
        sv.VerticalClassifier(epochs=1).fit(people)


def test_parties_with_files_of_their_own_learn_the_same_labels(tmp_path: Path) -> None:
    from securevfl.agreement.plain_words import describe_proposal
    from securevfl.report.record import Record
    from securevfl.testing.company import create_company as company_of

    job = _job(epochs=1)
    company = company_of(tmp_path, _people(120), job)
    assert company.people["bank"].target == "labels"
    told = " ".join(str(part) for part in describe_proposal(company.agreement.proposal))
    assert "3 labels, of which a row can have several: card, loan, fund" in told
    company.over_memory()
    (path,) = company.state_folder("bank").glob("**/metrics.json")
    run = Record.read(path).runs[-1]
    assert run.test == pytest.approx(sv.simulate(job, company.people).run("plain").test)
    assert run.evaluation is not None
    assert run.evaluation.task == "multilabel"


def test_servers_answer_with_each_label(tmp_path: Path) -> None:
    from support.servers import ready, served, trained, unlabelled

    from securevfl.serving.process_tasks import predict_all

    people, job = _people(100), _job(epochs=1)
    parts = trained(tmp_path / "model", job, people)
    model = sv.Model(job=job, parts={name: part.tree for name, part in parts.items()})
    wanted = sv.predict(model, sv.Parties(unlabelled(people), active="bank"))

    async def main() -> None:
        async with served(ready(tmp_path / "state", parts, job=job, people=people)) as running:
            got = await predict_all(running.bank, running.tasks["bank"])
            assert got is not None
            assert got.classes == NAMES
            truth = dict(zip(wanted.ids, wanted.probabilities, strict=True))
            for name, row in zip(got.ids, got.probabilities, strict=True):
                assert row == pytest.approx(truth[name], abs=1e-6)

    asyncio.run(main())
