"""`publish`, `answer` and `ask`: a large set served to small clients over TLS; what a client may ask, and who may."""

from __future__ import annotations

import csv
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from securevfl_net.identity import Handshake, run_handshake
from securevfl_psi import errors
from securevfl_psi.identifiers import IdRules
from securevfl_psi.unbalanced import FilterServer
from securevfl_psi.wire import Kind
from securevfl_psi_cli.answering import clients_of, publish_filter, serve_clients
from securevfl_psi_cli.asking import LookupSummary, ask_server
from securevfl_psi_cli.channel import Address, connect, secure_connection
from securevfl_psi_cli.credentials import Pins, make_certificate
from securevfl_psi_cli.frame_stream import FrameStream
from securevfl_psi_cli.options import RowsShown
from securevfl_psi_cli.table import Table
from support.commands import port, run, start

LARGE = [f"C-{number}" for number in range(500)]
SMALL = ["X-1", "C-17", "X-2", "C-499"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unbalanced")
    (path / "registry.csv").write_text("id\n" + "\n".join(LARGE) + "\n")
    (path / "clinic.csv").write_text("ward,patient\n" + "".join(f"{i},{who}\n" for i, who in enumerate(SMALL)))
    for name in ("registry", "clinic", "other"):
        make_certificate(name, path, 2)
    return path


def _published(folder: Path, to: Path, most: int = 10, hours: float = 1.0) -> tuple[Path, Path]:
    files = to / "set.filter", to / "set.state"
    table = Table.read(folder / "registry.csv", "id")
    publish_filter(
        table, IdRules(), name="registry", hours=hours, most=most, bits=40, filter_to=files[0], state_to=files[1]
    )
    return files


class _Served:
    """A server in a thread, for some sessions."""

    def __init__(self, folder: Path, files: tuple[Path, Path], sessions: int, timeout: float = 5.0) -> None:
        self.said: list[str] = []
        self.ended: Any = None
        self._ready = threading.Event()
        clients = clients_of(folder / "registry.crt", folder / "registry.key", {"clinic": str(folder / "clinic.crt")})

        def work() -> None:
            try:
                self.ended = serve_clients(
                    *files,
                    clients,
                    at=Address("127.0.0.1", 0),
                    sessions=sessions,
                    wait=20.0,
                    timeout=timeout,
                    deadline=20.0,
                    say=self._say,
                )
            except errors.PSIError as error:
                self.ended = error
                self._ready.set()

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        assert self._ready.wait(10)

    def _say(self, text: str) -> None:
        self.said.append(text)
        self._ready.set()

    @property
    def at(self) -> Address:
        return Address("127.0.0.1", int(self.said[0].rsplit(":", 1)[-1]))

    def end(self) -> Any:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.ended


def _pins(folder: Path, name: str = "clinic", peer: str = "registry") -> Pins:
    return Pins.load(folder / f"{name}.crt", folder / f"{name}.key", {peer: folder / f"{peer}.crt"})


def _ask(folder: Path, at: Address, **more: Any) -> LookupSummary:
    given: dict[str, Any] = {"name": "clinic", "server": "registry", "kept": None, "max_set_size": 1000, "wait": 5.0}
    given |= {"timeout": 5.0, "deadline": 20.0, "out": None, "shown": RowsShown.numbers}
    rules = more.pop("rules", IdRules())
    pins = more.pop("pins", None) or _pins(folder)
    table = Table.read(folder / "clinic.csv", "patient")
    return ask_server(table, rules, pins, at=at, **(given | more))


def test_two_processes_over_tls(folder: Path, tmp_path: Path) -> None:
    files = ["--filter", str(tmp_path / "f"), "--state", str(tmp_path / "s")]
    assert run("publish", str(folder / "registry.csv"), "--id", "id", "--name", "registry", *files) == 0
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0
    own = ["--cert", str(folder / "registry.crt"), "--key", str(folder / "registry.key")]
    server = start(
        *["answer", str(tmp_path / "f"), "--state", str(tmp_path / "s"), *own, "--at", "127.0.0.1:0"],
        *["--client", f"clinic={folder / 'clinic.crt'}", "--sessions", "1", "--wait", "30"],
    )
    client = start(
        *["ask", str(folder / "clinic.csv"), "--id", "patient", "--name", "clinic", "--server", "registry"],
        *["--cert", str(folder / "clinic.crt"), "--key", str(folder / "clinic.key")],
        *["--peer-cert", str(folder / "registry.crt"), "--at", f"127.0.0.1:{port(server)}"],
        *["--out", str(tmp_path / "out.csv"), "--rows", "full", "--filter", str(tmp_path / "kept"), "--json"],
    )
    said, complained = client.communicate(timeout=60)
    assert client.returncode == 0, complained
    told = json.loads(said)
    assert (told["rows"], told["found"], told["server_rows"]) == (4, 2, 500)
    assert told["fetched"] == (tmp_path / "kept").stat().st_size == (tmp_path / "f").stat().st_size
    with (tmp_path / "out.csv").open() as stream:
        assert [row["patient"] for row in csv.DictReader(stream)] == ["C-17", "C-499"]
    said, _ = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "asked 4 identifiers" in said
    assert FilterServer.from_bytes((tmp_path / "s").read_bytes()).remaining_queries("clinic") == 996


def test_a_kept_filter_is_used_again_and_queries_are_counted_over_restarts(folder: Path, tmp_path: Path) -> None:
    files, kept = _published(folder, tmp_path), tmp_path / "kept"
    served = _Served(folder, files, 1)
    assert _ask(folder, served.at, kept=kept).fetched
    assert served.end() == {"clinic": 4}
    served = _Served(folder, files, 1)  # another process would read the same state
    assert _ask(folder, served.at, kept=kept).fetched == 0
    assert served.end() == {"clinic": 4}
    served = _Served(folder, files, 1)
    with pytest.raises(errors.PeerRefused, match="it lets this client ask no more identifiers"):
        _ask(folder, served.at, kept=kept)  # 8 of 10 are spent, and it asks 4
    assert FilterServer.from_bytes(files[1].read_bytes()).remaining_queries("clinic") == 2


def test_queries_count_before_the_answer_leaves_so_hanging_up_gains_none(folder: Path, tmp_path: Path) -> None:
    files = _published(folder, tmp_path)
    served = _Served(folder, files, 1)
    with secure_connection(connect(served.at, 5.0), _pins(folder), timeout=5.0) as sock:
        stream = FrameStream(sock, "registry", timeout=5.0, deadline=10.0, reasons={})
        server = FilterServer.from_bytes(files[1].read_bytes())
        fields = {"version": 1, "what": "ask", "name": "clinic", "server": "registry", "filter": server.key_id.hex()}
        stream.send_fields(fields)
        stream.receive_fields({"bytes": 0})
        stream.send_frame(Kind.COUNT, (3).to_bytes(8, "big"))
        point = bytes([9]) + bytes(31)
        stream.send_frame(Kind.POINTS, b"".join(bytes([9 + i]) + point[1:] for i in range(3)))
        stream.receive_frame(Kind.ANSWERS)  # and no FINISHED
    while not any("listening on" in line for line in served.said):
        served.thread.join(0.05)
    assert FilterServer.from_bytes(files[1].read_bytes()).remaining_queries("clinic") == 7


@pytest.mark.parametrize("what", ["stranger", "garbage", "lies", "too many", "another server"])
def test_who_deviates_is_told_so_and_does_not_end_the_service(folder: Path, tmp_path: Path, what: str) -> None:
    files = _published(folder, tmp_path)
    served = _Served(folder, files, 1, timeout=2.0)
    hello = {"version": 1, "what": "ask", "name": "clinic", "server": "registry", "filter": ""}
    if what == "stranger":
        with pytest.raises(errors.CertificateError, match="does not accept this party's certificate"):
            _ask(folder, served.at, pins=_pins(folder, "other"))
    elif what == "garbage":
        with secure_connection(connect(served.at, 5.0), _pins(folder), timeout=5.0) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))
    elif what == "another server":
        with pytest.raises(errors.PeerRefused, match="other terms"):
            _ask(folder, served.at, server="regestry")
    else:
        with secure_connection(connect(served.at, 5.0), _pins(folder), timeout=5.0) as sock:
            stream = FrameStream(sock, "registry", timeout=5.0, deadline=10.0, reasons={})
            stream.send_fields(hello | ({"name": "rich"} if what == "lies" else {}))
            if what == "too many":
                stream.receive_bytes(stream.receive_fields({})["bytes"])
                stream.send_frame(Kind.COUNT, (1 << 40).to_bytes(8, "big"))  # refused before any room is taken
            with pytest.raises(errors.PeerRefused):
                stream.receive_frame(Kind.ANSWERS)
    assert _ask(folder, served.at).found == 2
    assert served.end() == {"clinic": 4}
    assert len(served.said) >= 3


