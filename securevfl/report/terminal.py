"""A record in the terminal: its tables, warnings and findings. Names from outside are never read as markup."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from securevfl.report.attack_record import AttackRecord
from securevfl.report.card import card_table
from securevfl.report.card_making import rate_finding
from securevfl.report.choice import choice_sentence, choice_table
from securevfl.report.decision_words import decision_lines
from securevfl.report.derived import (
    bytes_each_way,
    constant_of,
    cost_per_epoch,
    describe_verification,
    epsilon_of,
    group_warnings,
    human_bytes,
    human_seconds,
    list_worst_findings,
    make_cards,
    metric_gain,
    metric_text,
    metrics_of,
    table_widths,
)
from securevfl.report.joined import joined_sentence
from securevfl.report.own_share import own_shares_text
from securevfl.report.record import ReceiptLine, Record, RunRecord
from securevfl.report.tables import make_table, number_column, text_column

__all__ = [
    "asks_text",
    "cards_text",
    "choice_text",
    "comparison_table",
    "decision_text",
    "joined_text",
    "learned_table",
    "ledgers_text",
    "receipt_table",
    "receipts_text",
    "render_text",
    "run_line",
    "self_training_text",
    "warnings_text",
    "worst_lines",
    "worst_text",
]

_COLOURS = {"ok": "green", "note": "yellow", "leak": "red"}

_NOTHING_TO_PROTECT = "not needed"
"""The protection of messages that carry no data, in a receipt."""

_NARROW = {"accuracy": "accu-\nracy", "log-loss": "log-\nloss"}


def _format_metric(run: RunRecord, metric: str, digits: int) -> str:
    if metric not in run.test:
        return "–"
    spread = run.deviation.get(metric)
    text = metric_text(run.test[metric], digits)
    return text + ("" if spread is None else f"\n± {metric_text(spread, digits)}")


def comparison_table(record: Record, *, brief: bool = False, compact: bool = False) -> Table:
    """One row a run: quality on the test rows, gain over the active party alone, time, bytes, ε.

    Fits 80 columns where no run is repeated; deviations of several metrics need 92. In a narrower terminal rich leaves
    out what does not fit.

    Args:
        record: of the runs.
        brief: show the first metric of joint runs alone, so that rows take one line of 80 columns, and the shortest
            caption; `joined_text` has the figures of the others.
        compact: all runs and metrics, bytes of both directions in one column, ε only where a run has one, and the
            shortest caption, so that most rows take one line of 80 columns.
    """
    first, *more = metrics_of(record) or [("auc", "AUC", 4)]
    if brief:
        more = []
    spends = not compact or any(epsilon_of(run) is not None for run in record.runs)
    titles = [first[1], "gain", *(_NARROW.get(title, title) for _, title, _ in more), "time/\nepoch"]
    titles += [*(["sent"] if compact else ["active\nsent", "passive\nsent"]), *["ε"] * spends]
    table = make_table(text_column("run", min_width=8), *map(number_column, titles), title=record.title)
    federated = False
    joint = [run for run in record.runs if not run.baseline]
    for run in joint if brief and joint else record.runs:
        if not run.baseline and not federated and not brief:
            federated = True
            table.add_section()
        better = metric_gain(record, run, first[0])
        out, back = bytes_each_way(record, run)
        epsilon = epsilon_of(run)
        table.add_row(
            Text(run.title),
            _format_metric(run, first[0], first[2]),
            "–" if better is None else f"{better:+.3f}",
            *(_format_metric(run, name, digits) for name, _, digits in more),
            human_seconds(sum(cost_per_epoch(run))) if run.epochs else "–",
            *(human_bytes(size) if size else "–" for size in ([out + back] if compact else [out, back])),
            *["–" if epsilon is None else f"{epsilon:.2f}"] * spends,
        )
    a, whose = record.alignment, f"{record.known_to} alone" if record.known_to else "all parties together"
    agreed = f", {describe_verification(record)}" if describe_verification(record) else ""
    table.caption = Text(
        f"{a.common:,} common rows{agreed}: {a.train:,} train, {a.valid:,} validate, {a.test:,} test. "
        f"Figures are of the test rows; time is that of {whose}."
        + (f" {words}" if not brief and not compact and (words := constant_of(record)) else "")
    )
    return table


def joined_text(record: Record) -> RenderableType | None:
    """What joining was worth, the figure in bold; None where nothing was compared."""
    told, _, detail = joined_sentence(record).partition(" (")
    return Text.assemble((told, "bold"), f" ({detail}") if told else None


def decision_text(record: Record) -> RenderableType | None:
    """How good the scores are for deciding, a few lines for each federated run; None without scores."""
    lines = [Text(line) for line in decision_lines(record)]
    return Group(*lines) if lines else None


def choice_text(record: Record) -> RenderableType | None:
    """What was tried, and which is kept and why; None where nothing was chosen."""
    table = choice_table(record)
    if table is None:
        return None
    told, _, why = choice_sentence(record).partition(" (")
    return Group(table, Text.assemble((told, "bold"), f" ({why}"))


def self_training_text(record: Record) -> RenderableType | None:
    """How many rows each run labelled itself, a line each; None where none does."""
    lines = [Text(f"{run.title}: {run.self_training}") for run in record.runs if run.self_training]
    return Group(*lines) if lines else None


def warnings_text(record: Record, *, brief: bool = False, most: int | None = None) -> RenderableType | None:
    """The warnings in red, a line each with the runs that it is of; None without warnings.

    Args:
        record: of the runs.
        brief: only how many there are, and of which runs.
        most: how many are shown; a last line counts the others. All unless given.
    """
    found = group_warnings(record)
    if not found:
        return None
    if most is not None:  # those of joint runs come first
        found = dict(sorted(found.items(), key=lambda item: all(run.baseline for run in item[1])))
    if brief:
        total = sum(map(len, found.values()))
        runs = "; ".join(dict.fromkeys(run.title for run in record.runs if run.warnings))
        count = f"{total} warnings" if total > 1 else "a warning"
        return Text.assemble((f"{count}, in full in the report: ", "bold red"), (runs, "red"))
    lines = [
        Text.assemble(("warning: ", "bold red"), (f"{'; '.join(run.title for run in runs)}: {text}", "red"))
        for text, runs in found.items()
    ]
    if most is not None and len(lines) > most:
        lines[most:] = [Text(f"{len(lines)} warnings in all: the rest is in the report", "bold red")]
    return Group(*lines)


def worst_text(record: Record) -> RenderableType:
    """The worst that each party could read of another, by run: what the report opens with."""
    lines = []
    for run, severity, sentence in list_worst_findings(record):
        lines.append(Text.assemble((f"{severity}: ", f"bold {_COLOURS.get(severity, '')}"), f"{run.title}: {sentence}"))
    return Group(*lines)


def worst_lines(record: Record) -> list[str]:
    """As `worst_text`, as plain lines."""
    return [f"{severity}: {run.title}: {sentence}" for run, severity, sentence in list_worst_findings(record)]


def run_line(run: RunRecord) -> str:
    """A run's title and its metrics on the test rows, in one line."""
    known = [(name, value) for name, value in run.test.items() if isinstance(value, float)]
    spread = {name: f" ± {value:.2g}" for name, value in run.deviation.items()}
    figures = ", ".join(f"{name} {value:.4g}{spread.get(name, '')}" for name, value in known)
    return f"{run.title}: {figures or 'no test rows'}"


