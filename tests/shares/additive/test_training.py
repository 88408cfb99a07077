"""An additive model on shares, by all parties' programs: the sums of the plain run, noise of all three, what is opened
to whom, and what ends a job."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms.additive import Additive
from securevfl.algorithms.additive.clear import train_in_clear
from securevfl.algorithms.additive.roles import AdditiveActive
from securevfl.algorithms.additive.shapes import OwnShapes
from securevfl.algorithms.additive.units import SUM_ONE, cap_parts
from securevfl.data import Parties
from securevfl.run import Result
from securevfl.shares.additive.channel import SharedSums
from securevfl.shares.additive.noise import PartyNoise
from securevfl.transport import Kind

EPOCHS = 4
Opened = dict[str, list[np.ndarray]]
"""Party → its sums of each epoch."""


def _budget(epsilon: float = 60.0) -> sv.Shares:
    return sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=epsilon)), metrics="none")


def _cuts(people: Parties) -> Additive:
    names = [f"{table.name}.{column}" for table in people.values() for column in table.columns]
    return Additive(edges="declared", cuts=dict.fromkeys(names, (-1.0, 0.0, 1.0)))


def _job(protection: sv.Protection | None = None, algorithm: Additive | None = None, **more: Any) -> sv.Job:
    return sv.Job(
        algorithm=algorithm or Additive(),
        protection=protection or sv.Shares(),
        **({"epochs": EPOCHS, "keep": "last", "seed": 3} | more),
    )


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 120)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The sums that each party's shapes are moved by."""
    found: Opened = defaultdict(list)
    update = OwnShapes.update

    def noted(shapes: OwnShapes, contrasts: Any, sums: np.ndarray) -> None:
        found[shapes.party].append(sums)
        update(shapes, contrasts, sums)

    monkeypatch.setattr(OwnShapes, "update", noted)
    return found


def _shapes(result: Result) -> dict[str, np.ndarray]:
    """Party → the values of its shapes."""
    parts = result.model().parts
    return {
        name: part["parts"]["shapes"]["values"].numpy() for name, part in parts.items() if "shapes" in part["parts"]
    }


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("passive", [2, 3])
def test_without_a_budget_every_sum_is_that_of_the_plain_run(opened: Opened, classes: int, passive: int) -> None:
    people = make_parties(passive, 150, classes=classes)
    names = tuple(table.name for table in people.values())
    plain = sv.simulate(_job(sv.Plain()), people)
    wanted = {name: list(sums) for name, sums in opened.items()}
    opened.clear()
    found = sv.simulate(_job(), people)
    assert set(opened) == set(names)
    for name, sums in wanted.items():
        assert len(sums) == EPOCHS
        assert all(np.array_equal(one, other) for one, other in zip(sums, opened[name], strict=True))
        assert np.array_equal(_shapes(plain)[name], _shapes(found)[name])


def test_validation_and_test_say_what_the_plain_run_says(people: Parties) -> None:
    people = make_parties(2, 700)
    plain, found = (sv.simulate(_job(one, epochs=20), people) for one in (sv.Plain(), sv.Shares()))
    valid, exact = found.record.runs[-1].epochs[-1].valid, plain.record.runs[-1].epochs[-1].valid
    assert abs(valid["accuracy"] - exact["accuracy"]) < 0.002
    assert abs(valid["auc"] - exact["auc"]) < 0.02
    assert abs(valid["log_loss"] - exact["log_loss"]) < 0.01
    assert abs(found.record.runs[-1].test["auc"] - plain.record.runs[-1].test["auc"]) < 0.01
    (scores,) = found.scores.values()
    logits = np.log(scores[:, 1] / scores[:, 0]) * 2**4
    np.testing.assert_allclose(logits, np.rint(logits), atol=1e-3)  # answers have four bits behind the point


