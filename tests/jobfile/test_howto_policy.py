"""The page "Set a policy and read the ledger": its job files and commands do what they show."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

import securevfl as sv
from securevfl import cli
from securevfl.jobfile import read_job
from securevfl.privacy import Policy
from securevfl.transport import Kind

PAGE = Path(__file__).parents[2] / "docs/howto/policy-and-ledger.md"
BLOCK = re.compile(r"```(toml|console)\n(.*?)```", re.DOTALL)


def _run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and what was said, of one line."""
    words = shlex.split(command)
    if words[0] != "securevfl":
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return 0, done.stdout
    with pytest.raises(SystemExit) as ended:
        cli.main(words[1:])
    said = capsys.readouterr()
    return int(str(ended.value.code or 0)), said.out + said.err


def test_the_page_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=200))
    monkeypatch.setattr(cli.terminal, "err", cli.Console(stderr=True, width=200))
    code, ran = 0, 0
    for kind, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "toml":
            Path("job.toml").write_text(content, encoding="utf-8")
            continue
        said = ""
        for line in content.splitlines():
            if line == "$ echo $?":
                said = str(code)
            elif line.startswith("$ "):
                code, said = _run(line.removeprefix("$ "), capsys)
                said, ran = " ".join(said.split()), ran + 1
            else:
                assert line in said, f"{line!r} is on the page and was not said: {said}"
    assert ran == 13


def test_the_table_names_every_key_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    fields = {name: getattr(Policy(), name) for name in Policy.__struct_fields__}
    assert set(rows) == set(fields)
    for name, told in rows.items():
        value = fields[name]
        if isinstance(value, bool):
            assert told == f"`{str(value).lower()}`"
        elif isinstance(value, int):
            assert told == ("2²⁴" if name == "max_set_size" else str(value))


def _job(folder: Path, text: str) -> sv.Job:
    (folder / "job.toml").write_text(text, encoding="utf-8")
    for name in ("bank", "shop"):
        label = ",y\n" + "\n".join(f"{i},{i},{i % 2}" for i in range(30))
        plain = "\n" + "\n".join(f"{i},{i}" for i in range(30))
        (folder / f"{name}.csv").write_text("k,x" + (label if name == "bank" else plain) + "\n", encoding="utf-8")
    return read_job(folder / "job.toml").job


TABLES = """
[[party]]
name = "bank"
file = "bank.csv"
id = "k"
label = "y"
{bank}
[[party]]
name = "shop"
file = "shop.csv"
id = "k"
"""


def test_a_policy_below_its_party(tmp_path: Path) -> None:
    text = TABLES.format(bank="[party.policy]\nmin_security = 128\nleaks = false") + (
        '[party.policy]\nprotections = ["bfv", "ckks"]\nnoised = ["gradient"]\nmin_masking = 64\n'
    )
    assert _job(tmp_path, text).policies == {
        "bank": Policy(min_security=128, leaks=False),
        "shop": Policy(protections=frozenset({"bfv", "ckks"}), noised=frozenset({Kind.GRADIENT}), min_masking=64),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[party.policy]\nseald = true", "party[1].policy has no 'seald'; did you mean 'sealed'"),
        ("[party.policy]\nsealed = 1", "party[1].policy.sealed is 1; true or false was expected"),
        ("[party.policy]\nmin_security = 1000", "min_security is 1000"),
        ("[party.policy]\nmax_epsilon = 'x'", "party[1].policy.max_epsilon is 'x'; a number above 0"),
        (
            "[party.policy]\nprotections = ['palier']",
            "party[1].policy.protections[0] is 'palier'; did you mean 'paillier'",
        ),
        (
            "[party.policy]\nprotections = 'bfv'",
            "policy.protections is 'bfv'; a list of one of 'bfv', 'ckks', 'paillier', 'plain'",
        ),
        ("[party.policy]\nnoised = ['noise']", "policy.noised[0] is 'noise'; "),
        ("policy = 3", "party[1].policy is 3; "),
        ("[party.policy]\nsealed = true\n[policy.shop]\nsealed = true", "'shop' has two policies"),
        ("[policy.shop]\nforbiden = []", "policy.shop has no 'forbiden'; did you mean 'forbidden'"),
        ("[policy]\nshop = 3", "policy.shop is 3; "),
    ],
)
def test_mistakes_in_policies_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(sv.InputError) as caught:
        _job(tmp_path, TABLES.format(bank="") + text)
    assert words in str(caught.value)
