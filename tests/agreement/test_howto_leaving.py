"""The page "When a party leaves for good": its files and commands do what they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import securevfl as sv
from securevfl import cli
from securevfl.agreement import make_party_card, read_party_file
from securevfl.algorithms.field.party_dropout import PartyDropout
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

PAGE = Path(__file__).parents[2] / "docs/howto/leaving.md"
BLOCK = re.compile(r'```(toml|console) title="([^"]+)"\n(.*?)```', re.DOTALL)


def _run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(command)[1:])
    said = capsys.readouterr()
    return int(str(ended.value.code or 0)), " ".join((said.out + said.err).split())


def test_the_page_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = sv.Job(algorithm=PartyDropout(), protection=sv.Plain(), leaving="go-on")
    company = create_company(tmp_path, make_parties(passive=2, rows=60), job, leaving="go-on", leaving_after=1800)
    for name in company.names:
        card = make_party_card(read_party_file(tmp_path / f"{name}.toml"))
        (tmp_path / f"{name}.card").write_bytes(card.encode())
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=400))
    monkeypatch.setattr(cli.terminal, "err", cli.Console(stderr=True, width=400))
    monkeypatch.chdir(tmp_path)
    code, said, ran = 0, "", 0
    for kind, title, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "toml":
            (tmp_path / title).write_text(content, encoding="utf-8")
            continue
        for line in content.splitlines():
            if line == "$ echo $?":
                said = str(code)
            elif line.startswith("$ "):
                code, said = _run(line.removeprefix("$ "), capsys)
                ran += 1
            else:
                assert line in said, f"{line!r} is on the page and was not said: {said}"
    assert ran == 3
