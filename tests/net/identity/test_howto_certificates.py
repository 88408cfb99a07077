"""The page "Identify your peers": its commands do what they show, and its table names every reason."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from securevfl_net.identity import RefusalCode

from securevfl import cli

PAGE = Path(__file__).parents[3] / "docs/howto/certificates.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def test_the_page_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agreement.toml").write_text("the job that runs", encoding="utf-8")
    said, ran = "", 0
    for content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for line in content.splitlines():
            if line.startswith("$ "):
                words = shlex.split(line.removeprefix("$ "))
                assert words[0] == "securevfl"
                with pytest.raises(SystemExit) as ended:
                    cli.main(words[1:])
                said, ran = " ".join(capsys.readouterr().out.split()), ran + 1
                assert not ended.value.code, line
                assert said, line
            else:
                assert line in said, f"{line!r} is on the page and was not said: {said}"
    assert ran == 10


def test_the_table_names_every_reason() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## What a refusal looks like")[1]
    named = [
        code for row in re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE) for code in re.findall(r"`(.*?)`", row)
    ]
    assert sorted(named) == sorted(RefusalCode)
