"""``algorithm = "auto"``: a candidate whose training diverges is left out by all parties, and by a job that resumes."""

from __future__ import annotations

import asyncio
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import make_parties

import securevfl as sv
from securevfl.algorithms import AutoAlgorithm, SplitNN
from securevfl.algorithms.splitnn import roles
from securevfl.cut.base import check_block
from securevfl.errors import MachineFault, ProtocolError, RangeError
from securevfl.ledger import Ledger
from securevfl.party import run_party
from securevfl.party.candidates import candidate_ends
from securevfl.party_context import PartyContext, PartySecret
from securevfl.privacy import Clock, Link, Policy
from securevfl.privacy.joint import check_norms
from securevfl.privacy.outcomes import BoundBroken, NumbersNotFinite
from securevfl.report import Record, render_report, render_text
from securevfl.report.choice import choice_table, explain_choice
from securevfl.run.causes import name_cause
from securevfl.run.checkpoint import FolderKeeper
from securevfl.run.simulated_parties import COORDINATOR, Simulated
from securevfl.testing.company import create_company
from securevfl.training import Trained
from securevfl.transport import Kind, memory_pair

PEOPLE = make_parties(passive=1, rows=160)
PASSIVE = PEOPLE.passive[0].name
AUTO = AutoAlgorithm(methods=("splitnn", "logistic_regression"))
JOB = sv.Job(algorithm=AUTO, protection=sv.Plain(), epochs=2, batch_size=32)
SECRETS = {name: PartySecret.from_seed(5, name) for name in PEOPLE}
ROUNDED = sv.Shares(metrics="rounded", few_rows=True, useful="off")
WITH_HELPER = ROUNDED.replace(computing=("bank", "shop1", COORDINATOR))
OF_TWO = sv.Shares(computing=2, metrics="rounded", few_rows=True, useful="off")


class Diverges(sv.Observer):
    """One party's training of a candidate diverges, as it begins a batch."""

    def __init__(self, party: str, candidate: str, batch: int = 3) -> None:
        self.party, self.candidate, self.batch = party, candidate, batch
        self.here, self.begun = False, 0

    def phase(self, name: str) -> None:
        self.here = name == f"candidate {self.candidate}" or (self.here and not name.startswith("candidate"))

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        self.begun += self.here
        if self.here and self.begun == self.batch:
            raise RangeError("a step reaches 5e+05")


def run_all(job: sv.Job, people: sv.Parties = PEOPLE, **options: Any) -> tuple[dict[str, Trained], Any]:
    async def program(site: PartyContext, table: Any) -> Trained:
        return await run_party(site, table, job)

    return Simulated(job=job, parties=people, run="auto", **options).run_program(program)


def steps(sites: Any, party: str) -> list[str]:
    return [entry.what for entry in sites[party].ledger.entries]


@pytest.mark.parametrize(
    ("protection", "methods", "passive", "who"),
    [
        (sv.Plain(), AUTO.methods, 1, "bank"),
        (sv.Plain(), AUTO.methods, 2, "shop1"),
        (sv.BFV(), AUTO.methods, 1, "shop1"),
        (ROUNDED, ("logistic_regression", "additive"), 2, "shop2"),
        (WITH_HELPER, ("logistic_regression", "additive"), 1, "shop1"),
        (OF_TWO, ("logistic_regression", "scorecard"), 1, "bank"),
        (OF_TWO, ("logistic_regression", "scorecard"), 1, "shop1"),
    ],
    ids=[
        "plain, label owner",
        "plain, one of two",
        "BFV",
        "shares of three",
        "shares with a helper",
        "shares of two",
        "shares of two, other",
    ],
)
@pytest.mark.parametrize("window", [1, 1 << 20])
def test_all_parties_leave_a_candidate_out_that_diverges_at_one(
    protection: Any, methods: tuple[str, ...], passive: int, who: str, window: int
) -> None:
    job = JOB.replace(algorithm=AUTO.replace(methods=methods), protection=protection, epochs=1)
    people = make_parties(passive=passive, rows=120)
    found, sites = run_all(job, people, observers={who: Diverges(who, methods[0])}, window=window, coordinated=True)
    for name, trained in found.items():
        choice = trained.choice
        assert choice is not None
        assert (choice.kept, set(choice.tried)) == (methods[1], {methods[1]})
        assert trained.model
        expected = "a step reaches" if name == who else "its training diverged, as '"
        assert choice.left_out[methods[0]].startswith(expected)
        notes = [line.values for line in sites[name].ledger.iter_lines() if getattr(line, "note", "").endswith("ged")]
        assert notes == [{"name": methods[0]}]
    assert found["bank"].test
    assert set(found) == {*people, *([COORDINATOR] if protection is WITH_HELPER else [])}
    # both ends of each link recorded the same messages: also those that nobody read
    for name, site in sites.items():
        for peer in site.links:
            sent = [(one.what, one.digest) for one in site.ledger.entries if (one.peer, one.way) == (peer, "sent")]
            read = [
                (one.what, one.digest)
                for one in sites[peer].ledger.entries
                if (one.peer, one.way) == (name, "received")
            ]
            assert sent == read