@pytest.mark.parametrize(("coordinated", "number"), [(False, False), (True, False), (False, True), (True, True)])
def test_with_fixed_noise_shapes_are_those_of_the_clear(
    opened: Opened, coordinated: bool, number: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of three parties' noise, and nothing else, is in each opened sum."""
    people = make_parties(1 if coordinated else 2, 120)
    computing = (people.active.name, people.passive[0].name, "helper") if coordinated else ()
    more: dict[str, Any] = {}
    if number:
        spread = np.random.default_rng(4).normal(size=people.active.rows)
        people = Parties.of(replace(people.active, label=spread, classes=()), *people.passive)
        more = {"task": "regression", "target_range": (-2.0, 2.0)}
    drawn: list[np.ndarray] = []
    draw = PartyNoise.draw

    def noted(noise: PartyNoise, shape: tuple[int, ...]) -> np.ndarray:
        drawn.append(draw(noise, shape))
        return drawn[-1]

    kept: dict[str, Any] = {}
    prepare = AdditiveActive.prepare

    async def keep_targets(role: AdditiveActive) -> None:
        await prepare(role)
        kept["targets"] = role.targets.copy()

    begun: dict[str, OwnShapes] = {}
    begin = OwnShapes.__init__

    def keep_shapes(shapes: OwnShapes, *args: Any, **more: Any) -> None:
        begin(shapes, *args, **more)
        again = object.__new__(OwnShapes)
        begin(again, *args, **more)
        begun.setdefault(shapes.party, again)

    monkeypatch.setattr(PartyNoise, "draw", noted)
    monkeypatch.setattr(AdditiveActive, "prepare", keep_targets)
    monkeypatch.setattr(OwnShapes, "__init__", keep_shapes)
    sv.simulate(_job(_budget().replace(computing=computing), _cuts(people), **more), people)
    assert len(drawn) == 3 * EPOCHS
    totals = [sum(drawn[3 * k : 3 * k + 3]) for k in range(EPOCHS)]
    assert all(len(np.unique(np.stack(drawn[3 * k : 3 * k + 3]))) == drawn[0].size * 3 for k in range(EPOCHS))
    with_noise = {name: list(sums) for name, sums in opened.items()}
    opened.clear()
    shapes = [begun[table.name] for table in people.values()]
    ends = np.cumsum([len(one.columns) for one in shapes])
    turn = iter([part for total in totals for part in np.split(np.asarray(total), ends[:-1])])
    train_in_clear(shapes, kept["targets"], EPOCHS, noise=lambda epoch, shape: next(turn))
    for name, sums in with_noise.items():
        assert all(np.array_equal(one, other) for one, other in zip(sums, opened[name], strict=True))


def test_any_two_parties_reach_sigma_and_no_party_alone() -> None:
    plan = Additive(edges="declared").plan_sums(_budget(1.0), rows=1000, outputs=1, columns=(3, 2), epochs=9)
    noise = PartyNoise(plan)
    two = np.hypot(*(noise.draw((4000,)).astype(float) for _ in range(2)))
    assert 0.95 < np.sqrt(np.mean(two**2)) / plan.sigma < 1.05
    assert 2 * plan.own_sigma**2 >= plan.sigma**2
    assert plan.own_sigma < 0.72 * plan.sigma
    assert plan.sensitivity == pytest.approx(2 * np.sqrt(5) * SUM_ONE)
    assert noise.draws == 2
    mu = plan.sensitivity * np.sqrt(9) / plan.sigma
    assert mu == pytest.approx(np.sqrt(9 / 10) * 0.26805, rel=1e-4)  # at ε = 1, δ = 1e-5; the start is one of ten units


@pytest.mark.parametrize(("columns", "slack"), [((3, 2), 0.0), ((7, 2, 9), 0.25), ((1, 1, 1, 40), 0.25)])
def test_residuals_are_bounded_by_what_the_noise_is_sized_for(columns: tuple[int, ...], slack: float) -> None:
    """Whatever the shapes: parts at either end of their ranges, and targets at theirs."""
    plan = Additive(edges="declared").plan_sums(_budget(), rows=100, outputs=1, columns=columns, epochs=4)
    assert sum(plan.caps) == plan.one
    least, most = -sum(plan.slacks), sum(plan.caps) + sum(plan.slacks)
    assert max(plan.one - least, most) <= (1 + slack) * plan.one
    assert plan.sensitivity == pytest.approx(2 * (1 + slack) * np.sqrt(sum(columns)) * SUM_ONE)
    for cap, beyond in zip(plan.caps, plan.slacks, strict=True):
        parts = cap_parts(np.array([[-1e9], [1e9], [0.4]]), cap, slack)
        assert parts[:2, 0].tolist() == [-beyond, cap + beyond]


def _received(result: Result, what: str) -> dict[str, Counter[str]]:
    """Receiver → sender → messages of this step."""
    (ledgers,) = [kept for key, kept in result.ledgers.items() if key != "alignment"]
    found: dict[str, Counter[str]] = {}
    for name, ledger in ledgers.items():
        got = [entry for entry in ledger.iter_entries() if entry.way == "received" and entry.what == what]
        if got:
            found[name] = Counter(entry.peer for entry in got)
    return found


def test_each_owner_gets_the_sums_of_its_columns_once_an_epoch(people: Parties) -> None:
    names = [table.name for table in people.values()]
    found = _received(sv.simulate(_job(_budget(), _cuts(people)), people), "shares/open sums")
    assert found == {name: dict.fromkeys(set(names) - {name}, EPOCHS) for name in names}


def test_a_party_that_does_not_compute_gets_its_sums_too_and_a_coordinator_none() -> None:
    people = make_parties(2, 120)
    names = [table.name for table in people.values()]
    computing = (names[0], names[1], "helper")
    result = sv.simulate(_job(_budget().replace(computing=computing), _cuts(people)), people)
    found = _received(result, "shares/open sums")
    assert set(found) == set(names)
    assert found[names[2]] == dict.fromkeys(computing, EPOCHS)
    assert found[names[0]] == dict.fromkeys(computing[1:], EPOCHS)


def test_nothing_crosses_that_its_receiver_could_read(people: Parties) -> None:
    (ledgers,) = [
        kept for key, kept in sv.simulate(_job(_budget(), _cuts(people)), people).ledgers.items() if key != "alignment"
    ]
    for name, ledger in ledgers.items():
        for entry in ledger.iter_entries():
            assert entry.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE), (name, entry.what)
            if entry.kind is Kind.SHARE:
                assert entry.cipher == "masked"


