"""The page about faults has the tables of the matrix's last run."""

from __future__ import annotations

from faults_page import PAGE, blocks, written


def test_the_page_has_the_tables() -> None:
    assert written(PAGE.read_text(encoding="utf-8")) == blocks(), "run python tools/pages/faults_page.py"
