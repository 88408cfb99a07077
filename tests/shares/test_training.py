"""Training on shares, by all parties' programs: what crosses, what is opened, and who is refused."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from securevfl_crypto.replicated import WIDEST, Dealt, Share, deal_shares
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.data import Parties
from securevfl.privacy import Noised
from securevfl.privacy.loss import Loss
from securevfl.run import Result
from securevfl.shares import input_words
from securevfl.shares.programs import SharesActive
from securevfl.shares.sharing import receive_epoch, receive_plan
from securevfl.testing.trial import Trial
from securevfl.training import ActiveProgram, ActiveRole, Fits, Setting
from securevfl.training.plan import Plan
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
    return make_parties(2, 120)


@pytest.fixture(scope="module")
def logged() -> list[logging.LogRecord]:
    """What `ran` writes to the log, at any level."""
    return []


@pytest.fixture(scope="module")
def ran(people: Parties, logged: list[logging.LogRecord]) -> Result:
    own, handler = logging.getLogger("securevfl"), logging.Handler()
    handler.emit = logged.append  # type: ignore[method-assign]
    before = own.level
    own.addHandler(handler)
    own.setLevel(1)
    try:
        return sv.simulate(_job(), people)
    finally:
        own.setLevel(before)
        own.removeHandler(handler)


def test_three_parties_train(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert set(run.test) == {"accuracy", "log_loss", "auc", "ks"}
    assert [set(epoch.valid) for epoch in run.epochs] == [{"accuracy", "log_loss", "auc"}] * EPOCHS
    assert all(epoch.train_loss is None for epoch in run.epochs)
    assert any("rounds a step" in note for note in run.notes)


def test_nothing_crosses_that_its_receiver_could_read(ran: Result, people: Parties) -> None:
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    for name, ledger in ledgers.items():
        for entry in ledger.iter_entries():
            if entry.what.startswith("shares/") and entry.kind not in (Kind.CONTROL, Kind.PUBLIC_KEY):
                assert entry.kind is Kind.SHARE
                assert entry.cipher == "masked"
            assert entry.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE), (name, entry.what)


def test_what_is_opened_is_one_set_of_metrics_an_epoch_and_the_predictions_once(ran: Result, people: Parties) -> None:
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    active = people.active.name
    got = Counter(
        entry.what for entry in ledgers[active].iter_entries() if entry.way == "received" and "open" in entry.what
    )
    # a share from one party, and a digest of it from the other
    assert got == {"shares/open metrics": 2 * EPOCHS, "shares/open useful": 2, "shares/open predictions": 2}
    for name, ledger in ledgers.items():
        if name != active:
            opened = Counter(e.what for e in ledger.iter_entries() if e.way == "received" and "open" in e.what)
            assert opened == {"shares/open useful": 2}


def test_training_writes_nothing_to_the_log(ran: Result, logged: list[logging.LogRecord]) -> None:
    """Nothing at any level: labels that somebody logs to find a mistake would end in files of the operating system."""
    assert [record.getMessage() for record in logged] == []


def test_predictions_are_opened_with_four_bits_behind_the_point(ran: Result) -> None:
    """With more of them, a logit would tell more of the weights."""
    (scores,) = ran.scores.values()
    logits = np.log(scores[:, 1] / scores[:, 0]) * 2**4
    assert len(logits) > 10
    np.testing.assert_allclose(logits, np.rint(logits), atol=1e-3)


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


@pytest.mark.parametrize("algorithm", [sv.EntityAugmentation, sv.AllLabels])
def test_label_books_and_links_that_hold_one_message_at_a_time(algorithm: type[sv.SplitNN]) -> None:
    trial = Trial(algorithm(hidden=4, top=()))
    run = trial.run(trial.job(sv.Shares(soft=algorithm.fits.mixes), epochs=1), window=1)
    assert any(np.isfinite(found.test.get("log_loss", np.nan)) for found in run.trained.values())


def test_a_coordinator_without_data_computes_where_two_parties_have_some() -> None:
    people = make_parties(1, 90)
    active, passive = people.active.name, people.passive[0].name
    with pytest.raises(sv.InputError, match="add a coordinator without data"):
        sv.simulate(_job(), people)
    protection = sv.Shares(computing=(active, passive, "helper"))
    found = sv.simulate(_job(protection), people)
    (ledgers,) = [found for key, found in found.ledgers.items() if key != "alignment"]
    assert set(ledgers) == {active, passive, "helper"}
    assert not any(e.what == "shares/input" and e.way == "sent" for e in ledgers["helper"].iter_entries())


def test_a_fourth_party_deals_its_rows_and_computes_nothing() -> None:
    people = make_parties(3, 90)
    names = [people.active.name, *(table.name for table in people.passive)]
    found = sv.simulate(_job(sv.Shares(computing=(names[0], names[2], names[3]))), people)
    (ledgers,) = [found for key, found in found.ledgers.items() if key != "alignment"]
    steps = {entry.what for entry in ledgers[names[1]].iter_entries() if entry.what.startswith("shares/")}
    assert steps == {"shares/width", "shares/plan", "shares/input"}


@pytest.mark.parametrize(
    ("computing", "words"),
    [
        (("a",), "three different parties are needed"),
        (("a", "b", "b"), "three different parties are needed"),
        (("a", "b", ""), "computing names a, b, a party without a name; three different parties are needed"),
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
    with pytest.raises(sv.InputError, match=r"cannot be trained on shares: .*Use additive, all_labels, .*, splitnn, "):
        _job(algorithm=algorithm)


def test_noise_on_what_nobody_sends_is_refused() -> None:
    with pytest.raises(sv.InputError, match="leave dp out"):
        _job(sv.Shares(dp=sv.DP(features=sv.Gaussian())))
    _job(sv.Shares(dp=sv.DP(labels=sv.RandomisedResponse())))


def test_a_model_in_shares_predicts_with_all_parties(ran: Result, people: Parties) -> None:
    model = ran.model()
    predicted = sv.predict(model, people)
    scores = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    own = next(iter(found for key, found in ran.scores.items()))
    wanted = dict(zip(ran.test_ids, own[:, 1], strict=True))
    gap = max(abs(scores[name] - value) for name, value in wanted.items())
    assert gap < 0.016  # logits are rounded at 2^-4, each time by chance
    for name, part in model.parts.items():
        words = [w for layer in part["parts"]["shares"].values() for w in layer]
        assert len(words) == 2 * 3, name  # two summands of three layers' weights, of three


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


@pytest.mark.parametrize("coordinated", [False, True])
def test_a_run_goes_on_from_checkpoints_under_fresh_keys(tmp_path: Path, coordinated: bool) -> None:
    people = make_parties(1 if coordinated else 2, 90)
    names = (people.active.name, people.passive[0].name, "helper")
    job = _job(sv.Shares(computing=names) if coordinated else sv.Shares()).replace(epochs=3)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    found = sv.simulate(job, people, checkpoints=tmp_path)
    run = found.record.runs[-1]
    assert len(run.epochs) == 3
    (ledgers,) = [kept for key, kept in found.ledgers.items() if key != "alignment"]
    entries = list(ledgers[people.active.name].iter_entries())
    assert sum(e.what == "shares/key" and e.way == "sent" for e in entries) == 2  # to each of the others
    assert sum(e.what == "shares/open metrics" for e in entries) < 2 * 3  # the first epoch's are not opened again
    assert np.isfinite(run.test["log_loss"])


def test_values_out_of_range_are_found_by_their_owner() -> None:
    with pytest.raises(sv.RangeError, match=r"'shop' has a value .* nothing of these rows was shared"):
        input_words("shop", torch.tensor([[1.0, 8.5]]))
    with pytest.raises(sv.RangeError, match="nan"):
        input_words("shop", torch.tensor([[float("nan")]]))


class _Deals:
    """Puts something else into the messages with a party's rows."""

    def __init__(self, change: Callable[[str, np.ndarray], np.ndarray]) -> None:
        self.change = change

    def __call__(self, rows: np.ndarray) -> Any:
        dealt = deal_shares(rows)
        return tuple(_Changed(one, self.change) for one in dealt)


