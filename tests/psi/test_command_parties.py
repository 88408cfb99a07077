"""Two parties that meet through the command: what each gets, what it is told, how it ends."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from securevfl_psi import errors
from securevfl_psi.terms import PROTOCOLS, LastingKey, Terms
from securevfl_psi_cli.app import exit_code
from securevfl_psi_cli.options import Options, RowsShown
from securevfl_psi_cli.party import Watch, run_two_party
from securevfl_psi_cli.summary import RunSummary
from support.commands import BANK, port, run, start

# two parties


class _Said(io.StringIO):
    """What a party says on its way; knows when it listens."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if re.search(r"Listening at .*:\d+\n", self.getvalue()):
            self.listening.set()
        return written


def _options(**more: Any) -> tuple[Options, Options]:
    bank = Options(table=Path("bank.csv"), column="customer", name="bank", peer="shop", port=0, wait=10, timeout=10)
    shop = replace(bank, table=Path("shop.csv"), column="client", name="shop", peer="bank")
    return replace(bank, **more), replace(shop, **more)


def _meet(bank: Options, shop: Options) -> tuple[RunSummary | int, RunSummary | int]:
    """Both parties' summaries, or the exit codes of their errors."""
    ended: dict[str, RunSummary | int] = {}
    said = _Said()

    def run(options: Options, console: Console, listens: bool) -> None:
        watch = Watch()
        try:
            ended[options.name] = run_two_party(options, watch, console, listens=listens)
        except errors.PSIError as error:
            ended[options.name] = exit_code(error, watch)

    thread = threading.Thread(target=run, args=(bank, Console(file=said, width=200), True), daemon=True)
    thread.start()
    assert said.listening.wait(10)
    found = re.search(r"Listening at .*:(\d+)\n", said.getvalue())
    assert found is not None
    run(replace(shop, port=int(found[1])), Console(file=io.StringIO()), False)
    thread.join(10)
    assert not thread.is_alive()
    return ended["bank"], ended["shop"]


def test_common_rows_stand_in_one_order_at_both(tables: Path) -> None:
    bank, shop = _options(out=Path("x.csv"), rows=RowsShown.full)
    one, other = _meet(replace(bank, out=Path("b.csv")), replace(shop, out=Path("s.csv")))
    assert isinstance(one, RunSummary)
    assert isinstance(other, RunSummary)
    assert (one.common, one.verified, one.peer_rows, one.out) == (2, True, 3, "b.csv")
    assert (one.sent, one.received) == (other.received, other.sent)
    left, right = ((tables / name).read_text().splitlines() for name in ("b.csv", "s.csv"))
    assert (left[0], right[0]) == ("customer,city", "spend,client")
    assert sorted(left[1:]) == ["ann,Rome", "eve,Bern"]
    assert [line.split(",")[0] for line in left[1:]] == [line.split(",")[1].strip() for line in right[1:]]


def test_numbers_count_rows_after_the_header(tables: Path) -> None:
    bank, shop = _options(learns="receiver", out=Path("x.csv"))
    _, other = _meet(replace(bank, out=Path("b.csv")), replace(shop, out=Path("s.csv")))
    assert (tables / "b.csv").read_text() == "row,customer\n0,ann\n2,eve\n"
    assert isinstance(other, RunSummary)
    assert other.common is None
    assert other.out is None
    assert not (tables / "s.csv").exists()
    assert other.format_title() == "Done; shop is not told what is common"


def test_lasting_pseudonyms_are_those_of_the_run_before(tables: Path) -> None:
    bank, shop = _options(protocol="pseudonyms")
    runs = []
    for number in range(3):
        if number == 2:
            (tables / "shop.key").unlink()
        out = replace(bank, lasting=Path("bank.key"), out=Path("b.csv")), replace(shop, lasting=Path("shop.key"))
        assert all(isinstance(found, RunSummary) for found in _meet(*out))
        runs.append((tables / "b.csv").read_text())
    assert runs[0] == runs[1] != runs[2]
    assert (tables / "bank.key").stat().st_mode & 0o077 == 0


