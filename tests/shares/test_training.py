"""Training on shares, by all parties' programs: what crosses, what is opened, and who is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from helpers import parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.jobs import Result
from securevfl.transport import Kind

EPOCHS = 2


def _job(protection: sv.Shares | None = None, algorithm: sv.Algorithm | None = None, **more: object) -> sv.Job:
    return sv.Job(
        algorithm=algorithm or sv.SplitNN(hidden=4, top=(3,)),
        protection=protection or sv.Shares(),
        epochs=EPOCHS,
        batch_size=32,
        **more,
    )


@pytest.fixture(scope="module")
def people() -> Parties:
    return parties(2, 120)


@pytest.fixture(scope="module")
def ran(people: Parties) -> Result:
    return sv.simulate(_job(), people)


def test_three_parties_train(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert set(run.test) == {"accuracy", "log_loss", "auc", "ks"}
    assert [set(epoch.valid) for epoch in run.epochs] == [{"accuracy", "log_loss", "auc"}] * EPOCHS
    assert all(epoch.train_loss is None for epoch in run.epochs)
    assert any("rounds a step" in note for note in run.notes)


def test_nothing_crosses_that_its_receiver_could_read(ran: Result, people: Parties) -> None:
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    for name, ledger in ledgers.items():
        for entry in ledger.each_entry():
            if entry.what.startswith("shares/") and entry.kind not in (Kind.CONTROL, Kind.PUBLIC_KEY):
                assert entry.kind is Kind.SHARE
                assert entry.cipher == "masked"
            assert entry.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE), (name, entry.what)


def test_what_is_opened_is_one_set_of_metrics_an_epoch_and_the_predictions_once(ran: Result, people: Parties) -> None:
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    active = people.active.name
    got = Counter(
        entry.what for entry in ledgers[active].each_entry() if entry.way == "received" and "open" in entry.what
    )
    # a share from one party, and a digest of it from the other
    assert got == {"shares/open metrics": 2 * EPOCHS, "shares/open range": 2 * EPOCHS, "shares/open predictions": 2}
    for name, ledger in ledgers.items():
        if name != active:
            assert not any(e.way == "received" and "open" in e.what for e in ledger.each_entry())


@pytest.mark.parametrize(
    "algorithm",
    [
        sv.LogisticRegression(),
        sv.SplitNN(hidden=4, top=(3,), bottom=(3,)),
        sv.SplitNN(hidden=4, top=(3,), bottom=sv.Frozen(5)),
        sv.ZeroImputation(hidden=4, top=()),
        sv.RandomMatch(hidden=4, top=()),
    ],
    ids=lambda algorithm: f"{algorithm.name} {getattr(algorithm, 'bottom', '')}"[:30],
)
def test_algorithms_that_differ_by_rows_need_no_code_of_their_own(people: Parties, algorithm: sv.Algorithm) -> None:
    run = sv.simulate(_job(algorithm=algorithm), people).record.runs[-1]
    assert np.isfinite(run.test["log_loss"])


def test_a_coordinator_without_data_computes_where_two_parties_have_some() -> None:
    people = parties(1, 90)
    active, passive = people.active.name, people.passive[0].name
    with pytest.raises(sv.InputError, match="add a coordinator without data"):
        sv.simulate(_job(), people)
    protection = sv.Shares(computing=(active, passive, "helper"))
    found = sv.simulate(_job(protection), people)
    (ledgers,) = [found for key, found in found.ledgers.items() if key != "alignment"]
    assert set(ledgers) == {active, passive, "helper"}
    assert not any(e.what == "shares/input" and e.way == "sent" for e in ledgers["helper"].each_entry())


def test_a_fourth_party_deals_its_rows_and_computes_nothing() -> None:
    people = parties(3, 90)
    names = [people.active.name, *(table.name for table in people.passive)]
    found = sv.simulate(_job(sv.Shares(computing=(names[0], names[2], names[3]))), people)
    (ledgers,) = [found for key, found in found.ledgers.items() if key != "alignment"]
    steps = {entry.what for entry in ledgers[names[1]].each_entry() if entry.what.startswith("shares/")}
    assert steps == {"shares/width", "shares/plan", "shares/input"}


@pytest.mark.parametrize(
    ("computing", "words"),
    [
        (("a", "b"), "three different parties are needed"),
        (("a", "b", "b"), "three different parties are needed"),
    ],
)
def test_three_parties_are_named(computing: tuple[str, ...], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.Shares(computing=computing)


def test_parties_that_cannot_compute_are_refused(people: Parties) -> None:
    active, one, other = people.active.name, *(table.name for table in people.passive)
    with pytest.raises(sv.InputError, match=r"the active party, .* has to be one of them"):
        sv.simulate(_job(sv.Shares(computing=(one, other, "helper"))), people)
    with pytest.raises(sv.InputError, match="who take no part"):
        sv.simulate(_job(sv.Shares(computing=(active, "helper", "other"))), people)


@pytest.mark.parametrize("algorithm", [sv.FedCVT(), sv.RISA(), sv.LaserVFL(), sv.Local()])
def test_other_algorithms_are_refused_with_the_reason(algorithm: sv.Algorithm) -> None:
    with pytest.raises(sv.InputError, match="cannot be trained on shares: use splitnn"):
        _job(algorithm=algorithm)


def test_noise_on_what_nobody_sends_is_refused() -> None:
    with pytest.raises(sv.InputError, match="leave dp out"):
        _job(sv.Shares(dp=sv.DP(features=sv.Gaussian())))
    _job(sv.Shares(dp=sv.DP(labels=sv.RandomisedResponse())))
