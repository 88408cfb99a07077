"""Identifiers that two tables write in different ways are told: by a draft, a check and a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl.checks import check_file
from securevfl.jobfile.drafting import draft_job
from securevfl.run.id_spelling import find_spellings

ROWS = 60


def _as_number(i: int) -> str:
    return f"{i:04d}"


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (_as_number, str, "without leading zeros, 60 would be"),
        (str, lambda i: f"{i}.0", "without '.0' at the end, 60 would be"),
        (lambda i: f"k{i}", lambda i: f"K{i}", "with capitals and small letters as one, 60 would be"),
        (lambda i: f"CH-{i}/7", lambda i: f"CH {i}.7", "without spaces, hyphens, points and slashes, 60 would be"),
        (lambda i: f"0{i + 1}-X", lambda i: f"{i + 1}x", ""),
        (lambda i: f"00-{i + 1}", lambda i: f"{i + 1}.0", "without leading zeros, '.0' at the end, capitals"),
        (lambda i: f"p{i}", lambda i: f"q{i}", ""),
        (lambda i: f" p{i}", lambda i: f"p{i}", ""),  # an alignment drops spaces at the ends
    ],
)
def test_the_smallest_change_that_joins_is_named(
    one: Callable[[int], str], other: Callable[[int], str], words: str
) -> None:
    found = find_spellings({"a": map(one, range(ROWS)), "b": map(other, range(ROWS))})
    if words:
        (line,) = found
        assert line.startswith(f"no identifiers of a are in b; {words}")
    else:
        assert found == []


def test_what_is_lost_beside_what_joins_is_counted_and_chance_is_not_told() -> None:
    ids = range(900, 1100)
    (line,) = find_spellings({"a": [f"{i:04d}" for i in ids], "b": map(str, ids)})
    assert line == "100 identifiers of a are in b; without leading zeros, 100 more would be: write them alike in both"
    two = {"a": [*(f"p{i}" for i in ids), "X", "Y"], "b": [*(f"p{i}" for i in ids), "x", "y"]}
    assert find_spellings(two) == []


def _files(folder: Path, first: int) -> Path:
    ids = range(first, first + ROWS)
    (folder / "bank.csv").write_text("id,late,x\n" + "".join(f"{i:05d},{i % 2},{i % 7}\n" for i in ids))
    (folder / "shop.csv").write_text("id,y\n" + "".join(f"{i},{i % 5}\n" for i in ids))
    draft = draft_job([folder / "bank.csv", folder / "shop.csv"], folder, id="id", label="late")
    (folder / "job.toml").write_text(draft.text.replace('"bfv"', '"plain"'), encoding="utf-8")
    return folder / "job.toml"


def test_a_check_and_a_run_say_why_no_row_is_held_by_all(tmp_path: Path) -> None:
    found = check_file(_files(tmp_path, 100))
    assert found.exit_code == 2
    (line,) = found.mistakes
    assert line.startswith(
        "no row is common to all parties: the tables have no identifier in common; no identifiers of"
    )
    assert "bank.csv are in" in line
    assert "without leading zeros, 60 would be" in line
    tables = [
        sv.PartyTable(
            name="bank", ids=[f"{i:05d}" for i in range(9)], columns={}, label=np.arange(9) % 2, classes=(0, 1)
        ),
        sv.PartyTable(name="shop", ids=[str(i) for i in range(9)], columns={"x": np.arange(9.0)}),
    ]
    with pytest.raises(sv.SecureVFLError, match="no row is common") as caught:
        sv.simulate(sv.Job(protection=sv.Plain(), epochs=1), sv.Parties.of(*tables))
    assert "no identifiers of 'bank' are in 'shop'; without leading zeros, 9 would be" in "".join(
        caught.value.__notes__
    )


def test_a_check_hints_at_rows_that_would_be_lost(tmp_path: Path) -> None:
    file = _files(tmp_path, 9970)
    shop = tmp_path / "shop.csv"
    shop.write_text(shop.read_text().replace("\n99", "\n099"))
    bank = tmp_path / "bank.csv"
    bank.write_text(bank.read_text().replace("\n099", "\n99").replace("\n10", "\n010"))
    shop.write_text(shop.read_text().replace("\n100", "\n0100", 10))
    found = check_file(file)
    assert (found.exit_code, found.mistakes) == (0, ())
    (line,) = found.hints
    assert "10 identifiers of" in line
    assert "without leading zeros, 50 more would be" in line


def test_a_draft_says_what_keeps_a_column_from_naming_rows(tmp_path: Path) -> None:
    rows = [f"c{i}" for i in range(ROWS)]
    (tmp_path / "a.csv").write_text("client_no,x\n" + "".join(f"{one},{i % 7}\n" for i, one in enumerate(rows)))
    for texts, words in (
        ([one.upper() for one in rows], "column 'client_no': no identifiers of 'a' are in 'b'; with capitals"),
        (["", *rows[1:]], "column 'client_no' is empty in 1 of 60 rows of 'b': fill or drop them"),
        ([f"{i}.0" for i in range(ROWS)], "column 'client_no' of 'b' contains numbers with a point or an exponent"),
    ):
        (tmp_path / "b.csv").write_text("client_no,y\n" + "".join(f"{one},{i % 5}\n" for i, one in enumerate(texts)))
        assert words in " ".join(draft_job([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path).missing)
