"""A party leaves for good and the job goes on: silently or by its officer's word; what it is told when it returns."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from securevfl_net import exit_codes
from securevfl_net.errors import exit_code_of

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.algorithms.field.party_dropout import PartyDropout
from securevfl.algorithms.laser import LaserVFL
from securevfl.errors import SecureVFLError
from securevfl.party_context import Observer
from securevfl.process.launch import read_start
from securevfl.process.leaving import leave_job
from securevfl.process.state_folder import StateFolder
from securevfl.run.events import RunEvents
from securevfl.run.store import read_tree
from securevfl.serving.process import run_server
from securevfl.serving.process_tasks import Scored, predict_all
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import low_overlap_parties, make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 120.0
"""Seconds; on an idle machine a test takes ten."""
ALGORITHMS: Mapping[str, sv.Algorithm] = {
    "dropout": PartyDropout(hidden=4, bottom=[3], drop=0.3),
    "laser": LaserVFL(hidden=4, bottom=[3], masks="redrawn"),
    "boosting": sv.Boosting(depth=3),
    "entity augmentation": sv.EntityAugmentation(hidden=4, bottom=[3]),
    "laser, columns as they are": LaserVFL(hidden=4, masks="redrawn"),
}


class Dies(Observer):
    """Kills its process when a phase begins, or in the middle of an epoch."""

    def __init__(self, when: str | int) -> None:
        self._when = when

    def phase(self, what: str) -> None:
        if what == self._when:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self, epoch: int, done: int, total: int) -> None:
        if epoch == self._when and done == max(total // 2, 1):
            os.kill(os.getpid(), signal.SIGKILL)


class Slow(Observer):
    """Takes its time for each step."""

    def step(self, epoch: int, done: int, total: int) -> None:
        time.sleep(0.2)


class Tells(RunEvents):
    """Writes what happens to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def report_event(self, what: str, words: str, **values: object) -> None:
        with self._file.open("a") as file:
            file.write(f"{what}: {words}\n")


def _take_part(company: Company, name: str, dies: str | int, wait: float, slow: bool) -> None:
    hearers = [Dies(dies), Tells(company.folder / f"{name}.told"), *([Slow()] if slow else [])]
    try:
        read_start(company.agreement_file, name).run(wait=wait, stay=5, hearers=hearers)
    except SecureVFLError as error:
        (company.folder / f"{name}.error").write_text(str(error))
        raise SystemExit(exit_code_of(error)) from error


@dataclass
class Running:
    """The processes of a company."""

    company: Company
    every: dict[str, BaseProcess] = field(default_factory=dict)

    def start(self, *names: str, dies: str | int = 0, wait: float = PATIENCE, slow: bool = False) -> None:
        for name in names:
            arguments = (self.company, name, dies, wait, slow)
            process = multiprocessing.get_context("fork").Process(target=_take_part, args=arguments, name=name)
            process.start()
            self.every[name] = process

    def join(self, *names: str) -> list[int | None]:
        for name in names:
            self.every[name].join(PATIENCE)
        return [self.every[name].exitcode for name in names]

    def wait_for(self, name: str, words: str) -> None:
        """Wait until a party has told this."""
        file, end = self.company.folder / f"{name}.told", time.monotonic() + PATIENCE
        while not (file.exists() and words in file.read_text()):
            assert time.monotonic() < end, f"{name} never told {words!r}"
            time.sleep(0.05)

    def error(self, name: str) -> str:
        return (self.company.folder / f"{name}.error").read_text()


@contextmanager
def running(
    folder: Path, algorithm: str, *, passive: int = 2, wide: bool = False, **options: object
) -> Iterator[Running]:
    job = sv.Job(
        algorithm=ALGORITHMS[algorithm],
        protection=options.pop("protection", sv.Plain()),  # type: ignore[arg-type]
        epochs=4,
        batch_size=16,
        seed=3,
        leaving="go-on",
    )
    limits = {"reconnect": 1, "leaving": "go-on", "leaving_after": 2} | options
    people = make_parties(passive=passive, rows=120)
    if algorithm == "entity augmentation":
        people = low_overlap_parties(passive, rows=160, classes=2, overlap=0.5)
    if wide:  # shop2 feeds the most
        more = {f"g{i}": column for i, column in enumerate(people["shop2"].columns.values())}
        people = sv.Parties.of(
            *(replace(one, columns={**one.columns, **more}) if one.name == "shop2" else one for one in people.values())
        )
    company = create_company(folder, people, job, **limits)
    found = Running(company)
    try:
        yield found
    finally:
        for process in found.every.values():
            process.kill()
            process.join()


