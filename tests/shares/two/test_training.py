"""Training on shares of two parties, by their programs: what crosses, what is opened, how runs go on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.two.online import TwoLinear
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.privacy import Ledger
from securevfl.run import Result
from securevfl.testing.trial import Trial
from securevfl.transport import Kind

EPOCHS = 3
PAIR, HELPED = sv.Shares(computing=2), sv.Shares(computing=2, helper="notary")


def _job(protection: sv.Shares = PAIR, **more: object) -> sv.Job:
    settings = {"algorithm": sv.LogisticRegression(), "epochs": EPOCHS, "batch_size": 64, "seed": 0}
    return sv.Job(protection=protection, **(settings | more))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, 400)


@pytest.fixture(scope="module", params=[PAIR, HELPED], ids=["pair", "helper"])
def ran(request: pytest.FixtureRequest, people: Parties) -> Result:
    return sv.simulate(_job(request.param), people)


def _ledgers(result: Result) -> dict[str, Ledger]:
    (found,) = [ledgers for key, ledgers in result.ledgers.items() if key != "alignment"]
    return dict(found)


def test_two_parties_train(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert set(run.test) == {"accuracy", "log_loss", "auc", "ks"}
    assert [set(epoch.valid) for epoch in run.epochs] == [{"accuracy", "log_loss", "auc"}] * EPOCHS
    assert all(epoch.train_loss is None for epoch in run.epochs)
    assert any("rounds a step" in note for note in run.notes)


def test_the_model_is_about_as_good_as_in_the_clear(ran: Result, people: Parties) -> None:
    run = ran.record.runs[-1]
    clear = sv.simulate(_job().replace(protection=sv.Plain(), algorithm=sv.LogisticRegression(lr=0.05)), people)
    assert run.test["auc"] > clear.record.runs[-1].test["auc"] - 0.05
    assert run.test["log_loss"] < 0.69


def test_nothing_crosses_that_its_receiver_could_read(ran: Result) -> None:
    for name, ledger in _ledgers(ran).items():
        for entry in ledger.iter_entries():
            assert entry.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE), (name, entry.what)
            if entry.kind is Kind.SHARE:
                assert entry.cipher == "masked"


def test_what_is_opened_is_declared_and_counted(ran: Result, people: Parties) -> None:
    opened = {
        name: Counter(e.what for e in ledger.iter_entries() if e.way == "received" and "open" in e.what)
        for name, ledger in _ledgers(ran).items()
    }
    active, passive = people.active.name, people.passive[0].name
    both = {"shares/open range": EPOCHS + 1, "shares/open useful": 1}
    assert opened[active] == {**both, "shares/open metrics": EPOCHS, "shares/open predictions": 1}
    assert opened[passive] == both
    assert not opened.get("notary")


def test_a_helper_receives_sizes_alone(people: Parties) -> None:
    ledger = _ledgers(sv.simulate(_job(HELPED), people))["notary"]
    received = [entry for entry in ledger.iter_entries() if entry.way == "received"]
    assert {entry.kind for entry in received} == {Kind.CONTROL}
    assert {entry.what for entry in received} <= {"shares/plan", "shares/lot", "train/epoch"} | {
        entry.what for entry in received if not entry.what.startswith(("shares/", "train/"))
    }


def test_predictions_are_opened_with_four_bits_behind_the_point(ran: Result) -> None:
    (scores,) = ran.scores.values()
    logits = np.log(scores[:, 1] / scores[:, 0]) * 2**4
    np.testing.assert_allclose(logits, np.rint(logits), atol=1e-3)


def test_a_model_in_shares_predicts_with_all_parties(ran: Result, people: Parties) -> None:
    model = ran.model()
    predicted = sv.predict(model, people)
    scores = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (own,) = ran.scores.values()
    wanted = dict(zip(ran.test_ids, own[:, 1], strict=True))
    assert max(abs(scores[name] - value) for name, value in wanted.items()) < 0.016
    for name, part in model.parts.items():
        assert set(part["parts"].get("shares", {})) == (
            set() if name == "notary" else {"own", "other", "scale", "sharing"}
        )


def test_summands_alone_are_random_and_the_sum_is_small(ran: Result, people: Parties) -> None:
    parts = ran.model().parts
    one, other = (parts[name]["parts"]["shares"] for name in (people.active.name, people.passive[0].name))
    whole = (one["own"] + other["other"]).numpy()
    assert np.abs(whole / 2.0**45).max() < 16
    assert np.abs(one["own"].numpy() / 2.0**45).max() > 1024


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


@pytest.mark.parametrize("protection", [PAIR, HELPED], ids=["pair", "helper"])
def test_a_run_goes_on_from_checkpoints_with_fresh_random_numbers(
    tmp_path: Path, people: Parties, protection: sv.Shares
) -> None:
    job = _job(protection)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    found = sv.simulate(job, people, checkpoints=tmp_path)
    run = found.record.runs[-1]
    assert len(run.epochs) == EPOCHS
    entries = list(_ledgers(found)[people.active.name].iter_entries())
    assert sum(e.what == "shares/open metrics" for e in entries) < EPOCHS  # the first epoch's are not opened again
    source = "shares/two key" if protection is PAIR else "shares/dealt"
    assert any(e.what == source for e in entries)
    whole = sv.simulate(job, people).record.runs[-1]
    assert abs(run.test["log_loss"] - whole.test["log_loss"]) < 0.01


def test_loaded_shares_are_drawn_anew_before_they_are_used(
    tmp_path: Path, people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that was restored from an older copy would otherwise send a pad's difference twice."""
    drawn: list[bool] = []
    refresh: Any = TwoLinear.refresh_shares

    async def counted(linear: TwoLinear, *more: Any) -> Any:
        before = linear.own.copy()
        found = await refresh(linear, *more)
        drawn.append(not np.array_equal(before, linear.own))
        return found

    monkeypatch.setattr(TwoLinear, "refresh_shares", counted)
    job = _job(epochs=2)
    whole = sv.simulate(job, people)
    assert drawn == [True] * 2  # the best epoch's, before the test, at both
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(), people, checkpoints=tmp_path, observer=_Stops())
    sv.simulate(_job(), people, checkpoints=tmp_path)
    assert drawn == [True] * 6  # the checkpoint's, too
    sv.predict(whole.model(), people)
    assert drawn == [True] * 8


