"""Tables with random mistakes end in an InputError, never in another error or, on the command line, in a traceback.
Seeds are fixed: a failure says which; SECUREVFL_FUZZ takes more of them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.table_mutants import changed_bytes, changed_csv

import securevfl as sv
from securevfl.checks import check_file
from securevfl.cli import main
from securevfl.jobfile.drafting import draft_job

ROWS = 30
TABLE = "k,amount,city,since,owner,y\n" + "".join(
    f"{i},{i * 1.5 - 3:.2f},{('Rome', 'Oslo', 'Bern')[i % 3]},2020-01-{i % 28 + 1:02d},{('yes', 'no')[i % 2]},{i % 2}\n"
    for i in range(ROWS)
)
SEEDS = int(os.environ.get("SECUREVFL_FUZZ", "150"))
READS: dict[str, dict[str, Any]] = {
    "strict": {"id": "k", "label": "y", "features": ["amount", "city"], "categorical": ["city"]},
    "prepared": {"id": "k", "label": "y", "prepare": "auto"},
    "number": {"id": ["k", "city"], "label": "amount", "target": "number", "prepare": "auto"},
}
JOB = """
[job]
epochs = 1
batch_size = 8
valid = 0.1
[algorithm]
name = "splitnn"
hidden = 4
[protection]
name = "plain"
[[party]]
name = "a"
file = "a.csv"
id = "k"
label = "y"
prepare = "auto"
[[party]]
name = "b"
file = "b.csv"
id = "k"
features = ["amount"]
prepare = "auto"
"""


def survives(path: Path, data: bytes, seed: int, read: Callable[[], object]) -> bool:
    """Whether the file can be read; what is raised otherwise is an InputError with words."""
    path.write_bytes(data)
    words = "-"
    try:
        read()
    except sv.InputError as error:
        words = str(error).strip()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{data[:2000]!r}") from error
    assert words, f"seed {seed}: refused without a word"
    return words == "-"


@pytest.mark.parametrize("kind", READS)
def test_csv_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.csv"
    read = 0
    for seed in range(SEEDS):
        read += survives(path, changed_csv(TABLE, seed), seed, lambda: sv.read_table(path, name="a", **READS[kind]))
    assert 0.05 * SEEDS < read < 0.9 * SEEDS


def test_parquet_and_arrow_files(tmp_path: Path) -> None:
    table = pa.table({"k": [str(i) for i in range(ROWS)], "amount": np.arange(ROWS) * 1.5, "y": [0, 1] * (ROWS // 2)})
    packed = io.BytesIO()
    pq.write_table(table, packed, row_group_size=10)
    stream = io.BytesIO()
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    for name, whole in (("a.parquet", packed.getvalue()), ("a.arrow", stream.getvalue())):
        path = tmp_path / name
        for seed in range(SEEDS):
            survives(
                path,
                changed_bytes(whole, seed),
                seed,
                lambda p=path: sv.read_table(p, name="a", id="k", label="y"),  # type: ignore[misc]
            )


def test_drafts_of_job_files(tmp_path: Path) -> None:
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    other.write_text(TABLE, encoding="utf-8")
    for seed in range(SEEDS // 2):
        survives(path, changed_csv(TABLE, seed), seed, lambda: draft_job([path, other], tmp_path))


def test_checks_and_runs_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` says 0 or 2 and no traceback; where it says 0, the run does not end in a traceback either."""
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "job.toml"
    job.write_text(JOB, encoding="utf-8")
    (tmp_path / "b.csv").write_text(TABLE, encoding="utf-8")
    codes = set()
    for seed in range(SEEDS // 3):
        (tmp_path / "a.csv").write_bytes(changed_csv(TABLE, seed))
        code = _code(["check", str(job)])
        codes.add(code)
        said = capsys.readouterr()
        assert code in (0, 2), f"seed {seed}: exit {code}\n{said.err}"
        assert "Traceback" not in said.out + said.err, f"seed {seed}"
        assert code == 0 or said.out.strip() or said.err.strip(), f"seed {seed}: refused without a word"
        if code == 0 and seed % 5 == 0:
            code = _code(["run", str(job), "--out", str(tmp_path / "run"), "--overwrite"])
            said = capsys.readouterr()
            assert "Traceback" not in said.out + said.err, f"seed {seed}"
            assert code in (0, 2, 3, 4), f"seed {seed}: exit {code}\n{said.err}"
    assert codes == {0, 2}
    assert check_file(job) is not None


def _code(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_label_of_dates_is_no_class(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("k,x,day\n" + "".join(f"{i},{i},2020-01-{i + 1:02d}\n" for i in range(20)), encoding="utf-8")
    with pytest.raises(sv.InputError, match="label column 'day' contains dates"):
        sv.read_table(path, name="a", id="k", label="day", prepare="auto")
