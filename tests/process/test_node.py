"""Two organisations, each with a node: three agreements over one port, a queue, faults, and a restart."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from securevfl_net.durable import is_held
from support.processes import PythonProcess

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.cli import main
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 240.0
"""Seconds; on an idle machine the longest test takes under a minute, on one with ten times its load three."""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _typed(*words: object, code: int = 0) -> str:
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == code, said.getvalue()
    return said.getvalue()


class Daemon:
    """A node of one organisation."""

    def __init__(self, folder: Path, port: int, *, jobs: int = 2, turn: float = 120.0) -> None:
        self.folder, self.port = folder, port
        _typed("node", "init", folder, "--listen", f"127.0.0.1:{port}")
        text = (folder / "node.toml").read_text()
        text = text.replace("jobs = 2", f"jobs = {jobs}").replace("turn = 120.0", f"turn = {turn}")
        (folder / "node.toml").write_text(text)
        self.log = folder / "said.txt"
        self.process: PythonProcess | None = None

    def start(self) -> None:
        with self.log.open("ab") as file:
            self.process = PythonProcess(["-m", "securevfl", "node", "run", str(self.folder)], output=file)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def rows(self) -> dict[str, Any]:
        return json.loads(_typed("node", "list", self.folder, "--json"))["agreements"]

    def events(self) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [(line["event"], line["words"].split()[0]) for line in lines]


def _until(holds: Callable[[], bool], *daemons: Daemon) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError("\n".join(f"{one.rows()}\n{one.log.read_text()}" for one in daemons))
        time.sleep(0.1)


def _company(folder: Path, port: int, *, epochs: int = 2) -> Company:
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
def _nodes(folder: Path, **options: float) -> Iterator[dict[str, Daemon]]:
    found = {name: Daemon(folder / f"node-{name}", _free_port(), **options) for name in ("bank", "shop")}  # type: ignore[arg-type]
    try:
        yield found
    finally:
        for one in found.values():
            if one.process is not None and one.process.poll() is None:
                one.end()


def _add(daemon: Daemon, company: Company, name: str, *more: object) -> None:
    party = next(one for one in company.names if one.startswith(daemon.folder.name.removeprefix("node-")))
    _typed(
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


@contextmanager
def _junk(port: int) -> Iterator[list[int]]:
    """Another address calls with junk, as fast as one thread can."""
    over, calls, rng = threading.Event(), [0], random.Random(1)

    def flood() -> None:
        while not over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1, source_address=("127.0.0.2", 0)) as sock:
                    sock.send(
                        rng.choice((b"D", b"S", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n")) + rng.randbytes(30)
                    )
                    calls[0] += 1
            except OSError:  # the node is between two lives
                time.sleep(0.05)
            time.sleep(0.002)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield calls
    finally:
        over.set()
        thread.join()


def test_three_agreements_over_one_port_survive_killed_parties_and_a_killed_node(tmp_path: Path) -> None:
    with _nodes(tmp_path) as nodes, _junk(nodes["bank"].port) as junk:
        bank, shop = nodes["bank"], nodes["shop"]
        companies = {
            name: _company(tmp_path / name, bank.port, epochs=epochs)
            for name, epochs in (("one", 60), ("two", 60), ("three", 2))
        }
        http = tmp_path / "serving.toml"
        http.write_text('[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\n')
        for name, company in companies.items():
            serve = ("--serve", "--serving", http) if name == "three" else ()
            for daemon in (bank, shop):
                _add(daemon, company, name, *(serve if daemon is bank else serve[:1]))
        bank.start()
        shop.start()
        _until(lambda: bank.rows()["one"]["phase"] == "training", bank, shop)
        assert bank.rows()["three"]["stage"] == "queued"
        os.kill(bank.rows()["one"]["process"], signal.SIGKILL)
        _until(lambda: bank.rows()["one"]["starts"] == 2, bank, shop)
        assert bank.end(signal.SIGKILL) == -signal.SIGKILL
        _until(
            lambda: not any(is_held(companies[name].state_folder("bank")) for name in ("one", "two")), bank
        )  # they ended with it
        bank.start()

        def finished() -> bool:
            return all(one.rows()[name]["stage"] == "finished" for one in (bank, shop) for name in ("one", "two"))

        _until(finished, bank, shop)
        _until(lambda: all(one.rows()["three"]["stage"] == "serving" for one in (bank, shop)), bank, shop)
        _until(lambda: "Questions: http" in (bank.folder / "logs/three.log").read_text(), bank, shop)
        started = [name for event, name in bank.events() if event == "started"]
        assert set(started[:2]) == {"one", "two"}, "first come, first served"
        assert junk[0] > 100
        assert [one.end() for one in (shop, bank)] == [75, 75]
        assert not any(is_held(one.state_folder("bank")) for one in companies.values())
        for name in ("one", "two"):
            _typed("audit", companies[name].state_folder("bank"))


def test_what_needs_a_person_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    with _nodes(tmp_path, jobs=1, turn=4.0) as nodes:
        bank, shop = nodes["bank"], nodes["shop"]
        good, bad = (_company(tmp_path / name, bank.port) for name in ("good", "bad"))
        for daemon in (bank, shop):
            _add(daemon, bad, "bad")
            _add(daemon, good, "good")
        own = bad.folder / "bank.toml"
        before = own.read_text()
        own.write_text(before.replace("[policy]", "[policy]\nsealed = true"))  # after it was added
        said = _typed("node", "add", bank.folder, bad.agreement_file, "--file", own, "--name", "again", code=3)
        assert "PolicyError" in said
        bank.start()
        shop.start()
        _until(lambda: bank.rows()["bad"]["stage"] == "a person must act", bank, shop)
        row = bank.rows()["bad"]
        assert (row["code"], row["topic"]) == (3, "refusal")
        assert "sealed" in row["reason"]
        assert "exit code 3 (refusal)" in _typed("node", "list", bank.folder)
        _until(lambda: bank.rows()["good"]["stage"] == "finished", bank, shop)
        own.write_text(before)
        _typed("node", "resume", bank.folder, "bad")
        _until(lambda: all(one.rows()["bad"]["stage"] == "finished" for one in (bank, shop)), bank, shop)


def test_a_training_without_its_peer_gives_its_place_to_the_next(tmp_path: Path) -> None:
    """Both nodes run one training at a time, and begin with different ones."""
    with _nodes(tmp_path, jobs=1, turn=8.0) as nodes:
        bank, shop = nodes["bank"], nodes["shop"]
        one, two = (_company(tmp_path / name, bank.port) for name in ("one", "two"))
        for daemon, order in ((bank, (one, two)), (shop, (two, one))):
            for company in order:
                _add(daemon, company, company.folder.name)
                daemon.start() if daemon.process is None else None
                _until(lambda name=company.folder.name, at=daemon: name in [w for _, w in at.events()], daemon)  # type: ignore[misc]
        _until(
            lambda: all(row["stage"] == "finished" for one in (bank, shop) for row in one.rows().values()), bank, shop
        )
        assert {"yields"} <= {event for event, _ in [*bank.events(), *shop.events()]}


def test_pause_remove_and_mistakes(tmp_path: Path) -> None:
    with _nodes(tmp_path) as nodes:
        bank = nodes["bank"]
        company = _company(tmp_path / "one", bank.port)
        assert "no agreement 'one'" in _typed("node", "pause", bank.folder, "one", code=2)
        (company.folder / "agreement.toml.bank.approval").rename(tmp_path / "kept")
        said = _typed(
            "node", "add", bank.folder, company.agreement_file, "--file", company.folder / "bank.toml", code=2
        )
        assert "has not approved" in said
        (tmp_path / "kept").rename(company.folder / "agreement.toml.bank.approval")
        _add(bank, company, "one")
        said = _typed(
            "node", "add", bank.folder, company.agreement_file, "--file", company.folder / "bank.toml", code=2
        )
        assert "is the state folder of 'one'" in said
        assert bank.rows()["one"]["stage"] == "new"
        (bank.folder / "agreements" / "dropped.toml").write_text('agreement = "nowhere.toml"\n')
        bank.start()
        _until(lambda: bank.rows()["one"]["stage"] == "running", bank)
        _until(lambda: bank.rows()["dropped"]["stage"] == "a person must act", bank)
        assert "file is missing" in bank.rows()["dropped"]["reason"]
        said = _typed("node", "run", bank.folder, code=75)
        assert "another node runs there" in said
        _until(lambda: bank.rows()["one"]["waits"] == ["shop1"], bank)
        _typed("node", "pause", bank.folder, "one")
        _until(lambda: bank.rows()["one"]["stage"] == "paused", bank)
        assert bank.rows()["one"]["code"] == 75
        _typed("node", "resume", bank.folder, "one")
        _until(lambda: bank.rows()["one"]["stage"] == "running", bank)
        _typed("node", "remove", bank.folder, "one")
        _until(lambda: "one" not in bank.rows(), bank)
        assert not is_held(company.state_folder("bank"))
        assert company.agreement_file.exists()
    (bank.folder / "node.toml").write_text('listen = "nowhere"\n[limits]\njobs = 0\n')
    said = _typed("node", "run", bank.folder, code=2)
    assert "listen" in said
    assert "jobs" in said
