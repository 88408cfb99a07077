"""Tables, plots and the page: complete, escaped, self-contained, the same for the same record, whole when little is
known."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.report import (
    Record,
    comparison_table,
    learned_table,
    ledgers_text,
    plots,
    receipt_table,
    render_report,
    render_text,
    write_report,
)
from securevfl.report.derived import human_bytes, human_seconds


@pytest.fixture(scope="module")
def record() -> Record:
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=3, batch_size=32)
    jobs = {
        "plain": job,
        "paillier": job.replace(protection=sv.Plain(fixed_point=True)),
        "dp": job.replace(protection=sv.Plain(dp=sv.DP(features=sv.Gaussian(), labels=sv.Gaussian()))),
    }
    return sv.compare(jobs, make_parties(rows=200), title="A <b>bold</b> & hostile title", command="make it").record


@pytest.fixture(scope="module")
def lone() -> Record:
    return sv.simulate(
        sv.Job(protection=sv.Plain(), epochs=1, batch_size=64), sv.Parties.of(make_parties(rows=200)["bank"])
    ).record


@pytest.fixture(scope="module")
def classes() -> Record:
    return sv.simulate(
        sv.Job(protection=sv.Plain(), epochs=2, batch_size=64), make_parties(rows=300, classes=4), baselines=("alone",)
    ).record


class _Parser(HTMLParser):
    """Collects what a page would load, and that its tags close."""

    VOID = frozenset({"meta", "br", "path", "use", "link", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _parse(page: str) -> _Parser:
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("name", ["record", "lone", "classes"])
def test_the_page_is_whole_and_loads_nothing(name: str, request: pytest.FixtureRequest) -> None:
    found: Record = request.getfixturevalue(name)
    page = render_report(found)
    parser = _parse(page)
    assert all(link.startswith("#") for link in parser.loads)
    assert "<script" not in page
    assert "default-src 'none'" in page
    text = " ".join(parser.text)
    for run in found.runs:
        assert run.title in text
        for line in run.receipt:
            assert line.what in text
        for fact in run.learned:
            assert fact.learns in text
    assert not re.search(r"\bnan\b|\bNone\b|\bundefined\b", text)


def test_hostile_titles_are_escaped(record: Record) -> None:
    page = render_report(record)
    assert "<b>bold</b>" not in page
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp; hostile title" in page
    evil = msgspec.structs.replace(record.runs[0], title="<script>alert(1)</script>")
    assert "<script" not in render_report(msgspec.structs.replace(record, runs=[evil, *record.runs[1:]]))


def test_the_same_record_gives_the_same_bytes(record: Record) -> None:
    assert render_report(record) == render_report(record)


def test_a_record_comes_back_from_its_file(record: Record, tmp_path: Path) -> None:
    page = write_report(record, tmp_path)
    assert page.read_text(encoding="utf-8") == render_report(record)
    assert Record.read(tmp_path / "metrics.json") == record
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(
    ("content", "match"),
    [(None, "does not exist"), (b"{", "not a record"), (b"{}", "not a record"), (b'{"format": 9}', "not a record")],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes | None, match: str) -> None:
    path = tmp_path / "metrics.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(sv.InputError, match=match):
        Record.read(path)


def test_other_formats_are_refused(record: Record, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_bytes(msgspec.structs.replace(record, format=2).to_json())
    with pytest.raises(sv.InputError, match="format 2, this version reads 1"):
        Record.read(tmp_path / "metrics.json")


@pytest.mark.parametrize(
    "plot", [plots.draw_test_metric, plots.draw_metric_by_epoch, plots.draw_seconds, plots.draw_bytes]
)
def test_plots_are_valid_and_show_every_run(record: Record, plot: object) -> None:
    svg = plot(record)  # type: ignore[operator]
    root = ET.fromstring(svg.replace("xlink:href", "href"))  # noqa: S314 - made by ourselves
    text = " ".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("text"))
    for run in record.runs:
        if not run.baseline:
            assert run.title.removeprefix("SplitNN, ") in text


def test_plots_without_data_are_left_out(lone: Record) -> None:
    assert plots.draw_metric_by_epoch(lone) is None
    assert plots.draw_bytes(lone) is None
    assert "Learning, epoch by epoch" not in render_report(lone)


def test_tables_hold_the_figures(record: Record, classes: Record) -> None:
    text = render_text(comparison_table(record), width=140)
    for run in record.runs:
        assert run.title in text
        assert f"{run.test['auc']:.4f}" in text
    assert "8.00" in text
    assert f"{record.alignment.common:,} common rows, verified by all 3 parties" in text
    assert all(len(line) <= 100 for line in render_text(comparison_table(record), width=100).splitlines())
    assert "–" in render_text(comparison_table(classes), width=140)  # no KS for four classes
    plain = next(run for run in record.runs if run.key == "plain")
    receipt = render_text(receipt_table(plain), width=140)
    assert "activations at the cut" in receipt
    assert "in the clear" in receipt
    assert "leak" in render_text(learned_table(record), width=140)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_234_567, "1.23 MB"), (123_456_789, "123 MB"), (5e9, "5 GB")]
)
def test_sizes_for_people(size: float, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1e-5, "< 1 ms"), (0.0123, "12 ms"), (1.26, "1.3 s"), (75.2, "75 s"), (600, "10 min")]
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


def test_the_page_and_the_terminal_say_whose_key_signed_what_and_who_cross_signed(record: Record) -> None:
    assert [line.party for line in record.ledgers] == ["bank", "shop1", "shop2"]
    page, shown = render_report(record), ledgers_text(record, Path("runs/x"))
    assert shown is not None
    for line in record.ledgers:
        peers = {"bank", "shop1", "shop2"} - {line.party}
        assert set(line.cross_signed_by) == peers
        assert line.messages > 100
        assert f"<code>{line.fingerprint}</code>" in page
        assert f"{line.party}={line.fingerprint} ({line.messages:,} messages, cross-signed by" in shown.plain
    assert "securevfl audit runs/x --pin PARTY=FINGERPRINT" in shown.plain
    old = msgspec.structs.replace(record, ledgers=[])
    assert "Ledgers</h2>" not in render_report(old)
    assert ledgers_text(old, Path("runs/x")) is None


def test_a_peer_that_lacks_a_word_in_one_run_has_not_cross_signed() -> None:
    from securevfl.run.recording import ledger_records

    result = sv.simulate(sv.Job(protection=sv.Plain(), epochs=1, batch_size=64), make_parties(rows=100))
    closing = result.ledgers["plain"]["shop1"].lines[-1]
    words = {name: word for name, word in closing.words.items() if name != "bank"}
    result.ledgers["plain"]["shop1"].lines[-1] = msgspec.structs.replace(closing, words=words)
    found = {line.party: line.cross_signed_by for line in ledger_records(result.ledgers)}
    assert found == {"bank": ["shop2"], "shop1": ["bank", "shop2"], "shop2": ["bank", "shop1"]}


@pytest.mark.parametrize("page", ["report", "sweep", "attacks", "runs"])
def test_pages_are_made_for_paper(page: str) -> None:
    """Tables whose headers break are as wide as the sheet, no heading stands alone at its end, and it is white."""
    templates = Path(plots.__file__).parent / "templates"
    own = (templates / f"{page}.html.j2").read_text(encoding="utf-8")
    assert own.startswith('{% extends "page.html.j2" %}')
    assert "<style" not in own
    text = (templates / "page.html.j2").read_text(encoding="utf-8")
    style = text[text.index("<style>") : text.index("</style>")]
    paper = style[style.index("@media print {") :]
    assert "th, th.n { font-size: 11px; white-space: normal; }" in paper
    assert re.search(r"\bh2\b[^{]*\{ break-after: avoid", paper)
    assert re.search(r"\btr\b[^{]*\{ break-inside: avoid", paper)
    assert "@page { margin: 12mm; }" in style
    assert "prefers-color-scheme: dark" not in style.replace("@media screen and (prefers-color-scheme: dark)", "")
