"""Training that goes on from an earlier model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import securevfl as sv
from securevfl.data import Parties, PartyTable
from securevfl.run.continuing import check_start
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


def test_what_cannot_go_on_is_refused(small: tuple[Parties, Aligned]) -> None:
    parties = small[0]
    job = make_job(sv.SplitNN(hidden=4))
    start = sv.simulate(job, parties, aligned=small[1]).model()
    check_start(start, job, parties)
    cases = [
        (job.replace(algorithm=sv.RISA()), parties, "RISA does not go on from an earlier model, as additive, boosting"),
        (job.replace(algorithm=sv.Boosting()), parties, "the earlier model is of SplitNN, and the job trains Boosting"),
        (job.replace(protection=sv.BFV()), parties, "under BFV weights are in shares"),
        (job.replace(protection=sv.Shares()), parties, "under secret shares weights are in shares"),
        (
            job.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=2.0, clip=1.0)))),
            parties,
            "spend ε in each of them, and the two are not added up",
        ),
        (job, make_parties(20, classes=("no", "yes")), "predicts 0, 1; the labels of 'bank' are no, yes"),
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
