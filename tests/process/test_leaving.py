"""A party leaves for good and the job goes on: silently or by its officer's word, and what it is told when it returns."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.algorithms.field.party_dropout import PartyDropout
from securevfl.algorithms.laser import LaserVFL
from securevfl.party_context import Observer
from securevfl.process.launch import read_start
from securevfl.process.state_folder import StateFolder
from securevfl.run.model_parts import model_part  # noqa: F401
from securevfl.run.store import read_tree
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 120.0
"""Seconds; on an idle machine a test takes ten."""
ALGORITHMS: Mapping[str, sv.Algorithm] = {
    "dropout": PartyDropout(hidden=4, bottom=[3], drop=0.3),
    "laser": LaserVFL(hidden=4, bottom=[3], masks="redrawn"),
}


class Dies(Observer):
    """Kills its process when a phase begins, or in the middle of an epoch."""

    def __init__(self, when: str | int) -> None:
        self._when = when

    def phase(self, what: str) -> None:
        if what == self._when:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self, epoch: int, done: int, total: int) -> None:
        if epoch == self._when and done == total // 2:
            os.kill(os.getpid(), signal.SIGKILL)


def _take_part(company: Company, name: str, dies: str | int, wait: float) -> None:
    from securevfl.errors import SecureVFLError
    from securevfl_net.errors import exit_code_of

    try:
        read_start(company.agreement_file, name).run(wait=wait, stay=5, hearers=[Dies(dies)])
    except SecureVFLError as error:
        (company.folder / f"{name}.error").write_text(str(error))
        raise SystemExit(exit_code_of(error)) from error


@dataclass
class Running:
    """The processes of a company."""

    company: Company
    every: dict[str, BaseProcess] = field(default_factory=dict)

    def start(self, *names: str, dies: str | int = 0, wait: float = PATIENCE) -> None:
        for name in names:
            arguments = (self.company, name, dies, wait)
            process = multiprocessing.get_context("fork").Process(target=_take_part, args=arguments, name=name)
            process.start()
            self.every[name] = process

    def join(self, *names: str) -> list[int | None]:
        for name in names:
            self.every[name].join(PATIENCE)
        return [self.every[name].exitcode for name in names]

    def error(self, name: str) -> str:
        return (self.company.folder / f"{name}.error").read_text()


@contextmanager
def running(folder: Path, algorithm: str, *, passive: int = 2, **options: object) -> Iterator[Running]:
    job = sv.Job(
        algorithm=ALGORITHMS[algorithm],
        protection=options.pop("protection", sv.Plain()),  # type: ignore[arg-type]
        epochs=4,
        batch_size=16,
        seed=3,
        leaving="go-on",
    )
    limits = {"reconnect": 1, "leaving": "go-on", "leaving_after": 2} | options
    company = create_company(folder, make_parties(passive=passive, rows=120), job, **limits)
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


@pytest.mark.parametrize("dies", ["setup", 2, "test"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_job_goes_on_without_a_party_that_is_gone(algorithm: str, dies: str | int, tmp_path: Path) -> None:
    with running(tmp_path / "all", algorithm) as parties:
        parties.start("bank", "shop1")
        parties.start("shop2", dies=dies)
        assert parties.join("shop2") == [-signal.SIGKILL]
        assert parties.join("bank", "shop1") == [0, 0]
        company = parties.company
        epoch = {"setup": 0, 2: 1, "test": 4}[dies]
        assert [left_of(company, name) for name in ("bank", "shop1")] == [({"shop2": epoch}, ["shop1"])] * 2
        found = audit(company, tmp_path / "collected")
        assert found.is_complete, (found.incomplete, found.alone)
        assert [chain.party for chain in found.chains if chain.broke_off] == ["shop2"]
        report = (company.state_folder("bank") / "report" / "report.html").read_text()
        assert f"shop2 left for good; the job went on without it from epoch {epoch}" in report
