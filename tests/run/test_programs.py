"""A simulation is N programs over memory: what they may send, how little a channel has to hold, whose table each sees,
and how they end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest
from support.helpers import low_overlap_parties, make_parties, ready_keys

import securevfl as sv
from securevfl.algorithms import splitnn
from securevfl.data import PartyTable, hold_out
from securevfl.ledger import LedgerChain
from securevfl.party_context import PartyContext, PartySecret
from securevfl.privacy import Ledger, verify_chains
from securevfl.run import in_memory as together
from securevfl.run import simulated_parties as simulated
from securevfl.run import simulation
from securevfl.run.blocking import run_blocking
from securevfl.run.context_building import build_context
from securevfl.run.roster import Roster
from securevfl.run.simulation import align_parties, consent_parties, join_parties, run_parties
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.setting import Setting
from securevfl.transport import Kind, MemoryChannel, MemoryHub, Message

T = TypeVar("T")
PLAIN = sv.Job(
    protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(), bottom=(3,)), epochs=2, batch_size=32, seed=5
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, PartyContext]]:
    """The sites of every run, in order."""
    found: list[dict[str, PartyContext]] = []

    def remembers(job: sv.Job, roster: Roster, name: str, *given: Any, **named: Any) -> PartyContext:
        if not found or name in found[-1]:
            found.append({})
        found[-1][name] = build_context(job, roster, name, *given, **named)
        return found[-1][name]

    monkeypatch.setattr(simulated, "build_context", remembers)
    return found


def _chains(ledgers: Any) -> dict[str, LedgerChain]:
    return {c.party: c for c in verify_chains(enumerate((line for ledger in ledgers for line in ledger.lines), 1))}


def _owners() -> sv.Parties:
    """Two label owners and a passive party; the first one's rows are marked."""
    people = make_parties(passive=1)
    bank = people["bank"]
    bank = replace(bank, fold=hold_out(len(bank.ids), valid=0.2, test=0.2, seed=0))
    return sv.Parties.of(bank, replace(bank, name="lender"), people["shop1"])


# What is declared.


class Talks(splitnn.Passive):
    """Sends a message that its algorithm does not declare."""

    async def setup(self) -> None:
        await super().setup()
        await self.upstream.send(Kind.STATISTIC, "gossip/mean", mean=np.zeros(1))


class Listens(splitnn.Active):
    """Waits for it."""

    async def setup(self) -> None:
        await super().setup()
        for name in self.site.passive:
            await self.site.links[name].receive(Kind.STATISTIC, "gossip/mean", "mean")


class Gossip(sv.SplitNN):
    """SplitNN with a message more than it declares."""

    name: ClassVar[str] = "gossip"

    def passive(self, setting: Setting) -> PassiveRole:
        return Talks(self, setting)

    def active(self, setting: Setting) -> ActiveRole:
        return Listens(self, setting)


class Unheard(Gossip):
    """The same, and the active party waits for SplitNN's messages only."""

    name: ClassVar[str] = "unheard"

    def active(self, setting: Setting) -> ActiveRole:
        return splitnn.Active(self, setting)