def audit(company: Company, folder: Path) -> sv.Audit:
    folder.mkdir()
    for name in company.names:
        shutil.copy(company.state_folder(name) / "ledgers" / f"{name}.jsonl", folder)
    return sv.audit(folder)


def left_of(company: Company, name: str) -> object:
    part = read_tree(company.state_folder(name) / "model" / f"{name}.model.safetensors")
    assert isinstance(part, dict)
    return part["left"], part["passive"]


@pytest.mark.parametrize(
    ("algorithm", "dies"),
    [
        ("dropout", "setup"),
        ("laser", 2),
        ("dropout", "test"),
        ("entity augmentation", 3),
        ("boosting", 3),
        ("boosting", "test"),
    ],
)
def test_a_job_goes_on_without_a_party_that_is_gone(algorithm: str, dies: str | int, tmp_path: Path) -> None:
    with running(tmp_path / "all", algorithm) as parties:
        parties.start("bank", "shop1")
        parties.start("shop2", dies=dies)
        assert parties.join("shop2") == [-signal.SIGKILL]
        assert parties.join("bank", "shop1") == [0, 0]
        company = parties.company
        epoch = {"setup": 0, 2: 1, 3: 2, "test": 4}[dies]
        assert [left_of(company, name) for name in ("bank", "shop1")] == [({"shop2": epoch}, ["shop1"])] * 2
        found = audit(company, tmp_path / "collected")
        assert found.is_complete, (found.incomplete, found.alone)
        assert found.left == {"shop2": epoch}
        report = (company.state_folder("bank") / "report" / "report.html").read_text()
        assert f"shop2 left for good; the job went on without it from epoch {epoch}" in report


def test_a_party_that_comes_back_is_told_and_a_person_must_act(tmp_path: Path) -> None:
    with running(tmp_path / "all", "laser") as parties:
        parties.start("bank", "shop1", slow=True)
        parties.start("shop2", dies=2)
        parties.join("shop2")
        parties.wait_for("bank", "left: goes on without shop2")
        parties.wait_for("bank", "begins, from epoch 1")
        parties.start("shop2")
        assert parties.join("shop2") == [exit_codes.REFUSED]
        assert not exit_codes.should_restart(exit_codes.REFUSED)
        assert "the job went on without 'shop2' since epoch 1" in parties.error("shop2")
        parties.start("shop2")  # once more: it knows by itself
        assert parties.join("shop2") == [exit_codes.REFUSED]
        assert parties.join("bank", "shop1") == [0, 0]
        found = audit(parties.company, tmp_path / "collected")
        assert found.is_complete, (found.incomplete, found.alone)
        assert found.left == {"shop2": 1}


def test_a_party_that_says_so_is_not_waited_for(tmp_path: Path) -> None:
    """Its officer signs; its process tells the others, and ends as done."""
    with running(tmp_path / "all", "dropout", leaving_after=3600) as parties:
        parties.start("bank", "shop1")
        parties.start("shop2", dies=3)
        parties.join("shop2")
        start = read_start(parties.company.agreement_file, "shop2")
        for _ in range(2):
            leave_job(start.agreement, start.own)
        parties.start("shop2")
        assert parties.join("shop2", "bank", "shop1") == [0, 0, 0]
        assert left_of(parties.company, "bank") == ({"shop2": 2}, ["shop1"])
        found = audit(parties.company, tmp_path / "collected")
        assert found.is_complete, (found.incomplete, found.alone)


def test_two_parties_leave(tmp_path: Path) -> None:
    with running(tmp_path / "all", "laser", passive=3) as parties:
        parties.start("bank", "shop2")
        parties.start("shop1", "shop3", dies=2)
        assert parties.join("shop1", "shop3") == [-signal.SIGKILL] * 2
        assert parties.join("bank", "shop2") == [0, 0]
        assert left_of(parties.company, "shop2") == ({"shop1": 1, "shop3": 1}, ["shop2"])
        found = audit(parties.company, tmp_path / "collected")
        assert found.is_complete, (found.incomplete, found.alone)


