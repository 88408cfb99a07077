"""The page "Propose and approve a job": its files and commands do what they show."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support.agreement_parties import BANK_TABLE, SHOP_TABLE

from securevfl import cli
from securevfl.agreement.party_file import _Sections

PAGE = Path(__file__).parents[2] / "docs/howto/agreement.md"
BLOCK = re.compile(r'```(toml|console) title="([^"]+)"\n(.*?)```', re.DOTALL)


def _run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and what was said, of one line."""
    words = shlex.split(command)
    if words[0] != "securevfl":
        subprocess.run(words, check=True)
        return 0, ""
    with pytest.raises(SystemExit) as ended:
        cli.main(words[1:])
    said = capsys.readouterr()
    return int(str(ended.value.code or 0)), said.out + said.err


def test_the_page_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=200))
    monkeypatch.setattr(cli.terminal, "err", cli.Console(stderr=True, width=200))
    for name, table in (("bank/customers.csv", BANK_TABLE), ("shop/sales.csv", SHOP_TABLE)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(table)
    code, ran = 0, 0
    for kind, title, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "toml":
            (tmp_path / title).write_text(content, encoding="utf-8")
            continue
        monkeypatch.chdir(tmp_path / title)
        said, shown = "", True
        for line in content.splitlines():
            if line == "$ echo $?":
                said = str(code)
            elif line.startswith("$ "):
                assert shown or code == 0, said
                code, said = _run(line.removeprefix("$ "), capsys)
                said, ran = " ".join(said.split()), ran + 1
            else:
                assert line in said, f"{line!r} is on the page and was not said: {said}"
            shown = line == "$ echo $?" or not line.startswith("$ ")
    assert ran == 17


def test_the_table_names_every_key_of_a_party_file() -> None:
    rows = set(re.findall(r"^\| `\[?([a-z_]+)(?:\.NAME)?\]?` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == set(_Sections.__struct_fields__)
