"""How CSV files are written is found out, or told: encodings, delimiters, decimal commas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import securevfl as sv
from securevfl.data.dialect import DELIMITERS, CsvForm, dialect_of

CITIES = ("Köln", "Rome", 'a "b"', "x,y;z")


def written(path: Path, encoding: str, delimiter: str, decimal: str, rows: int = 60) -> Path:
    """A table whose numbers are i + ½; one city holds delimiters, in quotes."""
    lines = [delimiter.join(["id", "größe", "city", "ok"])]
    for i in range(rows):
        city = CITIES[i % 4].replace('"', '""')
        lines.append(delimiter.join([f"k{i}", f"{i}{decimal}5", f'"{city}"', str(i % 2)]))
    path.write_text("\r\n".join(lines) + "\r\n", encoding=encoding, newline="")
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize(("delimiter", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ","), ("|", ".")])
def test_what_a_table_is_written_in_is_found_out(encoding: str, delimiter: str, decimal: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", encoding, delimiter, decimal)
    table = sv.read_table(path, name="bank", id="id", label="ok", categorical=["city"])
    assert table.rows == 60
    assert np.array_equal(table.columns["größe"], np.arange(60) + 0.5)
    assert {str(one) for one in table.columns["city"]} == set(CITIES)


def test_what_is_told_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id;a;ok\n" + "".join(f"k{i};{i},250;{i % 2}\n" for i in range(9)), encoding="utf-8")
    found = sv.read_table(path, name="bank", id="id", label="ok")
    assert found.columns["a"][3] == 3.25
    told = sv.read_table(path, name="bank", id="id", label="ok", decimal=".", categorical=["a"])
    assert str(told.columns["a"][3]) == "3,250"
    with pytest.raises(sv.InputError, match="'id'"):
        sv.read_table(path, name="bank", id="id", label="ok", delimiter="|")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delimiter": "#"}, "one of"),
        ({"decimal": ";"}, "'.' or ','"),
        ({"delimiter": ",", "decimal": ","}, "a number would be two fields"),
        ({"encoding": "utf-9"}, "Python does not support"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        CsvForm(**options)


def test_bytes_that_are_no_text_are_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"id,a\n\xff\xfe\xfa,1\n")
    with pytest.raises(sv.InputError, match="name its encoding"):
        sv.read_table(path, name="bank", id="id", encoding="utf-8")
    path.write_bytes("id,a\n1,2\n".encode("utf-16-le"))
    with pytest.raises(sv.InputError, match="utf-16-le"):
        sv.read_table(path, name="bank", id="id")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DELIMITERS),
    st.lists(st.lists(st.sampled_from(["a", "b c", "12", "x;y", "p|q", "m,n"]), min_size=3, max_size=3), min_size=1),
)
def test_the_delimiter_of_any_quoted_table_is_found(delimiter: str, rows: list[list[str]]) -> None:
    lines = [delimiter.join(("one", "two", "three")), *(delimiter.join(f'"{cell}"' for cell in row) for row in rows)]
    assert dialect_of("\n".join(lines).encode(), "t").delimiter == delimiter


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_dialect_or_an_error_of_input(head: bytes) -> None:
    try:
        found = dialect_of(head, "t")
    except sv.InputError:
        return
    assert found.delimiter in DELIMITERS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty: it has no header"),
        (b" \r\n", "is empty"),
        (b"PK\x03\x04" + bytes(50), "an Excel workbook or a ZIP archive.*CSV UTF-8"),
        (b"\xd0\xcf\x11\xe0" + bytes(50), "an old Excel workbook"),
        (b"PAR1" + bytes(50), r"name that ends in \.parquet"),
        (b"\x1f\x8b\x08" + bytes(50), r"name that ends in \.csv\.gz"),
        (
            b"id,a,ok\n1,2,0\n2,3,1,4\n",
            r"row 3 \(the header is row 1\) has 4 fields, but the header has 3: '2,3,1,4'; .* quote fields",
        ),
        (b"id,,a,,ok\n1,2,3,4,0\n2,3,4,5,1\n", r"2 columns without a name \(columns 2, 4\)"),
        (b"id,a,a,a,ok\n1,2,3,4,0\n2,3,4,5,1\n", "column 'a' 3 times; rename"),
    ],
)
def test_what_is_no_table_says_what_it_is(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(sv.InputError, match=words):
        sv.read_table(tmp_path / "t.csv", name="bank", id="id", label="ok")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_the_line_with_which_a_spreadsheet_names_its_delimiter_is_no_header(encoding: str, tmp_path: Path) -> None:
    text = "sep=;\r\nid;größe;ok\r\n" + "".join(f"k{i};{i},5;{i % 2}\r\n" for i in range(9))
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    table = sv.read_table(tmp_path / "t.csv", name="bank", id="id", label="ok")
    assert (table.rows, table.columns["größe"][8]) == (9, 8.5)
