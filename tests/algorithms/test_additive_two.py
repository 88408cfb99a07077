"""An additive model between two parties and nobody else: the sums of the plain run, noise of both, what each party can
read, and what ends a job."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import make_parties
from support.servers import PATIENCE, put, scores_of, unlabelled

import securevfl as sv
from benchmarks.additive_two import Side, audit_party, crafted_sides, run_sums
from securevfl.algorithms.additive import Additive
from securevfl.algorithms.additive.channel import sum_contrasts
from securevfl.algorithms.additive.clear import train_in_clear
from securevfl.algorithms.additive.roles import AdditiveActive
from securevfl.algorithms.additive.sealed_keys import SealedKeys, TheirKey
from securevfl.algorithms.additive.sealed_scores import round_terms
from securevfl.algorithms.additive.sealed_sums import OPENED, SealedSums
from securevfl.algorithms.additive.shapes import OwnShapes
from securevfl.algorithms.additive.units import CONTRAST_ONE, PART_ONE, SUM_ONE
from securevfl.data import Parties
from securevfl.report.derived import epsilon_of
from securevfl.report.html import write_report
from securevfl.run import Result
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServeActive, ServePassive, ServingContext
from securevfl.transport import Kind, MemoryHub

EPOCHS = 3
Opened = dict[str, list[np.ndarray]]
"""Party → its sums of each epoch."""


def _budget(epsilon: float = 60.0) -> sv.BFV:
    return sv.BFV(dp=sv.DP(model=sv.Gaussian(epsilon=epsilon)))


def _cuts(people: Parties) -> Additive:
    names = [f"{table.name}.{column}" for table in people.values() for column in table.columns]
    return Additive(edges="declared", cuts=dict.fromkeys(names, (-1.0, 0.0, 1.0)))


def _job(protection: sv.Protection | None = None, algorithm: Additive | None = None, **more: Any) -> sv.Job:
    return sv.Job(
        algorithm=algorithm or Additive(),
        protection=protection or sv.BFV(),
        **({"epochs": EPOCHS, "keep": "last", "seed": 3} | more),
    )


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, 120)


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
    return {name: part["parts"]["shapes"]["values"].numpy() for name, part in result.model().parts.items()}


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_without_a_budget_every_sum_is_that_of_the_plain_run(opened: Opened, classes: int) -> None:
    people, more = make_parties(1, 150, classes=max(classes, 2)), {}
    if classes == 1:
        amounts = 100 + 10 * np.asarray(people.active.columns["f0"])
        people = Parties.of(replace(people.active, label=amounts, classes=()), *people.passive)
        more = {"task": "regression", "target_range": (90.0, 120.0)}
    plain = sv.simulate(_job(sv.Plain(), **more), people)
    wanted = {name: list(sums) for name, sums in opened.items()}
    opened.clear()
    found = sv.simulate(_job(**more), people)
    assert set(opened) == {"bank", "shop1"}
    for name, sums in wanted.items():
        assert len(sums) == EPOCHS
        assert all(np.array_equal(one, other) for one, other in zip(sums, opened[name], strict=True))
        assert np.array_equal(_shapes(plain)[name], _shapes(found)[name])
    told, exact = found.record.runs[-1].test, plain.record.runs[-1].test
    if classes == 1:
        assert told["rmse"] == pytest.approx(exact["rmse"], rel=0.01)
    else:
        assert abs(exact["log_loss"] - told["log_loss"]) < 0.01


def test_with_fixed_noise_shapes_are_those_of_the_clear(
    people: Parties, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sum has noise of both parties, different draws each, and nothing else."""
    drawn: dict[str, list[np.ndarray]] = defaultdict(list)
    draw, prepare, begin = SealedSums.draw_noise, AdditiveActive.prepare, OwnShapes.__init__
    kept: dict[str, Any] = {}
    begun: dict[str, OwnShapes] = {}

    def noted(sums: SealedSums, shape: tuple[int, ...]) -> np.ndarray:
        found = draw(sums, shape)
        drawn[sums._site.name].append(found)
        return found

    async def keep_targets(role: AdditiveActive) -> None:
        await prepare(role)
        kept["targets"] = role.targets.copy()

    def keep_shapes(shapes: OwnShapes, *args: Any, **more: Any) -> None:
        begin(shapes, *args, **more)
        again = object.__new__(OwnShapes)
        begin(again, *args, **more)
        begun.setdefault(shapes.party, again)

    monkeypatch.setattr(SealedSums, "draw_noise", noted)
    monkeypatch.setattr(AdditiveActive, "prepare", keep_targets)
    monkeypatch.setattr(OwnShapes, "__init__", keep_shapes)
    sv.simulate(_job(_budget(), _cuts(people)), people)
    assert {name: len(draws) for name, draws in drawn.items()} == {"bank": 2 * EPOCHS, "shop1": 2 * EPOCHS}
    every = np.concatenate([one.ravel() for draws in drawn.values() for one in draws])
    assert len(np.unique(every)) == len(every)  # 2²⁶ units wide: two equal draws are one draw
    with_noise = {name: list(sums) for name, sums in opened.items()}
    opened.clear()
    # A draw on the other's sums comes before that on the own ones; the active party subtracts the other's.
    signs = iter([-1, 1] * EPOCHS)
    noise = iter(
        [
            drawn[own][2 * epoch + 1] + next(signs) * drawn[other][2 * epoch]
            for epoch in range(EPOCHS)
            for own, other in (("bank", "shop1"), ("shop1", "bank"))
        ]
    )
    train_in_clear([begun["bank"], begun["shop1"]], kept["targets"], EPOCHS, noise=lambda epoch, shape: next(noise))
    for name, sums in with_noise.items():
        assert all(np.array_equal(one, other) for one, other in zip(sums, opened[name], strict=True))


