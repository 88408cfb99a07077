"""The table of algorithms and protections on the page that helps to choose one."""

from __future__ import annotations

from offers_page import PAGE, SEALED, list_offers, written

import securevfl as sv


def test_the_page_has_the_table_that_the_algorithms_make():
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python tools/pages/offers_page.py"


def test_a_row_says_what_a_job_does():
    lines = {line.split("|")[1].strip(): line for line in list_offers().splitlines()}
    cells = [cell.strip() for cell in lines["`logistic_regression`"].split("|")[1:-1]]
    assert cells[3:7] == ["yes", "yes", "yes", "all three"]
    for protection in (sv.Shares(), sv.Shares(computing=2), *SEALED.values()):
        sv.Job(algorithm="logistic_regression", protection=protection)
    assert [cell.strip() for cell in lines["`fedda`"].split("|")][4:8] == ["no", "no", "no", "no"]
