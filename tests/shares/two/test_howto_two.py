"""The page "Two companies without a third": its code runs, and the card ends as it says."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import tomllib
from pathlib import Path

import securevfl as sv

PAGE = Path(__file__).parents[3] / "docs/howto/two-companies-without-a-third.md"
TEXT = PAGE.read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    said, script = io.StringIO(), tmp_path / "page.py"
    script.write_text("\n".join(_blocks("python")), encoding="utf-8")
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(script))
    assert "This holds if bank and retailer both follow the protocol, " in " ".join(said.getvalue().split())


def test_the_settings_of_the_page_are_the_default() -> None:
    (file,) = _blocks("toml")
    settings = tomllib.loads(file)
    assert sv.Shares.from_values(settings["protection"]) == sv.Shares(computing=2)
    assert settings["algorithm"] == {"name": "logistic_regression"}