@pytest.mark.parametrize(("party", "columns"), [(0, (500, 1)), (1, (1, 500))])
def test_a_party_without_its_own_noise_sees_a_row_as_well_as_stated_and_no_better(
    party: int, columns: tuple[int, int]
) -> None:
    measured, stated = audit_party(party, columns, epsilon=1.0, epochs=8)
    assert 0.95 < measured / stated < 1.05


def _transcripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[np.ndarray]]:
    """Party → what it sent as opened sums, in each epoch, filled by runs that follow."""
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    swap = SealedSums._swap

    async def noted(sums: SealedSums, kind: Kind, step: str, content: np.ndarray, *more: Any) -> np.ndarray:
        if step == OPENED:
            found[sums._site.name].append(content)
        return await swap(sums, kind, step, content, *more)

    monkeypatch.setattr(SealedSums, "_swap", noted)
    return found


def test_what_a_party_opens_for_the_other_is_uniform_and_masked_anew_in_each_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides = crafted_sides((6, 9), replaced=False)
    found = _transcripts(monkeypatch)
    run_sums(sides, None, 4)
    for own, other, name in ((0, 1, "bank"), (1, 0, "shop")):
        truth = sum_contrasts(sides[other].contrasts, sides[own].part)
        masks = np.stack([truth - words.view(np.int64) for words in found[name]])
        assert len(np.unique(masks)) == masks.size  # a mask that is used twice is a difference of two sums
        assert np.mean(np.abs(masks.astype(float)) > 1 << 55) > 0.7  # uniform modulo 2⁶⁴: all but one in 256
    assert np.array_equal(sides[0].sums[0], sides[0].sums[3])  # all four epochs opened the same to their owner


def test_keys_sealed_numbers_and_masked_sums_are_all_that_crosses(people: Parties) -> None:
    (ledgers,) = [
        kept for key, kept in sv.simulate(_job(_budget(), _cuts(people)), people).ledgers.items() if key != "alignment"
    ]
    for name, ledger in ledgers.items():
        for entry in ledger.iter_entries():
            assert entry.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.CIPHERTEXT, Kind.STATISTIC), (name, entry.what)
            assert (entry.kind is Kind.STATISTIC) == (entry.what == OPENED)
            assert entry.kind is not Kind.CIPHERTEXT or entry.cipher == "bfv"


