"""Randomness of training on shares belongs to one incarnation: nothing that masks comes twice, over two runs of one job
and over a resume; rows are dealt from the operating system's randomness; what is loaded is drawn anew; and parties let
nothing be opened but what a job is for."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from securevfl_crypto.replicated import Opening
from securevfl_crypto.replicated.computing import Computing
from securevfl_crypto.ring import Stream
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.party_context import Keeper
from securevfl.shares import SharedTraining
from securevfl.shares.course import MOST_OPENED
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.sharing import Sharing
from securevfl.training.plan import Plan
from securevfl.transport import Message

EPOCHS = 3


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 90)


def _job(**more: Any) -> sv.Job:
    return sv.Job(
        algorithm=sv.SplitNN(hidden=4, top=()), protection=sv.Shares(), epochs=EPOCHS, batch_size=32, seed=4, **more
    )


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Begins of all that any stream gives from here on."""
    found: list[int] = []
    words = Stream.draw_words

    def noted(stream: Stream, use: int, shape: Any) -> np.ndarray:
        given = words(stream, use, shape)
        if given.size:
            found.append(int(given.reshape(-1)[0]))
        return given

    monkeypatch.setattr(Stream, "draw_words", noted)
    return found


def test_two_runs_of_one_job_and_a_resume_share_no_randomness(
    people: Parties, drawn: list[int], tmp_path: Path
) -> None:
    """An incarnation never draws what another one drew, and of a key each of its holders draws a place once."""
    incarnations: list[set[int]] = []
    for checkpoints in (None, tmp_path, tmp_path):
        drawn.clear()
        stops = checkpoints is not None and len(incarnations) == 1
        if stops:
            with pytest.raises(sv.PartyFailed):
                sv.simulate(_job(), people, checkpoints=checkpoints, observer=_Stops())
        else:
            sv.simulate(_job(), people, checkpoints=checkpoints)
        assert len(drawn) > 100
        incarnations.append(set(drawn))
        assert max(Counter(drawn).values()) <= 3  # of a seed that was dealt, its dealer draws, too
    first, second, resumed = incarnations
    assert not first & second
    assert not (first | second) & resumed


class _Inputs(sv.Observer):
    """Keeps the seeds that the active party was dealt."""

    listening = True

    def __init__(self) -> None:
        self.seeds: list[bytes] = []

    def message_passed(self, party: str, peer: str, way: Literal["sent", "received"], message: Message) -> None:
        if message.what == "shares/input":
            arrays = [np.asarray(array) for array in message.arrays.values()]
            self.seeds += [array.tobytes() for array in arrays if array.dtype == np.uint8]


def test_rows_are_dealt_from_seeds_of_the_operating_system(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    given, random, inputs = set(), os.urandom, _Inputs()

    def noted(size: int) -> bytes:
        found = random(size)
        given.add(found)
        return found

    monkeypatch.setattr(os, "urandom", noted)
    sv.simulate(_job().replace(epochs=1), people, observer=inputs)
    assert len(inputs.seeds) > 8
    assert set(inputs.seeds) <= given


def test_loaded_shares_are_drawn_anew_before_they_are_used(
    people: Parties, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a resume, and of the best epoch's weights, which are restored for the test."""
    loaded: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []
    freshen = SharedModel.refresh_shares

    async def watched(model: SharedModel) -> None:
        stale, network = model.stale, model.network
        before = {} if network is None else {name: one.mine.copy() for name, one in network.weights.items()}
        await freshen(model)
        if stale and network is not None:
            loaded.append((before, {name: one.mine.copy() for name, one in network.weights.items()}))

    monkeypatch.setattr(SharedModel, "refresh_shares", watched)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(), people, checkpoints=tmp_path, observer=_Stops())
    loaded.clear()
    sv.simulate(_job(), people, checkpoints=tmp_path)
    assert len(loaded) == 2 * 3
    for three in (loaded[:3], loaded[3:]):
        for name in three[0][0]:
            before, after = ([found[when][name] for found in three] for when in (0, 1))
            assert not any((old == new).any() for old, new in zip(before, after, strict=True))
            np.testing.assert_array_equal(sum(before), sum(after))


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Opening]]:
    found: list[dict[str, Opening]] = []
    begun = Computing.__init__

    def noted(engine: Computing, *given: Any, **more: Any) -> None:
        found.append(dict(more.get("openings", {})))
        begun(engine, *given, **more)

    monkeypatch.setattr(Computing, "__init__", noted)
    return found


def test_each_party_lets_be_opened_what_the_job_is_for_and_no_more(
    people: Parties, declared: list[dict[str, Opening]]
) -> None:
    sv.simulate(_job(), people)
    assert len(declared) == 3
    for one in declared:
        assert set(one) == {"targets", "range", "final range", "useful", "metrics", "predictions"}
        assert one["targets"] == one["useful"] == Opening(1, None, 1)
        assert one["range"] == Opening(EPOCHS, None, 1, each=1)
        assert one["metrics"] == Opening(EPOCHS, (0,), 3, each=1)
        rows = one["predictions"].total
        assert one["predictions"] == Opening(1, (0,), rows, total=rows)


