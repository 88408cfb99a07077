"""`securevfl check` of a job of statistics tells what the parties would refuse once they know their common rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl.checks import JobCheck, check_file
from securevfl.errors import InputError, PolicyError

JOB = """
algorithm = "statistics"
[protection]
PROTECTION
[[party]]
name = "bank"
file = "bank.csv"
id = "ref"
label = "late"
[[party]]
name = "shop"
file = "shop.csv"
id = "ref"
"""
OF_TWO, PLAIN = 'name = "shares"\ncomputing = 2', 'name = "plain"'
NOISE = "[protection.dp.model]\nepsilon = 1.0\ndelta = 1e-5\n"


def write_tables(folder: Path, *, rows: int, shop: int, columns: int, classes: int = 2) -> None:
    numbers = np.random.default_rng(3).normal(size=(rows, columns))
    heads = ["ref", "same", "late", *(f"n{j}" for j in range(columns))]
    lines = [
        ",".join([f"P{i}", "1", str(i % classes), *(f"{one:.3f}" for one in row)]) for i, row in enumerate(numbers)
    ]
    (folder / "bank.csv").write_text("\n".join([",".join(heads), *lines, ""]), encoding="utf-8")
    text = "".join(f"P{i},{i * 7 % 31}\n" for i in range(shop))
    (folder / "shop.csv").write_text(f"ref,spent\n{text}", encoding="utf-8")


def check(folder: Path, *, protection: str = OF_TWO, noise: bool = False) -> JobCheck:
    text = JOB.replace("PROTECTION", protection).replace("[[party]]", (NOISE if noise else "") + "[[party]]", 1)
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return check_file(folder / "job.toml")


def run(folder: Path) -> sv.Result:
    ready = sv.read_job(folder / "job.toml")
    return sv.simulate(ready.job, ready.parties, observer=sv.Observer())


def test_too_few_rows_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    write_tables(tmp_path, rows=260, shop=199, columns=2)
    found = check(tmp_path, protection=PLAIN)
    assert found.refusals[-1] == (
        "the table of 'shop' has 199 rows, so no more are common, and statistics of fewer than 200 show single rows; "
        "find more rows, or agree on another least_rows"
    )
    assert found.exit_code == PolicyError.exit_code
    with pytest.raises(PolicyError, match="'shop' refuses: its table has 199 rows, so no more are common") as ended:
        run(tmp_path)
    assert not any(entry.what.startswith("psi/") for ledger in ended.value.ledgers for entry in ledger.entries)
    write_tables(tmp_path, rows=260, shop=200, columns=2)
    assert check(tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("columns", "classes", "refused"), [(11, 2, False), (12, 2, True), (10, 3, False), (11, 3, True)]
)
def test_more_columns_than_the_rows_allow_are_told(columns: int, classes: int, refused: bool, tmp_path: Path) -> None:
    """With 240 common rows and 20 for each column; a column of one value is not offered."""
    write_tables(tmp_path, rows=260, shop=240, columns=columns, classes=classes)
    found = check(tmp_path)
    offered = columns + (1 if classes == 2 else 2)
    said = f"up to {offered} columns of the active party, its label among them, would be offered and at most 240 rows"
    assert any(said in hint for hint in found.hints) == refused
    assert found.exit_code == 0
    for other in (check(tmp_path, noise=True), check(tmp_path, protection=PLAIN)):
        assert not any("would be offered" in hint for hint in other.hints)
    check(tmp_path)
    if refused:
        with pytest.raises(InputError, match=f"the active party offers {offered} columns"):
            run(tmp_path)
    else:
        assert run(tmp_path).record.runs[-1].statistics
