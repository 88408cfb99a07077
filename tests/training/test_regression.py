"""A numeric target: what is learned, in which units, under which protection; and what is refused, with the cure."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics

import securevfl as sv
from securevfl.cut import Protection
from securevfl.privacy.loss import CURVATURE, NumberLoss
from securevfl.training.objectives import LossOfNumber, find_objective
from securevfl.training.regression import Regression

ROWS = 300
LOSSES = ("squared", "huber", "poisson", "tweedie")


def _people(rows: int = ROWS, seed: int = 0, target: str = "normal") -> sv.Parties:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    f = x @ np.array([0.5, 0.3, 0.8, -0.6])
    amounts = np.where(rng.random(rows) < 0.4, 0, np.exp(f) * rng.gamma(2, 50, rows))
    y = {"normal": 1000 + 50 * f + 10 * rng.normal(size=rows), "counts": rng.poisson(np.exp(f)), "amounts": amounts}
    ids = [f"p{i}" for i in range(rows)]
    own = sv.PartyTable(
        name="bank",
        ids=ids,
        columns={"a0": x[:, 0], "a1": x[:, 1]},
        label=y[target].astype(np.float64),
        label_name="claim",
    )
    return sv.Parties.of(own, sv.PartyTable(name="shop", ids=ids, columns={"b0": x[:, 2], "b1": x[:, 3]}))


def _job(**options: object) -> sv.Job:
    return sv.Job(
        **{"task": "regression", "algorithm": "splitnn", "protection": sv.Plain(), "epochs": 8, "batch_size": 32}
        | options
    )


PEOPLE = _people()


def test_vertical_regression_beats_the_party_alone_and_predicts_new_rows_in_the_target_s_units() -> None:
    result = sv.simulate(_job(), PEOPLE, baselines=("alone", "pooled"))
    alone, pooled, plain = (result.run(key) for key in ("alone", "pooled", "plain"))
    assert plain.test["r2"] > alone.test["r2"] + 0.2
    assert plain.test["r2"] == pytest.approx(pooled.test["r2"], abs=0.15)
    assert plain.test["rmse"] < plain.constant["rmse"]
    assert all("the best epoch is the last of 8" in warning for warning in plain.warnings)
    new = _people(seed=1)
    found = sv.predict(result.model(), new)
    assert found.classes == ("claim",)
    assert found.probabilities.shape == (ROWS, 1)
    truth = dict(zip(new.active.ids, new.active.label, strict=True))
    r2 = metrics.r2_score([truth[name] for name in found.ids], found.probabilities[:, 0])
    assert r2 > 0.5
    assert result.evaluation.target == "claim"
    assert result.evaluation.metrics["rmse"] == pytest.approx(plain.test["rmse"])
    assert "RMSE" in result.table()


def test_the_checkpoint_is_that_of_the_least_validation_loss() -> None:
    run = sv.simulate(_job(epochs=5), PEOPLE).run("plain")
    assert run.best_epoch == 1 + int(np.argmin([epoch.valid["rmse"] for epoch in run.epochs]))


@pytest.mark.parametrize(("loss", "target"), [("huber", "normal"), ("poisson", "counts"), ("tweedie", "amounts")])
def test_other_losses_learn_and_are_measured_by_their_own(loss: str, target: str) -> None:
    run = sv.simulate(_job(loss=loss, epochs=12), _people(target=target)).run("plain")
    name = "huber" if loss == "huber" else "deviance"
    assert run.test[name] < run.constant[name]
    assert run.best_epoch == 1 + int(np.argmin([epoch.valid[name] for epoch in run.epochs]))


@pytest.mark.parametrize("protection", [sv.BFV(), sv.CKKS(), sv.Paillier(bits=2048)], ids=lambda one: one.name)
def test_a_sealed_cut_learns_the_same_numbers(protection: Protection) -> None:
    people = _people(60)
    job = _job(algorithm="logistic_regression", epochs=1, batch_size=16)
    both = sv.compare({"plain": job, "sealed": job.replace(protection=protection)}, people, baselines=())
    assert both.run("sealed").title.startswith("linear regression, ")
    assert both.scores["sealed"] == pytest.approx(both.scores["plain"], rel=1e-4)


@pytest.mark.parametrize("algorithm", ["local", "zero_imputation", "random_match"])
def test_baselines_of_papers_learn_numbers(algorithm: str) -> None:
    people = _people()
    shop = people["shop"].take(np.arange(0, ROWS, 2))
    run = sv.simulate(_job(algorithm=algorithm, epochs=3), sv.Parties.of(people["bank"], shop)).run("plain")
    assert np.isfinite(run.test["rmse"])


def test_on_shares_a_number_is_learned_by_the_huber_loss_alone() -> None:
    """With two parties and no coordinator there are no three to compute."""
    with pytest.raises(sv.PolicyError, match=r"here it cannot: .*three"):
        sv.simulate(sv.Job(task="regression", epochs=1), PEOPLE)
    for loss in ("squared", "poisson", "tweedie"):
        with pytest.raises(sv.InputError, match=rf"loss is '{loss}', and on shares.*Huber.*'auto'.*'paillier'"):
            _job(protection=sv.Shares(), loss=loss)
    with pytest.raises(sv.InputError, match=r"huber_delta is 0.1, and on shares 0.5 to 10"):
        _job(protection=sv.Shares(), loss="huber", huber_delta=0.1)
    assert _job(protection=sv.Shares()).number_loss == LossOfNumber("huber", delta=3.0)
    assert _job().number_loss.name == "squared"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "fedcvt"}, r"learns classes.*splitnn"),
        ({"task": "classification", "loss": "huber"}, "set task='regression'"),
        ({"task": "classification", "target_range": (0.0, 1.0)}, "target_range is for task='regression'"),
        ({"stratify": True}, "stratify draws the split by class"),
        ({"target_range": (3.0, 1.0)}, r"target_range is \[3.0, 1.0\]"),
        ({"loss": "poisson", "target_range": (-1.0, 1.0)}, "amounts from 0 up"),
        ({"loss": "absolute"}, "absolute"),
        ({"tweedie_power": 2.0}, "tweedie_power"),
        ({"protection": sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=1)))}, r"target_range=\(low, high\)"),
        (
            {"protection": sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=1)))},
            "randomised response, for classes",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_cure(options: dict[str, object], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(**options)


def test_a_table_and_a_job_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(sv.InputError, match=r'set task = "regression"'):
        sv.simulate(sv.Job(protection=sv.Plain(), epochs=1), PEOPLE)
    with pytest.raises(sv.InputError, match=r'has 2 classes.*target="number"'):
        sv.simulate(_job(epochs=1), sv.datasets.breast_cancer())
    below = replace(PEOPLE["bank"], label=PEOPLE["bank"].label - 2000)
    with pytest.raises(sv.InputError, match=r"'claim': the target goes down to -.*'squared' or 'huber'"):
        sv.simulate(_job(loss="poisson", epochs=1), sv.Parties.of(below, PEOPLE["shop"]))
    flat = replace(PEOPLE["bank"], label=np.ones(ROWS))
    with pytest.raises(sv.InputError, match="nothing to learn"):
        sv.simulate(_job(epochs=1), sv.Parties.of(flat, PEOPLE["shop"]))


@pytest.mark.parametrize("loss", LOSSES)
def test_metrics_are_those_of_scikit_learn(loss: str) -> None:
    rng = np.random.default_rng(0)
    y, predicted, weight = rng.gamma(1, 3, 80) * rng.integers(0, 2, 80), rng.gamma(2, 3, 80), rng.uniform(0, 2, 80)
    for w in (None, weight):
        found = Regression(loss=LossOfNumber(loss), scale=2.0).compute_metrics(predicted[:, None], y, w)
        assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(y, predicted, sample_weight=w))
        assert found["mae"] == pytest.approx(metrics.mean_absolute_error(y, predicted, sample_weight=w))
        assert found["r2"] == pytest.approx(metrics.r2_score(y, predicted, sample_weight=w))
        if loss in ("poisson", "tweedie"):
            power = 1.0 if loss == "poisson" else 1.5
            expected = metrics.mean_tweedie_deviance(y, predicted, sample_weight=w, power=power)
            assert found["deviance"] == pytest.approx(expected)
        if loss == "huber":
            each = find_objective("huber", delta=2.0).compute_losses(predicted[:, None], y)
            assert found["huber"] == pytest.approx(np.average(each, weights=w))


@pytest.mark.parametrize("loss", LOSSES)
def test_networks_and_trees_have_the_same_losses(loss: str) -> None:
    rng = np.random.default_rng(0)
    raw, y = rng.normal(size=(30, 1)), rng.gamma(1, 1, 30)
    f = torch.tensor(raw, requires_grad=True)
    ours = NumberLoss(loss)(f, torch.tensor(y))
    (gradient,) = torch.autograd.grad(ours.sum(), f)
    theirs = find_objective(loss)
    assert ours.detach().numpy() == pytest.approx(CURVATURE * theirs.compute_losses(raw, y), rel=1e-6)
    assert gradient.numpy() == pytest.approx(CURVATURE * theirs.compute_derivatives(raw, y)[0], rel=1e-6)


@pytest.mark.parametrize(("loss", "span"), [("squared", 2.0), ("huber", 2.0), ("huber", None), ("poisson", 1.0)])
def test_no_target_moves_the_gradient_further_than_stated(loss: str, span: float | None) -> None:
    stated = NumberLoss(loss, span=span).sensitivity
    low, high = (0.0, 1.0) if loss == "poisson" else (-1.0, 1.0) if span else (-50.0, 50.0)
    f = torch.linspace(-6, 6, 201)[:, None].requires_grad_()
    moved = []
    for one, other in ((low, high), (low, (low + high) / 2), (high, low)):
        gradients = [
            torch.autograd.grad(NumberLoss(loss, span=span)(f, torch.full((201,), y)).sum(), f)[0] for y in (one, other)
        ]
        moved.append(float((gradients[0] - gradients[1]).abs().max()))
    assert max(moved) <= stated * (1 + 1e-6)
    assert max(moved) >= stated * 0.99  # and no larger noise than needed
    assert NumberLoss("squared").sensitivity is None
    assert NumberLoss("tweedie", span=1.0).sensitivity is None


def test_noise_on_labels_is_sized_by_the_range_and_targets_beyond_it_are_trained_as_its_ends() -> None:
    task = Regression.fit_scale(LossOfNumber("squared", range=(0.0, 10.0)), np.array([1.0, 99.0]))
    assert task.make_targets(torch.tensor([0.0, 5.0, 10.0, 1e9, -1e9])).tolist() == [-1, 0, 1, 1, -1]
    job = _job(protection=sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=8))), target_range=(800.0, 1200.0), epochs=2)
    run = sv.simulate(job, PEOPLE).run("plain-dp")
    assert {line.what for line in run.epsilon} == {"gradients"}
    assert np.isfinite(run.test["rmse"])


def test_the_scale_is_the_training_rows_and_comes_back_after_training() -> None:
    y = np.array([10.0, 20.0, 60.0])
    task = Regression.fit_scale(LossOfNumber(), y)
    assert (task.center, task.scale) == (30.0, pytest.approx(y.std()))
    assert task.compute_probabilities(task.make_targets(torch.tensor(y))[:, None])[:, 0] == pytest.approx(y)
    back = Regression(loss=LossOfNumber()).with_state(task.get_state())
    assert back == task
    assert Regression.fit_scale(LossOfNumber("poisson"), y).scale == 30.0


def test_a_run_goes_on_from_its_checkpoint_as_if_nothing_had_happened(tmp_path) -> None:
    whole = sv.simulate(_job(epochs=4), PEOPLE, checkpoints=tmp_path / "a")

    class Cut(sv.Observer):
        def epoch(self, number: int, loss: float, valid: dict[str, float]) -> None:
            if number == 2 and valid:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sv.simulate(_job(epochs=4), PEOPLE, checkpoints=tmp_path / "b", observer=Cut())
    again = sv.simulate(_job(epochs=4), PEOPLE, checkpoints=tmp_path / "b")
    assert again.scores["plain"].tolist() == whole.scores["plain"].tolist()


def test_a_job_file_says_regression_and_a_csv_column_is_read_as_numbers(tmp_path) -> None:
    for name, table in PEOPLE.items():
        head = ["id", *table.columns, *(["claim"] if table.label is not None else [])]
        rows = zip(table.ids, *table.columns.values(), *([] if table.label is None else [table.label]), strict=True)
        lines = [",".join(head), *(",".join(map(str, row)) for row in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    text = (
        '[job]\ntask = "regression"\nepochs = 2\n[protection]\nname = "plain"\n'
        '[[party]]\nname = "bank"\nfile = "bank.csv"\nid = "id"\nlabel = "claim"\n'
        '[[party]]\nname = "shop"\nfile = "shop.csv"\nid = "id"\n'
    )
    (tmp_path / "job.toml").write_text(text)
    file = sv.read_job(tmp_path / "job.toml")
    assert file.parties["bank"].target == "number"
    assert file.parties["bank"].label == pytest.approx(PEOPLE["bank"].label)
    result = sv.simulate(file.job, file.parties)
    assert result.evaluation.task == "regression"
    assert "RMSE" in result.report(tmp_path / "run").read_text()
    (tmp_path / "job.toml").write_text(text.replace('task = "regression"\n', ""))
    with pytest.raises(sv.InputError, match=r"to learn the number, set target='number'.*task = \"regression\""):
        sv.read_job(tmp_path / "job.toml")


def test_rows_that_the_party_scores_alone_are_in_the_target_s_units_too() -> None:
    half = sv.Parties.of(PEOPLE["bank"], PEOPLE["shop"].take(np.arange(0, ROWS, 2)))
    result = sv.simulate(_job(algorithm="zero_imputation"), half)
    found = sv.predict(result.model(), half, everyone=True)
    truth = dict(zip(PEOPLE["bank"].ids, PEOPLE["bank"].label, strict=True))
    scored = zip(found.ids, found.probabilities[:, 0], found.used, strict=True)
    alone = [(truth[name], value) for name, value, used in scored if not used[1:]]
    assert len(alone) == ROWS // 2
    assert metrics.r2_score(*zip(*alone, strict=True)) > 0.1  # far below 0 in any other unit


class _Spy(sv.Observer):
    """What the passive party reads in the first epoch: each row's gradient at the cut, where it comes in floats."""

    listening = True

    def __init__(self) -> None:
        self.rows = np.empty(0, dtype=np.int64)
        self.seen: dict[int, float] = {}

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        if party == "shop":
            self.rows = rows if epoch == 1 else self.rows[:0]

    def message_passed(self, party: str, peer: str, way: str, message: object) -> None:
        gradient = message.arrays.get("gradient")
        values = None if gradient is None else np.asarray(gradient)
        if way == "received" and values is not None and values.dtype.kind == "f":
            self.seen |= dict(zip(self.rows.tolist(), values[:, 0].tolist(), strict=False))


