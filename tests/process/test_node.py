"""Two organisations, each with a node: three agreements over one port, a queue, faults, and a restart."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from securevfl_net.durable import is_held
from support.nodes import add_agreement, make_company, running_nodes, typed, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")


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
    with running_nodes(tmp_path, forks=True) as nodes, _junk(nodes["bank"].port) as junk:
        bank, shop = nodes["bank"], nodes["shop"]
        companies = {
            name: make_company(tmp_path / name, bank.port, epochs=epochs)
            for name, epochs in (("one", 60), ("two", 60), ("three", 2))
        }
        http = tmp_path / "serving.toml"
        http.write_text('[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\n')
        for name, company in companies.items():
            serve = ("--serve", "--serving", http) if name == "three" else ()
            for daemon in (bank, shop):
                add_agreement(daemon, company, name, *(serve if daemon is bank else serve[:1]))
        bank.start()
        shop.start()
        until(lambda: bank.rows()["one"]["phase"] == "training", bank, shop)
        assert bank.rows()["three"]["stage"] == "queued"
        os.kill(bank.rows()["one"]["process"], signal.SIGKILL)
        until(lambda: bank.rows()["one"]["starts"] == 2, bank, shop)
        assert bank.end(signal.SIGKILL) == -signal.SIGKILL
        until(
            lambda: not any(is_held(companies[name].state_folder("bank")) for name in ("one", "two")), bank
        )  # they ended with it
        bank.start()

        def finished() -> bool:
            return all(one.rows()[name]["stage"] == "finished" for one in (bank, shop) for name in ("one", "two"))

        until(finished, bank, shop)
        until(lambda: all(one.rows()["three"]["stage"] == "serving" for one in (bank, shop)), bank, shop)
        until(lambda: "Questions: http" in (bank.folder / "logs/three.log").read_text(), bank, shop)
        started = [name for event, name in bank.events() if event == "started"]
        assert set(started[:2]) == {"one", "two"}, "first come, first served"
        assert junk[0] > 100
        assert [one.end() for one in (shop, bank)] == [75, 75]
        assert not any(is_held(one.state_folder("bank")) for one in companies.values())
        for name in ("one", "two"):
            typed("audit", companies[name].state_folder("bank"))


def test_what_needs_a_person_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    with running_nodes(tmp_path, jobs=1, turn=4.0) as nodes:
        bank, shop = nodes["bank"], nodes["shop"]
        good, bad = (make_company(tmp_path / name, bank.port) for name in ("good", "bad"))
        for daemon in (bank, shop):
            add_agreement(daemon, bad, "bad")
            add_agreement(daemon, good, "good")
        own = bad.folder / "bank.toml"
        before = own.read_text()
        own.write_text(before.replace("[policy]", "[policy]\nsealed = true"))  # after it was added
        said = typed("node", "add", bank.folder, bad.agreement_file, "--file", own, "--name", "again", code=3)
        assert "PolicyError" in said
        bank.start()
        shop.start()
        until(lambda: bank.rows()["bad"]["stage"] == "a person must act", bank, shop)
        row = bank.rows()["bad"]
        assert (row["code"], row["topic"]) == (3, "refusal")
        assert "sealed" in row["reason"]
        assert "exit code 3 (refusal)" in typed("node", "list", bank.folder)
        until(lambda: bank.rows()["good"]["stage"] == "finished", bank, shop)
        own.write_text(before)
        typed("node", "resume", bank.folder, "bad")
        until(lambda: all(one.rows()["bad"]["stage"] == "finished" for one in (bank, shop)), bank, shop)


def test_a_training_without_its_peer_gives_its_place_to_the_next(tmp_path: Path) -> None:
    """Both nodes run one training at a time, and begin with different ones."""
    with running_nodes(tmp_path, jobs=1, turn=8.0, forks=True) as nodes:
        bank, shop = nodes["bank"], nodes["shop"]
        one, two = (make_company(tmp_path / name, bank.port) for name in ("one", "two"))
        for daemon, order in ((bank, (one, two)), (shop, (two, one))):
            for company in order:
                add_agreement(daemon, company, company.folder.name)
                daemon.start() if daemon.process is None else None
                until(lambda name=company.folder.name, at=daemon: name in [w for _, w in at.events()], daemon)  # type: ignore[misc]
        until(
            lambda: all(row["stage"] == "finished" for one in (bank, shop) for row in one.rows().values()), bank, shop
        )
        assert {"yields"} <= {event for event, _ in [*bank.events(), *shop.events()]}


def test_pause_remove_and_mistakes(tmp_path: Path) -> None:
    with running_nodes(tmp_path) as nodes:
        bank = nodes["bank"]
        company = make_company(tmp_path / "one", bank.port)
        assert "no agreement 'one'" in typed("node", "pause", bank.folder, "one", code=2)
        (company.folder / "agreement.toml.bank.approval").rename(tmp_path / "kept")
        said = typed("node", "add", bank.folder, company.agreement_file, "--file", company.folder / "bank.toml", code=2)
        assert "has not approved" in said
        (tmp_path / "kept").rename(company.folder / "agreement.toml.bank.approval")
        add_agreement(bank, company, "one")
        said = typed("node", "add", bank.folder, company.agreement_file, "--file", company.folder / "bank.toml", code=2)
        assert "'one' is this agreement, with the party 'bank'" in said
        assert bank.rows()["one"]["stage"] == "new"
        (bank.folder / "agreements" / "dropped.toml").write_text('agreement = "nowhere.toml"\n')
        bank.start()
        until(lambda: bank.rows()["one"]["stage"] == "running", bank)
        until(lambda: bank.rows()["dropped"]["stage"] == "a person must act", bank)
        assert "file is missing" in bank.rows()["dropped"]["reason"]
        said = typed("node", "run", bank.folder, code=75)
        assert "another node runs there" in said
        until(lambda: bank.rows()["one"]["waits"] == ["shop1"], bank)
        typed("node", "pause", bank.folder, "one")
        until(lambda: bank.rows()["one"]["stage"] == "paused", bank)
        assert bank.rows()["one"]["code"] == 75
        typed("node", "resume", bank.folder, "one")
        until(lambda: bank.rows()["one"]["stage"] == "running", bank)
        typed("node", "remove", bank.folder, "one")
        until(lambda: "one" not in bank.rows(), bank)
        assert not is_held(company.state_folder("bank"))
        assert company.agreement_file.exists()
    (bank.folder / "node.toml").write_text('listen = "nowhere"\n[limits]\njobs = 0\n')
    said = typed("node", "run", bank.folder, code=2)
    assert "listen" in said
    assert "jobs" in said
