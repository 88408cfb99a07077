"""Processes killed as they finish, or that come back too late: nobody trains again, and nobody waits for ever."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.party.finish import Finish
from securevfl.party_context import PartySecret
from securevfl.process.attempt_store import FINISHED
from securevfl.process.launch import read_start
from securevfl.process.state_folder import StateFolder
from securevfl.run import runner
from securevfl.run.events import RunEvents
from securevfl.run.model_parts import model_part
from securevfl.run.store import read_tree, tree_digest
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from securevfl.transport import Scalar

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 120.0
"""Seconds; on an idle machine the tests take five."""


class Dies(RunEvents):
    """Kills its process as soon as its statement is stored, before any peer learns of it."""

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        if what == "finished":
            os.kill(os.getpid(), signal.SIGKILL)


class Writes(RunEvents):
    """Writes what happens into a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        with self._path.open("a") as file:
            file.write(f"{what}: {words}\n")


def _take_part(company: Company, name: str, stay: float, dies: bool) -> None:
    hearers = [Writes(company.folder / f"{name}.events"), *([Dies()] if dies else [])]
    party = read_start(company.agreement_file, name).run(wait=PATIENCE, stay=stay, hearers=hearers)
    sys.exit(0 if party is None or party.record is not None else 9)


class Processes:
    """Parties as copies of this process, which has loaded the libraries."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.running: dict[str, BaseProcess] = {}
        self.every: list[BaseProcess] = []

    def start(self, *names: str, stay: float = PATIENCE, die: tuple[str, ...] = ()) -> None:
        for name in names:
            process = multiprocessing.get_context("fork").Process(
                target=_take_part, args=(self.company, name, stay, name in die), name=name
            )
            process.start()
            self.running[name] = process
            self.every.append(process)

    def codes(self, *names: str) -> list[int | None]:
        for name in names:
            self.running[name].join(PATIENCE)
        return [self.running[name].exitcode for name in names]

    def events(self, name: str) -> str:
        return (self.company.folder / f"{name}.events").read_text()


@pytest.fixture
def company(tmp_path: Path) -> Company:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Plain(), epochs=1, batch_size=32, seed=3)
    made = create_company(tmp_path, make_parties(passive=1, rows=60), job)
    made.store_secrets({name: PartySecret.from_seed(7, name) for name in made.names})
    return made


@contextmanager
def _processes(company: Company) -> Iterator[Processes]:
    found = Processes(company)
    try:
        yield found
    finally:
        for process in found.every:
            process.kill()
            process.join()


def _attempts(company: Company, name: str) -> list[int]:
    with StateFolder.lock(company.state_folder(name), party=name, agreement=company.agreement.digest) as state:
        return [one.number for one in state.attempts if one.begun]


def _check_end(company: Company, *, attempts: int = 1) -> None:
    """All have the simulation's model, each other's signed statements, and ledgers that agree."""
    job = company.agreement.proposal.job_of(device="cpu", pool="local", policies={})
    secrets = {name: PartySecret.from_seed(7, name) for name in company.names}
    simulated = sv.simulate(job, company.people, secrets=secrets).model()
    for name in company.names:
        kept = tree_digest(read_tree(company.state_folder(name) / "model" / f"{name}.model.safetensors"))
        assert kept == tree_digest(model_part(job, name, simulated.parts[name]))
        assert _attempts(company, name) == list(range(1, attempts + 1))
        with StateFolder.lock(company.state_folder(name), party=name, agreement=company.agreement.digest) as state:
            found = {one.party: one for one in state.statements}
            assert state.outcome == {"done": True, "cause": "", "unconfirmed": []}
        assert set(found) == set(company.names)
        assert len({one.mark for one in found.values()}) == 1
        assert found[name].model == kept
        for party, one in found.items():
            key = sv.privacy.PublicSigningKey.from_hex(company.agreement.proposal.public_keys[party])
            key.verify(FINISHED, one.signed_content, one.signature)
    folder = company.folder / "collected"
    folder.mkdir()
    for name in company.names:
        (folder / f"{name}.jsonl").write_bytes((company.state_folder(name) / "ledgers" / f"{name}.jsonl").read_bytes())
    assert sv.audit(folder).is_complete


@pytest.mark.parametrize("die", [("shop1",), ("bank", "shop1")], ids=["one", "both"])
def test_who_is_killed_between_its_last_step_and_the_end_is_answered(company: Company, die: tuple[str, ...]) -> None:
    with _processes(company) as parties:
        parties.start(*company.names, die=die)
        assert parties.codes(*die) == [-signal.SIGKILL] * len(die)
        parties.start(*die)
        assert parties.codes(*company.names) == [0, 0]
    _check_end(company)


def test_a_party_that_left_answers_again_from_its_store(company: Company) -> None:
    with _processes(company) as parties:
        parties.start("bank", stay=0.5)
        parties.start("shop1", die=("shop1",))
        assert parties.codes("shop1", "bank") == [-signal.SIGKILL, 0]
        assert "staying 0 s for: shop1" in parties.events("bank")
        assert "not confirmed by: shop1" in parties.events("bank")
        before = (company.state_folder("bank") / "model" / "bank.model.safetensors").stat().st_mtime_ns
        parties.start("shop1", stay=0.5)  # nobody answers: it has its result, and does not wait for a day
        assert parties.codes("shop1") == [0]
        assert "not confirmed by: bank" in parties.events("shop1")
        parties.start("bank", "shop1")
        assert parties.codes("bank", "shop1") == [0, 0]
        assert (company.state_folder("bank") / "model" / "bank.model.safetensors").stat().st_mtime_ns == before
        ledger = (company.state_folder("bank") / "ledgers" / "bank.jsonl").read_bytes()
        parties.start("bank")  # all have confirmed: it ends at once, alone
        assert parties.codes("bank") == [0]
        assert (company.state_folder("bank") / "ledgers" / "bank.jsonl").read_bytes() == ledger
    _check_end(company)


def test_who_has_everybodys_statement_does_not_wait_for_peers_that_are_gone(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer is killed after its statement left and before its confirmation; it is never started again."""
    monkeypatch.setattr(runner, "_GONE", 2.0)
    monkeypatch.setattr(runner, "_REPEAT", 1000.0)

    def deaf(self: Finish, peer: str, payload: bytes) -> bool:
        grown = take_note(self, peer, payload)
        self._confirmed.clear()
        return grown

    take_note = Finish.take_note
    monkeypatch.setattr(Finish, "take_note", deaf)
    with _processes(company) as parties:
        parties.start(*company.names, stay=1000)
        _wait_until(lambda: all("finished: " in parties.events(name) for name in company.names))
        parties.running["bank"].kill()
        assert parties.codes("shop1") == [0]
    with StateFolder.lock(company.state_folder("shop1"), party="shop1", agreement=company.agreement.digest) as state:
        assert state.outcome == {"done": True, "cause": "", "unconfirmed": ["bank"]}


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        with suppress(FileNotFoundError):
            if is_so():
                return
        assert time.monotonic() < end
        time.sleep(0.05)