@pytest.mark.parametrize("protection", [sv.Plain(), sv.BFV()], ids=lambda one: one.name)
def test_a_gradient_in_the_clear_gives_the_number_away_and_the_report_says_so(protection: Protection) -> None:
    """∂loss/∂z of a row is a quarter of its scaled error: early in training, the target and what first weights add."""
    people = sv.Parties.of(*(table.take(np.arange(100)) for table in PEOPLE.values()))
    job = _job(algorithm="logistic_regression", epochs=1, protection=protection)
    spy, aligned = _Spy(), sv.align_parties(people, job)
    learned = sv.simulate(job, people, aligned=aligned, observers={"shop": spy}).record.runs[-1].learned
    severe = [line for line in learned if line.party == "shop" and line.severity == "leak"]
    if protection.is_sealed:
        assert not spy.seen
        assert not severe
        return
    rows = np.array(sorted(spy.seen))
    truth = people["bank"].label[aligned.parties["bank"].rows[rows]]
    guess = -np.array([spy.seen[row] for row in rows.tolist()])
    assert len(rows) == 70
    assert np.corrcoef(guess, truth)[0, 1] > 0.6  # of the gradient alone; 70 rows of noise reach 0.3
    assert severe


def test_parties_with_files_of_their_own_learn_the_same_number(tmp_path) -> None:
    """By an agreement, over memory, each from its own CSV; with weights, and split by time."""
    from securevfl.report.record import Record
    from securevfl.testing.company import create_company

    weight, time = np.linspace(0.5, 1.5, ROWS), np.arange(ROWS, dtype=np.float64)
    people = sv.Parties.of(replace(PEOPLE["bank"], weight=weight, time=time), PEOPLE["shop"])
    job = _job(epochs=1, split_by="time", loss="huber")
    company = create_company(tmp_path, people, job)
    assert company.people["bank"].target == "number"
    company.over_memory()
    (path,) = company.state_folder("bank").glob("**/metrics.json")
    run = Record.read(path).runs[-1]
    expected = sv.simulate(job, company.people).run("plain")
    assert run.test == pytest.approx(expected.test)
    assert run.evaluation.weighted
    assert any("two points in time" in line.learns for line in run.learned)
    (path,) = company.state_folder("shop").glob("**/metrics.json")
    assert Record.read(path).runs[-1].evaluation is None
