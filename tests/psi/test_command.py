"""The command as a person or a script meets it: output, files, exit codes, and never a traceback."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from securevfl_crypto.bits.portable import PortableBitLoops
from securevfl_crypto.engine.cpu import paths_of_this_cpu
from support.commands import BANK, port, run, start

# compare


def test_two_tables_on_one_machine(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", "bank.csv", "shop.csv", "--id", "customer", "--id-b", "client", "--out", "rows.csv") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "2 common rows of 3 in bank.csv and 3 in shop.csv" in said.out
    assert "no: both tables are on this machine, and whoever runs this sees both" in said.out
    assert (tables / "rows.csv").read_text() == "row_a,row_b,customer\n0,2,ann\n2,0,eve\n"


def test_summaries_as_json(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", "bank.csv", "shop.csv", "--id", "customer", "--id-b", "client", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows_a"], found["rows_b"], found["common"], found["verified"]) == (3, 3, 2, True)


def test_rules_decide_what_is_common(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tables / "upper.csv").write_text("id\nANN\n eve\n", encoding="utf-8")
    command = ["compare", "bank.csv", "upper.csv", "--id", "customer", "--id-b", "id", "--json"]
    for options, count in (([], 1), (["--casefold"], 2)):
        assert run(*command, *options) == 0
        assert json.loads(capsys.readouterr().out)["common"] == count
    assert run(*command, "--no-strip") == 4
    assert "0 common identifiers" in capsys.readouterr().err


# what a user gets wrong


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "table.csv cannot be read: No such file or directory"),
        (b"", "table.csv is empty"),
        (b"id,x\n", "has a header and no rows"),
        (b"\xef\xbb\xbfname,x\nann,1\n", "has no column 'id'. It has 'name', 'x'"),
        (b"idd,x\nann,1\n", "has no column 'id'; did you mean 'idd'? It has"),
        (b"id,id\na,b\n", "has 2 columns called 'id'"),
        (b"id;x\nann;1\n", "has one column, 'id;x'; use --delimiter ';'"),
        (b"id,x\nann,1\nbob,2,3\n", "line 3 has 3 fields, the header 2"),
        (b'id,x\nann,"a\nb"\nbob\n', "line 4 has 1 field, the header 2"),
        (b"id,x\nann,1\n\nbob,2\n", "line 3 is blank"),
        (b'id,x\nann,"1\nbob,2\n', "is not CSV: unexpected end of data"),
        (b'id,x\nann,1\nbob,"a"b\n', "line 3 is not CSV"),
        (b"id,x\nann,1\nb\xe9b,2\n", "is not UTF-8: byte 0xe9; save it"),
        (b"PK\x03\x04" + bytes(99), "is an Excel workbook or a ZIP archive, not CSV text"),
        (b"sep=,\nid,x\nann,1\n", "line 1 is 'sep=,', which spreadsheets write before the header: delete it"),
        (b"sep=;\nid,x\nann,1\n", "line 1 is 'sep=;', which spreadsheets write"),
        ("id\nann\n".encode("utf-16"), "is not UTF-8: byte 0xff; save it"),
        (b'id,x\nann,"a\nb"\n,2\n  ,3\n', "the identifier is empty in lines 4, 5; give each row one or drop it"),
        (b"id,x\nann,1\n,2\n", "the identifier is empty in line 3;"),
        (b'id,x\nann,"a\nb"\nbob,2\nann ,3\n', "1 identifier is doubled: 'ann' in lines 2 and 5 (Unicode NFKC "),
        (b"id\n" + b"a\nb\nc\nd\ne\n" * 2, "5 identifiers are doubled: 'a' in lines 2 and 7;"),
        (b"id\nann\n" + b"x" * 1025 + b"\n", "more than 1024 bytes in line 3; is it the right column?"),
    ],
)
def test_tables_that_cannot_be_used(
    content: bytes | None, words: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tables / "table.csv").write_bytes(content)
    assert run("compare", "table.csv", "shop.csv", "--id", "id", "--id-b", "client") == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_a_table_with_a_mark_of_its_encoding_and_blank_lines_at_the_end(tables: Path) -> None:
    (tables / "table.csv").write_bytes(b"\xef\xbb\xbf" + BANK.encode() + b"\n\n")
    assert run("compare", "table.csv", "shop.csv", "--id", "customer", "--id-b", "client") == 0


ANYWHERE = "0.0.0.0"  # noqa: S104 - what must be refused
PARTY = ["listen", "bank.csv", "--id", "customer", "--name", "bank", "--peer", "shop", "--wait", "0.01", "--port", "0"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 75, "ConnectionLost: nobody connected within 0.01 s"),
        (["--protocol", "rsa"], 2, "protocol 'rsa'; expected one of dh, cardinality"),
        (["--learns", "nobody"], 2, "learns='nobody'"),
        (["--role", "judge"], 2, "role 'judge'"),
        (["--name", "shop"], 2, "both parties are called 'shop'"),
        (["--name", ""], 2, "1 to 64 characters"),
        (["--context", "x" * 65], 2, "a context of 65 characters"),
        (["--delimiter", "ab"], 2, "delimiter 'ab'; one character"),
        (["--protocol", "unsafe_salted_hash"], 2, "give --i-know-this-is-not-private and --salt-file"),
        (["--protocol", "unsafe_salted_hash", "--salt-file", "bank.csv"], 2, "give --i-know-this-is-not-private"),
        (["--i-know-this-is-not-private"], 2, "belong to --protocol unsafe_salted_hash"),
        (["--salt-file", "bank.csv"], 2, "belong to --protocol unsafe_salted_hash"),
        (["--cert", "bank.crt"], 2, "--cert, --key and --peer-cert belong together"),
        (["--host", ANYWHERE], 2, "is not this machine alone: give --cert"),
        (["--host", ANYWHERE, "--plain-text-i-accept"], 75, "nobody connected"),
        (["--host", "x" * 70], 2, "is unknown"),
        (["--out", "none/rows.csv"], 2, "there is no folder none"),
        (["--out", "."], 2, "it is a folder"),
        (["--out", "bank.csv"], 2, "is the table itself"),
        (["--out", "x.csv", "--protocol", "cardinality"], 2, "it reveals how many rows are common, not which"),
        (["--max-set-size", "2"], 3, "SetSizeError: 3 identifiers"),
        (["--pad-to", "2"], 3, "SetSizeError: 3 identifiers"),
        (["--lasting", "key"], 2, "--lasting belongs to --protocol pseudonyms"),
        (["--lasting", "bank.csv", "--protocol", "pseudonyms"], 2, "not a lasting key of this version"),
        (["--lasting", "none/key", "--protocol", "pseudonyms"], 2, "none/key cannot be written"),
        (["--port", "70000"], 2, "less than or equal to 65535"),
        (["--rows", "some"], 2, "some"),
    ],
)
def test_options_that_cannot_be_used(
    options: list[str], code: int, words: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*PARTY, *options) == code
    said = capsys.readouterr()
    assert words in re.sub(r"[│\s]+", " ", said.err)
    assert said.out == ""
    assert not (tables / "x.csv").exists()


def test_a_salt_must_be_long_enough(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tables / "salt").write_bytes(b"short")
    options = ["--protocol", "unsafe_salted_hash", "--i-know-this-is-not-private", "--salt-file"]
    assert run(*PARTY, *options, "salt") == 2
    assert "a salt of 5 bytes" in capsys.readouterr().err
    assert run(*PARTY, *options, "none") == 2
    assert "none cannot be read" in capsys.readouterr().err


def test_an_engine_that_is_none(
    tables: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECUREVFL_ENGINE", "abacus")
    assert run(*PARTY) == 2
    assert "EngineError" in capsys.readouterr().err


def test_the_engine_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run("engine") == 0
    assert capsys.readouterr().out.count("self-test passed") == 4
    libraries = tmp_path / "ahead"
    libraries.mkdir()
    (libraries / "manifest.json").write_text("{}", encoding="ascii")
    monkeypatch.setattr("securevfl_crypto.inspection.FOLDER", libraries)
    assert run("engine") == 2
    assert "WrongLibraryError" in capsys.readouterr().err


def test_an_engine_that_fails_a_self_test_is_told_by_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever computes with it goes on by a slower path; whoever asks for it must not read that all is well."""
    if not paths_of_this_cpu():
        pytest.skip("this CPU has no path with kernels")
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    monkeypatch.setattr("securevfl_crypto.inspection.bit_loops", PortableBitLoops)
    assert run("engine") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search("fails the self-test of .*rows of bits", said)


def test_certificates_are_made_and_not_overwritten(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("certificate", "--name", "bank", "--out", "keys") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "keys/bank.key" in said
    assert re.search(r"fingerprint +([0-9a-f]{4} ){15}[0-9a-f]{4}", said)
    assert run("certificate", "--name", "bank", "--out", "keys") == 2
    assert "keys/bank.key already exists" in capsys.readouterr().err


def test_interrupted_while_waiting(tables: Path) -> None:
    waiting = start(*PARTY[:-4], "--port", "0")
    assert port(waiting).isdigit()
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=10)
    assert waiting.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err


def test_the_toolkits_command_has_it(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from securevfl import cli

    with pytest.raises(SystemExit) as ended:
        cli.main(["psi", "compare", "bank.csv", "shop.csv", "--id", "customer", "--id-b", "client"])
    assert not ended.value.code
    assert "2 common rows" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["psi", "compare", "bank.csv", "shop.csv", "--id", "customer"])
    assert ended.value.code == 2