@pytest.mark.parametrize(("what", "units"), [("contrast", CONTRAST_ONE), ("part", PART_ONE)])
def test_numbers_beyond_one_are_never_sealed(what: str, units: int) -> None:
    sides = crafted_sides((2, 3), replaced=False)
    array = sides[1].contrasts if what == "contrast" else sides[1].part
    array[1, 0] = -units - 1
    with pytest.raises(sv.SecureVFLError, match=f"a {what} of {units + 1} units would be sealed"):
        run_sums(sides, None, 1)


def test_an_answer_under_another_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(keys: SealedKeys) -> TheirKey:
        real = keys._theirs
        assert real is not None
        return real if keys.is_active else TheirKey(keys.own.secret.public, real.guard)

    monkeypatch.setattr(SealedKeys, "theirs", property(wrong))
    with pytest.raises(sv.ProtocolError, match="key"):
        run_sums(crafted_sides((2, 3), replaced=False), None, 1)


def test_a_sum_that_no_rows_could_give_is_refused(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = SealedSums.draw_noise
    monkeypatch.setattr(SealedSums, "draw_noise", lambda sums, shape: draw(sums, shape) + (1 << 45))
    with pytest.raises(sv.ProtocolError, match=r"larger than .* rows and their noise can make it"):
        sv.simulate(_job(_budget(), _cuts(people)), people)


def test_sums_of_an_epoch_are_opened_once(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = SealedSums.exchange

    async def twice(sums: SealedSums, epoch: int, contrasts: Any, part: Any) -> Any:
        found = await exchange(sums, epoch, contrasts, part)
        return found if epoch != 2 else await exchange(sums, epoch, contrasts, part)

    monkeypatch.setattr(SealedSums, "exchange", twice)
    with pytest.raises(sv.PolicyError, match="refuses to open the sums of epoch 2 again"):
        sv.simulate(_job(), people)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: _job(sv.Paillier()), "use protection 'bfv' in the place of 'paillier'"),
        (lambda: _job(sv.CKKS()), "use protection 'bfv' in the place of 'ckks'"),
        (lambda: _job(keep="best"), "keep is 'best', and Additive model under BFV scores no validation rows"),
        (lambda: _job(patience=3), "leave patience out"),
        (lambda: _job(_budget(), stratify=True), "leave stratify out"),
        (lambda: sv.simulate(_job(), make_parties(2, 60)), "or use protection 'shares' (three computing parties)"),
        (lambda: sv.simulate(_job(_budget(1.0)), make_parties(1, 60)), "the noise on the sums is larger"),
    ],
)
def test_jobs_that_cannot_be_are_refused_with_a_cure(make: Any, says: str) -> None:
    with pytest.raises(sv.InputError, match=re.escape(says)):
        make()


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_a_run_without_a_budget_goes_on_as_if_it_had_not_stopped(people: Parties, tmp_path: Path) -> None:
    whole = sv.simulate(_job(), people)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(), people, checkpoints=tmp_path, observer=_Stops())
    wanted, found = _shapes(whole), _shapes(sv.simulate(_job(), people, checkpoints=tmp_path))
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)


def test_an_epoch_whose_sums_are_opened_again_gets_new_noise_and_is_counted_again(
    people: Parties, tmp_path: Path
) -> None:
    job = _job(_budget(), _cuts(people))
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    run = sv.simulate(job, people, checkpoints=tmp_path).record.runs[-1]
    whole = sv.simulate(job, people).record.runs[-1]
    counted, once = ({one.party: one for one in found.epsilon_totals} for found in (run, whole))
    assert set(counted) == {"bank", "shop1"}
    for name in counted:
        assert once[name].releases == EPOCHS + 1  # the start is a unit, too, and is drawn once
        # The passive party had begun the third epoch, too, when the active one failed at the end of the second.
        assert counted[name].releases == EPOCHS + 2 + (name == "shop1")
        assert counted[name].epsilon_rdp > once[name].epsilon_rdp
    assert any("resumed an interrupted run" in note for note in run.notes)
    assert not any("ε = 60 " in note for note in run.notes)
    assert any("for everything" in note and "interrupted attempts" in note for note in run.notes)


