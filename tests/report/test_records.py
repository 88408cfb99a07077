"""Records made by hand: names from outside, little data, odd data. None of it may break a table, a plot or the page."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from securevfl.report import (
    Record,
    RunRecord,
    comparison_table,
    learned_table,
    plots,
    receipt_table,
    receipts_text,
    render_report,
    render_text,
    warnings_text,
    write_report,
)
from securevfl.report.derived import (
    count_decimals,
    describe_verification,
    epsilon_of,
    format_amount,
    metric_text,
    metrics_of,
    phases_by_party,
)
from securevfl.report.progress import RunLines, run_bars
from securevfl.report.record import (
    AlignmentRecord,
    EpochRecord,
    EpsilonRecord,
    LearnedRecord,
    LinkRecord,
    PartyRecord,
    Phases,
    ReceiptLine,
)
from securevfl.training.calibration import Calibration, Correction

KEYS = {
    "alone": "bank alone",
    "pooled": "pooled in the clear",
    "plain": "SplitNN, plain",
    "paillier": "SplitNN, Paillier 2048",
    "dp": "SplitNN, DP on features + labels, ε = 8",
}


def _run(number: int, key: str, title: str) -> RunRecord:
    """Figures that grow with the number, so that each is told apart."""
    federated = key not in ("alone", "pooled")
    sealed, noisy = key == "paillier", key == "dp"
    names = ("bank", "network", "retailer") if federated else ("bank",)
    auc = 0.61 + 0.03 * number
    size = 40_000_000 if sealed else 2_000_000
    sent = {"bank -> network": size, "network -> bank": size // 2} if federated else {}
    epochs = [
        EpochRecord(
            epoch=epoch,
            train_loss=0.6 - epoch / 100,
            valid={"auc": auc - 0.02 / epoch},
            seconds=1.0,
            phases={name: Phases(compute=0.02, he=10.0 if sealed else 0.0, wait=0.5) for name in names},
            bytes=sent,
        )
        for epoch in (1, 2, 3)
    ]
    guard = "Paillier 2048 bits, key 1b589733" if sealed else "in the clear"
    line = ReceiptLine(
        sender="network",
        receiver="bank",
        what="activations at the cut",
        kind="activation",
        protection=guard,
        protected=sealed,
        messages=60,
        bytes=1_000_000,
    )
    fact = LearnedRecord(
        party="bank", about="network", learns="activations", severity="note" if sealed or noisy else "leak"
    )
    budget = EpsilonRecord(
        party="network",
        what="activations",
        epsilon_rdp=8.0,
        epsilon_prv=7.45,
        delta=1e-5,
        releases=3,
        noise_multiplier=0.638,
        clip=1.0,
    )
    links = [
        LinkRecord(sender=link.split(" -> ")[0], receiver=link.split(" -> ")[1], messages=180, bytes=3 * total)
        for link, total in sent.items()
    ]
    return RunRecord(
        key=key,
        title=title,
        baseline=not federated,
        protection=key,
        epochs=epochs,
        best_epoch=3,
        stopped="all epochs done",
        test={"auc": auc, "accuracy": 0.8, "log_loss": 0.45, "ks": 0.4},
        seconds=3.0,
        links=links,
        epsilon=[budget] if noisy else [],
        receipt=[line] if federated else [],
        learned=[fact] if federated else [],
        rows_trained=700,
    )


@pytest.fixture(scope="module")
def record() -> Record:
    names = ("bank", "network", "retailer")
    return Record(
        name="credit",
        title="Credit default",
        created="2026-01-02T03:04:05+00:00",
        command="securevfl demo",
        versions={"securevfl": "0.1.0"},
        machine={"cores": "2"},
        job={"epochs": 3},
        parties=[
            PartyRecord(name=name, role="passive" if i else "active", rows=1234, columns=["a", "b"])
            for i, name in enumerate(names)
        ],
        alignment=AlignmentRecord(
            protocol="DH-PSI",
            common=1000,
            train=700,
            valid=100,
            test=200,
            pairwise={"network": 1111, "retailer": 1122},
            seconds=1.5,
            links=[],
            verified_by=list(names),
            digest="0123456789abcdef",
        ),
        runs=[_run(i, key, title) for i, (key, title) in enumerate(KEYS.items())],
    )


def test_a_page_that_is_written_again_leaves_the_figures_that_ledgers_are_bound_to(
    record: Record, tmp_path: Path
) -> None:
    """`securevfl report` and `explain` read them first. A whole number came back with a point, and the audit failed."""
    one = Calibration(correction=Correction(temperature=1.2), rows=100, gain=0.01, before=0.05, after=0.03).describe()
    found = replace(record, runs=[replace(record.runs[0], calibration={"whole": one}), *record.runs[1:]])
    write_report(found, tmp_path)
    file = tmp_path / "metrics.json"
    assert Record.read(file).to_json() == file.read_bytes() == found.to_json()
    spelled = found.to_json().replace(b'"rows_trained": 700', b'"rows_trained":  700')
    file.write_bytes(spelled)  # as another version may have
    write_report(Record.read(file), tmp_path)
    assert file.read_bytes() == spelled
    write_report(replace(found, title="other"), tmp_path)
    assert Record.read(file).title == "other"


def _show(record: Record) -> str:
    """All that can be shown of a record, as one text."""
    tables = [comparison_table(record), learned_table(record), *map(receipt_table, record.runs)]
    shown = [
        render_text(table, width=width, color=color) for table in tables for width, color in ((60, True), (140, 0))
    ]
    return "\n".join([*shown, render_report(record)])


def _with(record: Record, **changes: object) -> Record:
    """The record with its plain run changed."""
    return replace(record, runs=[replace(run, **changes) if run.key == "plain" else run for run in record.runs])


def test_the_manager_reads_the_gain_and_the_price(record: Record) -> None:
    page = render_report(record)
    for words in ("0.610 → 0.670", "× 501", "AUC +0.0300 against plain", "ε = 8.0", "verified by all 3 parties"):
        assert words in page
    assert "bank and network 1,111, bank and retailer 1,122 rows in common" in page


@pytest.mark.parametrize("width", [80, 100])
def test_no_figure_is_cut_off_in_a_common_terminal(record: Record, width: int) -> None:
    lines = render_text(comparison_table(record), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    for run in record.runs:
        row = next(line for line in lines if f"{run.test['auc']:.4f}" in line)
        assert row.endswith("8.00" if run.epsilon else "–")
        for link in run.links:
            assert {3 * 40_000_000: "120 MB", 3 * 20_000_000: "60 MB"}.get(link.bytes, "MB") in row


def test_a_brief_table_of_repeated_runs_fits_a_common_terminal(record: Record) -> None:
    """Four metrics with deviations need 92 columns; the first alone fits 80, with all other figures."""
    spread = {"auc": 0.0037, "accuracy": 0.0034, "log_loss": 0.0102, "ks": 0.024}
    runs = [run if run.baseline else replace(run, deviation=spread) for run in record.runs]
    text = render_text(comparison_table(replace(record, runs=runs), brief=True), width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("± 0.0037") == sum(not run.baseline for run in record.runs)
    assert "8.00" in text
    shown = {run.baseline for run in record.runs if f"{run.test['auc']:.4f}" in text}
    assert shown == {False}, "baselines are in the sentence below"
    assert not {"KS", "log-"} & set(text.split())


def test_a_compact_table_has_every_run_in_few_lines_of_80_columns(record: Record) -> None:
    named = replace(record, runs=[replace(run, deviation={}) for run in record.runs])
    full, compact = (render_text(comparison_table(named, compact=one), width=80) for one in (False, True))
    assert all(len(line) <= 80 for line in compact.splitlines())
    assert len(compact.splitlines()) < len(full.splitlines())
    for run in named.runs:
        assert f"{run.test['auc']:.4f}" in compact
    assert "passive" not in compact
    plain = replace(named, runs=[run for run in named.runs if epsilon_of(run) is None])
    assert "ε" not in render_text(comparison_table(plain, compact=True), width=80)
    assert "8.00" in compact


def test_a_line_sums_up_each_receipt(record: Record) -> None:
    lines = render_text(receipts_text(record), width=400).splitlines()
    joint = [run for run in record.runs if run.receipt]
    assert len(lines) == len(joint) > 1
    for line, run in zip(lines, joint, strict=True):
        bare = sum(one.messages for one in run.receipt if not one.protected)
        every = sum(one.messages for one in run.receipt)
        assert f"{run.title}: {bare:,} of {every:,} messages carry data without protection" in line
        for one in run.receipt:
            assert one.protected or one.what in line
    assert receipts_text(replace(record, runs=[])) is None


def test_a_run_shows_three_warnings_those_of_joint_runs_first(record: Record) -> None:
    alone, *joint = sorted(record.runs, key=lambda run: not run.baseline)
    joint = [run for run in joint if not run.baseline]
    few = replace(record, runs=[replace(alone, warnings=["of it alone"]), replace(joint[0], warnings=["of all"])])
    lines = render_text(warnings_text(few, most=3), width=200).splitlines()
    assert [line.rpartition(": ")[2].strip() for line in lines] == ["of all", "of it alone"]
    many = replace(few, runs=[few.runs[0], replace(joint[0], warnings=list("abcd"))])
    *shown, last = render_text(warnings_text(many, most=3), width=200).splitlines()
    assert [line.rpartition(": ")[2].strip() for line in shown] == ["a", "b", "c"]
    assert last.startswith("5 warnings in all")
    both = replace(record, runs=[replace(run, warnings=["alike"]) for run in record.runs[:2]])
    (line,) = render_text(warnings_text(both), width=200).splitlines()
    assert line.strip() == f"warning: {both.runs[0].title}; {both.runs[1].title}: alike"


def test_amounts_of_a_column_have_as_many_digits_behind_the_point(record: Record) -> None:
    errors = (0.022615, 0.04231, 0.205)
    runs = [replace(record.runs[0], test={"r2": 0.9, "rmse": 2 * one, "mae": one}) for one in errors]
    digits = {name: many for name, _, many in metrics_of(replace(record, runs=runs))}
    assert [metric_text(one, digits["mae"]) for one in errors] == ["0.022615", "0.042310", "0.205000"]
    assert format_amount(180_921.4) == "180,921"
    assert format_amount(12_345.6, sign="+") == "+12,346"
    assert format_amount(0.0) == "0.000"
    assert count_decimals([1e-9, 5.0]) == count_decimals([0.05])


def test_brief_warnings_take_a_line_and_name_their_runs(record: Record) -> None:
    warned = replace(record.runs[1], warnings=["of 30 rows only 1", "the best epoch is the last"])
    text = warnings_text(replace(record, runs=[record.runs[0], warned]), brief=True)
    assert render_text(text, width=200).strip() == f"2 warnings, in full in the report: {warned.title}"
    assert warnings_text(replace(record, runs=[]), brief=True) is None


@pytest.mark.parametrize(
    "title",
    ["[/] x", "[red]x[/red]", r"$\frac$ and $x^$", "a $5 b $6", "银行", "a\x00b", "x" * 200, 'id="x" url(#y)', ""],
)
def test_names_are_data_and_never_markup(record: Record, title: str) -> None:
    line = replace(record.runs[2].receipt[0], what=title, protection=title)
    fact = replace(record.runs[2].learned[0], learns=title, severity="strange")
    changed = _with(record, title=title, receipt=[line], learned=[fact])
    text = _show(changed)
    if "[" in title:
        assert title in text
    for plot in (plots.draw_test_metric, plots.draw_metric_by_epoch, plots.draw_seconds, plots.draw_bytes):
        svg = plot(changed)
        assert svg
        drawn = ["".join(e.itertext()) for e in ET.fromstring(svg).iter() if e.tag.endswith("text")]  # noqa: S314
        if "\x00" not in title and 0 < len(title) < 30:
            assert title in drawn


def _no_active(record: Record) -> Record:
    return replace(record, parties=record.parties[1:])


def _bare(record: Record) -> Record:
    run = replace(record.runs[2], epochs=[], links=[], receipt=[], learned=[], test={})
    alignment = replace(record.alignment, pairwise={}, verified_by=[], digest="")
    return replace(
        record, runs=[run], parties=[], alignment=alignment, machine={}, versions={}, job={}, command="", created=""
    )


def _ragged(record: Record) -> Record:
    first, second, third = record.runs[2].epochs
    return _with(
        record,
        epochs=[first, replace(second, phases={"bank": Phases(compute=1.0)}), replace(third, phases={}, bytes={})],
    )


def _other_metrics(record: Record) -> Record:
    return _with(record, test={"accuracy": 0.5})


@pytest.mark.parametrize("change", [_no_active, _bare, _ragged, _other_metrics])
def test_what_is_missing_is_left_out(record: Record, change: object) -> None:
    changed: Record = change(record)  # type: ignore[operator]
    text = re.sub(r"<[^>]*>|default-src 'none'", "", _show(changed))
    assert not re.search(r"\bnan\b|\bNone\b|\bUndefined\b|\binf\b", text)


def test_sections_without_content_are_not_there(record: Record) -> None:
    page = render_report(_bare(record))
    for heading in (
        "<svg",
        "Who learned what",
        "Protection receipts",
        "The price of privacy",
        "<h2>Alignment",
        "machine",
    ):
        assert heading not in page


def test_means_count_epochs_in_which_a_party_did_nothing(record: Record) -> None:
    means = phases_by_party(_ragged(record).runs[2])
    assert means["bank"] == pytest.approx(((0.02 + 1.0) / 3, 0.0, 0.5 / 3))
    assert means["network"] == pytest.approx((0.02 / 3, 0.0, 0.5 / 3))


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (["bank", "network", "retailer"], "verified by all 3 parties"),
        (["bank", "network"], "verified by bank, network only"),
        ([], "not verified"),
    ],
)
def test_only_what_was_verified_is_called_so(record: Record, by: list[str], words: str) -> None:
    changed = replace(record, alignment=replace(record.alignment, verified_by=by))
    assert describe_verification(changed) == words
    assert words in " ".join(render_text(comparison_table(changed)).split())
    assert describe_verification(replace(changed, parties=record.parties[:1])) == ""


def test_two_parties_are_both(record: Record) -> None:
    two = replace(record, parties=record.parties[:2])
    assert describe_verification(two) == "verified by both parties"


def test_alignment_of_all_parties_at_once_says_that_no_pairwise_overlap_is_learned(record: Record) -> None:
    pairs = render_report(record)
    assert "including those that other parties lack" in pairs
    assert "by pairs" in pairs
    everyone = render_report(replace(record, alignment=replace(record.alignment, pairwise={})))
    assert "but no overlap of fewer parties; the sizes of their tables" in everyone
    assert "by pairs" not in everyone
    assert "same keyed digest" in everyone


def test_a_partys_own_record_claims_no_time_or_bytes_of_others(record: Record) -> None:
    own = replace(record, known_to="shop")
    page = render_report(own)
    assert "all parties together" not in page
    assert "seconds of work in an epoch, shop alone" in page
    assert "bytes that shop sends in an epoch" in page
    assert "time is that of shop alone" in " ".join(render_text(comparison_table(own)).split())


def test_output_to_a_file_says_what_runs() -> None:
    """A file stayed empty until the end of a run: bars are drawn on terminals alone."""
    out = io.StringIO()
    with run_bars(Console(file=out, width=80)) as lines:
        lines.run("SplitNN, plain")
        lines.epoch(1, 0.5, {"auc": 0.7})
        assert out.getvalue() == "SplitNN, plain …\n"
        assert isinstance(lines, RunLines)
        lines._due = 0.0
        lines.epoch(2, 0.5, {"auc": 0.75})
    assert out.getvalue() == "SplitNN, plain …\n  epoch 2, AUC 0.750\n"
