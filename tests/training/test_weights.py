"""Weights of rows and of classes: what they change, in losses and in metrics, and who refuses them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import securevfl as sv
from securevfl.party.weights import class_weights

ROWS = 240


def _people(weight: np.ndarray | None = None, rows: int = ROWS, rare: float = 0.2) -> sv.Parties:
    rng = np.random.default_rng(0)
    label = (rng.random(rows) < rare).astype(np.int64)
    x = rng.normal(size=(rows, 4)) + 0.7 * label[:, None]
    ids = [f"p{i}" for i in range(rows)]
    own = sv.PartyTable(
        name="bank",
        ids=ids,
        columns={"a0": x[:, 0], "a1": x[:, 1]},
        label=label,
        classes=("paid", "failed"),
        weight=weight,
    )
    return sv.Parties.of(own, sv.PartyTable(name="shop", ids=ids, columns={"b0": x[:, 2], "b1": x[:, 3]}))


def _job(**options: object) -> sv.Job:
    usual = {"algorithm": "logistic_regression", "protection": sv.Plain(), "epochs": 4, "batch_size": 32, "seed": 3}
    return sv.Job(**usual | options)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.array([0] * 9 + [1] * 3 + [2])
    found = class_weights("balanced", ("a", "b", "c"), labels)
    assert found.tolist() == compute_class_weight("balanced", classes=np.arange(3), y=labels).tolist()
    assert class_weights({"b": 4.0}, ("a", "b"), labels[:10]).tolist() == [1.0, 4.0]
    with pytest.raises(sv.UnknownNameError, match="'c'"):
        class_weights({"c": 4.0}, ("a", "b"), labels[:10])
    with pytest.raises(sv.InputError, match="'c' has no training row"):
        class_weights("balanced", ("a", "b", "c"), np.array([0, 1]))


def test_equal_weights_change_no_bit_and_their_unit_none_either() -> None:
    bare = sv.simulate(_job(), _people())
    for value in (1.0, 8.0):  # 8 is exact
        same = sv.simulate(_job(), _people(np.full(ROWS, value)))
        assert same.scores["plain"].tolist() == bare.scores["plain"].tolist()
        assert same.run("plain").test == pytest.approx(bare.run("plain").test)
        assert same.evaluation.weighted


def test_rows_of_weight_zero_train_nothing_and_count_in_no_metric() -> None:
    people = _people()
    bank = people["bank"]
    rng = np.random.default_rng(1)
    drop = rng.random(ROWS) < 0.5
    noisy = replace(bank, label=np.where(drop, 1 - bank.label, bank.label), weight=np.where(drop, 0.0, 1.0))
    clean = replace(bank, weight=np.where(drop, 0.0, 1.0))
    found = [sv.simulate(_job(), sv.Parties.of(one, people["shop"])) for one in (noisy, clean)]
    assert found[0].scores["plain"].tolist() == found[1].scores["plain"].tolist()
    assert found[0].run("plain").test == found[1].run("plain").test
    assert found[0].evaluation.metrics["auc"] == found[1].evaluation.metrics["auc"]


@pytest.mark.parametrize("algorithm", ["logistic_regression", "boosting"])
def test_balanced_classes_find_more_of_the_rare_one(algorithm: str) -> None:
    recall = {}
    for weight in (None, "balanced", {"failed": 12.0}):
        job = _job(algorithm=algorithm, class_weight=weight, epochs=8)
        result = sv.simulate(job, _people(rows=400, rare=0.1))
        recall[str(weight)] = result.evaluation.per_class[1].recall
        assert not result.evaluation.weighted  # metrics count rows
    assert min(recall["balanced"], recall["{'failed': 12.0}"]) > recall["None"]


def test_a_weighted_step_is_that_of_the_row_repeated() -> None:
    from securevfl.privacy.loss import CrossEntropy

    logits = torch.tensor([[0.3], [-0.2]], requires_grad=True)
    loss = CrossEntropy(2)(logits, torch.tensor([1, 0])) * torch.tensor([3.0, 1.0])
    (found,) = torch.autograd.grad(loss.sum(), logits)
    again = logits.detach()[[0, 0, 0, 1]].requires_grad_()
    (expected,) = torch.autograd.grad(CrossEntropy(2)(again, torch.tensor([1, 1, 1, 0])).sum(), again)
    assert found[0].item() == pytest.approx(expected[:3].sum().item())


def test_a_sealed_cut_takes_the_same_weighted_steps() -> None:
    people = _people(np.random.default_rng(2).uniform(0, 3, 60), rows=60)
    job = _job(epochs=1, batch_size=16, class_weight={"failed": 6.0})
    both = sv.compare({"plain": job, "sealed": job.replace(protection=sv.BFV())}, people, baselines=())
    assert both.scores["sealed"] == pytest.approx(both.scores["plain"], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "fedcvt"}, r"counts all rows alike.*splitnn"),
        ({"protection": sv.Shares(computing=("bank", "shop", "helper"))}, r"on shares all rows count alike.*'bfv'"),
        ({"protection": sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=1)))}, "ε would not cover it"),
    ],
)
def test_weights_are_refused_where_nothing_weighs(options: dict[str, object], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(class_weight="balanced", **options)
    with pytest.raises(sv.InputError, match=words):
        sv.simulate(_job(**options), _people(np.ones(ROWS)))


def test_weights_that_cannot_be_are_refused() -> None:
    for bad, words in (
        (np.full(ROWS, -1.0), "negative in 240 of 240"),
        (np.full(ROWS, np.nan), "null or not finite"),
        (np.zeros(ROWS), "all weights are 0"),
        (np.ones(3), r"\(240,\) was expected"),
    ):
        with pytest.raises(sv.InputError, match=words):
            _people(bad)
    with pytest.raises(sv.InputError, match="class_weight is of classes"):
        _job(task="regression", class_weight="balanced")
    with pytest.raises(sv.UnknownNameError, match=r"'faild'; did you mean 'failed'"):
        sv.simulate(_job(class_weight={"faild": 4.0}), _people())
    with pytest.raises(sv.InputError, match="class_weight"):
        _job(class_weight={"failed": -1.0})
    with pytest.raises(sv.InputError, match="belongs to the active party"):
        replace(_people()["shop"], weight=np.ones(ROWS))