@pytest.mark.parametrize("change", ["size", "key", "name", "bytes", "answers"])
def test_a_client_believes_no_server_that_deviates(folder: Path, tmp_path: Path, change: str) -> None:
    files = _published(folder, tmp_path)
    server, data = FilterServer.from_bytes(files[1].read_bytes()), files[0].read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as door:

        def work() -> None:
            pins = _pins(folder, "registry", "clinic")
            raw = door.accept()[0]
            raw.setblocking(False)
            tls = pins.make_tls_context(server=True).wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
            with tls as sock:
                run_handshake(sock, Handshake(sock, pins.book), 5.0)
                stream = FrameStream(sock, "clinic", timeout=5.0, deadline=10.0, reasons={})
                try:
                    stream.receive_fields({})
                    size = 1 << 40 if change == "size" else len(data)
                    key = bytes(16).hex() if change == "key" else server.key_id.hex()
                    stream.send_fields({"version": 1, "filter": key, "bytes": size})
                    stream.send_bytes(data[:-9] + bytes(9) if change == "bytes" else data)
                    stream.receive_frame(Kind.COUNT)
                    stream.receive_frame(Kind.POINTS)
                    stream.send_frame(Kind.ANSWERS, bytes(4 * 32))
                except errors.PSIError:
                    return

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        expected: tuple[type[Exception], ...] = (errors.MalformedError,)
        if change == "size":
            expected = (errors.SetSizeError,)
        name = "regestry" if change == "name" else "registry"
        with pytest.raises(expected):
            _ask(folder, Address("127.0.0.1", door.getsockname()[1]), server=name)
        thread.join(10)