@pytest.mark.parametrize(("gone", "dies"), [("bank", 2), ("shop2", "alignment")])
def test_who_cannot_be_done_without_is_waited_for(gone: str, dies: str | int, tmp_path: Path) -> None:
    """The party with the labels; and any party, before the rows are aligned."""
    with running(tmp_path / "all", "dropout") as parties:
        stay = [name for name in parties.company.names if name != gone]
        parties.start(*stay, wait=6)
        parties.start(gone, dies=dies)
        assert parties.join(gone, *stay) == [-signal.SIGKILL, exit_codes.AGAIN, exit_codes.AGAIN]
        parties.start(*parties.company.names)
        assert parties.join(*parties.company.names) == [0, 0, 0]
        assert "left:" not in "".join(file.read_text() for file in parties.company.folder.glob("*.told"))


def test_a_party_is_restarted_after_another_has_left(tmp_path: Path) -> None:
    with running(tmp_path / "all", "laser") as parties:
        parties.start("bank", "shop1", slow=True)
        parties.start("shop2", dies=2)
        parties.wait_for("shop1", "begins, from epoch 1")
        kept = parties.company.state_folder("shop1") / "checkpoints" / "shop1.epoch-2.safetensors"
        while not kept.exists():
            time.sleep(0.05)
        parties.every["shop1"].kill()
        parties.join("shop1")
        parties.start("shop1")
        assert parties.join("bank", "shop1") == [0, 0]
        assert left_of(parties.company, "shop1") == ({"shop2": 1}, ["shop1"])
        found = audit(parties.company, tmp_path / "collected")
        assert found.is_complete, (found.incomplete, found.alone)


@pytest.mark.parametrize(
    "protection",
    [sv.BFV(), sv.Paillier()],
    ids=["BFV", "Paillier"],
)
def test_a_sealed_job_goes_on_with_the_shares_of_the_checkpoint(protection: sv.Protection, tmp_path: Path) -> None:
    """Its integers keep their scale, although the party that left fed the cut the most columns."""
    with running(tmp_path / "all", "laser, columns as they are", protection=protection, wide=True) as parties:
        parties.start("bank", "shop1")
        parties.start("shop2", dies=3)
        parties.join("shop2")
        assert parties.join("bank", "shop1") == [0, 0], [
            file.read_text() for file in parties.company.folder.glob("*.error")
        ]
        assert left_of(parties.company, "bank") == ({"shop2": 2}, ["shop1"])
        part = read_tree(parties.company.state_folder("bank") / "model" / "bank.model.safetensors")
        assert isinstance(part, dict)
        assert part["widest"] == 6
        found = audit(parties.company, tmp_path / "collected")
        assert found.is_complete, (found.incomplete, found.alone)


def test_epsilon_counts_what_was_released_before_a_party_left(tmp_path: Path) -> None:
    protection = sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=8.0)))
    with running(tmp_path / "all", "dropout", protection=protection) as parties:
        parties.start("bank", "shop1")
        parties.start("shop2", dies=3)
        parties.join("shop2")
        assert parties.join("bank", "shop1") == [0, 0]
        found = audit(parties.company, tmp_path / "collected")
        mine = [one for one in found.epsilons if one.party == "shop1"]
        # Four epochs as planned, and once more the one that broke off.
        assert max(one.releases for one in mine) == 5
        assert max(one.epsilon for one in mine) > 8.0


@pytest.mark.parametrize("algorithm", ["dropout", "laser"])
def test_the_model_is_served_without_the_party_that_left(algorithm: str, tmp_path: Path) -> None:
    with running(tmp_path, algorithm, serving=ServingTerms(asks=("bank",))) as parties:
        parties.start("bank", "shop1")
        parties.start("shop2", dies=2)
        parties.join("shop2")
        assert parties.join("bank", "shop1") == [0, 0]
    agreement = parties.company.agreement_file

    async def serve(name: str) -> object:
        async with run_server(agreement, name, tmp_path / f"{name}.toml", once=True) as one, one.running() as task:
            return await predict_all(one.server, task)

    async def both() -> list[object]:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(serve("bank"), serve("shop1"))

    scored, nothing = asyncio.run(both())
    assert nothing is None
    assert isinstance(scored, Scored)
    assert len(scored.ids) > 90  # those that both have, whether shop2 has them or not
    notes = "".join(file.read_text() for file in (tmp_path / "shop1.state" / "serving").rglob("shop1.jsonl"))
    assert '"fewer parties"' in notes
    with StateFolder.lock(tmp_path / "shop2.state", party="shop2", agreement=parties.company.agreement.digest) as at:
        bank = StateFolder(tmp_path / "bank.state", "bank", parties.company.agreement.digest)
        at.store_leaving_words(bank.leaving_words)
    with pytest.raises(sv.InputError, match="the job went on without 'shop2'"):
        asyncio.run(serve("shop2"))
