"""Every break still fits the code, and the script that tries them notices both outcomes."""

from __future__ import annotations

import pytest

from mutations.base import ROOT, Break, broken
from mutations.breaks import BREAKS


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one.name)
def test_a_break_fits_the_code(one: Break) -> None:
    text = (ROOT / one.file).read_text(encoding="utf-8")
    assert broken(one, text) != text
    compile(broken(one, text), one.file, "exec")
    for name in one.tests:
        assert (ROOT / name.partition("::")[0]).exists(), f"{name} is no test"


def test_breaks_have_names_of_their_own() -> None:
    assert len({one.name for one in BREAKS}) == len(BREAKS)


def test_a_break_of_text_that_the_code_lost_is_told() -> None:
    gone = Break(name="gone", file="README.md", old="no such line", new="", tests=())
    with pytest.raises(ValueError, match="0 times"):
        broken(gone, "some text")
