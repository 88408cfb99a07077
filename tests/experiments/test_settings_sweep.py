"""Sweeps of settings over own tables: which points, what they measure, what chooses, and where they run."""

from __future__ import annotations

import math
import re
import statistics
import tomllib
from datetime import date
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import structs
from scipy import stats
from support.own_frames import frames

import securevfl as sv
from securevfl.cli import main
from securevfl.data import Categories, LabelBook
from securevfl.experiments.cells import Cell
from securevfl.experiments.grid import grid_of, read_over, with_setting
from securevfl.experiments.pool import cell_task
from securevfl.experiments.privacy_cost import describe_cost, plan_cost, total_cost
from securevfl.experiments.search_space import read_space
from securevfl.experiments.sweep import choose_seeds
from securevfl.experiments.table_store import digest_tables, load_tables, store_tables
from securevfl.jobfile.toml_text import settings_text
from securevfl.report import SweepRecord


@pytest.fixture(scope="module")
def parties() -> sv.Parties:
    return sv.Parties.from_pandas(frames(), id="id", label="good")


@pytest.fixture(scope="module")
def job() -> sv.Job:
    return sv.Job(algorithm=sv.SplitNN(hidden=8), protection="plain", epochs=2, batch_size=64)


@pytest.fixture(scope="module")
def found(parties: sv.Parties, job: sv.Job, tmp_path_factory: pytest.TempPathFactory) -> sv.Study:
    folder = tmp_path_factory.mktemp("sweep")
    return sv.sweep(job, parties, {"algorithm.lr": [1e-6, 0.05], "epochs": [1, 2]}, seeds=2, folder=folder)


def test_a_cell_is_the_run_of_its_job(found: sv.Study, parties: sv.Parties, job: sv.Job) -> None:
    """Every point with every seed, and each figure that of `simulate` with the same job."""
    assert [(cell.method, cell.x, cell.seed) for cell in found.record.cells] == [
        (f"epochs {epochs}", lr, seed) for lr in (1e-6, 0.05) for epochs in (1, 2) for seed in (0, 1)
    ]
    last = found.record.cells[-1]
    run = sv.simulate(job.replace(algorithm=sv.SplitNN(hidden=8, lr=0.05), seed=1), parties).run("plain")
    assert last.test == run.test
    assert (last.value, last.best_epoch) == (run.test["auc"], run.best_epoch)
    assert last.valid == run.epochs[run.best_epoch - 1].valid["auc"]


def test_seeds_become_mean_and_deviation(found: sv.Study) -> None:
    frame = found.to_pandas()
    assert list(frame.columns[:3]) == ["lr", "epochs", "seeds"]
    values = [cell.value for cell in found.cells(found.points[3])]
    assert frame.loc[3, "auc"] == pytest.approx(statistics.fmean(values))
    assert frame.loc[3, "auc deviation"] == pytest.approx(statistics.stdev(values))
    runs = found.to_pandas("runs")
    assert len(runs) == 8
    assert set(runs["seed"]) == {0, 1}
    assert f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}" in found.table()
    with pytest.raises(sv.InputError, match="give 'points' or 'runs'"):
        found.to_pandas("cells")


def test_the_best_is_chosen_by_validation_rows(found: sv.Study) -> None:
    """Attack: perfect figures on the test rows of the worst point change nothing; on validation rows they do."""
    best = found.best
    assert best.settings["lr"] == 0.05
    worst = found.points[0]

    def with_figures(**figures: float) -> sv.Study:
        cells = [
            structs.replace(c, **figures) if (c.method, c.x) == (worst.method, worst.x) else c
            for c in found.record.cells
        ]
        return sv.Study(record=structs.replace(found.record, cells=cells), points=found.points)

    assert with_figures(value=1.0).best == best
    assert with_figures(valid=2.0).best == worst


def test_own_tables_run_on_a_pool_and_leave_nothing(
    found: sv.Study, parties: sv.Parties, job: sv.Job, tmp_path: Path
) -> None:
    pooled = sv.sweep(
        job, parties, {"algorithm.lr": [1e-6, 0.05]}, seeds=[0, 1], pool="process:1", folder=tmp_path
    ).record
    assert not pooled.failed
    there = {(c.x, c.seed): c.test for c in found.record.cells if c.method == "epochs 2"}
    assert {(c.x, c.seed): c.test for c in pooled.cells} == there
    assert not list(tmp_path.glob("*.safetensors"))
    again = sv.sweep(job, parties, {"algorithm.lr": [1e-6, 0.05]}, seeds=2, folder=tmp_path).record
    assert again.cells == pooled.cells  # nothing ran: the seconds are those of the first time
    assert SweepRecord.read(tmp_path / "sweep.json") == again