@pytest.mark.parametrize("answers", ["class", "grades"])
def test_other_answers(people: Parties, answers: str) -> None:
    (scores,) = sv.simulate(_job(PAIR.replace(answers=answers), epochs=1), people).scores.values()
    values = np.log(np.clip(scores[:, 1], 1e-14, None) / np.clip(scores[:, 0], 1e-14, None))
    if answers == "class":
        assert set(np.unique(scores.round())) <= {0.0, 1.0}
    else:
        np.testing.assert_allclose(values * 2, np.rint(values * 2), atol=1e-3)


def test_no_metrics_open_nothing_of_validation_rows(people: Parties) -> None:
    found = sv.simulate(_job(PAIR.replace(metrics="none"), keep="last", patience=None), people)
    for ledger in _ledgers(found).values():
        opened = {e.what for e in ledger.iter_entries() if "open" in e.what}
        assert opened <= {"shares/open predictions"}


def test_three_data_parties_are_refused() -> None:
    with pytest.raises(sv.InputError, match="leave computing out"):
        sv.simulate(_job(), make_parties(2, 90))


def test_parts_of_two_runs_are_no_model(people: Parties) -> None:
    """Summands that were made apart add up to random numbers, which nobody would see from either of them."""
    one, other = (sv.simulate(_job(epochs=1, seed=seed), people).model() for seed in (0, 0))
    parts = dict(one.parts)
    name = people.passive[0].name
    mixed = replace(one, parts=parts | {name: other.parts[name]})
    with pytest.raises(sv.ProtocolError, match="parts of different models"):
        sv.predict(mixed, people)


def test_links_that_hold_one_message_at_a_time(people: Parties) -> None:
    """Both parties send, and only then receive: neither may wait for the other to read."""
    trial = Trial(sv.LogisticRegression())
    run = trial.run(trial.job(PAIR, epochs=1), people, window=1)
    assert np.isfinite(run.trained[people.active.name].test["log_loss"])


@pytest.mark.parametrize(
    "more",
    [{"epochs": 10}, {"epochs": 5, "valid_every": 3}, {"epochs": 2, "steps": 7}, {"epochs": 2, "batch_size": 1024}],
    ids=["two lots", "few validations", "steps", "one batch"],
)
def test_other_plans(people: Parties, more: dict[str, Any]) -> None:
    run = sv.simulate(_job(HELPED, **more), people).record.runs[-1]
    assert run.test["auc"] > 0.9
