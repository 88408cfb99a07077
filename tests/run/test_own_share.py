"""A party's own card: from its own table, in words that an officer signs."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.companies import Companies
from support.helpers import make_parties
from typer.testing import CliRunner

import securevfl as sv
from securevfl.agreement import read_party_file
from securevfl.agreement.result_books import give_grant, open_book
from securevfl.checks import read_own_share
from securevfl.cli import app
from securevfl.data import PartyTable
from securevfl.report import Record, describe_own_share, own_shares_text, rate_own_share, render_report, render_text
from securevfl.report.record import OwnShareRecord
from securevfl.run.own_share import compute_own_share


def _table(columns: int, rows: int = 240) -> PartyTable:
    draw = np.random.default_rng(0)
    values = {f"x{i}": draw.normal(size=rows) for i in range(columns)}
    return PartyTable(name="network", ids=[f"c{i}" for i in range(rows)], columns=values)


OWN = OwnShareRecord(
    party="network", asker="bank", numbers=2, used=1, columns=10, share=0.4, known=1000, judged=2000, measured=0.25
)


@pytest.mark.parametrize(
    ("changes", "standing"),
    [
        ({}, "bounded"),
        ({"share": 0.5}, "reads it"),
        ({"columns": 7}, "reads it"),
        ({"columns": 8}, "bounded"),
        ({"numbers": None, "share": 1.0}, "reads it"),
        ({"columns": 1, "numbers": 1, "share": 0.1}, "reads it"),
    ],
)
def test_an_own_card_bounds_only_little_and_few(changes: dict[str, object], standing: str) -> None:
    assert rate_own_share(msgspec.structs.replace(OWN, **changes)) == standing


def test_the_sentence_names_who_how_often_how_much_and_what_adds_up() -> None:
    text = describe_own_share(OWN)
    assert text.startswith("About each row of network, bank is answered with at most 2 numbers, ever (1 so far).")
    for words in (
        "1,000 of your rows",
        "about 0.40 of the spread of your 10 columns",
        "gave 0.25",
        "add their numbers",
    ):
        assert words in text
    assert "all of one column for each number, or of several columns that have few values" in text
    assert "(1 so far; 1 of them by grants)" in describe_own_share(msgspec.structs.replace(OWN, granted=1))
    assert "Nothing bounds" in describe_own_share(msgspec.structs.replace(OWN, numbers=None))
    assert "too few rows" in describe_own_share(msgspec.structs.replace(OWN, known=0))


def test_numbers_that_were_given_under_an_earlier_bound_or_grant_are_not_forgotten() -> None:
    own = compute_own_share(_table(8), "bank", 1, used=3)
    assert (own.numbers, own.used) == (1, 3)
    assert own.share == compute_own_share(_table(8), "bank", 3).share > compute_own_share(_table(8), "bank", 1).share
    text = describe_own_share(own)
    assert "at most 1 number, ever (3 so far; more than that under an earlier bound or grant)" in text
    assert rate_own_share(msgspec.structs.replace(OWN, numbers=1, used=3)) == "reads it"
    assert rate_own_share(msgspec.structs.replace(OWN, numbers=1, used=1)) == "bounded"


def test_it_is_computed_from_the_table_itself() -> None:
    spread = compute_own_share(_table(4), "bank", 1)
    assert (spread.party, spread.asker, spread.numbers, spread.columns) == ("network", "bank", 1, 4)
    assert (spread.known, spread.judged) == (120, 120)
    assert 0.25 <= spread.share < 0.5
    same = {f"x{i}": np.arange(240.0) for i in range(4)}
    assert compute_own_share(replace(_table(4), columns=same), "bank", 1).share == 1.0
    assert compute_own_share(_table(4), "bank", None).share == 1.0
    assert compute_own_share(_table(4), "bank", 4).share == 1.0


def test_categories_and_missing_values_count_as_one_column_each() -> None:
    table = _table(3)
    draw = np.random.default_rng(1)
    kind = np.array([f"kind {i}" for i in draw.integers(0, 90, table.rows)])
    holes = np.where(draw.random(table.rows) < 0.2, np.nan, table.columns["x0"])
    mixed = replace(table, columns={**table.columns, "x0": holes, "kind": kind}, preparation=sv.Preparation())
    found = compute_own_share(mixed, "bank", 1)
    assert found.columns == 4
    assert 0.25 <= found.share <= 0.6


def test_a_command_shows_it_and_sends_nothing(tmp_path: Path) -> None:
    people = make_parties(rows=160)
    job = '[job]\nepochs = 1\naccept_leak = true\n[algorithm]\nname = "splitnn"\n[protection]\nname = "plain"\n'
    companies = Companies(tmp_path, people, job, None)
    name = next(one for one in companies.names if people[one].label is None)
    file = tmp_path / name / "party.toml"
    shown = CliRunner().invoke(app, ["policy", "card", str(file), "--asker", "bank", "--numbers", "1"])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.stdout.split())
    assert f"About each row of {name}, bank is answered with at most 1 number, ever." in words
    assert "for no other party's eyes" in words
    assert read_own_share(file).numbers is None  # these companies' policies say "unlimited"
    with pytest.raises(sv.InputError, match="give 1 or more"):
        read_own_share(file, numbers=0)


def test_the_command_adds_grants_in_force_and_says_so(tmp_path: Path) -> None:
    job = '[job]\nepochs = 1\naccept_leak = true\n[algorithm]\nname = "splitnn"\n[protection]\nname = "plain"\n'
    people = make_parties(rows=160)
    companies = Companies(tmp_path, people, job, None)
    name = next(one for one in companies.names if people[one].label is None)
    file = tmp_path / name / "party.toml"
    text = file.read_text(encoding="utf-8")
    assert text.count('max_results = "unlimited"') == 1
    file.write_text(text.replace('max_results = "unlimited"', "max_results = 2"), encoding="utf-8")
    assert (read_own_share(file).numbers, read_own_share(file).used) == (2, None)
    own = read_party_file(file)
    give_grant(own, "bank", results=3, reason="a second pilot", until=date(9999, 1, 1))
    give_grant(own, "bank", results=4, reason="over", until=date(2001, 1, 1), now=0.0)
    book = open_book(own)
    book.add(book.begin_run(["c1", "c2"], "bank"), np.array([1]), 1)
    for asker in ("bank", "any one partner"):
        found = read_own_share(file, asker=asker)
        assert (found.numbers, found.granted, found.used) == (5, 3, 1)
    assert read_own_share(file, asker="bank", numbers=1).numbers == 1
    shown = CliRunner().invoke(app, ["policy", "card", str(file), "--asker", "bank"])
    words = " ".join(shown.stdout.split())
    assert "with at most 5 numbers, ever (1 so far; 3 of them by grants)" in words


def test_an_own_report_opens_with_it() -> None:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Plain(), epochs=1, batch_size=64)
    record = msgspec.structs.replace(
        sv.simulate(job, make_parties(rows=200)).record, own_shares=[OWN], known_to="network"
    )
    page = render_report(record)
    assert "What could your own table give away, at worst?" in page
    assert describe_own_share(OWN) in page
    assert "show it to no other party" in page
    assert "bounded, 2 of 10 numbers" in render_text(own_shares_text(record.own_shares))
    assert msgspec.json.decode(record.to_json(), type=Record).own_shares == [OWN]
