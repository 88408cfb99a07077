"""A gate that is killed and a disk that is full end one process with *start me again*, and nobody else's."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

import pytest
from securevfl_net import durable
from securevfl_net.exit_codes import AGAIN

import securevfl as sv
from securevfl.cli import main
from securevfl.process.state_folder import StateFolder
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from securevfl.transport.network_mesh import NetworkMesh

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 120.0
"""Seconds; on an idle machine a test takes five."""


def _kill_gate_in_attempt(number: signal.Signals) -> None:
    """The gate dies when an attempt begins."""
    original = NetworkMesh.open_view

    def open_view(self: NetworkMesh) -> None:
        original(self)
        os.kill(self.gate_pid, number)

    NetworkMesh.open_view = open_view  # type: ignore[method-assign]


def _fill_disk_in_attempt() -> None:
    """Nothing can be synced any more once an attempt has begun."""
    original = StateFolder.store_begun

    def store_begun(self: StateFolder, view: str) -> int:
        def refuse(handle: int) -> NoReturn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        found = original(self, view)
        durable.flush_to_disk = refuse
        return found

    StateFolder.store_begun = store_begun  # type: ignore[method-assign]


def _take_part(company: Company, name: str, fault: str) -> None:
    if fault == "disk":
        _fill_disk_in_attempt()
    elif fault:
        _kill_gate_in_attempt(signal.Signals[fault])
    main(["party", str(company.agreement_file), "--as", name, "--wait", str(PATIENCE)])


@pytest.mark.parametrize("fault", ["SIGKILL", "SIGTERM", "disk"])
def test_the_victim_says_again_and_the_others_wait(fault: str, tmp_path: Path) -> None:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Plain(), epochs=1, batch_size=32, seed=3)
    company = create_company(tmp_path, make_parties(passive=1, rows=60), job, reconnect=1)
    running: dict[str, BaseProcess] = {}
    every: list[BaseProcess] = []

    def start(name: str, fault: str = "") -> None:
        made: Any = multiprocessing.get_context("fork").Process(target=_take_part, args=(company, name, fault))
        made.start()
        running[name] = made
        every.append(made)

    try:
        start("bank")
        start("shop1", fault)
        running["shop1"].join(PATIENCE)
        assert running["shop1"].exitcode == AGAIN
        assert running["bank"].is_alive()
        start("shop1")
        for process in running.values():
            process.join(PATIENCE)
        assert {name: process.exitcode for name, process in running.items()} == {"bank": 0, "shop1": 0}
    finally:
        for process in every:
            process.kill()
            process.join()
