"""The ratio that tests correct for: as cells state it, as old records imply it, and as the rows of seeds have it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import securevfl as sv
from securevfl.data import datasets
from securevfl.data.resampling import compute_ratio, describe_split
from securevfl.data.table import TEST
from securevfl.errors import InputError
from securevfl.experiments.cells import Cell
from securevfl.experiments.split_ratio import find_cell_ratio, find_job_ratio
from securevfl.report import CellFigures, Claim, SweepRecord, list_verdicts, render_sweep, render_text, verdict_table
from securevfl.report.split_ratio import find_ratios

_CLEAR = (0.70, 0.71, 0.69, 0.70, 0.705)


def _record(ratio: float | None, **changes: Any) -> SweepRecord:
    cells = [
        CellFigures(
            data="digits, 2 views", method=method, x=0.05, seed=seed, value=value - 0.2 * (method == "b"), valid=0.5,
            metric="accuracy", epochs=1, best_epoch=1, seconds=1.0, test_ratio=ratio,
        )
        for method in ("a", "b")
        for seed, value in enumerate(_CLEAR if method == "a" else (*_CLEAR[1:], 0.7))
    ]  # fmt: skip
    settings = dict.fromkeys(("name", "title", "created", "command", "size", "axis", "axis_unit"), "")
    claims = [Claim(text="a is better", source="ours", data="*", better="a", worse="b")]
    return SweepRecord(cells=cells, claims=claims, versions={}, machine={}, **settings | changes)


def _said(options: dict[str, object], **more: object) -> dict[str, object]:
    return {"data": [{"name": "handwritten", "label": "digits, 2 views", "options": options, **more}]}


def test_the_ratio_of_a_share() -> None:
    assert compute_ratio(0.2) == pytest.approx(0.25)
    assert compute_ratio(0.5) == 1.0
    assert compute_ratio(0.0) == compute_ratio(1.0) == compute_ratio(1.5) == 0.0


def test_a_verdict_uses_the_ratio_that_cells_state() -> None:
    intervals = {ratio: list_verdicts(_record(ratio))[0].half_width or 0.0 for ratio in (0.0, 0.25, 1.0)}
    assert intervals[0.25] == pytest.approx(intervals[0.0] * np.sqrt((1 / 5 + 0.25) * 5))
    assert intervals[1.0] == pytest.approx(intervals[0.0] * np.sqrt((1 / 5 + 1) * 5))
    assert find_ratios(_record(0.25)) == {("digits, 2 views", 0.05): 0.25}


def test_old_records_of_named_data_sets_are_derived() -> None:
    place = ("digits, 2 views", 0.05)
    assert find_ratios(_record(None, job=_said({})))[place] == pytest.approx(0.25)
    assert find_ratios(_record(None, job=_said({"test": 0.5})))[place] == pytest.approx(1.0)
    assert find_ratios(_record(None, job=_said({"seed": 3})))[place] == 0.0  # one partition for all seeds
    assert find_ratios(_record(0.1, job=_said({})))[place] == pytest.approx(0.1)  # what cells state goes first


@pytest.mark.parametrize(
    "job", [{}, {"data": "x"}, {"data": ["x"]}, {"data": [{"name": "digits, 2 views"}]}, _said({"test": "half"})]
)
def test_records_that_do_not_say_it_decide_nothing_and_say_so(job: dict[str, object]) -> None:
    record = _record(None, job=job)
    (line,) = list_verdicts(record)
    assert (line.verdict, line.p, line.ratio) == ("undecided", None, None)
    assert line.difference == pytest.approx(0.2, abs=0.01)
    words = "No verdict on digits, 2 views: the record does not say how many test rows seeds share"
    assert words in " ".join(render_text(verdict_table(record)).split())
    assert words in render_sweep(record)
    known = _record(0.0, job=job)
    assert list_verdicts(known)[0].verdict == "holds"
    assert "No verdict on" not in render_text(verdict_table(known)) + render_sweep(known)


def test_a_ratio_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match=r"ratio of test rows to other rows of digits, 2 views, a.* is -0\.1"):
        _record(-0.1)


_SETS: list[tuple[str, dict[str, Any]]] = [
    ("handwritten", {"parties": 2}),
    ("handwritten", {"test": 0.3}),
    ("parkinson", {}),
    ("digits", {}),
    ("limited_credit", {}),
    ("limited_credit", {"rows": 12_000, "validation": "overlap"}),
    ("mnist", {"rows": 4_000, "test_rows": 2_000}),
    ("mnist", {"rows": 400}),
]


@pytest.mark.parametrize(("name", "options"), _SETS, ids=[f"{name} {options}" for name, options in _SETS])
def test_seeds_share_as_many_test_rows_as_the_ratio_says(name: str, options: dict[str, Any]) -> None:
    """The share of a seed's test rows that another seed tests too is ratio / (1 + ratio)."""
    tested = []
    for seed in range(4):
        try:
            chief = datasets.load(name, overlap=0.2, seed=seed, **options).active
        except InputError as error:
            pytest.skip(str(error))
        assert chief.fold is not None
        tested.append({one for one, kind in zip(chief.ids, chief.fold, strict=True) if kind == TEST})
    common = [len(one & other) / len(one) for one, other in itertools.combinations(tested, 2)]
    split = describe_split(name, options)
    assert split is not None
    assert split.tested == pytest.approx(np.mean(common), abs=0.04)
    ratio = compute_ratio(split.tested or 0.0)
    assert ratio / (1 + ratio) == pytest.approx(0.0 if split.tested == 1 else np.mean(common), abs=0.04)