def test_mistakes_have_one_sentence_and_their_exit_code(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, ids = str(folder / "registry.csv"), ["--id", "id"]
    files = ["--filter", str(tmp_path / "f"), "--state", str(tmp_path / "s")]
    assert run("publish", table, *ids, "--name", "registry", *files) == 0
    assert run("publish", table, *ids, "--name", "registry", *files) == 2
    assert "each filter has its own key" in capsys.readouterr().err
    own = ["--cert", str(folder / "registry.crt"), "--key", str(folder / "registry.key")]
    answer = ["answer", str(tmp_path / "f"), *own, "--client", f"clinic={folder / 'clinic.crt'}", "--at", "127.0.0.1:0"]
    assert run(*answer, "--state", str(tmp_path / "missing")) == 2
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "b").mkdir()
    other = _published(folder, tmp_path / "b")
    assert run(*answer, "--state", str(other[1])) == 2
    assert "are of two keys" in capsys.readouterr().err
    assert run(*answer, "--state", str(tmp_path / "s"), "--wait", "0.2") == 75
    assert "nobody connected" in capsys.readouterr().err
    same = [*answer, "--client", f"again={folder / 'clinic.crt'}", "--state", str(tmp_path / "s")]
    assert run(*same) == 2
    assert "two have the same certificate" in capsys.readouterr().err
    (tmp_path / "c").mkdir()
    short = _published(folder, tmp_path / "c", hours=1 / 3600)
    served = _Served(folder, short, 1)
    served.thread.join(10)
    assert any("expired" in line for line in served.said) or isinstance(served.ended, errors.PSIError)
    assert (
        run(*[part if part != str(tmp_path / "f") else str(short[0]) for part in answer], "--state", str(short[1])) == 3
    )
    assert "ask the server for a current one" in capsys.readouterr().err


def test_rules_of_the_filter_are_those_of_the_client(folder: Path, tmp_path: Path) -> None:
    served = _Served(folder, _published(folder, tmp_path), 1)
    with pytest.raises(errors.InputError, match=r"give the same --form, --casefold"):
        _ask(folder, served.at, rules=IdRules(casefold=True))
