"""Splits by group and by time, and folds: what trains and tests, what the others learn, what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

import securevfl as sv
from securevfl.training.split_columns import class_folds, fold_marks, group_folds, group_marks, time_fold, time_marks

ROWS = 160
RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, 40, ROWS)
TIME = RNG.permutation(np.repeat(np.arange(ROWS // 4), 4)).astype(np.float64)


def _people(**own: object) -> sv.Parties:
    rng = np.random.default_rng(1)
    label = rng.integers(0, 2, ROWS)
    x = rng.normal(size=(ROWS, 4)) + label[:, None]
    ids = [f"p{i}" for i in range(ROWS)]
    bank = sv.PartyTable(
        name="bank", ids=ids, columns={"a0": x[:, 0], "a1": x[:, 1]}, label=label, classes=(0, 1), **own
    )
    return sv.Parties.of(bank, sv.PartyTable(name="shop", ids=ids, columns={"b0": x[:, 2], "b1": x[:, 3]}))


class _Heard(sv.Observer):
    listening = True

    def __init__(self) -> None:
        self.splits: dict[str, object] = {}
        self.tables: dict[str, object] = {}

    def rows_numbered(self, party: str, owner: str, rows: object) -> None:
        self.splits[party] = rows.split
        self.tables[party] = rows


def _split(job: sv.Job, people: sv.Parties) -> tuple[list[np.ndarray], sv.Result]:
    """Rows of the bank's table that train, validate and test, and the result; all parties agree on the split."""
    heard = _Heard()
    aligned = sv.align_parties(people, job)
    result = sv.simulate(job, people, aligned=aligned, observers=dict.fromkeys(people, heard))
    parts = [heard.splits[name] for name in people]
    for kind in ("train", "valid", "test"):
        assert getattr(parts[0], kind).tolist() == getattr(parts[1], kind).tolist()
    rows = aligned.parties["bank"].rows
    return [rows[getattr(parts[0], kind)] for kind in ("train", "valid", "test")], result


def _job(**options: object) -> sv.Job:
    usual = {"algorithm": "logistic_regression", "protection": sv.Plain(), "epochs": 1, "batch_size": 64}
    return sv.Job(**usual | options)


def test_a_group_is_never_on_two_sides_and_the_report_says_what_that_tells() -> None:
    parts, result = _split(_job(split_by="group"), _people(group=GROUP))
    groups = [set(GROUP[rows].tolist()) for rows in parts]
    assert not (groups[0] & groups[1])
    assert not (groups[0] & groups[2])
    assert not (groups[1] & groups[2])
    assert sum(map(len, parts)) == ROWS
    told = [line.learns for line in result.run("plain").learned if line.party == "shop"]
    assert any("never of one group" in words for words in told)


def test_by_time_the_past_trains_and_the_future_tests() -> None:
    parts, result = _split(_job(split_by="time"), _people(time=TIME))
    train, valid, test = (TIME[rows] for rows in parts)
    assert train.max() < valid.min()
    assert valid.max() < test.min()
    assert len(test) == pytest.approx(0.2 * ROWS, abs=4)
    assert any("before, between and after" in line.learns for line in result.run("plain").learned)


@pytest.mark.parametrize("by", ["group", "time"])
def test_rows_that_only_the_label_owner_has_leak_nothing_into_training(by: str) -> None:
    """Half of its rows are common; of the others, none may train that is of a group, or a time, which is tested."""
    people = _people(group=GROUP, time=TIME)
    half = sv.Parties.of(people["bank"], people["shop"].take(np.arange(0, ROWS, 2)))
    heard = _Heard()
    job = _job(algorithm="zero_imputation", split_by=by)
    aligned = sv.align_parties(half, job)
    sv.simulate(job, half, aligned=aligned, observers={"bank": heard}, baselines=("alone",))
    rows, table = aligned.parties["bank"].rows, heard.tables["bank"]
    held = rows[np.concatenate([table.split.valid, table.split.test])]
    others = sorted(set(range(ROWS)) - set(rows.tolist()))
    allowed = [r for r in others if (GROUP[r] not in GROUP[held] if by == "group" else TIME[r] < TIME[held].min())]
    assert 0 < len(allowed) < len(others)
    assert table.rest["bank"] == len(allowed)


def test_folds_test_each_row_once() -> None:
    for options, own in (
        ({}, {}),
        ({"stratify": True}, {}),
        ({"split_by": "group"}, {"group": GROUP}),
    ):
        tested = []
        for k in (1, 2, 3):
            parts, _ = _split(_job(fold=(k, 3), **options), _people(**own))
            assert sum(map(len, parts)) == ROWS
            assert len(parts[1]) == pytest.approx(0.1 * ROWS, abs=8)
            tested.append(parts[2])
        assert sorted(np.concatenate(tested).tolist()) == list(range(ROWS))