def test_pseudonyms_are_of_all_own_rows_and_equal_for_common_ones(tables: Path) -> None:
    bank, shop = _options(protocol="pseudonyms")
    one, other = _meet(replace(bank, out=Path("b.csv")), replace(shop, out=Path("s.csv")))
    assert isinstance(one, RunSummary)
    assert isinstance(other, RunSummary)
    assert (one.common, other.common) == (2, None)
    left, right = (
        dict(line.split(",") for line in (tables / name).read_text().splitlines()) for name in ("b.csv", "s.csv")
    )
    assert left.pop("customer") == right.pop("client") == "pseudonym"
    assert sorted(left) == ["ann", "bob", "eve"]
    assert {left[name] == right[other] for name, other in (("ann", "ann"), ("eve", " eve"))} == {True}
    assert len({*left.values(), *right.values()}) == 4
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in left.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("learns", ["both", "receiver"])
def test_the_summary_says_who_learned_what(protocol: str, learns: str, tables: Path) -> None:
    (tables / "salt").write_bytes(b"0123456789abcdef")
    unsafe = {"not_private": True, "salt_file": Path("salt")} if protocol == "unsafe_salted_hash" else {}
    bank, shop = _options(protocol=protocol, learns=learns, role="sender", **unsafe)
    one, other = _meet(replace(bank, pad_to=8 if protocol == "dh" else None), replace(shop, role="receiver"))
    assert isinstance(one, RunSummary)
    assert isinstance(other, RunSummary)
    lines = dict(one.format_lines())
    assert lines["bank learned"] == dict(other.format_lines())["bank learned"], "both tell the same story"
    assert lines["shop learned"] == dict(other.format_lines())["shop learned"]
    assert f"that bank sent {8 if protocol == 'dh' else 3} rows" in lines["shop learned"]
    knows_rows = learns == "both" and protocol in ("dh", "ot", "unsafe_salted_hash")
    assert ("which of its rows shop has" in lines["bank learned"]) == knows_rows
    assert ("and which, if it deviated" in lines["shop learned"]) == (protocol == "cardinality")
    assert lines["verified"].startswith("shop proved") == knows_rows
    proved = dict(other.format_lines())["verified"].startswith("bank proved")
    assert proved == (protocol in ("dh", "ot", "unsafe_salted_hash"))
    assert one.common == (2 if learns == "both" and protocol != "pseudonyms" else None)
    assert other.common == 2


def test_a_choice_that_was_left_open_is_explained(tables: Path) -> None:
    """One names a protocol and the other none, or both none."""
    bank, shop = _options(protocol="auto")
    for one, other, protocol, why in (
        (replace(bank, link=100.0), shop, "dh", "3 identifiers ask 3 over 100 Mbit/s: dh about"),
        (bank, replace(shop, protocol="ot"), "ot", "ot: shop wants it"),
    ):
        for ended in _meet(one, other):
            assert isinstance(ended, RunSummary)
            assert (ended.protocol, ended.common, ended.verified) == (protocol, 2, True)
            assert why in dict(ended.format_lines())["ran"]
            assert json.loads(ended.as_json())["why"] == ended.why


@pytest.mark.parametrize(
    ("bank", "shop", "codes"),
    [
        ({"min_intersection": 3}, {}, (3, 3)),
        ({}, {"min_intersection": 3}, (3, 3)),
        ({"casefold": True}, {}, (4, 4)),
        ({"protocol": "cardinality"}, {}, (4, 4)),
        ({"context": "a"}, {"context": "b"}, (4, 4)),
        ({"role": "sender"}, {}, (4, 4)),
        ({"peer": "somebody"}, {}, (4, 4)),
        ({"max_set_size": 3}, {"pad_to": 4}, (3, 3)),
    ],
)
def test_exit_codes_of_both_parties(
    bank: dict[str, Any], shop: dict[str, Any], codes: tuple[int, int], tables: Path
) -> None:
    ours, theirs = _options()
    found = _meet(replace(ours, **bank), replace(theirs, **shop))
    for code, expected in zip(found, codes, strict=True):
        assert code == expected or (expected == 4 and code == 3), found  # whoever is first to see it tells the other
    assert 4 not in codes or 4 in found


def test_nothing_in_common_is_an_error_of_its_own(tables: Path) -> None:
    (tables / "shop.csv").write_text("client\nzoe\n")
    assert _meet(*_options()) == (3, 4)  # the smaller set asks, and so is the first to know
    one, other = _meet(*_options(min_intersection=0))
    assert isinstance(one, RunSummary)
    assert isinstance(other, RunSummary)
    assert (one.common, one.format_title()) == (0, "0 common rows of 3 here and 1 at shop")