def test_numbers_that_are_not_finite_are_a_training_that_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, active = roles.Passive.activations, roles.Active.train_batch

    async def lose(self: roles.Active, rows: np.ndarray) -> Any:
        loss = await active(self, rows)
        return float("nan") if self.config.name == "splitnn" else loss

    monkeypatch.setattr(roles.Active, "train_batch", lose)
    found, _ = run_all(JOB)
    assert found["bank"].choice is not None
    assert "the loss of epoch 1 is nan" in found["bank"].choice.left_out["splitnn"]
    monkeypatch.undo()

    def spoil(self: roles.Passive, rows: np.ndarray, *, train: bool) -> Any:
        found = feed(self, rows, train=train)
        return found * float("nan") if isinstance(found, torch.Tensor) and self.config.name == "splitnn" else found

    monkeypatch.setattr(roles.Passive, "activations", spoil)
    found, _ = run_all(JOB)
    assert found["bank"].choice is not None
    assert "not finite" in found["bank"].choice.left_out["splitnn"]


def test_scores_that_are_not_finite_are_a_training_that_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    score = roles.Active.score

    async def spoil(self: roles.Active, rows: np.ndarray) -> Any:
        found = await score(self, rows)
        return found * float("nan") if self.config.name == "splitnn" else found

    monkeypatch.setattr(roles.Active, "score", spoil)
    found, _ = run_all(JOB)
    assert found["bank"].choice is not None
    assert "scores that are not finite" in found["bank"].choice.left_out["splitnn"]
    result = sv.simulate(JOB, PEOPLE, baselines=())
    assert result.record.choice is not None
    assert "scores that are not finite" in result.record.choice.candidates[1].why


class All(Diverges):
    """Every candidate diverges."""

    def phase(self, name: str) -> None:
        if name.startswith("candidate"):
            self.here, self.begun = True, 0


def test_a_job_of_which_every_candidate_diverges_ends_with_the_reason_of_each() -> None:
    with pytest.raises(RangeError, match=r"every candidate diverged:\n  splitnn: (a|its) .*\n  logistic_regression: "):
        run_all(JOB, observers={"bank": All("bank", "")})
    with pytest.raises(RangeError, match=r"no candidate could be trained:\n  splitnn: a step .*\n  logistic_reg"):
        sv.simulate(JOB, PEOPLE, baselines=(), observers={"bank": Always("bank", "")})


class Always(Diverges):
    """Every training diverges."""

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        raise RangeError("a step reaches 5e+05")


class Stops(Diverges):
    """A training diverges, and the machine fails in the next one."""

    def step(self, epoch: int, done: int, total: int) -> None:
        if self.begun and not self.here:
            raise MachineFault("the disk is full")


def keepers(folder: Path, job: sv.Job, attempt: int) -> dict[str, FolderKeeper]:
    found = {name: FolderKeeper(folder, name, job.digest, ends=candidate_ends(job)) for name in PEOPLE}
    common = set.intersection(*(set(one.find_intact()) for one in found.values()))
    for one in found.values():
        one.resume_from(attempt, max(common, default=None))
    return found


