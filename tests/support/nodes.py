"""Nodes of two organisations as processes, and agreements between them."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.cli import main
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from support.forked_nodes import start_node
from support.processes import PythonProcess

__all__ = ["Daemon", "add_agreement", "free_port", "make_company", "running_nodes", "typed", "until"]

PATIENCE = 240.0
"""Seconds; on an idle machine the longest test takes under a minute, on one with ten times its load three."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def typed(*words: object, code: int = 0) -> str:
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == code, said.getvalue()
    return said.getvalue()


class Daemon:
    """A node of one organisation.

    Args:
        folder: of the node.
        port: at which it listens.
        jobs: trainings at a time.
        turn: seconds of a training that waits.
        forks: whether its processes are forked from one that has loaded the libraries, and not started afresh.
    """

    def __init__(self, folder: Path, port: int, *, jobs: int = 2, turn: float = 120.0, forks: bool = False) -> None:
        self.folder, self.port, self.forks = folder, port, forks
        typed("node", "init", folder, "--listen", f"127.0.0.1:{port}")
        text = (folder / "node.toml").read_text()
        text = text.replace("jobs = 2", f"jobs = {jobs}").replace("turn = 120.0", f"turn = {turn}")
        (folder / "node.toml").write_text(text)
        self.log = folder / "said.txt"
        self.process: PythonProcess | None = None

    def start(self) -> None:
        with self.log.open("ab") as file:
            words = ["-m", "securevfl", "node", "run", str(self.folder)]
            self.process = start_node(self.folder, file) if self.forks else PythonProcess(words, output=file)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def rows(self) -> dict[str, Any]:
        return json.loads(typed("node", "list", self.folder, "--json"))["agreements"]

    def events(self) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [(line["event"], line["words"].split()[0]) for line in lines]


def until(holds: Callable[[], bool], *daemons: Daemon) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError("\n".join(f"{one.rows()}\n{one.log.read_text()}" for one in daemons))
        time.sleep(0.1)


def make_company(folder: Path, port: int, *, epochs: int = 2) -> Company:
    """An agreement of the bank and a shop, whose file dials the bank's node."""
    job = sv.Job(
        algorithm=sv.SplitNN(hidden=4, bottom=[3]), protection=sv.Plain(), epochs=epochs, batch_size=16, seed=3
    )
    terms = ServingTerms(asks=("bank",))
    company = create_company(folder, make_parties(passive=1, rows=120), job, serving=terms)
    for name in company.names:
        path = folder / f"{name}.toml"
        path.write_text(re.sub(r'dial = "[^"]*"', f'dial = "127.0.0.1:{port}"', path.read_text()))
    return company


@contextmanager
def running_nodes(folder: Path, **options: float) -> Iterator[dict[str, Daemon]]:
    found = {name: Daemon(folder / f"node-{name}", free_port(), **options) for name in ("bank", "shop")}  # type: ignore[arg-type]
    try:
        yield found
    finally:
        for one in found.values():
            if one.process is not None and one.process.poll() is None:
                one.end()


def add_agreement(daemon: Daemon, company: Company, name: str, *more: object) -> None:
    party = next(one for one in company.names if one.startswith(daemon.folder.name.removeprefix("node-")))
    typed(
        "node",
        "add",
        daemon.folder,
        company.agreement_file,
        "--file",
        company.folder / f"{party}.toml",
        "--name",
        name,
        *more,
    )