@pytest.mark.parametrize("what", ["contrast", "part", "value"])
@pytest.mark.parametrize("party", ["bank", "shop1"])
def test_what_lies_outside_its_bounds_ends_the_job_before_sums_are_opened(
    people: Parties, what: str, party: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"contrast": 0, "part": 1, "value": 2}[what]
    from securevfl.shares.share_party import ShareParty

    share = ShareParty.share_arrays

    async def deviate(member: ShareParty, words: Any, shapes: Any, **more: Any) -> Any:
        if words is not None and len(words) == 3 and member.site.name == party:
            words = [array.copy() for array in words]
            words[place].reshape(-1)[5] = np.uint64(1 << 20)
        return await share(member, words, shapes, **more)

    monkeypatch.setattr(ShareParty, "share_arrays", deviate)
    with pytest.raises(sv.PolicyError, match="refuses to open sums: a party dealt contrasts or prob") as caught:
        sv.simulate(_job(_budget(), _cuts(people)), people)
    every = [entry.what for ledger in caught.value.ledgers for entry in ledger.iter_entries()]
    assert "shares/input" in every
    assert "shares/open sums" not in every


def test_a_sum_that_no_rows_could_give_is_refused_by_its_owner(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = PartyNoise.draw
    monkeypatch.setattr(PartyNoise, "draw", lambda noise, shape: draw(noise, shape) + (1 << 45))
    with pytest.raises(sv.ProtocolError, match=r"larger than .* rows and their noise can make it"):
        sv.simulate(_job(_budget(), _cuts(people)), people)


def test_sums_of_an_epoch_are_opened_once(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = SharedSums.exchange

    async def twice(sums: SharedSums, epoch: int, contrasts: Any, part: Any) -> Any:
        found = await exchange(sums, epoch, contrasts, part)
        return found if epoch != 2 else await exchange(sums, epoch, contrasts, part)

    monkeypatch.setattr(SharedSums, "exchange", twice)
    with pytest.raises(sv.PolicyError, match="refuses to open the sums of epoch 2 again"):
        sv.simulate(_job(_budget(), _cuts(people)), people)


def test_noise_that_was_left_out_ends_the_run(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = PartyNoise.draw

    def skip(noise: PartyNoise, shape: tuple[int, ...]) -> np.ndarray:
        if noise.draws == 2:
            return np.zeros(shape, np.int64)
        return draw(noise, shape)

    monkeypatch.setattr(PartyNoise, "draw", skip)
    with pytest.raises(sv.ProtectionInactive, match="had to add noise to each of 4 steps, and added it to 2"):
        sv.simulate(_job(_budget(), _cuts(people)), people)


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


@pytest.mark.parametrize("coordinated", [False, True])
def test_a_run_without_a_budget_goes_on_as_if_it_had_not_stopped(tmp_path: Path, coordinated: bool) -> None:
    people = make_parties(1 if coordinated else 2, 120)
    names = (people.active.name, people.passive[0].name, "helper")
    job = _job(sv.Shares(computing=names) if coordinated else sv.Shares())
    whole = sv.simulate(job, people)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    resumed = sv.simulate(job, people, checkpoints=tmp_path)
    wanted, found = _shapes(whole), _shapes(resumed)
    assert set(wanted) == set(found)
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)


def test_an_epoch_whose_sums_are_opened_again_gets_new_noise_and_is_counted_again(
    people: Parties, tmp_path: Path
) -> None:
    job = _job(_budget(), _cuts(people))
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    run = sv.simulate(job, people, checkpoints=tmp_path).record.runs[-1]
    whole = sv.simulate(job, people).record.runs[-1]
    counted = {total.party: total.releases for total in run.epsilon_totals}
    assert counted[people.active.name] == EPOCHS + 2  # the start is a unit, too, and is drawn once
    again, once = (max(total.epsilon_rdp for total in found.epsilon_totals) for found in (run, whole))
    assert again > once
    assert any("resumed an interrupted run" in note for note in run.notes)
    assert not any("ε = 60 " in note for note in run.notes)
    covered = [note for note in whole.notes if "for rows that train" in note]
    assert covered
    assert all("ε = 60 (δ = 1e-05)" in note for note in covered)


def test_the_model_predicts_with_all_parties_and_each_has_its_own_shapes_alone(people: Parties) -> None:
    result = sv.simulate(_job(_budget(), _cuts(people)), people)
    model = result.model()
    predicted = sv.predict(model, people)
    scores = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (own,) = result.scores.values()
    assert max(abs(scores[name] - value) for name, value in zip(result.test_ids, own[:, 1], strict=True)) < 0.016
    for table in people.values():
        columns = [one["name"] for one in model.parts[table.name]["parts"]["shapes"]["columns"]]
        assert [name for name in columns if name != "(intercept)"] == list(table.columns)
        assert model.parts[table.name]["parts"]["shares"] == {}


def test_what_sums_on_shares_do_not_do_is_refused_with_the_reason() -> None:
    with pytest.raises(sv.InputError, match=r"each party keeps the shapes of its columns anyway: leave"):
        _job(sv.Shares(model="parts"))