def test_an_undeclared_message_does_not_leave() -> None:
    job = PLAIN.replace(algorithm=Gossip(hidden=4, top=()))
    with pytest.raises(
        sv.ProtocolError, match=r"about to send statistic 'gossip/mean' to 'bank'.*nothing was sent"
    ) as caught:
        sv.simulate(job, make_parties(passive=1))
    assert "raised at party 'shop1'" in "".join(caught.value.__notes__)
    assert not any(entry.what == "gossip/mean" for ledger in caught.value.ledgers for entry in ledger.entries)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (Gossip(hidden=4, top=()), "'shop1' sent statistic 'gossip/mean' to 'bank', which nothing in the job declares"),
        (Unheard(hidden=4, top=()), "'bank' expected activation 'cut/forward'"),
    ],
    ids=["awaited", "unexpected"],
)
def test_an_undeclared_message_of_a_lax_peer_is_not_taken(
    algorithm: sv.Algorithm, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The passive party's own link lets everything through; the active party's does not."""

    def lax(job: sv.Job, roster: Roster, name: str, *given: Any, **named: Any) -> PartyContext:
        site = build_context(job, roster, name, *given, **named)
        if name == "shop1":
            site.links["bank"]._sends = None
        return site

    monkeypatch.setattr(simulated, "build_context", lax)
    with pytest.raises(sv.ProtocolError, match=words) as caught:
        sv.simulate(PLAIN.replace(algorithm=algorithm), make_parties(passive=1))
    assert "raised at party 'bank'" in "".join(caught.value.__notes__)
    took = [entry for entry in _ledger(caught.value, "bank").entries if entry.what == "gossip/mean"]
    assert [entry.way for entry in took] == ["received"]  # it is written down before it is refused


def _ledger(error: sv.SecureVFLError, party: str) -> Ledger:
    """A party's last ledger."""
    return [ledger for ledger in error.ledgers if ledger.party == party][-1]


def test_what_is_declared_between_others_is_not_declared_here(made: list[dict[str, PartyContext]]) -> None:
    """A passive party may send activations to the active one, not to another passive one."""
    sv.simulate(PLAIN.replace(epochs=1), make_parties())
    link = made[-1]["shop1"].links["shop2"]
    with pytest.raises(sv.ProtocolError, match="'shop1' was about to send activation 'cut/forward' to 'shop2'"):
        asyncio.run(link.send(Kind.ACTIVATION, "cut/forward", z=np.zeros((1, 4), np.float32)))


# How little a channel has to hold.

SMALL: dict[str, dict[str, Any]] = {
    "splitnn": {"hidden": 4, "top": (), "bottom": (3,)},
    "entity_augmentation": {"hidden": 4},
    "apc_vfl": {"bottom": (4,), "steps": 2, "student_steps": 2},
    "distilled": {"hidden": 4, "teacher_steps": 3, "folds": 2},
    "fedcvt": {"bottom": (4,)},
    "fedda": {"hidden": 4, "bottom": (4,), "first": 1, "generator_steps": 2},
    "fedhssl": {"hidden": 4, "bottom": (4,), "rounds": 2, "cross_steps": 2, "local_steps": 2},
    "risa": {"hidden": 4, "bottom": (3,), "self_training": 1},
    "sfhtl": {"bottom": (4,), "first": 1},
    "ssl": {"hidden": 4, "bottom": (4,), "pretraining": 2},
    "multi_vfl": {"hidden": 4, "top": (), "bottom": (3,)},
}
"""Settings that make runs short; every installed algorithm runs, these or not."""

OWNED = sv.MultiVFL(hidden=2, top=(), bottom=(2,), aggregation="ckks")
WINDOWS: dict[str, sv.Job] = {
    "splitnn, BFV": PLAIN.replace(protection=sv.BFV(), epochs=1, steps=2),
    "splitnn, Paillier": PLAIN.replace(protection=sv.Paillier(bits=2048), epochs=1, steps=1, batch_size=8),
    "splitnn, auto": PLAIN.replace(protection=sv.Auto(offers=("bfv",), mbit=100.0), epochs=1, steps=1),
    "splitnn, DP": PLAIN.replace(
        protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=50.0), labels=sv.Gaussian(epsilon=50.0))), steps=1
    ),
    "risa, CKKS": PLAIN.replace(
        algorithm=sv.RISA(**SMALL["risa"]), protection=sv.CKKS(), epochs=3, steps=1, batch_size=8
    ),
    "multi_vfl, BFV": PLAIN.replace(algorithm=OWNED, protection=sv.BFV(), epochs=1, steps=1, batch_size=16),
}
"""Under protections; in the clear, `check_algorithm` tries every algorithm with a window of one message."""
NOISY = {"splitnn, DP", "splitnn, auto", "risa, CKKS"}
"""Two runs differ: by noise from the operating system, by measured speeds, by approximate ciphertexts."""


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_of_one_message_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    job = WINDOWS[name]
    if job.algorithm.many_owners:
        people = _owners()
    elif job.algorithm.uses_others:
        people = low_overlap_parties(1, rows=160, width=2)
    else:
        people = make_parties(passive=2, rows=80)
    alike = {name: PartySecret.generate() for name in people}
    reference = sv.simulate(job, people, secrets=alike)
    hubs: list[MemoryHub] = []

    def narrow(names: Iterable[str], **_: int) -> MemoryHub:
        hubs.append(MemoryHub(names, window=1))
        return hubs[-1]

    monkeypatch.setattr(together, "MemoryHub", narrow)
    monkeypatch.setattr(together, "run_blocking", _with_deadline)
    found = sv.simulate(job, people, secrets=alike)
    assert {pipe.window for hub in hubs for pipe in hub.pipes.values()} == {1}
    if name not in NOISY:
        (key,) = found.scores
        np.testing.assert_array_equal(found.scores[key], reference.scores[key])


