"""Wide tables: columns that are added some at a time, and decoded in groups, give what one column at a time gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

import securevfl as sv
from securevfl.data import arrow_rows, wide_batches
from securevfl.data.arrow_numbers import null_flags, plain_numbers, text_array
from securevfl.data.file_locations import place_of

ROWS = 60
RNG = np.random.default_rng(5)


def _columns() -> dict[str, Any]:
    """Columns of all kinds: some fit float32, some need float64, some are whole numbers."""
    found: dict[str, Any] = {"id": [f"s{k}" for k in range(ROWS)]}
    for k in range(40):
        found[f"plain {k}"] = RNG.normal(size=ROWS)
        found[f"far {k}"] = 1e7 + RNG.normal(size=ROWS)
        found[f"single {k}"] = RNG.normal(size=ROWS).astype(np.float32)
        found[f"whole {k}"] = RNG.integers(-5, 1 << 40, size=ROWS)
        found[f"flag {k}"] = RNG.random(ROWS) < 0.5
    found |= {"huge": RNG.normal(size=ROWS) * 1e300, "constant": np.full(ROWS, 0.1), "zero": np.zeros(ROWS)}
    return found | {"kind": [f"k{k % 3}" for k in range(ROWS)]}


def _read(path: Path, **options: Any) -> sv.PartyTable:
    return sv.read_table(path, name="lab", id="id", **{"categorical": ["kind"], **options})


def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_batches, "_TOGETHER", frozenset())


def _same(one: sv.PartyTable, other: sv.PartyTable) -> None:
    assert tuple(one.ids) == tuple(other.ids)
    assert list(one.columns) == list(other.columns)
    for name, values in one.columns.items():
        again = other.columns[name]
        assert values.dtype == again.dtype, name
        assert np.array_equal(np.asarray(values), np.asarray(again)), name


def _write(folder: Path, columns: Mapping[str, Any], parts: int = 1) -> Path:
    table = pa.table(dict(columns))
    if parts == 1:
        pa_parquet.write_table(table, folder / "wide.parquet")
        return folder / "wide.parquet"
    (folder / "wide").mkdir()
    for k in range(parts):
        at = slice(k * ROWS // parts, (k + 1) * ROWS // parts)
        pa_parquet.write_table(table[at], folder / f"wide/{k}.parquet")
    return folder / "wide"


@pytest.mark.parametrize("parts", [1, 3])
def test_groups_of_columns_give_the_same_table(parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path, _columns(), parts)
    with monkeypatch.context() as patch:
        _one_at_a_time(patch)
        expected = _read(path)
    assert {np.asarray(v).dtype for v in expected.columns.values()} >= {np.dtype("f4"), np.dtype("f8")}
    _same(expected, _read(path))
    monkeypatch.setattr(arrow_rows, "_FEWEST", 7)
    monkeypatch.setattr(arrow_rows, "_AT_A_TIME", 1)
    _same(expected, _read(path))


def test_a_wide_csv_file_gives_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {name: values for name, values in _columns().items() if not name.startswith(("flag", "single"))}
    pa_csv.write_csv(pa.table(columns), tmp_path / "wide.csv")
    found = _read(tmp_path / "wide.csv")
    _one_at_a_time(monkeypatch)
    _same(_read(tmp_path / "wide.csv"), found)


@pytest.mark.parametrize(
    ("name", "row", "value", "words"),
    [
        ("plain 3", 4, np.nan, r"column 'plain 3' is null or NaN in 1 of 60 rows \(rows 5\)"),
        ("plain 3", 4, None, r"column 'plain 3' is null or NaN in 1 of 60 rows \(rows 5\)"),
        ("far 2", 59, np.inf, r"column 'far 2' is infinite in 1 of 60 rows \(rows 60\)"),
        ("id", 0, None, "id column 'id' is null or empty in 1 rows"),
    ],
)
def test_mistakes_are_told_as_of_any_table(
    name: str, row: int, value: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = _columns()
    columns[name] = [value if k == row else one for k, one in enumerate(list(columns[name]))]
    path = _write(tmp_path, columns)
    monkeypatch.setattr(arrow_rows, "_FEWEST", 7)
    monkeypatch.setattr(arrow_rows, "_AT_A_TIME", 1)
    with pytest.raises(sv.InputError, match=words):
        _read(path)


def test_texts_in_a_wide_table_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path, _columns())
    monkeypatch.setattr(arrow_rows, "_FEWEST", 7)
    monkeypatch.setattr(arrow_rows, "_AT_A_TIME", 1)
    with pytest.raises(sv.InputError, match="column 'kind' holds text"):
        _read(path, categorical=[])


def test_texts_in_a_later_file_are_refused_before_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = _columns()
    folder = _write(tmp_path, columns, 3)
    pa_parquet.write_table(pa.table(columns | {"plain 3": ["x"] * ROWS}), folder / "2.parquet")
    monkeypatch.setattr(arrow_rows, "_FEWEST", 7)
    monkeypatch.setattr(arrow_rows, "_AT_A_TIME", 1)
    with pytest.raises(
        sv.InputError, match=r"2\.parquet: column 'plain 3' holds string, and numbers in the first file"
    ):
        _read(folder)


@pytest.mark.parametrize(("more", "words"), [(1, "has more"), (-1, "has 59")])
def test_a_column_with_other_rows_than_its_file_announces_is_refused(
    more: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the rows of the next file would be taken for this one's."""
    path = _write(tmp_path, _columns())
    whole = pa_parquet.ParquetFile.iter_batches

    def iter_batches(file: Any, *given: Any, columns: Any = None, **options: Any) -> Any:
        for batch in whole(file, *given, columns=columns, **options):
            if columns == damaged:
                yield batch.slice(1) if more < 0 else batch
                if more > 0:
                    yield batch.slice(0, 1)
            else:
                yield batch

    monkeypatch.setattr(arrow_rows, "_FEWEST", 7)
    monkeypatch.setattr(arrow_rows, "_AT_A_TIME", 1)
    source = arrow_rows.ParquetRows(place_of(path, None))
    damaged = source.number_groups([name for name in _columns() if name not in ("id", "kind")], ROWS)[1]
    monkeypatch.setattr(pa_parquet.ParquetFile, "iter_batches", iter_batches)
    with pytest.raises(
        sv.InputError, match=f"announces 60 rows, and column {damaged[0]!r} {words}: the file is damaged"
    ):
        _read(path)


