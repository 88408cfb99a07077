"""Sweeps: means, verdicts, tables and the page, held against figures worked out by hand."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from securevfl.errors import InputError, UnknownNameError
from securevfl.report import (
    CellFigures,
    Claim,
    PaperFigure,
    SweepRecord,
    count_table,
    list_verdicts,
    render_sweep,
    render_text,
    summarise_cells,
    sweep_table,
    verdict_table,
    write_sweep,
)
from securevfl.report.svg_shapes import spread_apart
from securevfl.report.sweep_plots import _Axis, draw_quality, method_styles
from securevfl.report.sweep_record import format_tick

NAMES = [f"method {letter}" for letter in "ABCDEFGHIJKLMNOP"]


def _cell(
    method: str, value: float, *, x: float = 0.2, seed: int = 0, data: str = "mnist", **other: Any
) -> CellFigures:
    settings = {
        "valid": 0.5,
        "metric": "accuracy",
        "epochs": 9,
        "best_epoch": 7,
        "seconds": 3.0,
        "test_ratio": 0.0,
    } | other
    return CellFigures(data=data, method=method, x=x, seed=seed, value=value, **settings)


def _cells(method: str, values: list[float], **other: Any) -> list[CellFigures]:
    """One cell a value, with seeds 0, 1, …"""
    return [_cell(method, value, seed=seed, **other) for seed, value in enumerate(values)]


def _record(cells: list[CellFigures], **changes: Any) -> SweepRecord:
    settings = {
        "name": "overlap",
        "title": "Against overlap",
        "created": "2026-01-02T03:04:05+00:00",
        "command": "securevfl sweep overlap",
        "versions": {"securevfl": "0.1.0"},
        "machine": {"cores": "2"},
        "size": "quick",
        "axis": "overlap",
        "axis_unit": "%",
    } | changes
    return SweepRecord(cells=cells, **settings)


def _claim(better: str = "RISA", worse: str = "SplitNN", **changes: Any) -> Claim:
    settings = {"text": f"{better} beats {worse}", "source": "a paper", "data": "*"} | changes
    return Claim(better=better, worse=worse, **settings)


@pytest.fixture(scope="module")
def large() -> SweepRecord:
    """Three data sets, sixteen methods, three positions, five seeds; every kind of verdict."""
    cells = [
        _cell(
            name,
            0.6 + 0.1 * x + 0.01 * i + 0.0005 * (seed - 2) * (i % 4),
            x=x,
            seed=seed,
            data=data,
            extra={"precision": 0.5},
        )
        for data in ("mnist", "fashion-mnist", "adult")
        for i, name in enumerate(NAMES)
        for x in (0.05, 0.2, 1.0)
        for seed in range(5)
    ]
    paper = [
        PaperFigure(data="mnist", method=method, x=x, value=0.777 + x / 10, source="RISA, Table I")
        for method in ("method B", "only theirs")
        for x in (0.05, 0.2)
    ]
    claims = [
        _claim("method P", "method A"),
        _claim("method A", "method P", at=[0.2]),
        _claim("method B", "method A", margin=0.011),
        _claim("absent", "method A", data="mnist"),
    ]
    return _record(cells, paper=paper, claims=claims, notes=["Runs are short."])


def test_means_and_sample_deviations() -> None:
    cells = [
        *_cells("RISA", [0.90, 0.94, 0.92], x=1.0),
        *_cells("RISA", [0.80], x=0.05),
        *_cells("alone", [0.7, 0.7], x=0.05, data="adult"),
        *_cells("alone", [0.5, 0.6], x=0.05),
    ]
    found = [(e.data, e.method, e.x, e.n, round(e.mean, 12), round(e.std, 12)) for e in summarise_cells(_record(cells))]
    assert found == [
        ("mnist", "RISA", 0.05, 1, 0.8, 0.0),
        ("mnist", "RISA", 1.0, 3, 0.92, 0.02),  # √((0.02² + 0.02² + 0) / 2)
        ("mnist", "alone", 0.05, 2, 0.55, round(0.05 * math.sqrt(2), 12)),
        ("adult", "alone", 0.05, 2, 0.7, 0.0),
    ]


def test_positions_ascend() -> None:
    xs = [0.7, 0.05, 1.0, 0.3, 12.0, 0.2, 0.11]
    record = _record([_cell("RISA", 0.5, x=x) for x in xs])
    assert [entry.x for entry in summarise_cells(record)] == sorted(xs)


@pytest.mark.parametrize(
    ("better", "worse", "margin", "verdict"),
    [
        # differences 0.02 … 0.06: mean 0.04, deviation √0.00025 = 0.0158, standard error 0.00707; t(4) at 97.5 % is
        # 2.776, so that margins from 0.0204 to 0.0596 are undecided
        ([0.92, 0.84, 0.76, 0.73, 0.75], [0.90, 0.80, 0.70, 0.68, 0.72], 0.0, "holds"),
        ([0.92, 0.84, 0.76, 0.73, 0.75], [0.90, 0.80, 0.70, 0.68, 0.72], 0.0203, "holds"),
        ([0.92, 0.84, 0.76, 0.73, 0.75], [0.90, 0.80, 0.70, 0.68, 0.72], 0.0205, "undecided"),
        ([0.92, 0.84, 0.76, 0.73, 0.75], [0.90, 0.80, 0.70, 0.68, 0.72], 0.0595, "undecided"),
        ([0.92, 0.84, 0.76, 0.73, 0.75], [0.90, 0.80, 0.70, 0.68, 0.72], 0.0597, "does not hold"),
        ([0.90, 0.80, 0.70, 0.68, 0.72], [0.92, 0.84, 0.76, 0.73, 0.75], 0.0, "does not hold"),
        ([0.90, 0.80, 0.70, 0.68, 0.72], [0.92, 0.84, 0.76, 0.73, 0.75], -0.06, "holds"),
    ],
)
def test_a_single_verdict_is_a_t_test(better: list[float], worse: list[float], margin: float, verdict: str) -> None:
    record = _record([*_cells("RISA", better), *_cells("SplitNN", worse)], claims=[_claim(margin=margin)])
    (line,) = list_verdicts(record)
    assert (line.data, line.x, line.n, line.verdict) == ("mnist", 0.2, 5, verdict)
    assert abs(line.difference or 0) == pytest.approx(0.04)
    assert line.half_width == pytest.approx(2.776 * math.sqrt(0.00025 / 5), rel=1e-3)


def test_other_claims_of_the_page_make_a_verdict_harder() -> None:
    cells = [
        *_cells("RISA", [0.92, 0.84, 0.76, 0.73, 0.75]),
        *_cells("SplitNN", [0.90, 0.80, 0.70, 0.68, 0.72]),
    ]
    alone = list_verdicts(_record(cells, claims=[_claim(margin=0.0203)]))
    among = list_verdicts(_record(cells, claims=[_claim(margin=0.0203), _claim(margin=0.04)]))
    assert [line.verdict for line in (*alone, *among)] == ["holds", "undecided", "undecided"]
    assert among[0].p == alone[0].p == alone[0].adjusted
    assert among[0].adjusted == pytest.approx(2 * (alone[0].p or 0))


def test_equal_methods_and_few_seeds_are_undecided() -> None:
    equal = _record([*_cells("RISA", [0.8, 0.9] * 3), *_cells("SplitNN", [0.8, 0.9] * 3)], claims=[_claim()])
    exact = _record([*_cells("RISA", [0.81] * 5), *_cells("SplitNN", [0.8] * 5)], claims=[_claim(margin=0.01)])
    four = _record([*_cells("RISA", [0.9, 0.91, 0.9, 0.9]), *_cells("SplitNN", [0.1] * 4)], claims=[_claim()])
    single = _record([*_cells("RISA", [0.9]), *_cells("SplitNN", [0.1])], claims=[_claim()])
    assert [list_verdicts(record)[0].verdict for record in (equal, exact, four, single)] == ["undecided"] * 4
    assert list_verdicts(single)[0].half_width is None
    assert "+80.0" in render_text(verdict_table(single))
    assert "80.0 ±" not in render_text(verdict_table(single))


def test_only_seeds_that_both_ran_are_compared() -> None:
    cells = [
        _cell("RISA", 0.9, seed=1),
        _cell("RISA", 0.8, seed=2),
        _cell("RISA", 0.0, seed=3),
        _cell("SplitNN", 0.55, seed=2),
        _cell("SplitNN", 0.6, seed=1),
        _cell("SplitNN", 1.0, seed=4),
    ]
    (line,) = list_verdicts(_record(cells, claims=[_claim()]))
    assert (line.n, line.verdict) == (2, "undecided")
    assert line.difference == pytest.approx((0.3 + 0.25) / 2)
    assert line.half_width == pytest.approx(12.706 * 0.025, rel=1e-3)  # t(1) at 97.5 %, deviation 0.05/√2, over √2


def test_rows_without_the_partner_are_compared_and_shown() -> None:
    both = [0.92, 0.84, 0.76, 0.73, 0.75]
    cells = [
        *(_cell("LASER", value, seed=i, alone=value - 0.1) for i, value in enumerate(both)),
        *(_cell("local", value - 0.05, seed=i, alone=value - 0.05 + 0.001 * i) for i, value in enumerate(both)),
        *_cells("SplitNN", both),
    ]
    claims = [
        _claim("LASER", "local"),
        _claim("LASER", "local", rows="alone"),
        _claim("SplitNN", "local", rows="alone"),
    ]
    record = _record(cells, claims=claims)
    lines = list_verdicts(record)
    assert [line.verdict for line in lines] == ["undecided", "does not hold", "not tried"]  # the first is a constant
    assert lines[1].difference == pytest.approx(-0.052)
    alone = [(entry.method, entry.n, round(entry.mean, 9)) for entry in summarise_cells(record, "alone")]
    assert alone == [("LASER", 5, 0.7), ("local", 5, 0.752)]
    text = render_text(sweep_table(record, "mnist", "alone"))
    assert "mnist, without the partner" in " ".join(text.split())
    assert "local " in text
    assert "75.2" in text
    assert "SplitNN" not in text
    page = render_sweep(record)
    assert "Without the partner" in page
    assert "on rows without the partner" in page
    assert "Without the partner" not in render_sweep(replace(record, cells=_cells("SplitNN", both), claims=[]))
    with pytest.raises(InputError, match=r"without the partner is 1\.2"):
        _cell("LASER", 0.5, alone=1.2)


def test_counts_of_labelled_rows_are_shown() -> None:
    cells = [
        *_cells("RISA", [0.8, 0.9], extra={"rows labelled": 1200.0, "rows dropped": 3.0}),
        *_cells("RISA", [0.8, 0.9], x=1.0, extra={"rows labelled": 0.0, "rows dropped": 0.0}),
        *_cells("SplitNN", [0.8, 0.9]),
    ]
    table = count_table(_record(cells), "mnist")
    assert table is not None
    assert re.search(r"RISA +1,200 / 3 +0 / 0", render_text(table))
    assert "SplitNN" not in render_text(table)
    assert "labelled 1,200 / 3" in render_sweep(_record(cells))
    assert count_table(_record(_cells("SplitNN", [0.8])), "mnist") is None


def test_claims_apply_where_they_say() -> None:
    cells = [
        cell
        for data in ("mnist", "adult")
        for x in (0.05, 0.1 + 0.2, 1.0)
        for method, value in (("RISA", 0.9), ("SplitNN", 0.8))
        if not (data == "adult" and method == "RISA" and x == 1.0)
        for cell in _cells(method, [value + 0.001 * (i % 2) * (method == "RISA") for i in range(5)], x=x, data=data)
    ]
    claims = [_claim(), _claim(at=[0.3]), _claim(data="adult"), _claim(data="cifar"), _claim("X", "Y"), _claim("X")]
    lines = list_verdicts(_record(cells, claims=claims))
    places = {i: [(v.data, v.x) for v in lines if v.claim is claim] for i, claim in enumerate(claims)}
    near = 0.1 + 0.2
    adult = [("adult", 0.05), ("adult", near)]
    assert places[0] == [("mnist", 0.05), ("mnist", near), ("mnist", 1.0), *adult]
    assert places[1] == [("mnist", near), ("adult", near)]
    assert places[2] == adult
    assert [places[i] for i in (3, 4, 5)] == [[("cifar", None)], [("*", None)], [("*", None)]]
    assert [v.verdict for v in lines if v.x is None] == ["not tried"] * 3
    assert {v.verdict for v in lines if v.x is not None} == {"holds"}


def test_the_table_shows_per_cent_and_the_best_bold() -> None:
    cells = [*_cells("RISA", [0.931, 0.939]), *_cells("SplitNN", [0.95]), *_cells("RISA", [0.5, 0.6], x=1.0)]
    record = _record(cells)
    text = render_text(sweep_table(record, "mnist"), width=80)
    assert re.search(r"RISA +93\.5 ± 0\.6 +55\.0 ± 7\.1", text)  # 0.4·√2 and 5·√2 points
    assert re.search(r"SplitNN +95\.0 +–", text)
    assert re.search(r"overlap *\nmethod +20 % +100 %", text)
    assert "of 1 to 2 seeds" in " ".join(text.split())
    colored = render_text(sweep_table(record, "mnist"), width=80, color=True)
    assert re.search(r"\x1b\[1m *95\.0", colored)
    assert re.search(r"\x1b\[1m *55\.0", colored)
    assert not re.search(r"\x1b\[1m *93\.5", colored)


def test_an_unknown_data_set_is_refused(large: SweepRecord) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'adult'"):
        sweep_table(large, "adlt")


def test_tables_fit_a_common_terminal(large: SweepRecord) -> None:
    more = [replace(cell, x=0.5) for cell in large.cells if cell.x == 1.0]
    record = replace(large, cells=[*large.cells, *more])
    for data in ("mnist", "fashion-mnist"):
        lines = render_text(sweep_table(record, data), width=80).splitlines()
        assert all(len(line) <= 80 for line in lines)
        assert all(sum(line.startswith(name) for line in lines) == 1 for name in NAMES)
        assert sum(line.count("±") for line in lines[:20]) == 16 * 4
    text = render_text(verdict_table(record), width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    for word in ("holds", "does not hold", "undecided", "not tried", "fashion-mnist"):
        assert word in text
    body = text[: text.index("Difference: points")]
    assert body.count("%") == sum(line.x is not None for line in list_verdicts(record))


@pytest.mark.parametrize(
    ("unit", "x", "shown"),
    [("%", 0.05, "5 %"), ("%", 0.07, "7 %"), ("", 0.05, "0.05"), ("", 12.0, "12"), ("category", 1.0, "1niid")],
)
def test_positions_are_shown_with_their_unit(unit: str, x: float, shown: str) -> None:
    record = _record([_cell("RISA", 0.5, x=x)], axis_unit=unit, ticks={"1.0": "1niid"})
    assert format_tick(record, x) == shown
    assert shown in render_text(sweep_table(record, "mnist"))
    assert f">{shown}<" in (draw_quality(record, "mnist") or "")


def test_the_page_holds_every_method_verdict_and_figure(large: SweepRecord) -> None:
    page = render_sweep(large)
    text = re.sub(r"<[^>]*>", "\n", page)
    for name in [*NAMES, "only theirs"]:
        assert page.count(f">{name}<") >= (4 if name in NAMES else 1)
        assert re.search(rf"</svg>{name}</td>", page)
    for entry in summarise_cells(large):
        assert f"{100 * entry.mean:.1f} ± {100 * entry.std:.1f}" in text
    assert page.count('<td class="n"><b>') == 9  # the best of three positions on three data sets
    for figure in ("paper 78.2", "paper 79.7", "Runs are short.", "securevfl sweep overlap", "cores: 2", "a paper"):
        assert figure in text
    found = list_verdicts(large)
    legend = {"holds": 1, "does not hold": 1, "undecided": 1, "not tried": 0}
    heads = {(line.claim.text, line.verdict) for line in found if line.x is not None}
    for word, once in legend.items():
        shown = sum(line.verdict == word for line in found) + sum(verdict == word for _, verdict in heads)
        assert page.count(f'">{word}</span>') == shown + once
        assert f"<b>{sum(line.verdict == word for line in found)}</b><span>{word}</span>" in page
    assert not re.search(r"\bnan\b|\bNone\b|\bUndefined\b|\binf\b", text)


def test_the_page_is_well_formed_and_loads_nothing(large: SweepRecord) -> None:
    page = render_sweep(large)
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert all(link.startswith("#") for link in re.findall(r'(?:href|src)="([^"]*)"', page))
    names = re.findall(r'\bid="([^"]*)"', page)
    assert len(names) == len(set(names))
    body = page[page.index("<main>") : page.index("</body>")]
    ET.fromstring(body.replace("xlink:href", "href").replace("&nbsp;", " ").replace("<br>", ""))  # noqa: S314 - made by ourselves
    assert page == render_sweep(large)


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", "[red]x[/red]", "[/] x", r"$\frac$ x^", 'id="x" url(#y)', "银行", "a\x00b", "a\nb"],
)
def test_names_are_data_and_never_markup(name: str) -> None:
    cells = [*_cells(name, [0.9, 0.8], data=name, extra={name: 1.0}), *_cells("b", [0.5, 0.6], data=name)]
    record = _record(
        cells,
        title=name,
        axis=name,
        ticks={"0.2": name},
        claims=[_claim(name, "b", text=name, source=name), _claim(name, name, data=name, text="c")],
        paper=[PaperFigure(data=name, method=name, x=0.2, value=0.5, source=name)],
        notes=[name],
        machine={name: name},
        job={name: name},
        command=name,
    )
    page = render_sweep(record)
    assert "<script" not in page
    svg = draw_quality(record, name)
    assert svg
    drawn = ["".join(e.itertext()) for e in ET.fromstring(svg).iter() if e.tag.endswith("text")]  # noqa: S314
    assert drawn.count(" ".join(name.replace("\x00", " ").split())) >= 4  # both labels, both ticks
    for table in (sweep_table(record, name), verdict_table(record)):
        for color in (True, False):
            text = render_text(table, color=color)
        assert "\x00" in name or "\n" in name or name in text


def test_the_papers_figures_are_a_panel_of_their_own(large: SweepRecord) -> None:
    beside, alone = draw_quality(large, "mnist"), draw_quality(large, "adult")
    assert beside
    assert alone
    assert "paper: RISA, Table I" in beside
    assert "only theirs" in beside
    assert "paper" not in alone
    assert beside.count(">method B<") == 2
    assert alone.count(">method B<") == 1
    assert draw_quality(large, "cifar") is None


def test_styles_differ_and_are_the_same_everywhere(large: SweepRecord) -> None:
    record = replace(large, cells=[*large.cells, *(_cell(f"more {i}", 0.5) for i in range(15))])
    look = method_styles(record)
    assert len(look) == 32
    assert len({(s.color, s.marker, s.hollow, s.dash) for s in look.values()}) == 32
    assert [look[name] for name in NAMES] == [method_styles(large)[name] for name in NAMES]


def test_labels_keep_their_distance_and_stay_inside() -> None:
    places = spread_apart([0.5, 0.5, 0.5, 0.52, 0.99, 1.0], 0.1, 0.0, 1.0)
    assert all(b - a > 0.1 - 1e-9 for a, b in itertools.pairwise(places))
    assert min(places) >= 0
    assert max(places) <= 1
    assert spread_apart([0.1, 0.5, 0.9], 0.1, 0.0, 1.0) == [0.1, 0.5, 0.9]


@pytest.mark.parametrize(
    ("xs", "unit", "log", "ranks"),
    [
        ([0.05, 0.2, 1.0], "%", True, False),
        ([0.1, 1.0], "%", False, False),
        ([0.0, 0.01, 1.0], "%", False, False),
        ([1.0, 20.0], "category", False, True),
        ([0.2], "%", False, True),
    ],
)
def test_the_axis_is_logarithmic_beyond_tenfold(xs: list[float], unit: str, log: bool, ranks: bool) -> None:
    axis = _Axis.from_record(_record([], axis_unit=unit), xs)
    assert (axis.log, axis.ranks) == (log, ranks)


def test_files_come_back(large: SweepRecord, tmp_path: Path) -> None:
    page = write_sweep(large, tmp_path / "new" / "sweep")
    assert page.read_text(encoding="utf-8") == render_sweep(large)
    assert SweepRecord.read(page.with_name("sweep.json")) == large
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html", "sweep.json"]


def test_an_empty_sweep_has_a_page(tmp_path: Path) -> None:
    record = _record([], claims=[_claim()], machine={}, versions={}, command="", created="")
    assert "not tried" in write_sweep(record, tmp_path).read_text(encoding="utf-8")
    assert "not tried" in render_text(verdict_table(record))
    assert summarise_cells(record) == []


def test_figures_that_cannot_be_are_refused() -> None:
    for value in (93.1, -0.1, math.nan):
        with pytest.raises(InputError, match="fraction from 0 to 1"):
            _cell("RISA", value)
    with pytest.raises(InputError, match="give a number"):
        _cell("RISA", 0.5, valid=math.nan)
    with pytest.raises(InputError, match=r"two runs of mnist, RISA, 0\.2, seed 0"):
        _record([_cell("RISA", 0.5), _cell("RISA", 0.6)])
    assert _cell("RISA", 0.5, extra={"precision": math.nan, "rows": 3.0}).extra == {"rows": 3.0}


@pytest.mark.parametrize(
    ("content", "match"),
    [(None, "does not exist"), (b"{", "not a record"), (b"{}", "not a record"), (b'{"format": 9}', "not a record")],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes | None, match: str) -> None:
    path = tmp_path / "sweep.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=match):
        SweepRecord.read(path)


def test_other_formats_and_impossible_figures_in_files_are_refused(large: SweepRecord, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_bytes(replace(large, format=2).to_json())
    with pytest.raises(InputError, match="format 2, this version reads 1"):
        SweepRecord.read(path)
    plain = msgspec.to_builtins(large)
    plain["cells"][0]["value"] = 60
    path.write_bytes(msgspec.json.encode(plain))
    with pytest.raises(InputError, match="not a record of a sweep"):
        SweepRecord.read(path)