def _with_deadline(main: Callable[[], Coroutine[None, None, T]]) -> T:
    async def within() -> T:
        return await asyncio.wait_for(main(), timeout=120)

    return run_blocking(within)


# Whose table a program sees.


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Task → the parties whose tables it looked into; what runs before and after the programs is no task."""
    found: dict[str, set[str]] = {}
    original = PartyTable.__getattribute__

    def watched(self: PartyTable, name: str) -> Any:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is not None and name != "name":
            found.setdefault(task.get_name(), set()).add(original(self, "name"))
        return original(self, name)

    monkeypatch.setattr(PartyTable, "__getattribute__", watched)
    return found


@pytest.mark.parametrize("owners", [1, 2])
def test_each_program_of_a_simulation_sees_its_own_table(owners: int, touched: dict[str, set[str]]) -> None:
    people = make_parties(passive=2) if owners == 1 else _owners()
    job = PLAIN if owners == 1 else PLAIN.replace(algorithm=sv.MultiVFL(hidden=4, top=()), epochs=1)
    assert touched == {}
    sv.simulate(job, people)
    assert touched == {name: {name} for name in people}  # neither the coordinator nor any task of a link is there


def test_each_program_of_a_prediction_sees_its_own_table(touched: dict[str, set[str]]) -> None:
    people = make_parties(passive=2)
    model = sv.simulate(PLAIN, people).model()
    touched.clear()
    sv.predict(model, people)
    assert touched == {name: {name} for name in people}


def test_the_functions_of_a_party_are_given_its_own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    given: set[tuple[str, str, str | None]] = set()

    def watch(step: str) -> None:
        original = getattr(simulation, step)

        async def watched(site: PartyContext, table: PartyTable | None, *more: Any, **named: Any) -> Any:
            task = asyncio.current_task()
            assert task is not None
            assert task.get_name() == site.name
            given.add((step, site.name, None if table is None else table.name))
            return await original(site, table, *more, **named)

        monkeypatch.setattr(simulation, step, watched)

    steps = ("consent_party", "align_party", "train_party")
    for step in steps:
        watch(step)
    people = _owners()
    sv.simulate(PLAIN.replace(algorithm=sv.MultiVFL(hidden=4, top=()), epochs=1), people)
    assert given == {(step, name, name) for step in steps for name in people} | {
        (step, "coordinator", None) for step in ("consent_party", "train_party")
    }


# A user's mistakes.


def _twins() -> sv.Parties:
    people = make_parties(passive=1)
    return sv.Parties.of(people["bank"], replace(people["bank"], name="lender"), people["shop1"])


def _reserved(passive: int = 1) -> sv.Parties:
    people = make_parties(passive=passive)
    return sv.Parties.of(people["bank"], replace(people["shop1"], name="coordinator"))


MISTAKES: dict[str, tuple[sv.Job, Callable[[], sv.Parties], str]] = {
    "a policy of nobody": (
        PLAIN.replace(policies={"shop22": sv.Policy(sealed=True)}),
        make_parties,
        "unknown party with a policy 'shop22'; did you mean 'shop2'",
    ),
    "too many parties": (
        PLAIN.replace(algorithm=sv.FedCVT()),
        make_parties,
        r"there are 2 passive ones \(shop1, shop2\)",
    ),
    "several label owners": (PLAIN, _twins, "SplitNN has one label owner, and bank, lender own labels: use an"),
    "the coordinator's name": (PLAIN, _reserved, "a party is called 'coordinator', which is the name of the one"),
    "too few epochs": (
        PLAIN.replace(algorithm=sv.FedDA(first=5)),
        lambda: make_parties(passive=1),
        "gets to its last stage in epoch .* the job has 2 epochs: give it more",
    ),
}


@pytest.mark.parametrize(("job", "people", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_users_mistake_ends_every_way_into_a_run_before_anything_is_sent(
    job: sv.Job, people: Callable[[], sv.Parties], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listens(sv.Observer):
        def phase(self, name: str) -> None:
            raise AssertionError(f"{name} began")

    async def send(self: MemoryChannel, message: Message) -> int:
        raise AssertionError(f"{message.what} was sent")

    monkeypatch.setattr(MemoryChannel, "send", send)
    tables = people()
    joined = join_parties(tables, PLAIN)
    ways: list[Callable[[], object]] = [
        lambda: sv.simulate(job, tables, observer=Listens()),
        lambda: sv.simulate(job, tables, observer=Listens(), aligned=joined),
        lambda: sv.compare({"fine": job.replace(algorithm=sv.SplitNN(), policies={}), "x": job}, tables, baselines=()),
        lambda: align_parties(tables, job, Listens()),
        lambda: consent_parties([job], tables),
        lambda: run_parties(job, tables, joined, run="x", observer=Listens()),
    ]
    for way in ways:
        with pytest.raises(sv.InputError, match=words) as caught:
            way()
        assert caught.value.ledgers == ()
        assert not getattr(caught.value, "__notes__", [])  # of no party: it is the user's


def test_baselines_run_beside_the_policies_of_others() -> None:
    job = PLAIN.replace(policies={"shop1": sv.Policy(min_intersection=20), "bank": sv.Policy(min_intersection=20)})
    found = sv.simulate(job, make_parties(), baselines=("alone", "pooled"))
    assert [run.key for run in found.record.runs] == ["alone", "pooled", "plain"]


def test_a_job_that_all_refuse_names_one_party_and_its_rule() -> None:
    strict = sv.Policy(sealed=True)
    job = PLAIN.replace(policies=dict.fromkeys(("bank", "shop1", "shop2"), strict))
    with pytest.raises(sv.PolicyError, match=r"^'bank' refuses the job: activations and gradients would") as caught:
        sv.simulate(job, make_parties())
    chains = _chains(caught.value.ledgers)
    assert all(chain.outcome.startswith("failed: PolicyError: 'bank' refuses the job") for chain in chains.values())


# How programs end.


class _Breaks(sv.Observer):
    """Raises after an epoch, inside the first label owner's program."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        raise self.error