@pytest.mark.parametrize("forgets", ["", "bank", PASSIVE])
@pytest.mark.parametrize("batch", [3, 9])
def test_a_job_that_resumes_does_not_train_it_again_and_counts_what_it_cost(
    tmp_path: Path, forgets: str, batch: int
) -> None:
    """Also where one party was killed before it wrote down that a candidate diverged."""
    private = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4.0, delta=1e-5)))
    job = JOB.replace(protection=private, policies={PASSIVE: sv.Policy(max_epsilon=8.0, max_delta=1e-4)})
    share = 2.0  # of ε, each of two candidates
    whole, _ = run_all(job, secrets=SECRETS, observers={"bank": Diverges("bank", "splitnn", batch)})
    assert len(whole[PASSIVE].spent) == 2  # what was kept, and what diverged
    assert all(0 < one.epsilon_rdp <= share * 1.001 for one in whole[PASSIVE].spent)
    first = keepers(tmp_path, job, 1)
    with pytest.raises(MachineFault, match="full"):
        run_all(job, secrets=SECRETS, keepers=first, observers={"bank": Stops("bank", "splitnn", batch)})
    if forgets:
        (tmp_path / f"{forgets}.diverged.json").unlink()
    again, sites = run_all(job, secrets=SECRETS, keepers=keepers(tmp_path, job, 2))
    assert steps(sites, PASSIVE).count("train/outcome") == 2  # one sent, one read: of one candidate
    for name, trained in again.items():
        assert trained.choice is not None
        assert trained.choice.kept == "logistic_regression"
        why = trained.choice.left_out["splitnn"]
        assert ("in an earlier attempt" in why) == (name == forgets)
    spent = again[PASSIVE].spent
    assert len(spent) == 2
    assert spent[1] == whole[PASSIVE].spent[1]


class EndsBadly(sv.Observer):
    """A passive party's training of the first candidate diverges after its last epoch, when its peers are ready."""

    def __init__(self) -> None:
        self.failed = False

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == JOB.epochs and not self.failed:
            self.failed = True
            raise RangeError("a weight reaches 5e+05")


class DivergesBetween(Diverges):
    """The same between two batches."""

    def step(self, epoch: int, done: int, total: int) -> None:
        self.batch_begun(self.party, self.party, epoch, np.arange(0))


def test_each_partys_report_says_over_a_network_which_candidate_diverged(tmp_path: Path) -> None:
    company = create_company(tmp_path, PEOPLE, JOB)
    company.over_network(hearers={"bank": [DivergesBetween("bank", "splitnn")]})
    for name, why in {"bank": "a step reaches 5e+05", PASSIVE: "its training diverged, as 'bank' noticed"}.items():
        record = Record.read(company.state_folder(name) / "report" / "metrics.json")
        assert record.choice is not None
        assert record.choice.chosen == "logistic_regression"
        assert {one.key: one.why for one in record.choice.candidates} == {"logistic_regression": "", "splitnn": why}
        table = choice_table(record)
        assert table is not None
        assert f"left out: {why}" in " ".join(render_text(table, width=200).split())
        assert f"left out: {why}" in unescape(render_report(record))
        assert "splitnn" not in explain_choice(record.choice)


def test_a_party_that_trained_to_the_end_also_writes_down_that_a_peer_did_not(tmp_path: Path) -> None:
    keys = keepers(tmp_path, JOB, 1)
    found, _ = run_all(JOB, keepers=keys, observers={PASSIVE: EndsBadly()})
    assert found["bank"].choice is not None
    assert found["bank"].choice.left_out == {"splitnn": f"its training diverged, as {PASSIVE!r} noticed"}
    assert keys["bank"].read_diverged() == found["bank"].choice.left_out
    assert keys[PASSIVE].read_diverged() == {"splitnn": "a weight reaches 5e+05"}


def test_a_divergence_is_written_down_before_a_peer_learns_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*rest: object) -> str:
        raise MachineFault("killed")

    monkeypatch.setattr("securevfl.party.program.settle_candidate", fail)
    keys = keepers(tmp_path, JOB, 1)
    with pytest.raises(MachineFault, match="killed"):
        run_all(JOB, keepers=keys, observers={"bank": Diverges("bank", "splitnn")})
    assert set(keys["bank"].read_diverged()) == {"splitnn"}


def test_a_link_ends_a_part_with_what_its_ledger_has_as_sent() -> None:
    asyncio.run(_end_parts())


