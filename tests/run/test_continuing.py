"""Training that goes on from an earlier model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import securevfl as sv
from securevfl.data import Parties, PartyTable
from securevfl.party.eligibility import check_continuing
from securevfl.party_context import PartySecret
from securevfl.run.continuing import check_start
from securevfl.run.model_parts import model_part
from securevfl.run.simulation import Aligned, join_parties


def make_parties(rows: int, *, seed: int = 0, shift: float = 0.0, classes: tuple[object, ...] = (0, 1)) -> Parties:
    draw = np.random.default_rng(seed)
    a, b = draw.normal(shift, 1, (2, rows))
    y = (a + b + draw.normal(0, 0.3, rows) > 0).astype(np.int64)
    ids = [f"c{i}" for i in range(rows)]
    bank = PartyTable(name="bank", ids=ids, columns={"a": a}, label=y, classes=classes, label_name="y")
    return Parties.of(bank, PartyTable(name="telco", ids=ids, columns={"b": b, "c": -b}))


@pytest.fixture(scope="module")
def small() -> tuple[Parties, Aligned]:
    parties = make_parties(90)
    return parties, join_parties(parties, sv.Job(algorithm=sv.SplitNN(), protection=sv.Plain()))


@pytest.fixture(scope="module")
def large() -> tuple[Parties, Aligned]:
    parties = make_parties(150, shift=0.5)
    return parties, join_parties(parties, sv.Job(algorithm=sv.SplitNN(), protection=sv.Plain()))


def make_job(algorithm: sv.Algorithm, epochs: int = 2) -> sv.Job:
    return sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=epochs, batch_size=32, keep="last")


def test_a_network_goes_on_from_its_weights_with_its_encoding(
    small: tuple[Parties, Aligned], large: tuple[Parties, Aligned]
) -> None:
    job = make_job(sv.SplitNN(hidden=4, top=(3,), lr=1e-9, cut_lr=1e-9))
    first = sv.simulate(job, small[0], aligned=small[1]).model()
    result = sv.simulate(job, large[0], aligned=large[1], start=first)
    later = result.model()
    for name in ("bank", "telco"):
        assert later.parts[name]["encoder"] == first.parts[name]["encoder"]
        assert later.parts[name]["training counts"] != first.parts[name]["training counts"]
    was, now = (
        torch.cat([one.flatten() for one in model.parts["bank"]["parts"]["half"][0].values()])
        for model in (first, later)
    )
    torch.testing.assert_close(now, was, atol=1e-6, rtol=0)  # steps of 1e-9 hardly move it
    was, now = (model.parts["telco"]["parts"]["half"][1][0] for model in (first, later))
    torch.testing.assert_close(now, was, atol=1e-6, rtol=0)
    anew = sv.simulate(job, large[0], aligned=large[1]).model()
    assert anew.parts["telco"]["encoder"] != first.parts["telco"]["encoder"]
    assert any("began from an earlier model" in note for note in result.record.runs[-1].notes)


def test_boosting_adds_trees(small: tuple[Parties, Aligned], large: tuple[Parties, Aligned]) -> None:
    job = make_job(sv.Boosting(depth=2, min_hessian=0.1, lr=0.5), epochs=3)
    first = sv.simulate(job, small[0], aligned=small[1]).model()
    result = sv.simulate(job, large[0], aligned=large[1], start=first)
    kept, grown = (model.parts["bank"]["parts"]["forest"] for model in (first, result.model()))
    assert len(kept["trees"]["sizes"]) == 3
    assert len(grown["trees"]["sizes"]) == 6
    count = len(kept["trees"]["value"])
    torch.testing.assert_close(grown["trees"]["value"][:count], kept["trees"]["value"])
    assert kept["start"] == grown["start"]
    losses = [epoch.train_loss for epoch in result.record.runs[-1].epochs]
    alone = [epoch.train_loss for epoch in sv.simulate(job, large[0], aligned=large[1]).record.runs[-1].epochs]
    assert losses[0] < alone[0]  # the first new tree corrects three trees, not a constant


def test_an_additive_model_goes_on_from_its_shapes(
    small: tuple[Parties, Aligned], large: tuple[Parties, Aligned]
) -> None:
    job = make_job(sv.Additive(lr=1e-6))
    first = sv.simulate(make_job(sv.Additive(), 6), small[0], aligned=small[1]).model()
    later = sv.simulate(job, large[0], aligned=large[1], start=first).model()
    for name in ("bank", "telco"):
        was, now = (model.parts[name]["parts"]["shapes"] for model in (first, later))
        assert was["columns"] == now["columns"]
        assert was["values"].abs().max() > 0.01
        torch.testing.assert_close(now["values"], was["values"], atol=1e-4, rtol=0)


OPTIONS = {"few_rows": True, "useful": "off", "lr": 3e-4, "momentum": 0.0}
SHARES = sv.Shares(**OPTIONS)


@pytest.mark.parametrize(
    ("algorithm", "protection"),
    [
        (sv.SplitNN(hidden=4, lr=1e-9, cut_lr=1e-9), sv.BFV()),
        (sv.Additive(lr=1e-6), sv.BFV()),
        (sv.LogisticRegression(), SHARES.replace(computing=("bank", "telco", "helper"))),
        (sv.LogisticRegression(), SHARES.replace(computing=("bank", "telco", "helper"), model="parts")),
        (sv.LogisticRegression(), SHARES.replace(computing=2)),
    ],
    ids=["BFV", "additive, BFV", "shares", "shares, handed out", "shares of two"],
)
def test_training_goes_on_under_protection(
    small: tuple[Parties, Aligned], algorithm: sv.Algorithm, protection: sv.Protection
) -> None:
    """With steps of nearly nothing, the later model scores as the earlier one."""
    job = make_job(algorithm, 1).replace(protection=protection)
    usual = {"lr": 0.2, "momentum": 0.9} if protection.on_shares else {}
    fast = {"lr": 0.3} if not protection.on_shares else {}
    learns = job.replace(epochs=4, algorithm=algorithm.replace(**fast), protection=protection.replace(**usual))
    secrets = {name: PartySecret.from_seed(2, name) for name in (*small[0], "helper")}  # or some networks learn nothing
    first = sv.simulate(learns, small[0], aligned=small[1], secrets=secrets).model()
    later = sv.simulate(job, small[0], aligned=small[1], start=first)
    asked = sv.predict(first, small[0], aligned=small[1])
    known = dict(zip(asked.ids, asked.probabilities[:, 1], strict=True))
    expected = np.array([known[name] for name in later.test_ids])
    (found,) = later.scores.values()
    np.testing.assert_allclose(found[:, 1], expected, atol=0.02)
    assert np.ptp(expected) > 0.15  # which no model has that begins anew


def test_shares_are_refused_where_they_do_not_fit() -> None:
    parties = make_parties(90)
    held = SHARES.replace(computing=("bank", "telco", "helper"))
    job = make_job(sv.SplitNN(hidden=4), 1).replace(protection=held)
    start = sv.simulate(job, parties, baselines=()).model()
    check_start(start, job, parties)
    assert start.coordinator == "helper"
    for changed, message in (
        (job.replace(protection=held.replace(model="parts")), "weights in shares stay where they are"),
        (job.replace(protection=held.replace(computing=("bank", "telco", "other"))), "let the same parties compute"),
        (job.replace(algorithm=sv.SplitNN(hidden=5)), "shares of other shapes"),
    ):
        with pytest.raises(sv.InputError, match=message):
            sv.simulate(changed, parties, baselines=(), start=start)
    with pytest.raises(sv.InputError, match="new trees correct the earlier ones' scores"):
        check_continuing(job.replace(algorithm=sv.Boosting(), protection=sv.Shares()))


def test_what_cannot_go_on_is_refused(small: tuple[Parties, Aligned]) -> None:
    parties = small[0]
    job = make_job(sv.SplitNN(hidden=4))
    start = sv.simulate(job, parties, aligned=small[1]).model()
    check_start(start, job, parties)
    cases = [
        (job.replace(algorithm=sv.RISA()), parties, "RISA does not go on from an earlier model, as additive, boosting"),
        (job.replace(algorithm=sv.Boosting()), parties, "the earlier model is of SplitNN, and the job trains Boosting"),
        (job.replace(protection=sv.BFV()), parties, "was trained under plain, and the job is under BFV"),
        (job.replace(protection=sv.Shares(computing=("bank", "telco", "x"))), parties, "name the same protection"),
        (
            job.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=2.0, clip=1.0)))),
            parties,
            "spend ε in each of them, and the two are not added up",
        ),
        (job, make_parties(20, classes=("no", "yes")), "predicts 0, 1; the labels of 'bank' are no, yes"),
        (job.replace(task="regression"), parties, "the earlier model predicts classes, and the job trains a number"),
        (job, Parties({"bank": parties["bank"]}, active="bank"), "the earlier model belongs to bank, telco"),
    ]
    for changed, tables, message in cases:
        with pytest.raises(sv.InputError, match=message):
            check_start(start, changed, tables)
    with pytest.raises(sv.InputError, match="of the earlier model does not fit this job's"):
        sv.simulate(make_job(sv.SplitNN(hidden=5)), parties, aligned=small[1], start=start)
    other = Parties.of(parties["bank"], PartyTable(name="telco", ids=parties["telco"].ids, columns={"b": np.zeros(90)}))
    with pytest.raises(sv.InputError, match="column of 'telco'"):
        sv.simulate(job, other, aligned=small[1], start=start)


def test_a_part_says_what_it_predicts_where_that_is_not_classes() -> None:
    """Parts of classes have the origin that they always had."""
    job = make_job(sv.SplitNN(hidden=4))
    of = {
        name: model_part(one, "bank", {})["origin"]
        for name, one in {
            "classes": job,
            "number": job.replace(task="regression"),
            "huber": job.replace(task="regression", loss="huber"),
            "counts": job.replace(task="regression", loss="poisson"),
            "labels": job.replace(task="multilabel"),
        }.items()
    }
    assert set(of["classes"]) == {"algorithm", "protection", "model", "helper", "computing", "private"}
    assert of["number"] == of["huber"] == of["classes"] | {"target": "a number"}
    assert len({str(sorted(one.items())) for one in of.values()}) == 4