def test_an_interrupt_leaves_no_tables(parties: sv.Parties, job: sv.Job, tmp_path: Path) -> None:
    there = []

    def stop(*_: object) -> None:
        there.append((tmp_path / "tables.safetensors").exists())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sv.sweep(job, parties, {"epochs": [1]}, seeds=2, pool="process:1", folder=tmp_path, progress=stop)
    assert there == [True]
    assert not (tmp_path / "tables.safetensors").exists()
    cell = Cell(data="d", method="m", x=0.0, seed=0, source={}, algorithm={}, protection={}, job={})
    _, ended = msgspec.msgpack.decode(cell_task(msgspec.msgpack.encode(cell), str(tmp_path / "elsewhere")))
    assert "folder on storage that all workers share" in ended["message"]


def test_other_tables_are_other_cells(job: sv.Job, tmp_path: Path) -> None:
    changed = frames()
    ran = []
    for value in (0.0, 1.0, 0.0):
        changed["bank"].loc[3, "income"] = value
        own = sv.Parties.from_pandas(changed, id="id", label="good")
        sv.sweep(job, own, {}, seeds=1, folder=tmp_path, progress=lambda *_: ran.append(1))
    assert len(ran) == 2


def test_tables_cross_to_workers_as_they_are(tmp_path: Path) -> None:
    """Every kind of column and role comes back with the same digest; one changed bit is an error."""
    rows = 5
    texts = np.array(["a", None, float("nan"), "é\x00", ""], dtype=object)
    bank = sv.PartyTable(
        name="bank",
        ids=[f"ü{i}" for i in range(rows)],
        columns={
            "f": np.arange(rows, dtype=np.float32),
            "block": np.arange(rows * 2.0).reshape(rows, 2),
            "flag": np.array([True, False, True, True, False]),
            "day": np.array(["2020-01-01", "NaT", "2021-01-01", "2021-01-01", "2021-01-02"], dtype="M8[D]"),
            "text": texts,
            "mixed": np.array([True, None, False, True, True], dtype=object),
        },
        label=np.array([0, 1, 0, 1, 1]),
        classes=("no", date(2020, 1, 1)),
        fold=np.array([0, 0, 0, 1, 2], dtype=np.int8),
        weight=np.ones(rows),
        group=np.arange(rows),
        time=np.arange(rows) * 1.0,
        book=LabelBook(ids=("x", "y"), label=np.array([0, 1])),
        preparation=sv.Preparation(),
        link={"born": [date(2000, 1, 2), None, "x", 3, 2.5]},
    )
    words = Categories(np.array([0, 1, 0], dtype=np.int32), ("a", "b"))
    shop = sv.PartyTable(
        name="shop",
        ids=["q", "r", "s"],
        columns={"c": words, "u": np.array(["x", "yy", ""])},
        categorical=frozenset({"c", "u"}),
    )
    whole = sv.Parties.of(bank, shop, description="ours")
    store_tables(whole, tmp_path / "t")
    assert (tmp_path / "t").stat().st_mode & 0o077 == 0
    read = load_tables(tmp_path / "t")
    assert digest_tables(read) == digest_tables(whole)
    assert (read.description, read.active.name) == ("ours", "bank")
    assert read["bank"].link == bank.link
    assert read["bank"].classes == bank.classes
    back = read["bank"].columns["text"]
    assert back[1] is None
    assert math.isnan(back[2])
    assert read["shop"].categorical == frozenset({"c", "u"})
    data = bytearray((tmp_path / "t").read_bytes())
    data[-3] ^= 1
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(sv.InputError, match="damaged"):
        load_tables(tmp_path / "t")


def test_protections_are_labelled_and_noise_is_told(parties: sv.Parties, job: sv.Job, tmp_path: Path) -> None:
    """ε on the axis; each cell has what it spent; the note has the sum over all runs."""
    noisy = job.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=4.0))), epochs=1)
    ran = sv.sweep(noisy, parties, {"protection.dp.features.epsilon": [1.0, 8.0]}, seeds=2, folder=tmp_path)
    assert ran.record.axis == "epsilon"
    assert [cell.x for cell in ran.record.cells] == [1.0, 1.0, 8.0, 8.0]
    for cell in ran.record.cells:
        assert 0.9 * cell.x < cell.extra["ε of features"] <= cell.x
    assert any("ε = 18 (δ = 4e-05) of features" in note for note in ran.record.notes)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Quality against epsilon" in page
    assert "ε of features" in page
    axes = ran.plot()
    assert axes.get_xlabel() == "epsilon"
    labelled = grid_of(job, {"protection": {"none": "plain", "sealed": "bfv"}})
    assert labelled.axis.labels == ("none", "sealed")
    assert [point.job.protection.name for point in labelled.points] == ["plain", "bfv"]


