"""Targets on shares: dealt once a job, checked, and the same in every epoch; how many rows a job needs; the range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.replicated import Clear, Computing, Product, Share, run_three
from securevfl_crypto.ring import encode_words
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.privacy import ResultBook
from securevfl.run import context_building
from securevfl.shares import LEAST_TRAINING, LEAST_VALIDATION, SharedTraining, check_targets, coordinator
from securevfl.shares.dealt_rows import DealtRows
from securevfl.shares.engine import find_outside
from securevfl.shares.kept_targets import TargetRule, decode_kept, encode_kept
from securevfl.shares.least_rows import MOST_METRICS_EVER
from securevfl.shares.network import Network
from securevfl.shares.shared_model import SharedModel
from securevfl.testing.trial import Trial


def _job(**more: Any) -> sv.Job:
    told: dict[str, Any] = {"algorithm": sv.LogisticRegression(), "protection": sv.Shares(), "epochs": 2}
    return sv.Job(**{**told, "batch_size": 32, **more})


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 300)


@pytest.fixture
def between_organisations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties that do not know that one person runs them all."""

    def built(*given: Any, **more: Any) -> Any:
        return context_building.build_context(*given, **{**more, "simulated": False})

    monkeypatch.setattr("securevfl.run.simulated_parties.build_context", built)


def _accepts(words: np.ndarray, trained: int, rule: int | TargetRule, *, counted: bool = False) -> bool:
    asked = TargetRule.of(rule) if isinstance(rule, int) else rule

    async def checked(engine: Clear) -> bool:
        return await check_targets(engine, engine.constant(words), trained, asked, counted=counted)

    with pytest.raises(StopIteration) as ended:
        checked(Clear(bytes(32), openings={"targets": 1})).send(None)
    return bool(ended.value.value)


def _bits(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)[:, None]


@pytest.mark.parametrize("wrong", [2, 1 << 15, 1 << 16, 1 << 32, 1 << 48, 1 << 63, (1 << 64) - 1])
def test_a_class_is_zero_or_one_and_nothing_else_modulo_2_64(wrong: int) -> None:
    assert _accepts(_bits(0, 1, 1, 0), 2, 2)
    assert not _accepts(_bits(0, 1, wrong, 0), 2, 2)


def test_a_row_of_many_classes_has_one() -> None:
    one_hot = np.eye(3, dtype=np.uint64)[[0, 2, 1]]
    assert _accepts(one_hot, 2, 3)
    for wrong in ([0, 0, 0], [1, 1, 0], [1, (1 << 64) - 1, 1], [1 << 63, 1 << 63, 1]):
        changed = one_hot.copy()
        changed[1] = wrong
        assert not _accepts(changed, 2, 3), wrong


def test_numbers_are_bounded() -> None:
    assert _accepts(encode_words(np.array([[-1024.0], [3.5], [1024.0]])), 2, 1)
    for wrong in (1024.01, -1025.0, 2.0**45, -(2.0**45)):
        assert not _accepts(encode_words(np.array([[0.0], [wrong]])), 1, 1), wrong
    for wrong in (1 << 63, (1 << 63) + 5, (1 << 63) - (3 << 16), 1 << 62, 3 << 62):
        assert not _accepts(_bits(0, wrong), 1, 1), wrong


def test_a_number_of_a_range_is_within_it_to_the_last_unit() -> None:
    rule = TargetRule(1, 32, bound=1.0)
    words = encode_words(np.array([[-1.0], [-0.25], [0.0], [1.0]]))
    dealt = encode_kept(words, rule)
    assert dealt.view(np.int64).ravel().tolist() == [-2048, -512, 0, 2048]
    engine = Clear(bytes(32))
    np.testing.assert_array_equal(decode_kept(engine.constant(dealt), rule).mine, words)
    assert _accepts(dealt, 2, rule)
    for wrong in (2049, -2049, 2050, 1 << 16, 1 << 40, -(1 << 57)):
        assert not _accepts(np.append(dealt, np.array([[wrong]]).view(np.uint64), axis=0), 2, rule), wrong