def test_folds_in_time_never_train_on_what_is_later() -> None:
    for k in (1, 2, 3):
        (train, valid, test), _ = _split(_job(fold=(k, 3), split_by="time"), _people(time=TIME))
        assert TIME[train].max() < TIME[valid].min()
        assert TIME[valid].max() < TIME[test].min()
        assert len(test) == pytest.approx(ROWS / 4, abs=4)


def test_cross_validation_is_the_mean_and_deviation_of_its_folds(tmp_path) -> None:
    people = _people()
    found = sv.cross_validate(_job(), people, folds=3, baselines=("alone",))
    assert all(cell.test_ratio == pytest.approx(0.5) for cell in found.record.cells)  # one fold over the other two
    aucs = [result.run("plain").test["auc"] for result in found.folds]
    assert found.mean["auc"] == pytest.approx(np.mean(aucs))
    assert found.deviation["auc"] == pytest.approx(np.std(aucs, ddof=1))
    tested = [name for result in found.folds for name in result.test_ids]
    assert sorted(tested) == sorted(people["bank"].ids)
    assert "±" in found.table()
    assert "3 folds" in repr(found)
    page = found.report(tmp_path)
    assert "3 folds" in page.read_text()
    saved = json.loads((tmp_path / "cross-validation.json").read_text())
    assert [fold["auc"] for fold in saved["runs"][-1]["folds"]] == aucs
    assert "run, fold 3 of 3" in (tmp_path / "fold-3" / "report.html").read_text()


def test_sealed_folds_by_group_are_of_one_drawing() -> None:
    """The label owner's secret, by which groups are drawn, comes from the operating system where the cut is sealed."""
    people = sv.Parties.of(*(table.take(np.arange(60)) for table in _people(group=GROUP).values()))
    found = sv.cross_validate(_job(protection=sv.BFV(), split_by="group"), people, folds=2)
    tested = [name for result in found.folds for name in result.test_ids]
    assert sorted(tested) == sorted(people["bank"].ids)