def cards_text(record: Record, attacked: AttackRecord | None = None, *, brief: bool = False) -> RenderableType:
    """The card of the first job, which opens its report; empty where no party could read anything of another.

    Args:
        record: of the runs.
        attacked: attacks on the job of one of them, whose figures the card shows.
        brief: see `card_table`.
    """
    first = next(iter(make_cards(record, attacked).values()), None)
    card = Group() if first is None else card_table(first, brief=brief)
    return Group(card, own_shares_text(record.own_shares)) if record.own_shares else card


def asks_text(record: Record) -> RenderableType | None:
    """The consent that the first job needs between organisations; None if its card has no cell *reads it*."""
    first = next(iter(make_cards(record).values()), None)
    return Text(first.asks, "dim") if first is not None and first.asks else None


def learned_table(record: Record) -> Table:
    """Who learned what, one row a party and run."""
    columns = (
        text_column("run", max_width=18),
        text_column("party", max_width=12),
        text_column("about", max_width=12),
        text_column("", no_wrap=True),
        text_column("learns"),
    )
    table = make_table(*columns, title="Who learned what", boxed=True)
    widths = table_widths(record)
    for run in record.runs:
        for line in run.learned:
            rated = rate_finding(line, widths)
            severity = Text(rated, _COLOURS.get(rated, ""))
            table.add_row(Text(run.title), Text(line.party), Text(line.about), severity, Text(line.learns))
        if run.learned:
            table.add_section()
    return table