@pytest.mark.parametrize("values", [[1.5, None, 3.0, 4.0], [1, 2, None, None], [True, None, False, True], [None] * 4])
def test_numbers_by_their_buffers_are_those_of_arrow(values: list[Any]) -> None:
    whole = pa.array(values * 5, pa.float32() if values[0] is None else None)
    for array in (whole, whole.slice(3), whole.slice(9, 6), whole.slice(2, 0)):
        flags = null_flags(array)
        assert flags.tolist() == [one is None for one in array.to_pylist()]
        found = plain_numbers(array)
        assert found[~flags].tolist() == [one for one in array.to_pylist() if one is not None]


def test_texts_become_an_arrow_array_without_pandas() -> None:
    assert text_array(["", "é", "long text"]).to_pylist() == ["", "é", "long text"]
    assert text_array([]).to_pylist() == []


def test_a_buffer_that_is_shorter_than_the_announced_rows_is_refused(tmp_path: Path) -> None:
    """Numbers are read from buffers, and Arrow's reader takes their lengths from the file."""
    path, count = tmp_path / "table.arrow", 100
    batch = pa.record_batch([pa.array([f"s{k}" for k in range(count)]), pa.array([1.5] * count)], names=["id", "x"])
    with pa.ipc.new_file(str(path), batch.schema) as writer:
        writer.write_batch(batch)
    length = (8 * count).to_bytes(8, "little")
    data = path.read_bytes()
    assert data.count(length) == 1
    path.write_bytes(data.replace(length, (64).to_bytes(8, "little")))
    with pytest.raises(sv.InputError, match=r"is not a Arrow table: .*too small"):
        sv.read_table(path, name="lab", id="id")
