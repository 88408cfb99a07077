"""`link` between processes over TLS: from CSV to CSV, by a third party or by one of both; and parties that deviate."""

from __future__ import annotations

import csv
import json
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from securevfl_psi import errors
from securevfl_psi.linkage import Date, FamilyErrors, Field, Number, Schema, Text, simulate_families
from securevfl_psi_cli import linking
from securevfl_psi_cli.credentials import make_certificate
from securevfl_psi_cli.link_fields import blocks_of, schema_of
from securevfl_psi_cli.link_plan import Linking, LinkPlan
from securevfl_psi_cli.linking import run_link
from securevfl_psi_cli.record_table import Records
from support.commands import run, start

FILES = simulate_families(120, common=0.8, together=1.0, errors=FamilyErrors(typo=0.05), seed=4)
FIELDS = ["given_name=text", "surname=text:1.5", "phone=code", "born=date"]
COLUMN = {
    "given_name": "given_name",
    "surname": "surname",
    "phone": "phone",
    "born": "date_of_birth",
    "postcode": "postcode",
}
NAMES = ("bank", "notary", "shop")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("link")
    for side, name in enumerate(("bank", "shop")):
        table = FILES.tables[side]
        with (path / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["person", *table])
            people = FILES.people[side].tolist()
            for who, row in zip(people, zip(*table.values(), strict=True), strict=True):
                writer.writerow([who, *("NULL" if value is None else value for value in row)])
    for name in NAMES:
        make_certificate(name, path, 2)
    return path


def _plan(name: str, linker: str, **more: Any) -> LinkPlan:
    names = NAMES if linker == "notary" else ("bank", "shop")
    schema = None if name == "notary" else schema_of(FIELDS)
    return LinkPlan(name=name, linker=linker, names=names, **({"context": "t", "schema": schema} | more))


