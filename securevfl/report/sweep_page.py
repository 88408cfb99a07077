"""The sweep's page: one self-contained HTML file, without scripts."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from securevfl.report.derived import human_seconds
from securevfl.report.split_ratio import ratio_text, unknown_text
from securevfl.report.statistics import FEWEST
from securevfl.report.sweep import (
    counts_text,
    describe_figures,
    difference_text,
    failures_text,
    find_best,
    mean_text,
    seen_text,
)
from securevfl.report.sweep_plots import draw_quality, draw_swatch, method_styles
from securevfl.report.sweep_record import (
    Claim,
    Rows,
    SweepRecord,
    dataset_names,
    format_tick,
    list_positions,
    method_names,
    summarise_cells,
)
from securevfl.report.sweep_verdicts import Verdict, judge_claims
from securevfl.report.template import fill_template, write_files

__all__ = ["render_sweep", "write_sweep"]

_BADGES = {"holds": "ok", "does not hold": "leak", "undecided": "note", "not tried": "none"}
_NEAR = {"rel_tol": 1e-9, "abs_tol": 1e-12}


@dataclass(frozen=True)
class _Figure:
    """One cell of a table: ours, whether it is the best of its column, the paper's, and rows labelled and dropped."""

    ours: str
    best: bool
    paper: str
    counts: str


@dataclass(frozen=True)
class _Training:
    """How the runs of one method at one position went: means over the seeds."""

    method: str
    x: float
    n: int
    valid: float
    epochs: float
    best_epoch: float
    seconds: float
    extra: dict[str, float]


@dataclass(frozen=True)
class _Section:
    """One data set."""

    data: str
    measured: str
    picture: Markup | None
    xs: list[float]
    rows: dict[str, list[_Figure]]
    alone: dict[str, list[_Figure]]
    alone_measured: str
    sources: list[str]
    training: list[_Training]
    extras: list[str]


@dataclass(frozen=True)
class _Judged:
    """One claim: its verdicts by data set, for the positions of the columns."""

    claim: Claim
    tally: dict[str, int]
    xs: list[float]
    rows: dict[str, list[Verdict | None]]


def _paper_text(record: SweepRecord, data: str, method: str, x: float) -> str:
    """The paper's figures at this place, in per cent; empty where it gives none."""
    near = [f for f in record.paper if (f.data, f.method) == (data, method) and math.isclose(f.x, x, **_NEAR)]
    return " / ".join(dict.fromkeys(f"{100 * figure.value:.1f}" for figure in near))


def _training_figures(record: SweepRecord, data: str) -> list[_Training]:
    found = []
    for method in method_names(record, data):
        for x in list_positions(record, data):
            cells = [cell for cell in record.cells if (cell.data, cell.method, cell.x) == (data, method, x)]
            if not cells:
                continue
            names = dict.fromkeys(name for cell in cells for name in cell.extra)
            found.append(
                _Training(
                    method=method,
                    x=x,
                    n=len(cells),
                    valid=statistics.fmean(cell.valid for cell in cells),
                    epochs=statistics.fmean(cell.epochs for cell in cells),
                    best_epoch=statistics.fmean(cell.best_epoch for cell in cells),
                    seconds=statistics.fmean(cell.seconds for cell in cells),
                    extra={
                        name: statistics.fmean(cell.extra[name] for cell in cells if name in cell.extra)
                        for name in names
                    },
                )
            )
    return found


def _figure_rows(record: SweepRecord, data: str, rows: Rows) -> dict[str, list[_Figure]]:
    """Method → a figure for each position, of the methods that have one; the paper's only where all parties score."""
    entries = [entry for entry in summarise_cells(record, rows) if entry.data == data]
    at, best, common = {(entry.method, entry.x): entry for entry in entries}, find_best(entries), rows == "common"
    names = [*method_names(record, data), *(figure.method for figure in record.paper if figure.data == data and common)]
    found = {
        name: [
            _Figure(
                ours=mean_text(at.get((name, x))),
                best=(name, x) in best,
                paper=_paper_text(record, data, name, x) if common else "",
                counts=counts_text(record, data, name, x) if common else "",
            )
            for x in list_positions(record, data)
        ]
        for name in dict.fromkeys(names)
    }
    return {name: row for name, row in found.items() if any(cell.paper or cell.ours != "–" for cell in row)}


def _build_section(record: SweepRecord, data: str) -> _Section:
    training = _training_figures(record, data)
    alone = _figure_rows(record, data, "alone")
    return _Section(
        data=data,
        measured=describe_figures(record, data),
        picture=draw_quality(record, data),
        xs=list_positions(record, data),
        rows=_figure_rows(record, data, "common"),
        alone=alone,
        alone_measured=describe_figures(record, data, "alone") if alone else "",
        sources=list(dict.fromkeys(figure.source for figure in record.paper if figure.data == data)),
        training=training,
        extras=list(dict.fromkeys(name for line in training for name in line.extra)),
    )


def _judge_claim(claim: Claim, lines: list[Verdict]) -> _Judged:
    xs = sorted({line.x for line in lines if line.x is not None})
    at = {(line.data, line.x): line for line in lines}
    return _Judged(
        claim=claim,
        tally=dict(Counter(line.verdict for line in lines)),
        xs=xs,
        rows={data: [at.get((data, x)) for x in xs] for data in dict.fromkeys(line.data for line in lines) if xs},
    )


def render_sweep(record: SweepRecord) -> str:
    """The whole page. The same record gives the same text."""
    claims = [_judge_claim(claim, lines) for claim, lines in judge_claims(record)]
    return fill_template(
        "sweep.html.j2",
        record.title,
        {"seconds": human_seconds, "difference": difference_text, "seen": seen_text, "ratio": ratio_text},
        record=record,
        fewest=FEWEST,
        unknown=unknown_text(record),
        failures=failures_text(record),
        sections=[_build_section(record, data) for data in dataset_names(record)],
        claims=claims,
        tally=sum((Counter(judged.tally) for judged in claims), Counter[str]()),
        badges=_BADGES,
        methods=method_names(record),
        seeds=len({cell.seed for cell in record.cells}),
        places=len({cell.x for cell in record.cells}),
        seconds=sum(cell.seconds for cell in record.cells),
        swatches={name: draw_swatch(style) for name, style in method_styles(record).items()},
        tick=lambda x: format_tick(record, x),
    )


def write_sweep(record: SweepRecord, folder: Path) -> Path:
    """Write `sweep.json` and `report.html` to `folder`, each whole or not at all; returns the page's path."""
    write_files(folder, {"sweep.json": record.to_json(), "report.html": render_sweep(record).encode()})
    return folder / "report.html"
