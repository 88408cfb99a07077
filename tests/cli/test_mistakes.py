"""Mistakes of newcomers: each ends with a message that names the value and the cure, and the page quotes it."""

from __future__ import annotations

import pytest
from mistakes_page import PAGE, Said, make_all, quote_message, written
from support.mistakes import MISTAKES, Mistake

EVERY = [one for some in MISTAKES.values() for one in some]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        return make_all(tmp_path_factory.mktemp("mistakes").resolve())


@pytest.mark.parametrize("mistake", EVERY, ids=lambda one: one.what)
def test_the_terminal_names_the_value_and_the_cure(mistake: Mistake, said: Said) -> None:
    code, output = said[mistake.what]
    assert "Traceback" not in output
    assert code == mistake.code, output
    assert mistake.value
    assert mistake.cure
    assert mistake.value in output
    assert mistake.cure in quote_message(mistake, output), output


def test_the_page_quotes_the_terminal(said: Said) -> None:
    assert len(EVERY) == len(said) >= 80
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page, said), "run: python tools/pages/mistakes_page.py"