def _run(folder: Path, linker: str, **plans: dict[str, Any]) -> dict[str, Linking | Exception]:
    """All parties in threads, over pairs of sockets."""
    names = NAMES if linker == "notary" else ("bank", "shop")
    ended: dict[str, Linking | Exception] = {}
    with ExitStack() as stack:
        socks: dict[str, dict[str, socket.socket]] = {name: {} for name in names}
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                one, other = (stack.enter_context(end) for end in socket.socketpair())
                socks[a][b], socks[b][a] = one, other

        def party(name: str) -> None:
            records = None
            if name != "notary":
                records = Records.read(folder / f"{name}.csv", COLUMN, ",", max_rows=1000, max_bytes=1 << 24)
            try:
                ended[name] = run_link(_plan(name, linker, **plans.get(name, {})), records, socks[name], deadline=20.0)
            except errors.PSIError as error:
                ended[name] = error
            for sock in socks[name].values():
                sock.shutdown(socket.SHUT_WR)

        threads = [threading.Thread(target=party, args=(name,), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    return ended


def _right(links: dict[str, list[tuple[int, str]]]) -> float:
    a, b = FILES.people
    pairs = zip(links["bank"], links["shop"], strict=True)
    return float(np.mean([a[i] == b[j] and one == other for (i, one), (j, other) in pairs]))


@pytest.mark.parametrize("linker", ["notary", "bank", "shop"])
def test_both_get_the_same_people_whoever_compares(folder: Path, linker: str) -> None:
    ended = _run(folder, linker)
    found = {name: one for name, one in ended.items() if isinstance(one, Linking)}
    assert set(found) == set(ended), ended
    assert _right({name: found[name].links for name in ("bank", "shop")}) > 0.9
    common = len(set(FILES.people[0].tolist()) & set(FILES.people[1].tolist()))
    assert len({one.pairs for one in found.values()}) == 1
    assert found["bank"].pairs > 0.8 * common
    assert all("recall between" in dict(one.format_lines())["estimated"] for one in found.values())
    said = dict(found["bank"].format_lines())[f"{linker} learned"]
    assert ("could test guesses" in said) is (linker != "notary")


@pytest.mark.parametrize("linker", ["notary", "bank"])
def test_witnesses_tell_both_how_many_people_there_are(folder: Path, linker: str) -> None:
    sets = blocks_of(["surname+born", "given_name+phone"], schema_of(FIELDS), "--witness")
    more = {name: {"witnesses": sets} for name in ("bank", "shop")}
    ended = _run(folder, linker, **more)
    found = {name: one for name, one in ended.items() if isinstance(one, Linking)}
    assert set(found) == set(ended), ended
    people = len(set(FILES.people[0].tolist()) & set(FILES.people[1].tolist()))
    for one in found.values():
        assert one.common == pytest.approx(people, rel=0.2)
        assert one.recall_range is not None
        assert one.recall_range[0] <= one.recall <= one.recall_range[1]
        assert "people in both tables" in dict(one.format_lines())["estimated"]
    assert len({one.common for one in found.values()}) == 1
    del more["shop"]
    ended = _run(folder, linker, **more)
    assert isinstance(ended["shop"], errors.DisagreementError)
    assert "--witness at both" in str(ended["shop"])


def test_three_processes_from_csv_to_csv(folder: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        doors = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in NAMES]
        ports = {name: door.getsockname()[1] for name, door in zip(NAMES, doors, strict=True)}

    def arguments(name: str) -> list[str]:
        others = [other for other in NAMES if other != name]
        mine = [] if name == "notary" else [str(folder / f"{name}.csv"), "--column", "born=date_of_birth"]
        mine += [] if name == "notary" else [part for field in FIELDS for part in ("--field", field)]
        blocks = ["surname:sound", "phone", "born", "given_name:sound+born:4"]
        mine += [] if name == "notary" else [part for block in blocks for part in ("--block", block)]
        mine += [] if name == "notary" else ["--out", str(tmp_path / f"{name}.out.csv"), "--rows", "full"]
        return [
            *["link", *mine, "--name", name, "--linker", "notary", "--at", f"127.0.0.1:{ports[name]}", "--json"],
            *["--cert", str(folder / f"{name}.crt"), "--key", str(folder / f"{name}.key"), "--wait", "30"],
            *[part for other in others for part in ("--peer", f"{other}=127.0.0.1:{ports[other]}")],
            *[part for other in others for part in ("--peer-cert", f"{other}={folder / f'{other}.crt'}")],
        ]

    running = {name: start(*arguments(name)) for name in NAMES}
    told = {}
    for name, process in running.items():
        said, complained = process.communicate(timeout=60)
        assert process.returncode == 0, complained
        told[name] = json.loads(said)
    assert len({one["pairs"] for one in told.values()}) == 1
    rows = {}
    for name in ("bank", "shop"):
        with (tmp_path / f"{name}.out.csv").open() as stream:
            rows[name] = list(csv.DictReader(stream))
    assert [row["link"] for row in rows["bank"]] == [row["link"] for row in rows["shop"]]
    assert len(rows["bank"]) == told["bank"]["pairs"]
    right = [one["person"] == other["person"] for one, other in zip(rows["bank"], rows["shop"], strict=True)]
    assert sum(right) > 0.9 * len(right)


def _failing(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[..., Any]) -> None:
    original = getattr(linking, name)
    monkeypatch.setattr(linking, name, lambda *given: change(original, *given))


def test_another_key_other_fields_and_other_blocks_end_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = _run(folder, "notary", shop={"schema": schema_of(FIELDS[:3])})
    assert any("compares other fields" in str(one) for one in ended.values())
    assert not any(isinstance(one, Linking) for one in ended.values())
    ended = _run(folder, "notary", shop={"rules": blocks_of(["phone"], schema_of(FIELDS))})
    assert any("compares other fields, weights, blocks or witnesses" in str(one) for one in ended.values())
    ended = _run(folder, "bank", shop={"context": "another"})
    assert any(isinstance(one, errors.DisagreementError) for one in ended.values())

    def wrong(original: Any, plan: LinkPlan, stream: Any, peer: str, nonces: Any) -> bytes:
        key = original(plan, stream, peer, nonces)
        return bytes(32) if plan.name == "shop" else bytes(key)

    _failing(monkeypatch, "_agree_key", wrong)
    ended = _run(folder, "notary")
    assert isinstance(ended["notary"], errors.LinkageError)
    assert "cannot be compared: other fields, key or context" in str(ended["bank"])


def test_a_linker_that_tells_the_two_different_things_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(original: Any, stream: Any, names: np.ndarray, figures: Any) -> None:
        forged = names.copy()
        if stream.peer == "shop":
            forged[np.flatnonzero(forged.any(axis=1))[0]] ^= 1
        original(stream, forged, figures)

    _failing(monkeypatch, "_send_links", lie)
    ended = _run(folder, "notary")
    assert any("told the two different things" in str(ended[name]) for name in ("bank", "shop"))


def test_more_records_than_agreed_and_forged_bytes_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = _run(folder, "notary", notary={"max_set_size": 50})
    assert isinstance(ended["notary"], errors.SetSizeError | errors.MalformedError)
    assert any("it accepts fewer records" in str(one) or "not what the protocol" in str(one) for one in ended.values())

    def short(original: Any, stream: Any, sent: Any) -> None:
        data = sent.encodings.to_bytes()[:-8]
        stream.send_frame(linking.Kind.COUNT, len(data).to_bytes(5, "big") + bytes(10))
        for part in (data, b"", b""):
            stream.send_bytes(part)

    _failing(monkeypatch, "_send_encodings", short)
    ended = _run(folder, "notary")
    assert isinstance(ended["notary"], errors.MalformedError)


def test_fields_are_those_of_the_library() -> None:
    given = ["age=number", "income=number:2,step=100,reach=1500,salt=born", "born=date", "name=text,salt=born"]
    assert schema_of(given) == Schema(
        fields=(
            Field(name="age", kind=Number(step=1, reach=10)),
            Field(name="born", kind=Date()),
            Field(name="income", kind=Number(step=100, reach=1500), weight=2, salt="born"),
            Field(name="name", kind=Text(), salt="born"),
        )
    )
    assert schema_of(["income=number,step=100"]).fields[0].kind == Number(step=100, reach=1000)


def test_numbers_and_salts_are_compared_between_processes(folder: Path) -> None:
    fields = ["given_name=text,salt=born", "surname=text:1.5", "born=date"]
    schema = schema_of([*fields, "postcode=number,step=7,reach=70"])
    ended = _run(folder, "notary", bank={"schema": schema}, shop={"schema": schema})
    found = {name: one for name, one in ended.items() if isinstance(one, Linking)}
    assert set(found) == set(ended), ended
    assert _right({name: found[name].links for name in ("bank", "shop")}) > 0.9
    other = schema_of([*fields, "postcode=number,step=7,reach=77"])
    ended = _run(folder, "notary", bank={"schema": schema}, shop={"schema": other})
    assert any("compares other fields" in str(one) for one in ended.values())


def test_values_that_may_stand_for_unknown_are_told_before_parties_meet(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "bank.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    at = rows[0].index("date_of_birth")
    for row in rows[1:31]:
        row[at] = "19000101"
    with (tmp_path / "bank.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    code = run(
        *("link", str(tmp_path / "bank.csv"), "--field", "date_of_birth=date", "--name", "bank", "--at", "127.0.0.1:0"),
        *("--cert", str(folder / "bank.crt"), "--key", str(folder / "bank.key"), "--wait", "0.2"),
        *("--peer", "shop=127.0.0.1:1", "--peer-cert", f"shop={folder / 'shop.crt'}"),
        *("--linker", "bank", "--the-linker-may-test-guesses"),
    )
    said = capsys.readouterr().err
    assert code != 0  # nobody came
    assert "Note: date_of_birth: 30 of " in said
    assert "values are '19000101', more than 5 times as many as of others" in said


def test_mistakes_have_one_sentence_and_exit_code_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = [
        "--name",
        "bank",
        "--at",
        "127.0.0.1:0",
        "--cert",
        str(folder / "bank.crt"),
        "--key",
        str(folder / "bank.key"),
    ]
    shop = ["--peer", "shop=127.0.0.1:1", "--peer-cert", f"shop={folder / 'shop.crt'}"]
    notary = ["--peer", "notary=127.0.0.1:1", "--peer-cert", f"notary={folder / 'notary.crt'}"]
    table = str(folder / "bank.csv")
    fields = ["--field", "surname=text"]
    for arguments, words in (
        ([table, *fields, *shop, "--linker", "bank"], "--the-linker-may-test-guesses"),
        ([table, *fields, *shop, "--linker", "notary"], "it is this party or a --peer of it"),
        ([table, *shop, *notary, "--linker", "notary"], "--field for each field"),
        ([table, "--field", "surname=txt", *shop, *notary, "--linker", "notary"], "one of text, code"),
        ([table, "--field", "surname=text:99", *shop, *notary, "--linker", "notary"], "0.05 to 20"),
        ([table, "--field", "surname=number", *shop, *notary, "--linker", "notary"], "is not a number"),
        ([table, "--field", "phone=number,step=x", *shop, *notary, "--linker", "notary"], "step and reach are numbers"),
        ([table, "--field", "phone=number,step=5,reach=1", *shop, *notary, "--linker", "notary"], "step <= reach"),
        ([table, "--field", "phone=code,step=5", *shop, *notary, "--linker", "notary"], "a code can have salt=…"),
        ([table, *fields, "--field", "phone=code,salt=zip", *shop, *notary, "--linker", "notary"], "salted by 'zip'"),
        ([table, "--field", "sur=text", *shop, *notary, "--linker", "notary"], "did you mean"),
        ([table, *fields, "--column", "x=y", *shop, *notary, "--linker", "notary"], "no --field has that name"),
        ([table, *fields, "--block", "zip", *shop, *notary, "--linker", "notary"], "--block 'zip'"),
        ([table, *fields, "--threshold", "0.5", *shop, *notary, "--linker", "notary"], "give them there"),
    ):
        code = run("link", *arguments, *base)
        said = capsys.readouterr().err
        assert code == 2, (arguments, said)
        assert "Traceback" not in said
        assert words in said, said
