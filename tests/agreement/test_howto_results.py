"""docs/howto/result-budget.md: its files and commands do what the page shows; grants, and what an officer sees."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

from securevfl import cli
from securevfl.agreement import read_party_file
from securevfl.agreement.result_books import give_grant, last_day, open_book, read_results
from securevfl.errors import InputError, UnknownNameError
from securevfl.ledger import make_key

PAGE = Path(__file__).parents[2] / "docs/howto/result-budget.md"
BLOCK = re.compile(r"```(toml|console)\n(.*?)```", re.DOTALL)
FILES = {"name": "job.toml", "party": "policy.toml"}


def _run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line)[2:])
    captured = capsys.readouterr()
    return int(str(ended.value.code or 0)), captured.out + captured.err


def test_the_page_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=200))
    monkeypatch.setattr(cli.terminal, "err", cli.Console(stderr=True, width=200))
    code, ran, said = 0, 0, ""
    for kind, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "toml":
            name = "lab.toml" if "[keys]" in content else FILES[content.split(" ", 1)[0]]
            Path(name).write_text(content, encoding="utf-8")
            continue
        for line in content.splitlines():
            if line == "$ echo $?":
                said = str(code)
            elif line.startswith("$ securevfl "):
                code, said = _run(line, capsys)
                ran += 1
            else:
                assert line in said, f"{line!r} is on the page and was not said: {said}"
    assert ran == 13
    rows = Path("scores.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 462
    assert all(row.count(",") == 2 and row.split(",")[1] for row in rows)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    make_key("lab", tmp_path)
    file = tmp_path / "lab.toml"
    file.write_text(
        'party = "lab"\n[keys]\nsigning = "lab.key"\ncertificate = "c"\nkey = "k"\n'
        '[organisations]\nclinic = "Clinic plc"\nward = "Clinic plc"\n'
        '[peer.clinic]\ndial = "clinic.example:1"\n[peer.ward]\ndial = "ward.example:1"\n'
        '[peer.shop]\ndial = "shop.example:1"\n',
        encoding="utf-8",
    )
    return file


NOW = datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp()


def test_a_grant_is_for_an_organisation_until_the_end_of_its_day(lab: Path) -> None:
    own = read_party_file(lab)
    given = give_grant(own, "ward", results=2, reason="a trial", until=date(2026, 11, 28), by="me", now=NOW)
    assert (given.asker, last_day(given)) == ("Clinic plc", date(2026, 11, 28))
    book = open_book(own)
    end = datetime(2026, 11, 29, tzinfo=UTC).timestamp()
    assert [book.granted("Clinic plc", now) for now in (NOW, end - 1, end)] == [2, 2, 0]
    assert book.granted("shop", NOW) == 0
    (found,) = read_results(own, "clinic", now=NOW)
    assert (found.allowed, found.granted, found.people) == (4, 2, 0)
    with pytest.raises(InputError, match="2026-11-27, which is over"):
        give_grant(own, "ward", results=2, reason="a trial", until=date(2026, 11, 27), now=NOW)
    with pytest.raises(UnknownNameError, match="did you mean 'clinic'"):
        give_grant(own, "klinic", results=2, reason="a trial", until=date(2027, 1, 1), now=NOW)


def test_a_grant_that_another_key_signed_does_not_count(lab: Path) -> None:
    give_grant(read_party_file(lab), "shop", results=5, reason="r", until=date(2099, 1, 1), by="me", now=NOW)
    (lab.parent / "lab.key").unlink()
    (lab.parent / "lab.pub").unlink()
    make_key("lab", lab.parent)
    assert open_book(read_party_file(lab)).granted("shop", NOW) == 0


def test_the_officer_sees_whom_the_book_holds_and_who_is_spent(
    lab: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=200))
    own = read_party_file(lab)
    code, said = _run(f"$ securevfl policy results --file {lab}", capsys)
    assert (code, "Nobody was answered about any row." in said) == (0, True)
    book = open_book(own)
    run = book.begin_run(["ann-1", "bob-2", "eve-3"], "Clinic plc")
    book.add(run, np.array([0, 1, 1]), 1)
    (clinic,) = read_results(own, now=NOW)
    assert (clinic.people, clinic.most, clinic.running, clinic.allowed, clinic.spent) == (2, 2, 3, 2, 1)
    code, said = _run(f"$ securevfl policy results ward --file {lab}", capsys)
    assert code == 0
    assert re.search(r"Clinic plc +2 +2 +3 +2 +1", said)
    assert not any(name in said for name in ("ann-1", "bob-2", "eve-3"))
    code, said = _run(f"$ securevfl policy grant ward --file {lab} --results 1 --reason r --until soon", capsys)
    assert (code, "--until is 'soon'; expected a day" in said) == (2, True)
    code, said = _run(f"$ securevfl policy show --file {lab}", capsys)
    assert (code, "No grants." in said) == (0, True)