def test_a_number_is_compared_by_r2() -> None:
    own = sv.Parties.from_pandas(frames("amount"), id="id", label="amount", target="number")
    trees = sv.Job(algorithm=sv.Boosting(depth=3, lr=0.3), protection="plain", task="regression", epochs=1)
    ran = sv.sweep(trees, own, {"epochs": [1, 10]}, seeds=1)
    first, second = ran.record.cells
    assert (first.metric, ran.best.settings) == ("r2", {"epochs": 10})
    assert second.value == second.test["r2"] > first.value
    assert "R² on the test rows" in ran.table()


def test_what_selection_costs_adds_up() -> None:
    plain = sv.Job(protection="plain")
    noise = sv.DP(features=sv.Gaussian(epsilon=2.0, delta=1e-6), labels=sv.RandomisedResponse(epsilon=1.0))
    noisy = plan_cost(plain.replace(protection=sv.Plain(dp=noise)), ["shop"])
    assert plan_cost(plain, ["shop"]) == {}
    both = total_cost([noisy, noisy, {}])
    assert (both["features"].epsilon, both["features"].delta) == (4.0, pytest.approx(2e-6))
    assert both["labels"].epsilon == 2.0
    assert describe_cost([{}]) == ""


def test_settings_reach_into_the_job(job: sv.Job) -> None:
    assert with_setting(job, "algorithm.hidden", 4).algorithm.hidden == 4
    assert with_setting(job, "algorithm", "boosting").algorithm.name == "boosting"
    grid = grid_of(job, {"algorithm.lr": [0.1], "algorithm": ["splitnn"], "epochs": [1, 3]})
    assert grid.points[0].job.algorithm.lr == 0.1  # the whole before its parts
    assert grid.axis.name == "epochs"
    alike = grid_of(job, {"algorithm": [sv.SplitNN(hidden=4), sv.SplitNN(hidden=8)]})
    assert alike.axis.labels == ("SplitNN(hidden=4)", "SplitNN(hidden=8)")
    spaced = grid_of(job, {"algorithm.lr": np.array([0.1, 0.2]), "epochs": [np.int64(3)]})
    assert [point.job.algorithm.lr for point in spaced.points] == [0.1, 0.2]
    same = grid_of(job, {"algorithm.lr": [0.1, 0.2], "algorithm.cut_lr": [0.5]}, axis="algorithm.cut_lr")
    assert (same.axis.name, same.points[1].method) == ("cut_lr", "lr 0.2")
    assert read_over(["algorithm.lr=0.01,1e-1", "algorithm=splitnn, boosting", "stratify=[true]"]) == {
        "algorithm.lr": [0.01, 0.1],
        "algorithm": ["splitnn", "boosting"],
        "stratify": [True],
    }


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"algorithm.lrr": [1]}, "did you mean 'lr'"),
        ({"epochs": [0, -1]}, r"epochs is 0.*\n.*epochs is -1"),
        ({"epochs": []}, "at least one"),
        ({"epochs": "3"}, "give a list of values"),
        ({"epochs": [3, 3]}, "has 3 twice"),
        ({"seed": [1]}, "give seeds="),
        ({"fold": [(1, 2)]}, "cross_validate"),
        ({"epochs.lr": [1]}, "has no 'lr'"),
        ({"algorithm.": [1]}, "a path such as"),
        ({"epochs": list(range(1, 200)), "batch_size": list(range(1, 200))}, "39,601 combinations"),
        ([1], "over is a list"),
    ],
)
def test_mistakes_show_before_anything_runs(parties: sv.Parties, job: sv.Job, over: object, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.sweep(job, parties, over)  # type: ignore[arg-type]


def test_what_cannot_run_is_refused_before_anything_runs(parties: sv.Parties, job: sv.Job) -> None:
    strict = job.replace(policies={"shop": sv.Policy(sealed=True)})
    with pytest.raises(sv.PolicyError, match="'shop' refuses the job"):
        sv.sweep(strict, parties, {"epochs": [1]})
    with pytest.raises(sv.PolicyError):
        sv.sweep(job, parties, {"algorithm": ["fedcvt"], "protection": ["bfv"]})
    for wrong in (0, True, [], [1, 1], [-1], "12", [0.5]):
        with pytest.raises(sv.InputError, match="seeds"):
            choose_seeds(wrong, 0)  # type: ignore[arg-type]
    assert choose_seeds(3, 4) == (4, 5, 6)


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    for name, frame in frames().items():
        frame.drop(columns="city", errors="ignore").to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "job.toml").write_text(
        """
name = "own"
protection = { name = "plain" }
algorithm = { name = "splitnn", hidden = 4 }
job = { epochs = 1 }
[[party]]
name = "bank"
file = "bank.csv"
id = "id"
label = "good"
[[party]]
name = "shop"
file = "shop.csv"
id = "id"
""",
        encoding="utf-8",
    )
    return tmp_path / "job.toml"