def test_every_ledger_tells_how_its_party_ended() -> None:
    with pytest.raises(sv.PartyFailed, match="party 'bank' failed: OSError: disk full") as caught:
        sv.simulate(PLAIN, make_parties(), observer=_Breaks(OSError("disk full")))
    assert caught.value.party == "bank"
    assert isinstance(caught.value.__cause__, OSError)
    chains = _chains(caught.value.ledgers)  # each party's last one
    assert chains["bank"].outcome == "failed: OSError: disk full"
    for name in ("shop1", "shop2"):
        assert chains[name].outcome == "cancelled: another party failed, or the run was interrupted"
        assert any(entry.what == "cut/forward" for entry in chains[name].entries)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["interrupt", "exit"])
def test_an_interrupt_is_no_failure_of_a_party(error: BaseException, made: list[dict[str, PartyContext]]) -> None:
    with pytest.raises(type(error)):
        sv.simulate(PLAIN, make_parties(), observer=_Breaks(error))
    outcomes = {name: chain.outcome for name, chain in _chains(s.ledger for s in made[-1].values()).items()}
    assert outcomes["bank"].startswith(f"failed: {type(error).__name__}")
    assert outcomes["shop1"] == outcomes["shop2"] == "cancelled: another party failed, or the run was interrupted"


@pytest.mark.parametrize("notebook", [False, True], ids=["script", "notebook"])
def test_ctrl_c_ends_a_run_soon_and_its_ledgers_say_so(notebook: bool, made: list[dict[str, PartyContext]]) -> None:
    """A notebook's event loop runs already, so that the programs run in another thread than the signal's."""

    class Presses(sv.Observer):
        epochs = 0

        def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
            self.epochs = epoch
            if epoch == 2:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    observer, job = Presses(), PLAIN.replace(epochs=400)

    def script() -> None:
        sv.simulate(job, make_parties(), observer=observer)

    async def cell() -> None:
        script()

    def jupyter() -> None:
        with closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(cell())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            (jupyter if notebook else script)()
    finally:
        signal.signal(signal.SIGINT, before)
    assert observer.epochs < 200
    outcomes = {chain.outcome for chain in _chains(site.ledger for site in made[-1].values()).values()}
    assert outcomes == {"cancelled: another party failed, or the run was interrupted"}