@pytest.mark.parametrize(
    ("name", "options", "drawn"),
    [("default_credit", {"rows": 3_000}, 0.1 * 0.85**3), ("default_credit", {"shared": True, "overlap": 0.3}, 0.3),
     ("breast_cancer", {}, 0.81)],
)  # fmt: skip
def test_jobs_split_what_is_common(name: str, options: dict[str, Any], drawn: float) -> None:
    split = describe_split(name, options)
    assert split is not None
    assert (split.tested, split.drawn) == (None, pytest.approx(drawn))
    parties = datasets.load(name, seed=1, **options)
    common = len(set.intersection(*(set(table.ids) for table in parties.values())))
    assert common == pytest.approx(drawn * {"default_credit": 30_000, "breast_cancer": 569}[name], rel=0.06)


def _cell(source: dict[str, Any], **job: Any) -> tuple[Cell, sv.Job]:
    made = sv.Job(algorithm=sv.SplitNN(hidden=2), protection="plain", epochs=1, **job)
    return Cell.of_job(made, data="d", method="m", x=0.0, seed=3, source=source), made


def test_cells_know_their_split() -> None:
    own = datasets.breast_cancer(overlap=1.0)
    marked = datasets.limited_credit(rows=500, seed=3, overlap=0.2)
    assert find_cell_ratio(*_cell({"tables": "digest"}), own) == pytest.approx(0.25)
    assert find_cell_ratio(*_cell({"tables": "digest"}, test=0.5), own) == pytest.approx(1.0)
    assert find_cell_ratio(*_cell({"tables": "digest"}, split_by="time"), own) == 0.0  # all seeds test the latest rows
    assert find_cell_ratio(*_cell({"tables": "digest"}), marked) == 0.0
    named = {"name": "limited_credit", "seed": 3, "rows": 15_000}
    assert find_cell_ratio(*_cell(named), marked) == pytest.approx(0.1 / 0.9)
    assert find_cell_ratio(*_cell({**named, "seed": 0}), marked) == 0.0  # one partition for all seeds
    assert find_cell_ratio(*_cell({"name": "breast_cancer", "seed": 3}), own) == pytest.approx(0.162 / 0.838)
    assert find_cell_ratio(*_cell({"name": "a later one", "seed": 3}), own) is None
    assert find_job_ratio(_cell({})[1].replace(fold=(1, 5))) == pytest.approx(0.25)