def test_the_command_sweeps_a_job_file(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = job_file.parent / "out"
    asked = ["sweep", str(job_file), "--over", "algorithm.lr=0.01,0.1", "--seeds", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*asked, "--out", str(out)])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert re.search(r"Best on the validation rows: lr 0\.0?1", printed)
    assert len(SweepRecord.read(out / "sweep.json").cells) == 2
    for wrong in ("algorithm.lr", "algorithm.lr=", "=3"):
        with pytest.raises(SystemExit) as ended:
            main(["sweep", str(job_file), "--over", wrong, "--out", str(out)])
        assert ended.value.code == 2


def test_the_command_searches_a_job_file(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it prints pastes into the job file; the same command goes on, and mistakes are no tracebacks."""
    asked = ["search", str(job_file), "--space", "algorithm.lr=0.001..0.1:log", "--seeds", "1", "--trials", "2"]
    asked += ["--space", "epochs=1..2", "--space", "scale=standard,robust", "--out", str(job_file.parent / "out")]
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(asked)
        assert ended.value.code == 0
    printed = capsys.readouterr().out
    sections = tomllib.loads(printed[printed.rindex("[algorithm]") : printed.rindex("test auc")])
    assert 0.001 <= sections["algorithm"]["lr"] <= 0.1
    assert sections["job"]["epochs"] in (1, 2)
    assert sections["job"]["scale"] in ("standard", "robust")
    assert sv.Job.from_values({**sections["job"], "algorithm": {"name": "splitnn", **sections["algorithm"]}})
    for wrong in ("epochs", "epochs=1..b", "epochs=1..3:exp", "epochs=3..1"):
        with pytest.raises(SystemExit) as ended:
            main(["search", str(job_file), "--space", wrong])
        assert ended.value.code == 2
    with pytest.raises(sv.InputError, match="given twice"):
        read_space(["epochs=1..2", "epochs=1,2"])
    assert settings_text({"algorithm": "splitnn", "algorithm.lr": 0.1}) == '[algorithm]\nname = "splitnn"\nlr = 0.1'


def test_differences_are_held_against_chance(found: sv.Study) -> None:
    """Two seeds decide nothing; of five, a difference that all show is told, and one that goes both ways is not."""
    assert set(found.differences()["verdict"]) == {"undecided"}
    base, near, far, _ = found.points
    cells = [
        structs.replace(found.record.cells[0], method=point.method, x=point.x, seed=seed, value=value, test_ratio=0.25)
        for point, values in (
            (base, (0.60, 0.62, 0.61, 0.63, 0.60)),
            (near, (0.61, 0.61, 0.62, 0.62, 0.60)),
            (far, (0.80, 0.83, 0.80, 0.84, 0.79)),
        )
        for seed, value in enumerate(values)
    ]
    record = structs.replace(found.record, cells=cells)
    told = sv.Study(record=record, points=(base, near, far)).differences(base)
    assert list(told["verdict"]) == ["undecided", "better"]
    values = np.array([0.20, 0.21, 0.19, 0.21, 0.19])
    half = stats.t.ppf(0.975, 4) * values.std(ddof=1) * math.sqrt(1 / 5 + 0.25)
    assert told.loc[1, "auc difference"] == pytest.approx(0.2)
    assert told.loc[1, "high"] == pytest.approx(0.2 + half)
    assert told.loc[1, "p"] == pytest.approx(2 * stats.ttest_1samp(values, 0).pvalue, abs=1e-3)
    words = sv.Study(record=record, points=(base, near, far)).describe_differences()
    assert "undecided" in words
    assert not found.describe_differences()  # two seeds
    less = sv.Study(record=record, points=(base, near, far)).differences(far)
    assert list(less["verdict"]) == ["worse", "worse"]


def test_the_page_says_what_is_more_than_chance(parties: sv.Parties, tmp_path: Path) -> None:
    """Labels that the active party's columns hardly tell, with the partner's column and without."""
    trees = sv.Boosting(depth=2, lr=0.3)
    job = sv.Job(algorithm=trees, protection="plain", epochs=15, test=0.4)
    ran = sv.sweep(job, parties, {"algorithm": {"both": trees, "bank alone": "local"}}, seeds=8, folder=tmp_path)
    words = ran.record.notes[-1]
    assert words == ran.describe_differences()
    assert words.startswith("Against algorithm both, the best on the validation rows")
    assert re.search(r"worse by more than chance: algorithm bank alone \(-\d+\.\d\)", words)
    assert SweepRecord.read(tmp_path / "sweep.json") == ran.record
    assert "worse by more than chance" in (tmp_path / "report.html").read_text(encoding="utf-8")