async def _end_parts() -> None:
    one, other = memory_pair(window=1)
    ledgers = [Ledger(name, run="r", job="0") for name in "ab"]
    mine = Link("a", "b", one, ledgers[0], Policy(), Clock())
    theirs = Link("b", "a", other, ledgers[1], Policy(), Clock())
    await mine.send(Kind.CONTROL, "first")

    async def send_late() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await mine.send(Kind.CONTROL, "behind")

    behind = mine.send_behind(send_late())
    waiting = asyncio.ensure_future(mine.send(Kind.CONTROL, "second"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not behind.done()
    heard = await asyncio.gather(mine.settle_part("x", diverged=True), theirs.settle_part("x", diverged=False))
    assert list(heard) == [False, True]
    sent = [one.what for one in ledgers[0].entries if one.way == "sent"]
    read = [one.what for one in ledgers[1].entries if one.way == "received"]
    assert sorted(sent) == sorted(read)
    assert set(sent) == {"first", "behind", "second", "train/outcome"}
    # a part that ended well at both ends leaves nothing that nobody reads
    await mine.send(Kind.CONTROL, "more")
    ended = await asyncio.gather(
        mine.settle_part("y", diverged=False), theirs.settle_part("y", diverged=False), return_exceptions=True
    )
    assert ended[0] is False
    assert "sent 'more', which nobody reads in 'y'" in str(ended[1])


def test_a_record_of_another_job_is_refused(tmp_path: Path) -> None:
    keeper = FolderKeeper(tmp_path, "bank", "a" * 64)
    assert keeper.read_diverged() == {}
    keeper.store_diverged({"splitnn": "why"})
    assert keeper.read_diverged() == {"splitnn": "why"}
    with pytest.raises(sv.InputError, match="of another job"):
        FolderKeeper(tmp_path, "bank", "b" * 64).read_diverged()
    (tmp_path / "bank.diverged.json").write_text("{")
    with pytest.raises(sv.InputError, match="is damaged"):
        keeper.read_diverged()


@pytest.mark.parametrize(
    ("step", "meta", "says"),
    [
        ("train/outcome", {"part": "boosting", "diverged": False}, "ended 'boosting', and 'splitnn' was expected"),
        ("train/outcome", {"part": "splitnn", "diverged": "no"}, "ended 'splitnn'"),
        ("train/diverged", {"names": "attention"}, "says that 'attention' diverged"),
        ("train/diverged", {}, "says that None diverged"),
    ],
)
def test_what_a_peer_may_not_say(step: str, meta: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Link.send

    async def lie(self: Link, kind: Kind, what: str, **content: Any) -> None:
        await send(self, kind, what, **content | ({"meta": meta} if what == step and self.me == PASSIVE else {}))

    monkeypatch.setattr(Link, "send", lie)
    with pytest.raises(ProtocolError, match=says):
        run_all(JOB.replace(epochs=1))


@pytest.mark.parametrize("protection", [sv.Plain(), sv.BFV()])
def test_a_peer_cannot_end_what_is_no_candidate(protection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job of one algorithm, it is a message like any other that nobody expects."""
    send = Link.send
    told: list[Link] = []

    async def lie(self: Link, kind: Kind, what: str, **content: Any) -> None:
        if self.me == PASSIVE and kind is not Kind.CONTROL and not told:
            told.append(self)
            monkeypatch.setattr(self.__class__, "hand_over", without_declarations)
            await send(self, Kind.CONTROL, "train/outcome", meta={"part": "splitnn", "diverged": True})
            monkeypatch.setattr(self.__class__, "hand_over", hand_over)
        await send(self, kind, what, **content)

    hand_over = Link.hand_over

    async def without_declarations(self: Link, message: Any) -> None:
        await self._channel.send(message)

    monkeypatch.setattr(Link, "send", lie)
    with pytest.raises(ProtocolError, match=r"and got control 'train/outcome'"):
        run_all(JOB.replace(algorithm=SplitNN(), protection=protection))


@pytest.mark.parametrize("who", ["bank", PASSIVE])
def test_an_outcome_that_is_sent_twice_does_not_end_the_next_candidate(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Link.send

    async def repeat(self: Link, kind: Kind, what: str, **content: Any) -> None:
        await send(self, kind, what, **content)
        if self.me == who and what == "train/outcome":
            await send(self, kind, what, **content)

    monkeypatch.setattr(Link, "send", repeat)
    keys = keepers(tmp_path, JOB, 1)
    with pytest.raises(ProtocolError, match="'train/outcome'"):
        run_all(JOB, keepers=keys, observers={who: Diverges(who, "splitnn") if who == "bank" else EndsBadly()})
    assert [list(one.read_diverged()) for one in keys.values()] == [["splitnn"], ["splitnn"]]


def test_an_outcome_of_another_candidate_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Link.send

    async def lie(self: Link, kind: Kind, what: str, **content: Any) -> None:
        meta = {"part": "logistic_regression", "diverged": True}
        await send(self, kind, what, **content | ({"meta": meta} if what == "train/outcome" else {}))

    monkeypatch.setattr(Link, "send", lie)
    keys = keepers(tmp_path, JOB, 1)
    with pytest.raises(ProtocolError, match="ended 'logistic_regression', and 'splitnn' was expected"):
        run_all(JOB, keepers=keys, observers={PASSIVE: Diverges(PASSIVE, "splitnn")})
    assert keys["bank"].read_diverged() == {}


def test_what_a_peer_knew_of_an_earlier_attempt_is_written_down(tmp_path: Path) -> None:
    keys = keepers(tmp_path, JOB, 1)
    keys[PASSIVE].store_diverged({"splitnn": "a weight reaches 5e+05"})
    run_all(JOB, keepers=keys)
    why = f"its training diverged in an earlier attempt, as {PASSIVE!r} recorded"
    assert keys["bank"].read_diverged() == {"splitnn": why}


def test_nobody_is_blamed_where_a_party_told_two_others_different_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Link.send

    async def lie(self: Link, kind: Kind, what: str, **content: Any) -> None:
        if what == "train/outcome" and (self.me, self.peer) == ("shop1", "shop2") and "splitnn" in str(content):
            content["meta"] = {"part": "splitnn", "diverged": True}
        await send(self, kind, what, **content)

    monkeypatch.setattr(Link, "send", lie)
    names = ["bank", "shop1", "shop2"]
    with pytest.raises(ProtocolError, match="keeps 'splitnn', and here its training diverged") as found:
        run_all(JOB, make_parties(passive=2, rows=160))
    assert name_cause(found.value, names) == "protocol"


def test_a_bound_of_epsilon_that_a_peer_passed_ends_the_job() -> None:
    class Passes(Diverges):
        def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
            check_norms(torch.full((1, 2), 9.0), 1.0)

    with pytest.raises(BoundBroken, match="no longer guaranteed"):
        run_all(JOB, observers={"bank": Passes("bank", "splitnn")})
    with pytest.raises(BoundBroken, match="no longer guaranteed"):
        sv.simulate(JOB, PEOPLE, baselines=(), observers={"bank": Passes("bank", "splitnn")})
    with pytest.raises(BoundBroken, match="did not shorten its step"):
        check_block(np.full((1, 2), 9.0), 1.0, "bank")
    with pytest.raises(RangeError) as diverged:
        check_norms(torch.full((1, 2), np.nan), 1.0)
    assert not isinstance(diverged.value, BoundBroken)
    with pytest.raises(RangeError) as diverged:
        check_block(np.full((1, 2), np.nan), 1.0, "bank")
    assert not isinstance(diverged.value, BoundBroken)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (["more"] * 4, "'b' sent 4 messages and no outcome"),
        (["other"], "'b' sent 'other', which nobody declared"),
        (["refused"], "'b' refuses the job"),
    ],
)
def test_what_a_peer_may_send_before_its_outcome(sent: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def settle() -> None:
        one, other = memory_pair()
        takes: Any = dict.fromkeys([("more", Kind.CONTROL), ("train/outcome", Kind.CONTROL)])
        mine = Link("a", "b", one, Ledger("a", run="r", job="0"), Policy(), Clock(), takes=takes)
        theirs = Link("b", "a", other, Ledger("b", run="r", job="0"), Policy(), Clock())
        for what in sent:
            await theirs.send(Kind.CONTROL, what)
        await mine.settle_part("x", diverged=True)

    monkeypatch.setattr("securevfl.privacy.link.MOST_DROPPED", 3)
    with pytest.raises(sv.SecureVFLError, match=says):
        asyncio.run(settle())


def test_a_message_whose_sending_finds_an_earlier_one_not_finite_is_sent_where_the_part_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, where numbers are checked later: the ledger has its line, so the peer gets it."""

    async def settle() -> None:
        one, other = memory_pair()
        ledgers = [Ledger(name, run="r", job="0") for name in "ab"]
        mine = Link("a", "b", one, ledgers[0], Policy(), Clock())
        theirs = Link("b", "a", other, ledgers[1], Policy(), Clock())
        record = ledgers[0].record

        def find_late(*entry: Any, **options: Any) -> None:
            record(*entry, **options)
            monkeypatch.undo()
            raise NumbersNotFinite("an earlier one")

        monkeypatch.setattr(Ledger, "record", lambda _, *entry, **options: find_late(*entry, **options))
        with pytest.raises(NumbersNotFinite):
            await mine.send(Kind.CONTROL, "last")
        await asyncio.gather(mine.settle_part("x", diverged=True), theirs.settle_part("x", diverged=False))
        lines = [[entry.what for entry in ledgers[0].entries if entry.way == "sent"]]
        lines += [[entry.what for entry in ledgers[1].entries if entry.way == "received"]]
        assert lines == [["last", "train/outcome"]] * 2

    asyncio.run(settle())
