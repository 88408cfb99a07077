"""The page: one self-contained HTML file, without scripts, that shows a record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from securevfl_net.durable import make_folder, write_atomic

from securevfl.errors import InputError
from securevfl.report import plots
from securevfl.report.attack_record import AttackRecord
from securevfl.report.card import LEGEND
from securevfl.report.card_making import rate_finding
from securevfl.report.choice import METRIC_TITLES, choice_sentence, explain_choice, kept_name
from securevfl.report.decision_words import describe_decision, format_cutoff, format_estimate, group_sentences
from securevfl.report.derived import (
    active_name,
    bytes_each_way,
    constant_of,
    cost_per_epoch,
    count_decimals,
    describe_verification,
    epsilon_of,
    find_run,
    format_amount,
    group_warnings,
    human_bytes,
    human_seconds,
    list_worst_findings,
    make_cards,
    metric_gain,
    metric_text,
    metrics_of,
    phases_by_party,
    short_title,
    table_widths,
)
from securevfl.report.importance import ImportanceRecord, draw_importance, summarise_importance
from securevfl.report.joined import describe_gain, find_joined, format_signed
from securevfl.report.own_share import describe_own_share, rate_own_share
from securevfl.report.party_diagrams import draw_flow, draw_overlap, list_holdings
from securevfl.report.price_picture import make_price_picture
from securevfl.report.quality import describe_target, make_pictures
from securevfl.report.record import Record
from securevfl.report.statistics_table import describe_statistics, explain_figures
from securevfl.report.template import fill_template

__all__ = ["render_report", "write_report"]


_PROTECTS = {
    "activations": "features",
    "gradients": "labels",
    "model": "the model's rows",
    "representations": "features",
    "z": "features",
}


@dataclass(frozen=True)
class Headline:
    """One of the big figures at the top."""

    figure: str
    label: str
    detail: str


def _make_headlines(record: Record) -> list[Headline]:
    """What joining was worth, the price of each protection, and the alignment: what a manager asks first."""
    found = []
    joined, plain = find_joined(record), find_run(record, "plain")
    name, title, _ = next(iter(metrics_of(record)), ("auc", "AUC", 4))
    if joined is not None:
        gain, detail = describe_gain(record, joined)
        found.append(Headline(gain, "joined: over what you have", detail))
    elif (alone := find_run(record, "alone")) and plain and name in alone.test and name in plain.test:
        figure = f"{alone.test[name]:.3f} → {plain.test[name]:.3f}"
        found.append(Headline(figure, f"{title}, alone → together", "on the test rows"))
    if record.choice is not None:
        found.append(Headline(kept_name(record, record.choice), "chosen", explain_choice(record.choice)))
    sealed = next((run for run in record.runs if cost_per_epoch(run)[1]), None)
    if sealed and plain and sum(cost_per_epoch(plain)):
        ratio = sum(cost_per_epoch(sealed)) / sum(cost_per_epoch(plain))
        times = f"× {ratio:,.0f}" if ratio >= 10 else f"× {ratio:.1f}"
        detail = short_title(sealed, record.runs)
        if name in sealed.test and name in plain.test:
            detail += f"; {title} {format_signed(sealed.test[name] - plain.test[name], 4)} against plain"
        found.append(Headline(times, "time with encryption", detail))
    noisy = [run for run in record.runs if run.epsilon]
    for run in noisy[:2]:
        if name in run.test:
            better = metric_gain(record, run, name)
            detail = f"{title} {run.test[name]:.3f}" + (
                "" if better is None else f", {format_signed(better)} against alone"
            )
            what = " and ".join(sorted({_PROTECTS.get(line.what, line.what) for line in run.epsilon}))
            found.append(Headline(f"ε = {epsilon_of(run) or 0:.1f}", f"for {what}", detail))
    a = record.alignment
    if a.digest:
        largest = max((party.rows for party in record.parties), default=0)
        facts = [f"of up to {largest:,}" if largest else "", describe_verification(record)]
        found.append(Headline(f"{a.common:,}", "common rows", "; ".join(filter(None, facts))))
    return found[:5]


def render_report(
    record: Record, attacked: AttackRecord | None = None, importance: ImportanceRecord | None = None
) -> str:
    """The whole page. The same record gives the same text.

    Args:
        record: of the runs.
        attacked: attacks on the job of one of them, whose figures the card shows.
        importance: of parties and columns in the scores of one of them.
    """
    pictures = {
        name: plot(record)
        for name, plot in (
            ("test", plots.draw_test_metric),
            ("epochs", plots.draw_metric_by_epoch),
            ("seconds", plots.draw_seconds),
            ("bytes", plots.draw_bytes),
        )
    }
    main = next(iter(metrics_of(record)), ("auc", "AUC", 4))
    predicted, ranks = describe_target(record)
    return fill_template(
        "report.html.j2",
        record.title,
        {
            "bytes": human_bytes,
            "seconds": human_seconds,
            "signed": format_signed,
            "cutoff": format_cutoff,
            "estimate": format_estimate,
            "amount": format_amount,
        },
        record=record,
        chosen=choice_sentence(record).replace("chosen", "Chosen", 1) + ".",
        choice_metric="" if record.choice is None else METRIC_TITLES.get(record.choice.metric, record.choice.metric),
        pictures=pictures,
        headlines=_make_headlines(record),
        metrics=metrics_of(record),
        main=main[1],
        predicted=predicted,
        ranks=ranks,
        epoch_metric=plots.epoch_metric(record),
        metric_text=metric_text,
        count_decimals=count_decimals,
        quality={run.key: make_pictures(record, run) for run in record.runs},
        price=make_price_picture(record),
        decided={run.key: describe_decision(run.evaluation) for run in record.runs},
        grouped={run.key: group_sentences(run.evaluation, active_name(record)) for run in record.runs},
        holdings=list_holdings(record),
        overlap=draw_overlap(record),
        flows=[(run, drawn) for run in record.runs if (drawn := draw_flow(record, run)) is not None],
        federated=[run for run in record.runs if not run.baseline],
        active=active_name(record),
        verified=describe_verification(record),
        cards=make_cards(record, attacked),
        own=[(rate_own_share(one), describe_own_share(one), one) for one in record.own_shares],
        legend=LEGEND,
        worst={
            run.key: [(severity, text) for one, severity, text in list_worst_findings(record) if one is run]
            for run in record.runs
        },
        rate=partial(rate_finding, widths=table_widths(record)),
        constant=constant_of(record),
        warnings={
            text: [short_title(run, record.runs) for run in runs] for text, runs in group_warnings(record).items()
        },
        colors=plots.run_colors(record.runs),
        gain={run.key: metric_gain(record, run, main[0]) for run in record.runs},
        cost={run.key: sum(cost_per_epoch(run)) for run in record.runs},
        sent={run.key: bytes_each_way(record, run) for run in record.runs},
        epsilon={run.key: epsilon_of(run) for run in record.runs},
        prepared=next((run.prepared for run in record.runs if run.prepared and not run.baseline), {}),
        points=next(
            ((run.points, run.base_points) for run in record.runs if run.points and not run.baseline), ({}, None)
        ),
        found=(found := next((run.statistics for run in record.runs if run.statistics), None)),
        words="" if found is None else describe_statistics(found),
        reading="" if found is None else explain_figures(found),
        shapes=(shapes := next((run.shapes for run in record.runs if run.shapes and not run.baseline), {})),
        drawn_shapes=plots.draw_shapes(shapes),
        moved="" if importance is None else summarise_importance(importance),
        movers=[] if importance is None else draw_importance(importance),
        waiting={run.key: phases_by_party(run) for run in record.runs},
        short=short_title,
        keys={name: getattr(plots, name) for name in ("COMPUTE", "HE", "FROM_ACTIVE", "FROM_PASSIVE")},
        any_he=any(cost_per_epoch(run)[1] for run in record.runs),
        log_seconds=plots.log_seconds(record),
        log_bytes=plots.log_bytes(record),
    )


def _write_figures(record: Record, file: Path) -> None:
    """Write the record, unless the file has it: the ledgers are bound to its bytes, which another version may spell
    otherwise."""
    try:
        there = Record.read(file).to_json()
    except (InputError, OSError):
        there = b""
    if there != record.to_json():
        write_atomic(file, record.to_json(), private=True)


def write_report(
    record: Record, folder: Path, attacked: AttackRecord | None = None, importance: ImportanceRecord | None = None
) -> Path:
    """Write `metrics.json`, `statistics.json` if there are any, then `report.html` to `folder`, each whole or not
    at all and for its owner alone (mode 0600); returns the page's path.

    Args:
        record: of the runs.
        folder: is made where it is missing.
        attacked: see `render_report`.
        importance: likewise.

    Raises:
        InputError: the figures are there and the page could not be written.
        OSError: the figures could not be written.
    """
    make_folder(folder, private=not folder.exists())
    page = folder / "report.html"
    _write_figures(record, folder / "metrics.json")
    for run in record.runs:
        if run.statistics is not None:
            write_atomic(folder / "statistics.json", run.statistics.to_json(), private=True)
    try:
        write_atomic(page, render_report(record, attacked, importance).encode(), private=True)
    except OSError as error:
        raise InputError(
            f"{page} could not be written ({error.strerror}); nothing else is missing: make room, then "
            f"securevfl report {folder}"
        ) from error
    return page