def receipt_table(run: RunRecord) -> Table:
    """The protection receipt of one run, counted from its ledgers; links with the same content share a line."""
    columns = [*map(text_column, ("from", "to", "what", "protection")), *map(number_column, ("messages", "size"))]
    table = make_table(*columns, title=f"Protection receipt: {run.title}", boxed=True)
    groups: dict[tuple[str, str, bool], list[ReceiptLine]] = {}
    for line in run.receipt:
        groups.setdefault((line.what, line.protection, line.protected), []).append(line)
    for (what, protection, protected), lines in groups.items():
        table.add_row(
            Text(", ".join(dict.fromkeys(line.sender for line in lines))),
            Text(", ".join(dict.fromkeys(line.receiver for line in lines))),
            Text(what),
            Text(protection, "" if protected else "red"),
            f"{sum(line.messages for line in lines):,}",
            human_bytes(sum(line.bytes for line in lines)),
        )
    return table


def receipts_text(record: Record) -> RenderableType | None:
    """What crossed and how it was protected, a line for each joint run; of several candidates, that of the chosen one.

    Counted from the ledgers, as `receipt_table` is; None where no run has a receipt.
    """
    runs = [run for run in record.runs if not run.baseline and run.receipt]
    lines = [Text(f"Protection receipt: {run.title}: {_sum_receipt(run)}") for run in runs]
    return Group(*lines[: 1 if record.choice is not None else None]) if lines else None


def _sum_receipt(run: RunRecord) -> str:
    counts: dict[str, int] = {}
    for line in run.receipt:
        kind = line.protection.partition(", key ")[0] if line.protected else ""
        counts[kind] = counts.get(kind, 0) + line.messages
    bare = counts.pop("", 0)
    what = ", ".join(dict.fromkeys(line.what for line in run.receipt if not line.protected))
    said = f"{bare:,} of {sum(line.messages for line in run.receipt):,} messages carry data without protection"
    said += f" ({what})" if what else ""
    others = [
        f"{count:,} {'under ' if kind[0].isupper() else ''}{kind}"
        for kind, count in counts.items()
        if kind != _NOTHING_TO_PROTECT
    ]
    return "; ".join([said, *others])


def render_text(renderable: RenderableType, *, width: int = 110, color: bool = False) -> str:
    """What a terminal of this width would show, as text."""
    console = Console(
        width=width, file=io.StringIO(), force_terminal=color, no_color=not color, record=True, force_jupyter=False
    )
    console.print(renderable)
    return console.export_text(styles=color)


def ledgers_text(record: Record, folder: Path, *, brief: bool = False) -> Text | None:
    """Which key signed which ledger, as `securevfl audit --pin` takes it; None where the record names no keys.

    Args:
        record: of the run.
        folder: of the run.
        brief: the fingerprints alone, without the number of messages and who cross-signed.
    """
    if not record.ledgers:
        return None
    lines = ["The ledgers are signed. Keep these fingerprints somewhere else:"]
    for line in record.ledgers:
        others = f", cross-signed by {', '.join(line.cross_signed_by)}" if line.cross_signed_by else ""
        detail = "" if brief else f" ({line.messages:,} messages{others})"
        lines.append(f"  {line.party}={line.fingerprint}{detail}")
    lines.append(f"Check the ledgers with: securevfl audit {folder} --pin PARTY=FINGERPRINT …")
    return Text("\n".join(lines))