def test_three_parties_find_every_word_outside_its_bounds() -> None:
    """The reference in the clear compares any 64 bits; the three tell a word from itself and 2^63 only by a quarter."""
    bound = 1024 << 16
    inside = [0, 1, -1, bound, -bound]
    outside = [bound + 16, -bound - 16, 1 << 61, -(1 << 61), 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63)]
    outside += [(1 << 63) - bound // 2, -(1 << 63) + bound // 2, 3 << 61, -(3 << 61)]
    words = np.array([value % (1 << 64) for value in inside + outside], np.uint64)

    async def party(engine: Computing) -> np.ndarray:
        return (await find_outside(engine, engine.constant(words), np.full(len(words), bound, np.int64))).mine

    bits = np.asarray(sum(run_three(party).results)).reshape(2, -1).any(axis=0)
    assert bits.tolist() == [False] * len(inside) + [True] * len(outside)


@pytest.mark.parametrize(("positive", "fits"), [(20, True), (180, True), (19, False), (181, False), (0, False)])
def test_validation_rows_need_some_of_each_class(positive: int, fits: bool) -> None:
    valid = [1] * positive + [0] * (200 - positive)
    assert _accepts(_bits(0, 1, *valid), 2, 2, counted=True) is fits
    assert _accepts(_bits(0, 1, *valid), 2, 2)
    three = np.eye(3, dtype=np.uint64)[[0, 1, *[2] * positive, *[1] * (200 - positive)]]
    assert _accepts(three, 2, 3, counted=True) is fits


def _dealing(change: Callable[[np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """The active party deals other targets than its program would."""
    deal = SharedTraining.deal_targets

    async def dealt(course: SharedTraining, trained: int, valid: int, words: np.ndarray | None, **more: bool) -> None:
        await deal(course, trained, valid, None if words is None else change(words), **more)

    monkeypatch.setattr(SharedTraining, "deal_targets", dealt)


def _half(words: np.ndarray) -> np.ndarray:
    changed = words.copy()
    changed[3] = 1 << 15
    return changed


def test_targets_that_are_no_classes_end_the_job_before_anything_is_opened(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    _dealing(_half, monkeypatch)
    with pytest.raises(sv.PolicyError, match=r"refuses to train on the targets that were dealt.*Nothing was") as caught:
        sv.simulate(_job(), people)
    assert caught.value.cause == "targets"  # what parties that only deal are told
    assert not any(e.what.startswith("shares/open") for ledger in caught.value.ledgers for e in ledger.iter_entries())


def test_each_epoch_uses_the_targets_that_were_dealt(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message with targets; what the label's owner would say later changes nothing."""
    once = sv.simulate(_job(), people)
    targets = sv.LogisticRegression().active
    used = Counter[str]()

    def changing(config: Any, setting: Any) -> Any:
        role = targets.__func__(config, setting)  # type: ignore[attr-defined]
        first = role.targets

        def told(rows: np.ndarray) -> Any:
            used["asked"] += 1
            return first(rows) if used["asked"] == 1 else 1 - first(rows)

        role.targets = told
        return role

    monkeypatch.setattr(sv.LogisticRegression, "active", changing)
    again = sv.simulate(_job(), people)
    assert used["asked"] == 1
    assert again.record.runs[-1].test["auc"] == pytest.approx(once.record.runs[-1].test["auc"], abs=0.02)


def test_other_targets_of_a_batch_at_one_party_are_noticed(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """An active party that told a coordinator other places would choose other targets in each epoch."""
    names = (people.active.name, people.passive[0].name, "helper")
    receive = coordinator.receive_epoch

    async def swapped(*given: Any) -> Any:
        train, score, places = await receive(*given)
        if places:
            places[0] = places[0][::-1].copy()
        return train, score, places

    monkeypatch.setattr(coordinator, "receive_epoch", swapped)
    two = Parties.of(people.active, people.passive[0])
    with pytest.raises(sv.ProtocolError, match="hold different summands at 'input'"):
        sv.simulate(_job(protection=sv.Shares(computing=names)), two)


class _Stops(sv.Observer):
    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


def test_a_restart_goes_on_with_the_targets_that_were_dealt_first(
    people: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(epochs=3), people, checkpoints=tmp_path, observer=_Stops())
    dealt = Counter[str]()
    deal = SharedTraining.deal_targets

    async def counted(course: SharedTraining, *given: Any, **more: Any) -> None:
        dealt["times"] += 1
        await deal(course, *given, **more)

    monkeypatch.setattr(SharedTraining, "deal_targets", counted)
    found = sv.simulate(_job(epochs=3), people, checkpoints=tmp_path)
    assert not dealt
    assert found.record.runs[-1].test["auc"] > 0.8


def test_a_checkpoint_without_targets_is_refused_with_the_cure(people: Parties, tmp_path: Path) -> None:
    keeps = SharedModel.get_state
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedModel, "get_state", lambda model: {k: v for k, v in keeps(model).items() if k != "targets"})
        with pytest.raises(sv.PartyFailed):
            sv.simulate(_job(epochs=3), people, checkpoints=tmp_path, observer=_Stops())
    with pytest.raises(sv.InputError, match=r"has no targets: an older version wrote it.*in another folder"):
        sv.simulate(_job(epochs=3), people, checkpoints=tmp_path)


def test_mixtures_need_a_word_of_the_job() -> None:
    with pytest.raises(sv.InputError, match=r"mixtures of several rows' classes.*set soft = true"):
        _job(algorithm=sv.EntityAugmentation(hidden=4))
    _job(algorithm=sv.EntityAugmentation(hidden=4), protection=sv.Shares(soft=True))


def test_a_simulation_warns_of_few_rows_and_organisations_refuse(
    people: Parties, request: pytest.FixtureRequest
) -> None:
    words = f"needs {LEAST_TRAINING} and {LEAST_VALIDATION}"
    ran = sv.simulate(_job(), people)
    assert any(words in warning for warning in ran.record.runs[-1].warnings)
    request.getfixturevalue("between_organisations")
    with pytest.raises(sv.PolicyError, match=f"{words}: align more common rows.*few_rows = true") as caught:
        sv.simulate(_job(), people)
    assert not any(e.what == "shares/input" for ledger in caught.value.ledgers for e in ledger.iter_entries())


def test_few_rows_run_where_job_and_policies_allow_them(people: Parties, between_organisations: None) -> None:
    shares = sv.Shares(few_rows=True, useful="off")
    with pytest.raises(sv.PolicyError, match=r"fewer rows than .*few_rows = true in its policy"):
        sv.simulate(_job(protection=shares), people)
    policies = {name: sv.Policy(few_rows=True, useful="off") for name in people}
    assert sv.simulate(_job(protection=shares, policies=policies), people).record.runs[-1].test["auc"] > 0.8


def test_a_useless_model_answers_nothing_between_organisations(
    people: Parties, between_organisations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels drawn by coin; the try is counted all the same."""
    policies = {name: sv.Policy(few_rows=True) for name in people}
    job = _job(protection=sv.Shares(few_rows=True), policies=policies)
    coins = np.random.default_rng(3).integers(0, 2, len(people.active.ids))
    active = replace(people.active, label=coins)
    with pytest.raises(sv.PolicyError, match=r"refuses to answer.*does not predict better") as caught:
        sv.simulate(job, Parties.of(active, *people.passive))
    entries = [e for ledger in caught.value.ledgers for e in ledger.iter_entries()]
    assert not any(e.what == "shares/open predictions" for e in entries)


@pytest.mark.parametrize("value", [1024.0, -1024.0])
def test_a_number_added_to_one_summand_of_one_step_is_noticed_by_all_before_anything_is_opened(
    people: Parties, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active party adds it to its summand of one weight: predictions would follow one column of a partner."""
    step = Network._step_job

    def added(network: Network, layer: Any, tape: Any, gradient: Any) -> Product:
        job = step(network, layer, tape, gradient)
        if network.engine.index != 0:
            return job
        own = np.zeros(job.shape, np.uint64)
        own[-2] = encode_words(np.array([value]), 16 + job.shift)[0]
        return Product(job.left, job.right, job.how, job.shift, add=job.add, own=own)

    monkeypatch.setattr(Network, "_step_job", added)
    with pytest.raises(sv.RangeError, match="weights left the range") as caught:
        sv.simulate(_job(), people)
    entries = [e for ledger in caught.value.ledgers for e in ledger.iter_entries()]
    assert not any(e.what.startswith("shares/open") for e in entries)


def test_a_party_lets_one_asker_have_so_many_sets_of_metrics_ever(
    people: Parties, tmp_path: Path, between_organisations: None
) -> None:
    """Two of this job; the book has 299 of earlier ones."""
    books = [ResultBook(tmp_path / f"{table.name}.results.jsonl", party=table.name) for table in people.passive]
    for _ in range(MOST_METRICS_EVER - 3):
        books[0].add_metrics("bank")
    policies = {name: sv.Policy(few_rows=True, useful="off", max_results=10) for name in people}
    job = _job(protection=sv.Shares(few_rows=True, useful="off"), policies=policies)
    sv.simulate(job, people, results=tmp_path)
    assert [book.metric_sets("bank") for book in books] == [MOST_METRICS_EVER - 1, 2]
    with pytest.raises(sv.PolicyError, match=r"have 299 sets .* would open 2 more; it allows 300 in all") as caught:
        sv.simulate(job, people, results=tmp_path)
    assert not any(e.what == "shares/input" for ledger in caught.value.ledgers for e in ledger.iter_entries())


def test_more_sets_of_metrics_than_a_job_may_open_are_refused_before_anything_is_sent(
    people: Parties, between_organisations: None
) -> None:
    policies = {name: sv.Policy(few_rows=True, useful="off") for name in people}
    job = _job(protection=sv.Shares(few_rows=True, useful="off"), policies=policies, epochs=101)
    with pytest.raises(sv.PolicyError, match=r"would open 101 sets .* at most 100 are opened: set valid_every"):
        sv.simulate(job, people)
    assert partial(_job, epochs=101, valid_every=2)().plan.epochs == 101


def test_a_simulation_warns_of_too_many_sets_of_metrics(
    people: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securevfl.shares.least_rows.MOST_METRICS", 1)
    for _ in range(MOST_METRICS_EVER):
        ResultBook(tmp_path / f"{people.passive[0].name}.results.jsonl").add_metrics("bank")
    notes = sv.simulate(_job(), people, results=tmp_path).record.runs[-1].notes
    told = [note for note in notes if "between organisations it would be refused" in note]
    assert ["would open 2 sets" in note or "have 300 sets" in note for note in told] == [True, True]


@pytest.mark.parametrize(("fold", "fits"), [(0, True), (1, False), (2, False)])
def test_only_rows_of_which_something_is_opened_have_to_be_unspent(
    people: Parties, tmp_path: Path, fold: int, fits: bool
) -> None:
    """A row that trains may be spent; one that validates or tests may not."""
    marks = np.arange(len(people.active.ids)) % 3  # 0 trains, 1 validates, 2 tests
    marked = Parties.of(replace(people.active, fold=marks), *people.passive)
    name, common = people.passive[0].name, set.intersection(*(set(table.ids) for table in people.values()))
    spent = next(one for one, mark in zip(people.active.ids, marks, strict=True) if mark == fold and one in common)
    book = ResultBook(tmp_path / f"{name}.results.jsonl", party=name)
    book.add(book.begin_run([spent], "bank"), np.array([0]), 1)
    job = _job(policies={name: sv.Policy(max_results=1)})
    if fits:
        assert sv.simulate(job, marked, results=tmp_path).record.runs[-1].test
        return
    with pytest.raises(sv.PolicyError, match="max_results") as caught:
        sv.simulate(job, marked, results=tmp_path)
    assert not any(e.what.startswith("shares/open") for ledger in caught.value.ledgers for e in ledger.iter_entries())


@pytest.fixture(scope="module")
def four() -> Parties:
    """An active party and three others, of which the last one only deals."""
    return make_parties(3, 300)


def _books(people: Parties, folder: Path) -> list[ResultBook]:
    return [ResultBook(folder / f"{table.name}.results.jsonl", party=table.name) for table in people.passive]


def test_a_restart_counts_no_validation_row_again_at_a_party_that_only_deals(four: Parties, tmp_path: Path) -> None:
    job = _job(epochs=3, policies={table.name: sv.Policy(max_results=2) for table in four.passive})
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, four, checkpoints=tmp_path / "kept", results=tmp_path, observer=_Stops())
    found = sv.simulate(job, four, checkpoints=tmp_path / "kept", results=tmp_path)
    assert found.record.runs[-1].test["auc"] > 0.7
    for book in _books(four, tmp_path):
        assert set(book.count_people("bank").tolist()) == {1}, book.party
        split = found.record.alignment  # metrics count one number of each validation row, an answer one of a test row
        assert len(book.count_people("bank")) == split.valid + split.test


def test_a_party_that_only_deals_counts_sets_of_metrics_too(four: Parties, tmp_path: Path) -> None:
    sv.simulate(_job(), four, results=tmp_path)
    assert [book.metric_sets("bank") for book in _books(four, tmp_path)] == [2, 2, 2]


def test_a_prediction_opens_no_metrics_and_is_not_refused_for_them(people: Parties, tmp_path: Path) -> None:
    model = sv.simulate(_job(), people).model()
    for book in _books(people, tmp_path):
        for _ in range(MOST_METRICS_EVER):
            book.add_metrics("bank")
    sv.predict(model, people, results=tmp_path)


def test_mixtures_without_metrics_have_no_targets_to_keep() -> None:
    trial = Trial(sv.EntityAugmentation(hidden=4, top=()))
    run = trial.run(trial.job(sv.Shares(soft=True, metrics="none"), epochs=1, keep="last"), window=1)
    assert any(np.isfinite(found.test.get("log_loss", np.nan)) for found in run.trained.values())


class _StopsAtOnce(sv.Observer):
    def step(self, epoch: int, done: int, total: int) -> None:
        raise RuntimeError("the power failed")


def test_an_attempt_that_opened_no_metrics_counts_no_validation_row(people: Parties, tmp_path: Path) -> None:
    """Otherwise rows that validate could not be predicted any more after one interruption."""
    job = _job(policies={table.name: sv.Policy(max_results=2) for table in people.passive})
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path / "kept", results=tmp_path, observer=_StopsAtOnce())
    assert not any(book.askers for book in _books(people, tmp_path))
    model = sv.simulate(job, people, checkpoints=tmp_path / "kept", results=tmp_path).model()
    assert not sv.predict(model, people, results=tmp_path).skipped
    with pytest.raises(sv.PolicyError, match="max_results"):
        sv.simulate(job, people, results=tmp_path)


def test_validation_rows_are_dealt_once_a_job(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who could deal others in the next epoch would see in its metrics what changed."""
    dealt: dict[str, Counter[int]] = {}
    encode = DealtRows.encode_rows

    def noted(fed: DealtRows, rows: np.ndarray) -> np.ndarray:
        table = fed.role.table
        dealt.setdefault(table.name, Counter()).update(set(rows.tolist()) & set(table.split.valid.tolist()))
        return encode(fed, rows)

    monkeypatch.setattr(DealtRows, "encode_rows", noted)
    sv.simulate(_job(epochs=3), people)
    assert {name: set(times.values()) for name, times in dealt.items()} == {name: {1} for name in people}


def test_a_prediction_checks_the_range_of_the_weights_that_it_loads(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sv.simulate(_job(), people).model()

    async def outside(network: Network) -> Share:
        return network.engine.constant(np.ones(1, np.uint64))

    monkeypatch.setattr(Network, "out_of_range", outside)
    with pytest.raises(sv.RangeError, match="weights left the range") as caught:
        sv.predict(model, people)
    assert not any(e.what.startswith("shares/open") for ledger in caught.value.ledgers for e in ledger.iter_entries())
