"""The pages "Two companies in ten minutes" and "A year with a federation": their files and commands, in two folders, as
two companies would type them.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminals import Terminals

import securevfl as sv
from securevfl.report import Record

TUTORIALS = Path(__file__).parents[2] / "docs/tutorials"


@pytest.fixture(scope="module")
def terminals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminals]:
    made = Terminals(tmp_path_factory.mktemp("companies"))
    yield made
    made.close()


def _column(file: Path, name: str) -> list[str]:
    with file.open(encoding="utf-8") as lines:
        return [row[name] for row in csv.DictReader(lines)]


@pytest.mark.skipif(sys.platform == "win32", reason="real parties run on Linux")
def test_two_companies_do_what_the_pages_say(terminals: Terminals) -> None:
    terminals.type_page(TUTORIALS / "two-companies.md")
    root, said = terminals.root, terminals.said
    runs = Record.read(root / "bank/state/report/metrics.json").runs
    (joint,) = (run for run in runs if not run.baseline)
    assert len(runs) > 1, "baselines come before it"
    assert f"auc {joint.test['auc']:.4f}" in said["bank party"].partition("Test: ")[2]
    assert "\njoined: " in said["bank party"]
    assert "Test: " not in said["shop party"]
    assert "done" in said["bank$ securevfl status state"]
    ledgers = [(root / name / f"state/ledgers/{name}.jsonl").read_text("utf-8") for name in ("bank", "shop")]
    one, other = (text.count('"line":"message"') for text in ledgers)
    assert one == other > 20
    scored = set(_column(root / "bank" / "scores.csv", "id"))
    known = [set(_column(root / name / "customers.csv", "ref")) for name in ("bank", "shop")]
    assert scored == known[0] & known[1]
    assert {path.name for path in (root / "shop").glob("*.csv")} == {"customers.csv"}

    terminals.type_page(TUTORIALS / "a-year.md")
    (ready,) = (text for line, text in said.items() if "readyz" in line)
    assert '"ready":true' in ready
    (active,) = (text for line, text in said.items() if "models/activate" in line)
    assert '"digest"' in active
    events = (root / "bank/state/serving.jsonl").read_text("utf-8")
    assert '"rotated"' in events
    (lost,) = (text for line, text in said.items() if "readmit accept" in line)
    assert "shop is admitted again" in lost
    assert sv.audit(root / "bank" / "year").is_complete
    (book,) = (text for line, text in said.items() if "policy results" in line)
    assert "bank" in book
