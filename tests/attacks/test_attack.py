"""Attacking a whole job: figures beside claims, files, the command and its exit codes."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl import cli
from securevfl.experiments import record_job
from securevfl.report import render_text
from securevfl.report.attack_page import render_attacks
from securevfl.report.attack_record import AttackRecord, attack_lines

PAGE = Path(__file__).parents[2] / "docs/howto/attack-your-job.md"


def _job(protection: sv.cut.Protection | None = None, **algorithm: object) -> sv.Job:
    settings = {"hidden": 8, "top": (8,), "lr": 0.01, "cut_lr": 1.0} | algorithm
    return sv.Job(
        algorithm=sv.SplitNN(**settings),  # type: ignore[arg-type]
        protection=protection or sv.Plain(),
        epochs=3,
        batch_size=128,
    )


@pytest.fixture(scope="module")
def parties() -> sv.Parties:
    return sv.datasets.default_credit(overlap=0.85, seed=0, rows=800)


@pytest.fixture(scope="module")
def plain(parties: sv.Parties) -> sv.AttackResult:
    return sv.attack(_job(bottom=(8,)), parties, quick=True, name="plain")


def _best(result: sv.AttackResult, attacker: str, start: str) -> float:
    return max(
        (one.value for one in result.record.measured if one.attacker == attacker and one.attack.startswith(start)),
        default=0.0,
    )


def test_a_plain_job_gives_labels_and_features(plain: sv.AttackResult) -> None:
    """The positive control of the whole chain, from the job to its record."""
    assert _best(plain, "network", "labels") >= 0.99
    assert _best(plain, "retailer", "labels") >= 0.99
    assert _best(plain, "bank", "features") > 0.6
    assert _best(plain, "bank", "predictions") > 0.5
    assert plain.contradictions == []  # it calls them leaks


def test_what_a_seal_hides_is_not_attacked(parties: sv.Parties) -> None:
    """With identity bottoms under a seal no passive party is given a gradient: there is nothing to attack."""
    result = sv.attack(_job(sv.BFV()), sv.datasets.default_credit(overlap=0.85, seed=0, rows=500), quick=True)
    assert not [one for one in result.record.measured if one.attack.startswith(("labels", "others'"))]
    assert _best(result, "bank", "features") > 0.7  # each run draws other known records: 0.79 to 0.90 in 15
    assert result.contradictions == []


def test_a_record_comes_back_and_the_table_shows_it(plain: sv.AttackResult, tmp_path: Path) -> None:
    page = plain.write(tmp_path / "out")
    assert AttackRecord.read(page.parent / "attacks.json") == plain.record
    assert json.loads((page.parent / "attacks.json").read_text(encoding="utf-8"))["seeds"] == [0]
    text = render_text(plain.table(), width=140)
    assert "spectral" in text
    assert "leak" in text
    with pytest.raises(sv.InputError, match="run securevfl attack"):
        AttackRecord.read(tmp_path / "attacks.json")
    (tmp_path / "attacks.json").write_text("{}", encoding="utf-8")
    with pytest.raises(sv.InputError, match="not a record of attacks"):
        AttackRecord.read(tmp_path / "attacks.json")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.ids += [value or "" for key, value in attrs if key == "id"]


def test_the_page_stands_alone_and_escapes_names(plain: sv.AttackResult) -> None:
    page = render_attacks(plain.record)
    assert page == render_attacks(plain.record)
    tags = _Tags()
    tags.feed(page)
    assert "script" not in tags.names
    assert tags.names.count("svg") >= 5
    assert len(tags.ids) == len(set(tags.ids))
    evil = plain.record.measured[0].__class__(
        **{f: getattr(plain.record.measured[0], f) for f in plain.record.measured[0].__struct_fields__}
        | {"victim": "<script>x</script>"}
    )
    fields = {f: getattr(plain.record, f) for f in plain.record.__struct_fields__}
    assert "<script" not in render_attacks(AttackRecord(**(fields | {"measured": [evil]})))


def test_seeds_are_runs_and_lines_their_means(parties: sv.Parties) -> None:
    result = sv.attack(_job(), parties, seeds=(0, 1), quick=True)
    assert set(result.transcripts) == {0, 1}
    line = next(one for one in attack_lines(result.record) if one.attack == "labels: spectral, looks added")
    each = [one.value for one in result.record.measured if (one.attack, one.attacker) == (line.attack, line.attacker)]
    assert line.value == pytest.approx(np.mean(each))
    assert line.severity == "leak"


def test_attacks_need_something_known(parties: sv.Parties) -> None:
    with pytest.raises(sv.InputError, match="records from 1"):
        sv.attack(_job(), parties, known=())
    with pytest.raises(sv.InputError, match="records from 1"):
        sv.attack(_job(), parties, known=(0,))


def test_recording_a_job_leaves_its_result_as_it_is(parties: sv.Parties) -> None:
    job = _job(bottom=(8,))
    recorded, transcript, aligned = record_job(job, parties)
    bare = sv.simulate(job, parties, aligned=aligned)
    assert np.array_equal(recorded.scores["plain"], bare.scores["plain"])
    assert {party for party, _ in transcript.views} == set(parties)


def _run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(command)[1:])
    said = capsys.readouterr()
    return int(str(ended.value.code or 0)), said.out + said.err


def test_the_page_does_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job file and the commands of docs/howto/attack-your-job.md."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.terminal, "out", cli.Console(width=200))
    monkeypatch.setattr(cli.terminal, "err", cli.Console(stderr=True, width=200))
    blocks = re.findall(r"```(toml|console)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    code, said, ran = 0, "", 0
    for kind, content in blocks:
        if kind == "toml":
            Path("job.toml").write_text(content, encoding="utf-8")
            continue
        for line in content.splitlines():
            if line == "$ echo $?":
                said = str(code)
            elif line.startswith("$ "):
                code, said = _run(line.removeprefix("$ "), capsys)
                said, ran = " ".join(said.split()), ran + 1
            else:
                assert line in said, f"{line!r} is on the page and was not said: {said}"
    assert ran == 1
    assert {path.name for path in Path("runs/credit-attacks").iterdir()} >= {"attacks.json", "attacks.html"}


def test_a_claim_of_ok_that_falls_is_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gate of the command can fail: a job that calls its gradients harmless is caught."""
    from securevfl.privacy import Finding

    def harmless(self: object, protection: object, passive: list[str], active: str) -> list[Finding]:
        return [Finding(name, active, "nothing", "ok") for name in passive]

    monkeypatch.setattr(sv.SplitNN, "findings", harmless)
    content = PAGE.read_text(encoding="utf-8")
    (tmp_path / "job.toml").write_text(re.findall(r"```toml\n(.*?)```", content, re.DOTALL)[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, said = _run("securevfl attack job.toml --quick --out found", capsys)
    assert code == 3
    assert "The job calls this ok: network about bank" in said
    assert (tmp_path / "found/attacks.html").read_text(encoding="utf-8").count("was got") == 0
