"""Training on shares where no metric of the validation rows is opened: what crosses instead, which rows are dealt, and
what a job must say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.run import Result
from securevfl.shares.dealt_rows import DealtRows
from securevfl.shares.network import Network
from securevfl.transport import Kind

EPOCHS = 3


def _job(protection: sv.Shares | None = None, **more: object) -> sv.Job:
    options = {"epochs": EPOCHS, "batch_size": 32, "keep": "last", "algorithm": sv.LogisticRegression()} | more
    return sv.Job(protection=protection or sv.Shares(metrics="none"), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 120)


@pytest.fixture(scope="module")
def dealt() -> dict[str, set[int]]:
    """Party → the rows that `ran` deals, by number."""
    return {}


@pytest.fixture(scope="module")
def ran(people: Parties, dealt: dict[str, set[int]]) -> Result:
    encode = DealtRows.encode_rows

    def record(fed: DealtRows, rows: np.ndarray) -> np.ndarray:
        dealt.setdefault(fed.role.site.name, set()).update(rows.tolist())
        return encode(fed, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DealtRows, "encode_rows", record)
        return sv.simulate(_job(), people)


def test_all_epochs_train_and_the_last_is_kept(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert [epoch.valid for epoch in run.epochs] == [{}] * EPOCHS
    assert (run.best_epoch, run.stopped) == (EPOCHS, "all epochs done")
    assert run.test["auc"] > 0.6
    assert "no metrics" in run.title
    assert not any("validation rows only" in text for text in run.warnings)


def test_the_predictions_are_all_that_is_opened(ran: Result, people: Parties) -> None:
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    got = Counter(
        entry.what
        for entry in ledgers[people.active.name].iter_entries()
        if entry.way == "received" and "open" in entry.what
    )
    assert got == {"shares/open predictions": 2}


def test_no_validation_row_is_dealt(ran: Result, dealt: dict[str, set[int]], people: Parties) -> None:
    assert set(dealt) == set(people)
    common = len(set.intersection(*(set(table.ids) for table in people.values())))
    tested, trained = len(ran.test_ids), ran.record.runs[-1].rows_trained
    assert common - tested - trained >= 8
    for numbers in dealt.values():
        assert len(numbers) == trained + tested


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"keep": "best"}, r"keep is 'best', and protection\.metrics is 'none'.*set keep = 'last'"),
        ({"keep": "auto"}, "keep is 'auto'"),
        ({"patience": 2}, r"patience is 2, and protection\.metrics is 'none'.*leave patience out"),
    ],
)
def test_a_job_that_needs_metrics_is_refused_before_anything_runs(more: dict[str, object], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(**more)
    _job(sv.Shares(), **more)


@pytest.mark.parametrize("task", ["number", "three classes", "network", "two parties and a coordinator"])
def test_any_target_network_and_coordinator(task: str, people: Parties) -> None:
    shares, more, table = sv.Shares(metrics="none"), {}, people
    if task == "network":
        more = {"algorithm": sv.SplitNN(hidden=4, top=(3,), bottom=(3,))}
    elif task == "two parties and a coordinator":
        table = make_parties(1, 90)
        shares = shares.replace(computing=(table.active.name, table.passive[0].name, "helper"))
    elif task == "three classes":
        table = make_parties(2, 150, classes=3)
    else:
        bank = people.active
        amounts = np.asarray(bank.columns["f0"]) * 50 + 1000
        table = Parties.of(replace(bank, label=amounts, label_name="amount", classes=()), *people.passive)
        more = {"task": "regression"}
    run = sv.simulate(_job(shares, **more), table).record.runs[-1]
    assert all(np.isfinite(value) for value in run.test.values())
    assert [epoch.valid for epoch in run.epochs] == [{}] * EPOCHS


def test_few_validation_rows_are_no_reason_to_refuse() -> None:
    table = make_parties(2, 60)
    with pytest.raises(sv.PolicyError, match="metrics of 5 validation rows"):
        sv.simulate(_job(sv.Shares()), table)
    assert sv.simulate(_job(), table).record.runs[-1].test


def test_weights_out_of_range_still_end_the_run(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    async def outside(network: Network) -> object:
        return network.engine.constant(np.ones(1, np.uint64))

    monkeypatch.setattr(Network, "out_of_range", outside)
    with pytest.raises(sv.RangeError, match="lower lr in the protection"):
        sv.simulate(_job(), people)


def test_nothing_but_the_bit_is_declared(people: Parties) -> None:
    job = _job()
    declared = {e.step for e in job.algorithm.exchanges(job.protection, 2) if e.kind is Kind.SHARE and "open" in e.step}
    assert declared == {"shares/open predictions"}
    told = [one.learns for one in job.findings([table.name for table in people.passive], people.active.name)]
    assert any("nothing about validation rows" in text for text in told)
    assert not any("metrics" in text for text in told)


def test_a_search_by_validation_metrics_is_refused(people: Parties) -> None:
    pytest.importorskip("optuna")
    with pytest.raises(sv.InputError, match=r"metrics is 'none'.*set metrics = 'rounded'"):
        sv.search(_job(), people, {"protection.lr": {"low": 0.1, "high": 0.5}}, trials=1)
