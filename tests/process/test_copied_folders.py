"""A copy of a state folder: it is refused while the original runs, and found by what its peers saw after it was made.
Only its own process stops; the job of the others goes on."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from securevfl_net.errors import exit_code_of

import securevfl as sv
from securevfl.errors import SecureVFLError
from securevfl.party import superseded
from securevfl.party_context import Observer
from securevfl.process.launch import read_start
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 120.0
"""Seconds; on an idle machine a test takes ten."""


class Waits(Observer):
    """Stops at the first step of some epochs, until a file says *go*."""

    def __init__(self, company: Company, name: str, epochs: Sequence[int]) -> None:
        self._folder, self._name, self._epochs = company.folder, name, epochs

    def step(self, epoch: int, done: int, total: int) -> None:
        if epoch in self._epochs and done == 1:
            (self._folder / f"{self._name}.inside.{epoch}").touch()
            _wait_for((self._folder / f"go.{epoch}").exists)


def _wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def _take_part(company: Company, name: str, toml: str, elsewhere: bool, waits: Sequence[int]) -> None:
    if elsewhere:  # as on another machine: other temporary files, and so no lock of the original's
        tempfile.tempdir = tempfile.mkdtemp(dir=company.folder)
        superseded._TWO_PROCESSES = 3.0
    try:
        read_start(company.agreement_file, name, company.folder / toml).run(
            wait=PATIENCE, hearers=[Waits(company, name, waits)]
        )
    except SecureVFLError as error:
        (company.folder / f"{toml}.error").write_text(f"{type(error).__name__}: {error}")
        os._exit(exit_code_of(error))


class Processes:
    """A job of two parties, one of which has a copy of its state folder."""

    def __init__(self, folder: Path) -> None:
        people = make_parties(passive=1, rows=120)
        job = sv.Job(algorithm=sv.SplitNN(hidden=4, bottom=[3]), protection=sv.Plain(), epochs=3, batch_size=16, seed=3)
        self.company = create_company(folder, people, job)
        self.running: list[BaseProcess] = []

    def start(self, name: str, *, toml: str = "", elsewhere: bool = False, waits: Sequence[int] = ()) -> BaseProcess:
        process = multiprocessing.get_context("fork").Process(
            target=_take_part, args=(self.company, name, toml or f"{name}.toml", elsewhere, waits)
        )
        process.start()
        self.running.append(process)
        return process

    def copy(self, name: str) -> str:
        """Copy a party's state folder, as it is now, to another machine, which has another address."""
        shutil.copytree(self.company.state_folder(name), self.company.folder / "copy.state")
        text = (self.company.folder / f"{name}.toml").read_text()
        text = text.replace(f'state = "{name}.state"', 'state = "copy.state"')
        lines = [line for line in text.splitlines() if not line.startswith('listen = "127')]
        (self.company.folder / "copy.toml").write_text("\n".join(lines) + "\n")
        return "copy.toml"

    def error(self, toml: str) -> str:
        return (self.company.folder / f"{toml}.error").read_text()

    def has_newer_head(self, holder: str, *, of: str) -> bool:
        """Whether a party's ledger has a signed head of another that is not yet in the ledger of the copy."""
        held = (self.company.state_folder(holder) / "ledgers" / f"{holder}.jsonl").read_text()
        heads = re.findall(rf'"words":\{{"{of}":\{{"head":"([0-9a-f]+)"', held)
        copied = (self.company.folder / "copy.state" / "ledgers" / f"{of}.jsonl").read_text()
        return any(head not in copied for head in heads)

    def inside(self, name: str, epoch: int = 2) -> Callable[[], bool]:
        return (self.company.folder / f"{name}.inside.{epoch}").exists

    def go(self, epoch: int = 2) -> None:
        (self.company.folder / f"go.{epoch}").touch()

    def check_end(self, **processes: BaseProcess) -> None:
        """All end well, and the ledgers of the parties convict nobody."""
        for process in processes.values():
            process.join(PATIENCE)
        assert {name: process.exitcode for name, process in processes.items()} == dict.fromkeys(processes, 0)
        collected = self.company.folder / "collected"
        collected.mkdir()
        for name in self.company.names:
            shutil.copy(self.company.state_folder(name) / "ledgers" / f"{name}.jsonl", collected)
        assert sv.audit(collected).is_complete


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.join()


def test_a_copy_on_the_same_machine_is_refused_at_once(job: Processes) -> None:
    bank, shop = job.start("bank"), job.start("shop1", waits=[2])
    _wait_for(job.inside("shop1"))
    copy = job.start("shop1", toml=job.copy("shop1"))
    copy.join(PATIENCE)
    assert copy.exitcode == 2
    assert "'shop1' runs already on this machine, on " in job.error("copy.toml")
    assert f"{job.company.state_folder('shop1')}: " in job.error("copy.toml")
    job.go()
    job.check_end(bank=bank, shop1=shop)


def test_a_copy_that_starts_while_the_original_runs_is_told_and_ends_nothing(job: Processes) -> None:
    bank, shop = job.start("bank"), job.start("shop1", waits=[2])
    _wait_for(job.inside("shop1"))
    copy = job.start("shop1", toml=job.copy("shop1"), elsewhere=True)
    copy.join(PATIENCE)
    assert copy.exitcode not in (0, None)
    assert job.error("copy.toml").startswith("Superseded: 'bank' refuses this process: start 1 of 'shop1' is connected")
    assert "delete it and use the newest one" in job.error("copy.toml")
    job.go()
    job.check_end(bank=bank, shop1=shop)


def test_a_copy_that_starts_after_the_original_went_on_is_found_by_its_number(job: Processes) -> None:
    bank, shop = job.start("bank"), job.start("shop1", waits=[2])
    _wait_for(job.inside("shop1"))
    toml = job.copy("shop1")
    for _ in range(2):
        shop.kill()
        shop.join()
        (job.company.folder / "shop1.inside.2").unlink()
        shop = job.start("shop1", waits=[2])
        _wait_for(job.inside("shop1"))
    copy = job.start("shop1", toml=toml, elsewhere=True)
    copy.join(PATIENCE)
    assert "this process of 'shop1' is start 2, start 3 has been seen" in job.error("copy.toml")
    assert bank.is_alive()
    assert shop.is_alive()
    job.go()
    job.check_end(bank=bank, shop1=shop)


def test_a_copy_that_answers_first_is_found_by_the_heads_that_its_peers_hold(job: Processes) -> None:
    """Both have the same number of starts; the original went on after the copy was made, and was then stopped."""
    bank, shop = job.start("bank"), job.start("shop1", waits=[2, 3])
    _wait_for(job.inside("shop1"))
    toml = job.copy("shop1")
    job.go()
    _wait_for(job.inside("shop1", 3))
    # A copy whose peers hold no newer head than it has itself is no older folder to them: it would be let in.
    _wait_for(lambda: job.has_newer_head("bank", of="shop1"))
    shop.kill()
    shop.join()
    copy = job.start("shop1", toml=toml, elsewhere=True)
    copy.join(PATIENCE)
    assert job.error("copy.toml").startswith("Restored: ")
    assert bank.is_alive()
    while (shop := job.start("shop1")) and shop.join(PATIENCE) is None and shop.exitcode == 75:
        assert "start it again, under a new number" in job.error("shop1.toml")
    job.check_end(bank=bank, shop1=shop)