@dataclass
class _Changed:
    one: Dealt
    change: Callable[[str, np.ndarray], np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.one.shape

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        return tuple(self.change("ab"[i], part) for i, part in enumerate(self.one.parts))

    def share(self) -> Share:
        return self.one.share()


def _another(side: str, part: np.ndarray) -> np.ndarray:
    """One word of what this party sends differs, so that the two holders of a summand do not hold the same."""
    changed = part.copy()
    if part.dtype == np.uint64 and side == "a":
        changed.reshape(-1)[0] += np.uint64(1)
    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda side, part: part[:-1], "a dealt part of"),
        (lambda side, part: part.astype(np.int64) if part.dtype == np.uint64 else part, "a dealt part of int64"),
        (_another, "hold different summands at 'input'"),
    ],
    ids=["shape", "ring", "digest"],
)
def test_what_is_dealt_wrongly_ends_the_run_before_anything_is_opened(
    people: Parties, change: Callable[[str, np.ndarray], np.ndarray], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securevfl.shares.share_party.deal_shares", _Deals(change))
    with pytest.raises(sv.ProtocolError, match=words) as caught:
        sv.simulate(_job(), people)
    ledgers = caught.value.ledgers
    assert not any(entry.what.startswith("shares/open") for ledger in ledgers for entry in ledger.iter_entries())


def test_a_policy_names_whom_a_party_trusts_to_compute(people: Parties) -> None:
    shop = people.passive[0].name
    job = _job().replace(policies={shop: sv.Policy(computing=frozenset({shop, people.active.name}))})
    with pytest.raises(sv.PolicyError, match=r"does not trust .* with shares"):
        sv.simulate(job, people)
    everyone = frozenset(people)
    sv.simulate(_job().replace(policies={shop: sv.Policy(computing=everyone)}, epochs=1), people)


def test_three_classes_train_by_softmax() -> None:
    people = make_parties(2, 150, classes=3)
    run = sv.simulate(_job(sv.Shares(answers="probabilities")), people).record.runs[-1]
    assert set(run.epochs[-1].valid) == {"accuracy", "log_loss"}
    assert np.isfinite(run.test["log_loss"])


def test_more_classes_than_a_softmax_takes_are_refused_before_anything_is_sent() -> None:
    """65 classes; with 64 the limit is reached, see `test_as_many_classes_as_a_softmax_takes_are_told`."""
    words = "protection 'shares' is for 64 classes at most; the label of 'bank' has 65: put some of them together"
    with pytest.raises(sv.InputError, match=words) as caught:
        sv.simulate(_job(algorithm=sv.LogisticRegression()), make_parties(2, 300, classes=WIDEST + 1))
    assert not any(
        entry.what.startswith("shares/") for ledger in caught.value.ledgers for entry in ledger.iter_entries()
    )


@pytest.mark.parametrize(("classes", "fits"), [(WIDEST, True), (WIDEST + 1, False)])
def test_as_many_classes_as_a_softmax_takes_are_told(classes: int, fits: bool) -> None:
    """What a party believes the active one, who has the labels."""

    class Told:
        peer = "bank"

        async def receive(self, kind: Kind, what: str, *names: str) -> SimpleNamespace:
            meta = {"classes": classes, "batch_size": 8, "test": 8, "times": 1, "epochs": 1, "learned": 8, "valid": 8}
            return SimpleNamespace(arrays={"widths": np.ones(3, np.int64)}, meta=meta)

    received = receive_plan(Told(), 3, numeric=False)  # type: ignore[arg-type]
    if fits:
        assert asyncio.run(received).classes == classes
    else:
        with pytest.raises(sv.ProtocolError, match="announces classes 65; 2 to 64 are possible"):
            asyncio.run(received)


def test_validation_as_seldom_as_the_job_says(people: Parties) -> None:
    names = (people.active.name, people.passive[0].name, "helper")
    job = _job(sv.Shares(computing=names)).replace(epochs=3, valid_every=2)
    found = sv.simulate(job, people)
    assert [bool(epoch.valid) for epoch in found.record.runs[-1].epochs] == [False, True, True]


def test_a_bound_of_numbers_counts_final_predictions_alone(people: Parties) -> None:
    name = people.passive[0].name
    job = _job(algorithm=sv.SplitNN(hidden=16, top=(3,))).replace(policies={name: sv.Policy(max_results=1)})
    sv.simulate(job, people)  # one number of each test row; at the cut it would be 16 for each opening
    with pytest.raises(sv.PolicyError, match="max_results"):
        sv.simulate(job.replace(protection=sv.BFV()), people)


def test_more_openings_than_were_declared_are_refused_by_the_others(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = ActiveProgram.evaluate_rows

    async def twice(program: SharesActive, rows: np.ndarray, **how: bool) -> dict[str, float]:
        await SharesActive.score_probabilities(program, rows)
        return await once(program, rows, **how)

    monkeypatch.setattr(ActiveProgram, "evaluate_rows", twice)
    with pytest.raises(sv.ProtocolError) as caught:
        sv.simulate(_job(), people)
    sent = [e.what for ledger in caught.value.ledgers for e in ledger.iter_entries() if e.way == "sent"]
    assert sent.count("shares/open predictions") <= 2


@pytest.mark.parametrize(("train", "score"), [([33], [1]), ([32], [65]), ([0], []), ([-1], [])])
def test_a_party_without_rows_believes_no_batches_that_the_job_has_not(train: list[int], score: list[int]) -> None:
    """It makes room for what it is told, before anything of it arrives."""

    class Chief:
        peer = "bank"

        async def receive(self, *expected: object) -> SimpleNamespace:
            places = np.zeros(0, np.uint32)
            told = {"train": np.array(train), "score": np.array(score, dtype=np.int64), "places": places}
            return SimpleNamespace(arrays=told)

    plan = Plan(epochs=1, batch_size=32, patience=None, eval_rows=64)
    with pytest.raises(sv.ProtocolError, match=r"batches of .* rows were announced; 1 to (32|64) are possible"):
        asyncio.run(receive_epoch(Chief(), plan, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "places", [np.zeros(3, np.uint32), np.zeros(4, np.int64), np.full(4, 7, np.uint32)], ids=["few", "signed", "far"]
)
def test_a_party_without_rows_believes_no_places_that_the_job_has_not(places: np.ndarray) -> None:
    class Chief:
        peer = "bank"

        async def receive(self, *expected: object) -> SimpleNamespace:
            return SimpleNamespace(arrays={"train": np.array([2, 2]), "score": np.array([1]), "places": places})

    plan = Plan(epochs=1, batch_size=32, patience=None, eval_rows=64)
    with pytest.raises(sv.ProtocolError, match=r"tells places of .* for 4 rows among 7 targets"):
        asyncio.run(receive_epoch(Chief(), plan, 7))  # type: ignore[arg-type]


class _OwnLossActive(Active):
    def build_loss(self) -> Loss:
        return super().build_loss()


class _OwnLoss(SplitNN):
    """It declares that it fits shares, where its loss would be ignored."""

    name: ClassVar[str] = "own_loss"
    label: ClassVar[str] = "own loss"
    fits: ClassVar[Fits] = Fits(shares=True)

    def active(self, setting: Setting) -> ActiveRole:
        return _OwnLossActive(self, setting)


def test_a_loss_that_shares_would_ignore_is_refused() -> None:
    with pytest.raises(sv.InputError, match="_OwnLossActive overrides build_loss, which training on shares"):
        sv.simulate(_job().replace(algorithm=_OwnLoss(hidden=4)), make_parties(2, 120))


class _OwnSetupActive(Active):
    async def setup(self) -> None:
        await super().setup()


class _OwnActivationsActive(Active):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        return super().activations(rows, train=train)


class _OwnLogitsActive(Active):
    def adjust_logits(self, logits: torch.Tensor, rows: np.ndarray, *, train: bool) -> torch.Tensor:
        return super().adjust_logits(logits, rows, train=train)


class _OwnActivationsPassive(Passive):
    def activations(self, rows: np.ndarray, *, train: bool) -> torch.Tensor | Noised[torch.Tensor]:
        return super().activations(rows, train=train)


class _OwnBatchPassive(Passive):
    async def train_batch(self, rows: np.ndarray) -> None:
        await super().train_batch(rows)


@pytest.mark.parametrize(
    ("role", "hook"),
    [
        (_OwnSetupActive, "setup"),
        (_OwnActivationsActive, "activations"),
        (_OwnLogitsActive, "adjust_logits"),
        (_OwnActivationsPassive, "activations"),
        (_OwnBatchPassive, "train_batch"),
    ],
)
def test_a_hook_that_shares_would_ignore_is_refused(
    role: type[Active] | type[Passive], hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a job would train without the change, and nothing would show it."""
    side = "active" if issubclass(role, Active) else "passive"

    def made(config: SplitNN, setting: Setting) -> Active | Passive:
        return role(config, setting)

    monkeypatch.setattr(SplitNN, side, made)
    with pytest.raises(sv.InputError, match=f"{role.__name__} overrides {hook}, which training on shares never calls"):
        sv.simulate(_job(), make_parties(2, 120))