def test_a_table_that_changes_under_the_run(tables: Path) -> None:
    from securevfl_psi_cli.table import Table

    table = Table.read(Path("bank.csv"), "customer")
    Path("bank.csv").write_text(BANK.replace("eve", "eva"))
    import numpy as np

    with pytest.raises(errors.InputError, match="1 of 2 common rows are not where they were"):
        table.write_atomic(Path("out.csv"), np.array([0, 2]))


def test_a_peer_that_talks_nonsense(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def talk() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                while sock.recv(4096):
                    pass

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        command = ["connect", "bank.csv", "--id", "customer", "--name", "bank", "--peer", "shop"]
        assert run(*command, "--port", str(port)) == 5
        thread.join(5)
    assert "does not speak this protocol" in capsys.readouterr().err


def test_two_processes_with_certificates(tables: Path) -> None:
    for name in ("bank", "shop", "eve"):
        assert run("certificate", "--name", name) == 0
    own = "--cert {0}.crt --key {0}.key --peer-cert {1}.crt"
    listen = ["listen", "bank.csv", "--id", "customer", "--name", "bank", "--peer", "shop", "--port", "0"]
    connect = ["connect", "shop.csv", "--id", "client", "--name", "shop", "--peer", "bank", "--port"]
    bank = start(*listen, *own.format("bank", "shop").split())
    where = port(bank)
    for caller, code in (("eve", 3), ("shop", 0)):
        shop = start(*connect, where, "--json", *own.format(caller, "bank").split())
        told, wrong = shop.communicate(timeout=20)
        assert shop.returncode == code, wrong
        assert "Traceback" not in wrong
        if code:
            assert "CertificateError: the peer does not accept this party's certificate" in wrong
            assert told == ""
    out, err = bank.communicate(timeout=20)
    assert bank.returncode == 0, err
    assert re.search(r"Refused 127.0.0.1:\d+: the peer shows another certificate than shop.crt", err)
    assert "Traceback" not in err
    assert "2 common rows of 3 here and 3 at shop" in out
    assert "proved each of the common rows" in out
    assert "TLS 1.3, both certificates pinned" in out
    found = json.loads(told)
    assert (found["common"], found["verified"], found["peer_rows"]) == (2, True, 3)
    assert found["channel"] == "TLS 1.3, both certificates pinned"
    assert found["sent"] > 100


def test_a_listener_without_certificates_goes_on_after_strangers(tables: Path) -> None:
    """A port scan and nonsense ended `listen`; so did a stranger who begins as a peer does."""
    bank = start(
        *("listen", "bank.csv", "--id", "customer", "--name", "bank", "--peer", "shop", "--port", "0"),
        *("--timeout", "5", "--json"),
    )
    where = ("127.0.0.1", int(port(bank)))
    socket.create_connection(where).close()
    for begin in (b"GET / HTTP/1.1\r\n\r\n", b"SPSI" + bytes(60)):
        with socket.create_connection(where) as stranger:
            stranger.sendall(begin)
            stranger.settimeout(10)
            try:
                while stranger.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    assert (
        run("connect", "shop.csv", "--id", "client", "--name", "shop", "--peer", "bank", "--port", str(where[1])) == 0
    )
    out, err = bank.communicate(timeout=20)
    assert bank.returncode == 0, err
    assert json.loads(out)["common"] == 2
    assert err.count("; listening on") == 3, err


def test_pseudonyms_that_last_are_kept_by_both_or_neither(tables: Path) -> None:
    bank, shop = _options(protocol="pseudonyms")
    one, other = _meet(replace(bank, lasting=Path("bank.key")), shop)
    assert 4 in (one, other)
    assert {one, other} <= {4, 6}
    terms = [Terms(name=a, peer=b, role=r, protocol="pseudonyms") for a, b, r in PAIR]
    kept = replace(terms[0], lasting=LastingKey())
    for mine, theirs, words in ((kept, terms[1], "does not keep"), (terms[1], kept, "keeps its key")):
        with pytest.raises(errors.DisagreementError, match=f"use one setting at both; the peer {words}"):
            mine.accept_hello(theirs.encode_hello(3))


PAIR: list[tuple[str, str, Any]] = [("bank", "shop", "receiver"), ("shop", "bank", "sender")]
