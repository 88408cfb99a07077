"""Epochs that are compared on shares: of each set of metrics the active party gets one bit, and keeps the same epoch as
with the figures. Rounded figures cost a number of each validation row each time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from securevfl_crypto.replicated import Share
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.party import planned_numbers, rule_against
from securevfl.privacy import ResultBook
from securevfl.run import Result
from securevfl.shares import metrics

EPOCHS = 8


def _run(
    people: Parties, opened: str | None, *, results: Path | None = None, max_results: int | None = None, **more: object
) -> Result:
    computing = more.pop("computing", ())
    where = {name: more.pop(name) for name in ("checkpoints", "observer") if name in more}
    options = {"epochs": EPOCHS, "batch_size": 16, "algorithm": sv.LogisticRegression(), "keep": "best"} | more
    protection = sv.Shares(metrics=opened, few_rows=True, useful="off", computing=computing)  # type: ignore[arg-type]
    policies = {} if max_results is None else {name: sv.Policy(max_results=max_results) for name in people}
    return sv.simulate(sv.Job(protection=protection, policies=policies, **options), people, results=results, **where)  # type: ignore[arg-type]


def _people(task: str) -> Parties:
    if task == "three classes":
        return make_parties(2, 240, classes=3)
    table = make_parties(2, 240)
    if task == "two classes":
        return table
    amounts = np.asarray(table.active.columns["f0"]) * 50 + 1000
    return Parties.of(replace(table.active, label=amounts, label_name="amount", classes=()), *table.passive)


@pytest.mark.parametrize("task", ["two classes", "three classes", "number"])
def test_the_epoch_that_is_kept_is_the_one_with_the_best_figure(task: str) -> None:
    people, more = _people(task), {"task": "regression"} if task == "number" else {}
    rounded, best = (_run(people, opened, **more).record.runs[-1] for opened in ("rounded", "best"))
    name = {"two classes": "auc", "three classes": "log_loss", "number": "huber"}[task]
    figures = [epoch.valid[name if name in epoch.valid else "rmse"] for epoch in rounded.epochs]
    figures = figures if name == "auc" else [-one for one in figures]
    bits = [epoch.valid for epoch in best.epochs]
    assert all(set(one) == {"best_so_far"} for one in bits)
    said = [bool(one["best_so_far"]) for one in bits]
    assert said[0]
    assert best.best_epoch == 1 + max(number for number, one in enumerate(said) if one)
    # What rounding by chance may move. A number's loss is rounded in units of its scale, squared.
    unit = float(np.var(people.active.label)) if task == "number" else max(map(abs, figures)) + 1
    step = 2 * 2.0**-metrics.METRIC_BITS * unit
    highest = figures[0]
    for figure, one in zip(figures[1:], said[1:], strict=True):
        if abs(figure - highest) > step:
            assert one == (figure > highest)
        highest = max(highest, figure)


def test_a_figure_is_compared_with_the_best_of_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, seen = (512, 717, 614, 666, 819, 819, 820, 100), Counter[int]()

    async def told(scores: metrics.SharedMetrics) -> Share:
        engine = scores._engine
        seen[id(engine)] += 1
        return engine.constant(np.array([0, 0, figures[seen[id(engine)] - 1]], np.uint64))

    monkeypatch.setattr(metrics.SharedMetrics, "compute_rounded", told)
    run = _run(_people("two classes"), "best").record.runs[-1]
    assert [epoch.valid["best_so_far"] for epoch in run.epochs] == [1, 1, 0, 0, 1, 0, 1, 0]
    assert run.best_epoch == 7


def test_one_bit_is_opened_for_each_epoch_and_to_the_active_party_alone() -> None:
    people = _people("two classes")
    result = _run(people, "best")
    (ledgers,) = [found for key, found in result.ledgers.items() if key != "alignment"]
    shapes = {
        name: [e.shapes for e in one.iter_entries() if e.way == "received" and e.what == "shares/open metrics"]
        for name, one in ledgers.items()
    }
    assert [len(shapes[name]) for name in people] == [2 * EPOCHS, 0, 0]  # from both others
    # One word of a summand from one of them, and 32 bytes of its digest from the other.
    assert {one["1"][0] for one in shapes[people.active.name]} == {1, 32}
    assert "metrics compared on shares" in result.record.runs[-1].title
    assert any("one bit an epoch" in one.learns for one in result.record.runs[-1].learned)


@pytest.mark.parametrize("what", ["coordinator", "trees", "scorecard", "additive", "additive, a number"])
def test_every_model_on_shares_compares_its_epochs(what: str) -> None:
    people, more, computing = _people("two classes"), {}, ()
    if what == "coordinator":
        people = make_parties(1, 240)
        computing = (*people, "helper")
    elif what == "trees":
        more = {"algorithm": sv.Boosting()}
    elif what == "scorecard":
        more = {"algorithm": sv.Scorecard()}
    elif what == "additive":
        more = {"algorithm": sv.Additive()}
    else:
        people = _people("number")
        more = {"algorithm": sv.Additive(), "task": "regression", "target_range": (0.0, 2000.0)}
    run = _run(people, "best", computing=computing, epochs=3, **more).record.runs[-1]
    bits = [epoch.valid["best_so_far"] for epoch in run.epochs]
    assert bits[0] == 1.0
    assert len(bits) == 3
    assert run.best_epoch == 1 + max(number for number, bit in enumerate(bits) if bit)


class _Stops(sv.Observer):
    def __init__(self, after: int) -> None:
        self._after = after

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == self._after:
            raise RuntimeError("the power failed")


def test_after_a_restart_epochs_are_compared_with_the_best_one_before_it(tmp_path: Path) -> None:
    people = _people("two classes")
    whole = [epoch.valid["best_so_far"] for epoch in _run(people, "best").record.runs[-1].epochs]
    later = next(number for number, bit in enumerate(whole, 1) if not bit)  # the first that is no better
    with pytest.raises(sv.PartyFailed):
        _run(people, "best", checkpoints=tmp_path, observer=_Stops(later))
    run = _run(people, "best", checkpoints=tmp_path).record.runs[-1]
    assert [epoch.valid["best_so_far"] for epoch in run.epochs][:later] == whole[:later]


def test_patience_counts_epochs_that_are_not_the_best_so_far() -> None:
    run = _run(_people("two classes"), "best", patience=2, epochs=40).record.runs[-1]
    said = [epoch.valid["best_so_far"] for epoch in run.epochs]
    assert len(said) < 40
    assert said[-2:] == [0.0, 0.0]
    assert run.best_epoch == len(said) - 2


def test_rounded_figures_cost_a_number_each_time_and_bits_one_a_job(tmp_path: Path) -> None:
    people = _people("two classes")
    lab, asker = people.passive[0].name, people.active.name
    for opened, most in (("best", 1), ("rounded", EPOCHS)):
        folder = tmp_path / opened
        _run(people, opened, results=folder, max_results=EPOCHS)
        counts = ResultBook(folder / f"{lab}.results.jsonl", party=lab).count_people(asker)
        assert sorted(set(counts.tolist())) == sorted({1, most})
    with pytest.raises(sv.PolicyError, match=r"plans 8 numbers of one row.* metrics are 'rounded'"):
        _run(people, "rounded", max_results=2)


def test_between_organisations_figures_are_refused_by_default_and_bits_are_not() -> None:
    job = sv.Job(algorithm=sv.LogisticRegression(), protection=sv.Shares(), epochs=10)
    rounded = job.replace(protection=sv.Shares(metrics="rounded"))
    assert job.protection.compares_epochs(simulated=False)
    assert not job.protection.compares_epochs(simulated=True)
    assert (planned_numbers(job, "shop"), planned_numbers(rounded, "shop")) == (1, 10)
    assert planned_numbers(rounded, "shop", predicts=True) == 1
    passive = ("network", "shop")
    assert rule_against(job, "shop", active="bank", passive=passive) == ""
    assert "max_results: the job plans 10 numbers" in rule_against(rounded, "shop", active="bank", passive=passive)