@pytest.mark.parametrize(
    ("options", "own", "words"),
    [
        ({"split_by": "group"}, {}, "splits by group, and the table names no column for it"),
        ({"split_by": "time"}, {"group": GROUP}, "splits by time, and the table names no column for it"),
        ({"split_by": "group"}, {"group": np.zeros(ROWS, np.int64)}, "belong to 1 groups"),
        ({"split_by": "time"}, {"time": np.zeros(ROWS)}, "1 different times"),
        ({"fold": (1, 2)}, {"fold": np.repeat([0, 1, 2, 0], 40).astype(np.int8)}, "splits them by fold: leave one out"),
    ],
)
def test_a_split_that_cannot_be_is_refused(options: dict[str, object], own: dict[str, object], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.simulate(_job(**options), _people(**own))


def test_a_job_with_an_impossible_split_is_refused() -> None:
    for options, words in (
        ({"split_by": "group", "stratify": True}, "stratify draws single rows"),
        ({"fold": (3, 2)}, r"fold is \[3, 2\]"),
        ({"fold": (1, 1)}, "2 or more"),
        ({"split_by": "week"}, "week"),
    ):
        with pytest.raises(sv.InputError, match=words):
            _job(**options)
    with pytest.raises(sv.InputError, match="fold 1 of 2 already"):
        sv.cross_validate(_job(fold=(1, 2)), _people())
    with pytest.raises(sv.InputError, match="2 to 100"):
        sv.cross_validate(_job(), _people(), folds=1)
    marked = _people(fold=np.repeat([0, 1, 2, 0], 40).astype(np.int8))
    with pytest.raises(sv.InputError, match="marks which rows train"):
        sv.cross_validate(_job(), marked)


def test_stratified_folds_do_not_give_away_the_last_class() -> None:
    """Whoever knows all classes but one must not be able to compute that one from the folds: both have to be possible,
    and about as likely."""
    classes = np.array([0] * 30 + [1] * 30)
    other = classes.copy()
    other[0] = 1
    same = sum(
        class_folds(classes, 3, seed=seed).tolist() == class_folds(other, 3, seed=seed).tolist() for seed in range(200)
    )
    assert same > 190


def test_marks_by_hand() -> None:
    assert time_marks(np.arange(10.0), valid=0.2, test=0.3).tolist() == [0] * 5 + [1] * 2 + [2] * 3
    assert time_marks(np.array([3.0, 1, 2, 2, 3, 1]), valid=0.3, test=0.4).tolist() == [2, 0, 1, 1, 2, 0]
    assert time_fold(np.arange(8.0), 2, 3, valid=0.25).tolist() == [0, 0, 0, 1, 2, 2, 3, 3]
    assert time_fold(np.arange(8.0), 3, 3, valid=0.5).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    groups = np.array([7, 7, 7, 7, 1, 1, 2, 3])
    numbers = group_folds(groups, 2, seed=0)
    assert sorted(np.bincount(numbers)) == [4, 4]
    marks = fold_marks(np.repeat([0, 1, 2], 4), 2, valid=0.25, seed=0)
    assert marks[4:8].tolist() == [2] * 4
    assert (marks == 1).sum() == 3
    drawn = group_marks(np.repeat(np.arange(50), 2), valid=0.1, test=0.2, seed=0)
    assert (drawn[::2] == drawn[1::2]).all()


def test_columns_for_groups_and_times_are_read_and_are_no_features(tmp_path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,x,y,firm,day,w\n" + "\n".join(f"{i},{i / 7},{i % 2},f{i % 3},2024-0{1 + i % 9}-11,{i}" for i in range(30))
    )
    table = sv.read_table(tmp_path / "a.csv", name="bank", id="id", label="y", group="firm", time="day", weight="w")
    assert list(table.columns) == ["x"]
    assert table.group.tolist() == [i % 3 for i in range(30)]
    assert (np.argsort(np.unique(table.time)) == np.arange(9)).all()
    assert (table.time[0], table.time[1] - table.time[0]) == (table.time[9], 31 * 86_400e6)
    assert table.weight.tolist() == [float(i) for i in range(30)]
    with pytest.raises(sv.InputError, match="dates and times"):
        sv.read_table(tmp_path / "a.csv", name="bank", id="id", label="y", time="firm")
    with pytest.raises(sv.UnknownNameError, match="group column"):
        sv.read_table(tmp_path / "a.csv", name="bank", id="id", label="y", group="firma")
    with pytest.raises(sv.InputError, match="belongs to the party with the label"):
        sv.read_table(tmp_path / "a.csv", name="shop", id="id", group="firm")
    assert replace(table, group=None).take([1, 2]).time.tolist() == table.time[1:3].tolist()


def test_the_command_cross_validates(tmp_path, monkeypatch, capsys) -> None:
    from securevfl.cli import main

    monkeypatch.chdir(tmp_path)
    for name, table in _people().items():
        head = ["id", *table.columns, *(["y"] if table.label is not None else [])]
        rows = zip(table.ids, *table.columns.values(), *([] if table.label is None else [table.label]), strict=True)
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(head), *(",".join(map(str, r)) for r in rows)]))
    (tmp_path / "job.toml").write_text(
        'folds = 2\ntitle = "Who <pays>"\n[job]\nepochs = 1\n[protection]\nname = "plain"\n'
        '[[party]]\nname = "bank"\nfile = "bank.csv"\nid = "id"\nlabel = "y"\n'
        '[[party]]\nname = "shop"\nfile = "shop.csv"\nid = "id"\n'
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", "job.toml", "--folds", "3", "--out", "out"])
    assert ended.value.code == 0
    assert len(json.loads((tmp_path / "out" / "cross-validation.json").read_text())["runs"][0]["folds"]) == 3
    assert "Who &lt;pays&gt;, 3 folds" in (tmp_path / "out" / "report.html").read_text()
    assert "Who &lt;pays&gt;, fold 2 of 3" in (tmp_path / "out" / "fold-2" / "report.html").read_text()
    assert "±" in capsys.readouterr().out


def test_a_check_tells_every_mistake_in_the_columns_of_the_label_owner(tmp_path) -> None:
    from securevfl.data.columns import ColumnUse
    from securevfl.data.sample import table_mistakes

    (tmp_path / "a.csv").write_text("id,x,y,w,t\n" + "\n".join(f"{i},{i},high,{-i},soon" for i in range(9)))
    uses = {"id": "id", "label": "y", "features": ("x",), "categorical": (), "classes": None}
    found = table_mistakes(
        tmp_path / "a.csv", ColumnUse.from_arguments(**uses, target="number", weight="w", time="t", group="firm")
    )
    for words in (
        "'y' contains 'high' in row 1",
        "weight is negative in 8 of 9",
        "dates and times",
        "unknown group column",
    ):
        assert any(words in line for line in found), (words, found)
    for options, words in (
        ({"target": "ordinal"}, "'labels' are known.*ordered classes take 'classes'.*'number' with ranks"),
        ({"target": "number", "classes": (1, 2)}, "classes are given"),
    ):
        with pytest.raises(sv.InputError, match=words):
            ColumnUse.from_arguments(**uses | options)
