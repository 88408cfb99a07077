"""`securevfl stats`: tables in, a table and statistics.json out; what it cannot guess or combine, it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from securevfl.cli import main
from securevfl.report import render_text
from securevfl.report.column_statistics import ColumnStatistics, StatisticsRecord
from securevfl.report.statistics_table import statistics_text


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    generator = np.random.default_rng(2)
    base = generator.normal(size=300)
    late = (base + generator.normal(size=300) > 0.5).astype(int)
    ids = [f"c{place:03}" for place in range(300)]
    bank = [f"{one},{40 + 5 * x:.2f},{y}" for one, x, y in zip(ids, generator.normal(size=300), late, strict=True)]
    shop = [f"{one},{100 + 9 * x:.2f}" for one, x in zip(ids, base, strict=True)]
    (tmp_path / "bank.csv").write_text("\n".join(["id,age,late", *bank]) + "\n")
    (tmp_path / "shop.csv").write_text("\n".join(["id,spent", *shop]) + "\n")
    return [str(tmp_path / "bank.csv"), str(tmp_path / "shop.csv")]


def test_two_tables_become_a_table_of_statistics(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["stats", *tables, "--label", "bank.late", "--clear", "--bins", "4", "--out", str(tmp_path / "out")])
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert "2 columns over 300 common rows" in shown
    assert "Rows with late = 0: " in shown
    assert "IV, the information value of late = 1," in " ".join(shown.split())
    assert "Exact statistics are not anonymous" in " ".join(shown.split())
    assert "● bank of shop: from" in shown, "in the clear the active party reads the rows"
    assert shown.index("shop.spent") < shown.index("bank.age")  # the more informative one first
    found = json.loads((tmp_path / "out/statistics.json").read_text(encoding="utf-8"))
    assert [one["column"] for one in found["columns"] if one["iv"] > 0.3] == ["spent"]
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "Statistics of columns" in page
    assert "What was gained" not in page
    assert '<th class="n">mean, late = 1</th>' in page


def test_options_of_tables_do_not_go_with_a_job_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.toml").write_text('name = "x"\n')
    with pytest.raises(SystemExit):
        main(["stats", str(tmp_path / "job.toml"), "--label", "late"])
    assert "a job file names both" in capsys.readouterr().err


def test_with_noise_it_says_what_noise_adds() -> None:
    one = ColumnStatistics(party="shop", column="spent", kind="numbers", iv=0.3, iv_noise=0.05, missing=0)
    found = StatisticsRecord(
        rows=900,
        classes=["no", "yes"],
        class_rows=[700, 200],
        least=0,
        epsilon=1.0,
        delta=1e-5,
        columns=[one, replace(one, column="visits", iv=0.1, iv_noise=0.1)],
        names=[],
        correlations=[],
        label="a.column.with.a.long.name",
    )
    text = " ".join(render_text(statistics_text(found), width=80).split())
    assert "Noise alone adds 0.050 to 0.100 to an IV" in text
    assert "not anonymous" not in text
    assert "strongest correlations" not in text, "there are none"
    assert [found.name_class(name) for name in ("yes", "a class of many words")] == ["yes", "a class of …"]
