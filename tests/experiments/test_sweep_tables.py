"""Sweep files that name the parties' own tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.own_frames import frames

import securevfl as sv
from securevfl.checks import check_file
from securevfl.cli import main
from securevfl.experiments.sweep_file import read_sweep
from securevfl.report import SweepRecord

SWEEP = """
name = "own"
seeds = [0, 1]

[job]
epochs = 2
batch_size = 64

[[party]]
name = "bank"
file = "bank.csv"
id = "id"
label = "good"
prepare = "auto"

[[party]]
name = "shop"
file = "shop.csv"
id = "id"
prepare = "auto"

[[method]]
label = "small"
algorithm = "splitnn"
settings = { hidden = 4 }

[[method]]
label = "large"
algorithm = "splitnn"
settings = { hidden = 8 }

[[claim]]
text = "more is better"
source = "a test"
data = "*"
better = "large"
worse = "small"
"""
Said = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name, frame in zip(("bank", "shop"), frames().values(), strict=False):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    path = tmp_path / "own.toml"
    path.write_text(SWEEP, encoding="utf-8")
    return path


def test_a_cell_is_the_run_of_its_job_over_own_tables(file: Path, tmp_path: Path) -> None:
    sweep = read_sweep(file)
    assert [(spec.data, spec.method, spec.seed) for spec in sweep.cells] == [
        ("good", method, seed) for method in ("small", "large") for seed in (0, 1)
    ]
    assert sweep.parties is not None
    record = sv.run_sweep(sweep, tmp_path / "out").record
    assert not record.failed
    assert list(record.ticks.values()) == ["own tables"]
    job = sv.Job(algorithm=sv.SplitNN(hidden=8), protection="plain", epochs=2, batch_size=64, seed=1)
    assert record.cells[-1].test == sv.simulate(job, sweep.parties).run("plain").test
    assert [claim.text for claim in record.claims] == ["more is better"]
    assert str(tmp_path) not in (tmp_path / "out" / "sweep.json").read_text(encoding="utf-8")
    assert not (tmp_path / "out" / "tables.safetensors").exists()


def test_other_rows_are_other_cells_and_the_same_go_on(file: Path, tmp_path: Path) -> None:
    before = [spec.digest for spec in read_sweep(file).cells]
    assert [spec.digest for spec in read_sweep(file).cells] == before
    lines = (tmp_path / "shop.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "shop.csv").write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    assert not set(before) & {spec.digest for spec in read_sweep(file).cells}


def test_positions_can_be_protections(file: Path) -> None:
    axis = '[axis]\nname = "protection"\nunit = "category"\nvalues = ["none", "sealed"]\n'
    axis += '[axis.protection]\nnone = "plain"\nsealed = "bfv"\n'
    file.write_text(SWEEP.replace("[job]", f"{axis}[job]"), encoding="utf-8")
    cells = read_sweep(file).cells
    assert [(spec.x, spec.protection["name"]) for spec in cells[:4:2]] == [(0.0, "plain"), (1.0, "bfv")]
    assert len(cells) == 8


POLICY = 'id = "id"\nprepare = "auto"\n[party.policy]\nsealed = true\n\n[[method]]'


def test_a_policy_holds_in_every_cell(file: Path, capsys: Said) -> None:
    file.write_text(SWEEP.replace('id = "id"\nprepare = "auto"\n\n[[method]]', POLICY, 1), encoding="utf-8")
    with pytest.raises(sv.PolicyError, match="'shop' refuses the job"):
        read_sweep(file)
    assert check_file(file).exit_code == sv.PolicyError.exit_code
    sealed = file.read_text(encoding="utf-8").replace(
        'algorithm = "splitnn"', 'algorithm = "splitnn"\nprotection = "bfv"'
    )
    file.write_text(sealed, encoding="utf-8")
    sweep = read_sweep(file)
    assert sweep.cells[0].build_job().policies["shop"].sealed
    assert check_file(file).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('file = "shop.csv"', 'file = "none.csv"', "none.csv does not exist"),
        ('id = "id"\nprepare', 'id = "idd"\nprepare', "'idd'; did you mean 'id'"),
        ('name = "shop"', 'name = "bank"', "two parties are called 'bank'"),
        ('label = "good"\n', "", "none of 2 parties owns labels"),
        ("[job]", "[axis]\nvalues = [0.1]\n[job]", "own tables have none: give [axis.protection]"),
        ("[[claim]]", '[[data]]\nname = "digits"\n[[claim]]', "either [[data]] sections"),
        ("settings = { hidden = 4 }", "data = { labels = 1 }", "method[0].data is for named data sets"),
        ('prepare = "auto"\n\n[[method]]', 'link = { surname = "x" }\n[[method]]', "sweep files do not link"),
        ('prepare = "auto"\n\n[[method]]', 'prepar = "auto"\n[[method]]', "'prepar'; did you mean 'prepare'"),
        ("[[party]]", "[party]", "[[party]], with double brackets"),
        ("hidden = 4", "hiden = 4", "'hiden'; did you mean 'hidden'"),
    ],
)
def test_mistakes_are_those_of_a_job_file(file: Path, old: str, new: str, words: str, capsys: Said) -> None:
    text = SWEEP.replace(old, new) if new == "[party]" else SWEEP.replace(old, new, 1)
    if new == "[party]":
        text = text[: text.rindex("[party]")] + text[text.index("[[method]]") :]
    file.write_text(text, encoding="utf-8")
    told = "\n".join(check_file(file).mistakes)
    assert words in told
    assert "unknown data set" not in told
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(file), "--out", str(file.parent / "out")])
    assert ended.value.code == sv.InputError.exit_code
    assert words in capsys.readouterr().err.replace("\n", " ").replace("  ", " ")
    assert not (file.parent / "out").exists()


def test_all_mistakes_are_told_at_once_with_what_tables_hold(file: Path) -> None:
    text = SWEEP.replace('file = "bank.csv"', 'file = "none.csv"').replace("hidden = 4", "hiden = 4")
    file.write_text(text.replace("epochs = 2", "epochs = 0"), encoding="utf-8")
    found = check_file(file)
    for words in ("none.csv", "'hiden'", "epochs is 0"):
        assert [one for one in found.mistakes if words in one], words
    assert [one.party for one in found.tables] == ["shop"]
    file.write_text(SWEEP, encoding="utf-8")
    assert check_file(file).summary == "a sweep of 4 cells, 2 methods on the tables of 2 parties"


def test_the_command_runs_own_tables(file: Path, tmp_path: Path, capsys: Said) -> None:
    file.write_text(SWEEP.replace("seeds = [0, 1]", "seeds = [0]"), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(file), "--out", str(tmp_path / "out")])
    assert not ended.value.code
    assert "small" in capsys.readouterr().out
    record = SweepRecord.read(tmp_path / "out" / "sweep.json")
    assert [(cell.data, cell.method) for cell in record.cells] == [("good", "small"), ("good", "large")]


def test_the_page_shows_a_file_that_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "sweeps.md").read_text(encoding="utf-8")
    block = page[page.index("## Own tables") :].split("```toml\n")[1].split("```")[0]
    bank, shop = frames().values()
    bank.rename(columns={"id": "client_no", "good": "late"}).to_csv(tmp_path / "bank.csv", index=False)
    shop.rename(columns={"id": "customer"}).to_csv(tmp_path / "shop.csv", index=False)
    (tmp_path / "page.toml").write_text(block, encoding="utf-8")
    found = check_file(tmp_path / "page.toml")
    assert (found.mistakes, found.refusals) == ((), ())
    assert len(read_sweep(tmp_path / "page.toml").cells) == 10
