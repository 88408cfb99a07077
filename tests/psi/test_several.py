"""Three parties that meet through the command ``several``, over TLS on this machine; and who disturbs them."""

from __future__ import annotations

import csv
import io
import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from securevfl_psi import errors
from securevfl_psi.identifiers import Identifiers, IdRules
from securevfl_psi.joint import Joint, JointTerms
from securevfl_psi.wire import FrameWriter, Kind
from securevfl_psi_cli.channel import Address, parse_address
from securevfl_psi_cli.credentials import make_certificate
from securevfl_psi_cli.mesh import run_joint
from securevfl_psi_cli.options import RowsShown
from securevfl_psi_cli.several import JointSummary, parse_neighbours, run_several
from securevfl_psi_cli.table import Table
from support.commands import run, start

TABLES = {
    "bank": "customer,city\nann,Rome\nbob,Oslo\neve,Bern\njoe,Graz\n",
    "clinic": "id,ward\njoe,3\nbob,1\nann,2\n",
    "shop": "spend,client\n3,eve\n4,ann\n9,zoe\n1,joe\n",
}
COLUMNS = {"bank": "customer", "clinic": "id", "shop": "client"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("several")
    for name, text in TABLES.items():
        (path / f"{name}.csv").write_text(text)
        make_certificate(name, path, 2)
    return path


def _ports(count: int) -> list[int]:
    with ExitStack() as stack:
        doors = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [door.getsockname()[1] for door in doors]


def _arguments(folder: Path, name: str, ports: dict[str, int], *more: str) -> list[str]:
    others = [other for other in TABLES if other != name]
    return [
        *["several", str(folder / f"{name}.csv"), "--id", COLUMNS[name], "--name", name, "--leader", "bank"],
        *["--at", f"127.0.0.1:{ports[name]}", "--cert", str(folder / f"{name}.crt")],
        *["--key", str(folder / f"{name}.key"), "--wait", "20", "--timeout", "10", "--json"],
        *[part for other in others for part in ("--peer", f"{other}=127.0.0.1:{ports[other]}")],
        *[part for other in others for part in ("--peer-cert", f"{other}={folder / f'{other}.crt'}")],
        *more,
    ]


class _Meeting:
    """Runs of all three in threads, each with its own table, rules and others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(TABLES, _ports(3), strict=True))
        self.given: dict[str, dict[str, Any]] = {
            name: {"leader": "bank", "context": "", "least": 1, "max_set_size": 100, "timeout": 10.0, "deadline": 30.0}
            for name in TABLES
        }
        self.rules = dict.fromkeys(TABLES, IdRules())
        self.shows = {name: {other: other for other in TABLES} for name in TABLES}
        self.wait = 20.0
        self.said: dict[str, io.StringIO] = {name: io.StringIO() for name in TABLES}

    def one(self, name: str) -> JointSummary:
        others = [other for other in TABLES if other != name]
        found = parse_neighbours(
            name,
            self.folder / f"{name}.crt",
            self.folder / f"{name}.key",
            [f"{other}=127.0.0.1:{self.ports[other]}" for other in others],
            [f"{other}={self.folder / self.shows[name][other]}.crt" for other in others],
        )
        return run_several(
            Table.read(self.folder / f"{name}.csv", COLUMNS[name]),
            self.rules[name],
            found,
            name=name,
            at=Address("127.0.0.1", self.ports[name]),
            wait=self.wait,
            out=self.folder / f"{name}.out.csv",
            shown=RowsShown.numbers,
            console=Console(file=self.said[name], width=200),
            **self.given[name],
        )

    def run(self, *names: str) -> dict[str, JointSummary | errors.PSIError]:
        ended: dict[str, JointSummary | errors.PSIError] = {}

        def one(name: str) -> None:
            try:
                ended[name] = self.one(name)
            except errors.PSIError as error:
                ended[name] = error

        threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names or TABLES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return ended


def test_three_processes_get_the_rows_that_all_hold_in_one_order(folder: Path) -> None:
    ports = dict(zip(TABLES, _ports(3), strict=True))
    outs = {name: folder / f"{name}.rows.csv" for name in TABLES}
    running = {
        name: start(*_arguments(folder, name, ports, "--out", str(outs[name]), "--rows", "full")) for name in TABLES
    }
    told = {}
    for name, process in running.items():
        said, complained = process.communicate(timeout=60)
        assert process.returncode == 0, complained
        told[name] = json.loads(said)
    assert {one["common"] for one in told.values()} == {2}
    assert len({one["run"] for one in told.values()}) == 1
    assert sum(one["sent"] for one in told.values()) == sum(one["received"] for one in told.values())
    assert told["bank"]["announced"] == {"clinic": 3, "shop": 4}
    assert told["shop"]["announced"] == {"bank": 4}  # how many rows the clinic has is not the shop's to know
    lists = {}
    for name, out in outs.items():
        with out.open() as stream:
            lists[name] = [row[COLUMNS[name]] for row in csv.DictReader(stream)]
    assert sorted(lists["bank"]) == ["ann", "joe"]
    assert lists["bank"] == lists["shop"] == lists["clinic"]
    assert outs["shop"].read_text().startswith("spend,client\n")


def test_rules_that_differ_end_it_at_all(folder: Path) -> None:
    meeting = _Meeting(folder)
    meeting.rules["shop"] = IdRules(casefold=True)
    ended = meeting.run()
    assert {type(one) for one in ended.values()} <= {
        errors.DisagreementError,
        errors.PeerRefused,
        errors.ConnectionLost,
    }
    assert any("v2/NFKC/strip/casefold" in str(one) for one in ended.values())


def test_too_few_common_rows_are_a_policy_of_one_party(folder: Path) -> None:
    meeting = _Meeting(folder)
    meeting.given["bank"]["least"] = 3
    ended = meeting.run()
    assert isinstance(ended["bank"], errors.SmallIntersectionError)
    assert all(isinstance(one, errors.PSIError) for one in ended.values())


def test_strangers_and_a_known_party_with_anothers_certificate_do_not_end_the_wait(folder: Path) -> None:
    meeting = _Meeting(folder)
    strangers: list[socket.socket] = []
    ready = threading.Event()

    def disturb() -> None:
        while not ready.is_set():
            try:
                sock = socket.create_connection(("127.0.0.1", meeting.ports["bank"]), timeout=5)
            except OSError:
                continue
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            strangers.append(sock)
            ready.set()

    disturber = threading.Thread(target=disturb, daemon=True)
    first: dict[str, JointSummary | errors.PSIError] = {}
    bank = threading.Thread(target=lambda: first.update(meeting.run("bank")), daemon=True)
    bank.start()
    disturber.start()
    assert ready.wait(10)
    ended = meeting.run("shop", "clinic")
    bank.join(20)
    disturber.join(5)
    for sock in strangers:
        sock.close()
    assert [one.common for one in [*ended.values(), *first.values()] if isinstance(one, JointSummary)] == [2, 2, 2]
    assert "Refused 127.0.0.1" in meeting.said["bank"].getvalue()


def test_a_party_that_shows_another_certificate_is_named(folder: Path) -> None:
    (folder / "x").mkdir()
    make_certificate("other", folder / "x", 2)
    meeting = _Meeting(folder)
    meeting.wait = 1.5
    (folder / "x" / "other.crt").rename(folder / "other.crt")
    meeting.shows["bank"]["shop"] = "other"
    ended = meeting.run()
    assert all(isinstance(one, errors.CertificateError | errors.ConnectionLost) for one in ended.values()), ended
    assert "shop did not come" in str(ended["bank"])


def test_a_frame_that_is_not_due_and_one_that_trickles_end_it() -> None:
    terms = JointTerms(name="bank", active="bank", passive=("clinic", "shop"), pairwise=False)
    hello = FrameWriter().write(Kind.SLOTS, bytes(8))
    for bytes_, deadline, kind in ((hello, 5.0, errors.MalformedError), (b"SP", 0.3, errors.ConnectionLost)):
        joint = Joint(Identifiers.of_texts(["a", "b"]), terms, order=lambda rows: rows, allow=lambda *_: None)
        pairs = {name: socket.socketpair() for name in ("clinic", "shop")}
        pairs["shop"][1].sendall(bytes_)
        with pytest.raises(kind, match="shop"):
            run_joint(joint, {name: pair[0] for name, pair in pairs.items()}, timeout=20, deadline=deadline)
        for pair in pairs.values():
            pair[0].close()
            pair[1].close()


def test_a_party_that_hangs_up_is_named() -> None:
    terms = JointTerms(name="bank", active="bank", passive=("clinic", "shop"), pairwise=False)
    joint = Joint(Identifiers.of_texts(["a"]), terms, order=lambda rows: rows, allow=lambda *_: None)
    pairs = {name: socket.socketpair() for name in ("clinic", "shop")}
    pairs["clinic"][1].close()
    with pytest.raises(errors.ConnectionLost, match="clinic"):
        run_joint(joint, {name: pair[0] for name, pair in pairs.items()}, timeout=20, deadline=20)
    for pair in pairs.values():
        pair[0].close()
        pair[1].close()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["--peer", "shop"], "NAME=HOST:PORT"),
        (["--peer", "zoe=127.0.0.1:9"], "zoe"),
        (["--peer", "bank=127.0.0.1:9", "--peer-cert", "bank=a.crt"], "this party"),
        (["--at", "9000"], "HOST:PORT"),
        (["--leader", "nobody"], "leader"),
        (["--peer-cert", "clinic=none.crt"], "twice"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    changed: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = _arguments(folder, "bank", {"bank": 1, "clinic": 2, "shop": 3})
    assert run(*given, *changed) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("text", ["localhost", "zoe:99999", ":9", "a:b", "a:-1", "a:\u0663"])
def test_an_address_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(errors.InputError, match="HOST:PORT"):
        parse_address(text, "--peer")