@pytest.mark.parametrize(
    ("rows", "classes", "most", "expected"),
    [(17, 2, 2048, (1, 17, 17)), (20, 3, 8, (3, 8, 20)), (0, 2, 2048, (0, 0, 0))],
)
def test_predictions_are_opened_of_so_many_rows_and_no_more(
    rows: int, classes: int, most: int, expected: tuple[int, int, int]
) -> None:
    """Of 17 rows 17 values: not as many as a part of the rows might have."""
    site: Any = SimpleNamespace(
        name="a",
        active="a",
        passive=("b", "c"),
        coordinator="",
        keeper=Keeper(),
        role="active",
        notes=[],
        simulated=True,
    )
    plan = Plan(epochs=EPOCHS, batch_size=8, patience=None, eval_rows=most)
    algorithm: Any = sv.SplitNN()
    member = Sharing(algorithm=algorithm, protection=sv.Shares(), site=site, plan=plan).make_party(rows, classes)
    times, values, total = expected
    assert member.openings["predictions"] == Opening(times, (0,), values, total=total)


def test_metrics_of_few_rows_are_refused_before_anything_is_shared(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log-loss of one validation row is its logit, in each epoch; a deviating active party changes nothing."""
    few = _job(valid=0.01)
    refused = r"refuses to open metrics of 1 validation rows.*Training on shares needs at least 8: set valid"
    with pytest.raises(sv.PolicyError, match=refused) as caught:
        sv.simulate(few, people)
    assert not any(e.what == "shares/input" for ledger in caught.value.ledgers for e in ledger.iter_entries())
    monkeypatch.setattr("securevfl.shares.sharing.check_rows", lambda *given, **more: [])
    with pytest.raises(sv.PolicyError, match=refused) as caught:  # also when it is time to open them
        sv.simulate(few, people)
    assert not any(e.what.startswith("shares/open") for ledger in caught.value.ledgers for e in ledger.iter_entries())


def test_epochs_that_do_not_validate_let_nothing_be_opened(people: Parties, declared: list[dict[str, Opening]]) -> None:
    """Every second epoch, and the last: of three epochs, two sets of metrics."""
    sv.simulate(_job(valid_every=2), people)
    assert {one["metrics"].times for one in declared} == {2}
    assert {one["range"].times for one in declared} == {2}


@pytest.mark.parametrize("wanted", ["metrics", "range"])
def test_what_an_epoch_may_open_is_not_opened_in_another(
    people: Parties, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second and third epochs' metrics in the first, or metrics in an epoch that does not validate: the count over
    the whole run would let both pass."""
    train = SharedTraining.train

    async def greedy(course: SharedTraining, *given: Any, **more: Any) -> None:
        await train(course, *given, **more)
        if course.network is not None:
            engine = course.network.engine
            nothing = engine.constant(np.zeros(1, np.uint64))
            await (engine.is_zero(wanted, nothing) if wanted == "range" else engine.open(wanted, nothing, [0]))

    monkeypatch.setattr(SharedTraining, "train", greedy)
    for every in (1, 2):
        with pytest.raises(sv.ProtocolError, match=r"in each stage that allows it.*nothing was sent"):
            sv.simulate(_job(valid_every=every), people)


@pytest.mark.parametrize("wanted", ["logits", "metrics", "range"])
def test_an_opening_by_code_of_training_is_refused_and_nothing_is_sent(
    people: Parties, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits of a batch under a name of their own, or under one that is declared for fewer values."""
    train = SharedTraining.train

    async def greedy(course: SharedTraining, *given: Any, **more: Any) -> None:
        if course.network is not None:
            engine = course.network.engine
            await engine.open(wanted, engine.constant(np.zeros((32, 1), np.uint64)), [0])
        await train(course, *given, **more)

    monkeypatch.setattr(SharedTraining, "train", greedy)
    with pytest.raises(sv.ProtocolError, match=r"nothing was sent") as caught:
        sv.simulate(_job(), people)
    assert not any(e.what.startswith("shares/open") for ledger in caught.value.ledgers for e in ledger.iter_entries())


class _Killed(sv.Observer):
    """Ends each attempt behind the second epoch's metrics, before any party keeps that epoch."""

    def __init__(self, epoch: int) -> None:
        self.last = epoch

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == self.last:
            raise RuntimeError("the power failed")


def test_metrics_that_an_attempt_opened_and_lost_are_counted_by_the_next(people: Parties, tmp_path: Path) -> None:
    """Three attempts open them, the fourth does not, and says so; a run that goes on in time tells what it repeated."""

    def attempt(**more: Any) -> Any:
        return sv.simulate(_job(), people, checkpoints=tmp_path / "run", **more)

    for _ in range(MOST_OPENED):
        with pytest.raises(sv.PartyFailed):
            attempt(observer=_Killed(2))
        for party in people:  # as if it had been killed before the epoch was kept
            (tmp_path / "run" / f"{party}.epoch-2.safetensors").unlink(missing_ok=True)
        if not (tmp_path / "once").exists():
            shutil.copytree(tmp_path / "run", tmp_path / "once")
    with pytest.raises(
        sv.PolicyError, match=r"metrics of epoch 2: .* 3 times, and at most 3 are allowed\. Nothing was opened"
    ):
        attempt()
    found = sv.simulate(_job(), people, checkpoints=tmp_path / "once")
    assert any("1 set of metrics or predictions were opened again" in note for note in found.record.runs[-1].notes)


def test_metrics_are_opened_once_an_epoch(people: Parties) -> None:
    """A share from one party and a digest of the other: of metrics; at the end of the one bit, and of predictions."""
    found = sv.simulate(_job(), people)
    (ledgers,) = [kept for key, kept in found.ledgers.items() if key != "alignment"]
    entries = [e for e in ledgers[people.active.name].iter_entries() if e.way == "received"]
    opened = [e.what for e in entries if e.what.startswith("shares/open")]
    assert opened == ["shares/open metrics"] * 2 * EPOCHS + ["shares/open useful"] * 2 + ["shares/open predictions"] * 2