def test_the_ledger_and_the_report_have_the_stated_epsilon(tmp_path: Path) -> None:
    result = sv.simulate(_job(_budget(8.0), _cuts(make := make_parties(1, 700))), make)
    totals = result.record.runs[-1].epsilon_totals
    assert {one.party: one.releases for one in totals} == {"bank": EPOCHS + 1, "shop1": EPOCHS + 1}
    assert any("ε = 8 (δ = 1e-05) of a common row" in note for note in result.record.runs[-1].notes)
    assert all(one.epsilon_exact == pytest.approx(8.0, abs=0.005) and one.epsilon_rdp > 8.3 for one in totals)
    assert epsilon_of(result.record.runs[-1]) == pytest.approx(8.0, abs=0.005)
    assert "ε (exact)" in write_report(result.record, tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize("classes", [2, 3])
def test_an_answer_is_one_number_or_one_a_class_and_is_counted(classes: int) -> None:
    people = make_parties(1, 150, classes=classes)
    each = 1 if classes == 2 else classes
    job = _job(policies={"shop1": sv.Policy(max_results=each)})
    model = sv.simulate(job, people).model()
    assert sv.predict(model, people).probabilities.shape[1] == classes
    if classes == 3:
        with pytest.raises(sv.PolicyError, match="max_results"):
            sv.simulate(_job(policies={"shop1": sv.Policy(max_results=2)}), people)


def test_terms_are_rounded_and_clipped() -> None:
    found = round_terms(np.array([[0.25, -9.0, 9.0, 1 / 300]]))
    assert found.tolist() == [[64, -512, 512, 1]]


def test_servers_answer_with_the_model(tmp_path: Path) -> None:
    two, names = make_parties(1, 120), ("bank", "shop1")
    job = _job()
    model = sv.simulate(job, two).model()
    wanted = sv.predict(model, two)
    folder, tables = model.save(tmp_path / "model"), unlabelled(two)

    def place(name: str) -> ServingContext:
        at = ServingContext(
            name=name,
            active="bank",
            passive=("shop1",),
            job=job,
            load=lambda: tables[name],
            folder=tmp_path / name,
        )
        put(at, ModelPart.load(folder, name, job))
        return at

    async def score() -> tuple[tuple[str, ...], list[np.ndarray]]:
        hub = MemoryHub(list(names))
        bank = ServeActive(hub["bank"], place("bank"))
        tasks = [
            asyncio.ensure_future(one.run()) for one in (bank, ServePassive(hub["shop1"], place("shop1"), once=True))
        ]
        try:
            async with asyncio.timeout(PATIENCE):
                await bank.wait_for_session()
                assert not bank.problem
                common = tuple(sorted(bank.common_customers))
                found = [scores_of(await bank.scores(part)) for part in (common, common[:5])]
                await bank.finish()
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return common, found

    common, scores = asyncio.run(score())
    expected = dict(zip(wanted.ids, wanted.probabilities, strict=True))
    assert set(common) == set(expected)
    for found, part in zip(scores, (common, common[:5]), strict=True):
        assert np.abs(found - np.array([expected[name] for name in part])).max() < 1e-6


def test_sums_are_the_same_whatever_side_a_party_is_on() -> None:
    rng = np.random.default_rng(5)
    sides = tuple(
        Side(rng.integers(-CONTRAST_ONE, CONTRAST_ONE + 1, (300, count)), rng.integers(0, PART_ONE // 2, (300, 3)))
        for count in (4, 7)
    )
    run_sums((sides[0], sides[1]), None, 1)
    for side in sides:
        assert np.array_equal(side.sums[0], sum_contrasts(side.contrasts, sides[0].part - sides[1].part))
    assert np.abs(sides[1].sums[0]).max() < 300 * SUM_ONE
