"""A record in the terminal: its tables, warnings and findings. Names from outside are never read as markup."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from securevfl.report.attack_record import AttackRecord
from securevfl.report.card import card_table
from securevfl.report.choice import choice_sentence, choice_table
from securevfl.report.decision_words import decision_lines
from securevfl.report.derived import (
    bytes_each_way,
    constant_of,
    cost_per_epoch,
    describe_verification,
    epsilon_of,
    human_bytes,
    human_seconds,
    list_worst_findings,
    make_cards,
    metric_gain,
    metric_text,
    metrics_of,
)
from securevfl.report.joined import joined_sentence
from securevfl.report.own_share import own_shares_text
from securevfl.report.record import ReceiptLine, Record, RunRecord
from securevfl.report.tables import make_table, number_column, text_column

__all__ = [
    "cards_text",
    "choice_text",
    "comparison_table",
    "decision_text",
    "joined_text",
    "learned_table",
    "ledgers_text",
    "receipt_table",
    "render_text",
    "run_line",
    "self_training_text",
    "warnings_text",
    "worst_lines",
    "worst_text",
]

_COLOURS = {"ok": "green", "note": "yellow", "leak": "red"}

_NARROW = {"accuracy": "accu-\nracy", "log-loss": "log-\nloss"}


def _format_metric(run: RunRecord, metric: str, digits: int) -> str:
    if metric not in run.test:
        return "–"
    spread = run.deviation.get(metric)
    text = metric_text(metric, run.test[metric], digits)
    return text + ("" if spread is None else f"\n± {metric_text(metric, spread, digits)}")


def comparison_table(record: Record, *, brief: bool = False) -> Table:
    """One row a run: quality on the test rows, gain over the active party alone, time, bytes, ε.

    Fits 80 columns where no run is repeated; deviations of several metrics need 92. In a narrower terminal rich leaves
    out what does not fit.

    Args:
        record: of the runs.
        brief: show the first metric of joint runs alone, so that rows take one line of 80 columns, and the shortest
            caption; `joined_text` has the figures of the others.
    """
    first, *more = metrics_of(record) or [("auc", "AUC", 4)]
    if brief:
        more = []
    titles = [first[1], "gain", *(_NARROW.get(title, title) for _, title, _ in more)]
    titles += ["time/\nepoch", "active\nsent", "passive\nsent", "ε"]
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
            human_bytes(out) if out else "–",
            human_bytes(back) if back else "–",
            "–" if epsilon is None else f"{epsilon:.2f}",
        )
    a, whose = record.alignment, f"{record.known_to} alone" if record.known_to else "all parties together"
    agreed = f", {describe_verification(record)}" if describe_verification(record) else ""
    table.caption = Text(
        f"{a.common:,} common rows{agreed}: {a.train:,} train, {a.valid:,} validate, {a.test:,} test. "
        f"Figures are of the test rows; time is that of {whose}."
        + (f" {words}" if not brief and (words := constant_of(record)) else "")
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


def warnings_text(record: Record, *, brief: bool = False) -> RenderableType | None:
    """The warnings of all runs in red, a line each; None without warnings.

    Args:
        record: of the runs.
        brief: only how many there are, and of which runs.
    """
    found = [(run.title, warning) for run in record.runs for warning in run.warnings]
    if not found:
        return None
    if brief:
        runs = "; ".join(dict.fromkeys(title for title, _ in found))
        count = f"{len(found)} warnings" if len(found) > 1 else "a warning"
        return Text.assemble((f"{count}, in full in the report: ", "bold red"), (runs, "red"))
    return Group(*(Text.assemble(("warning: ", "bold red"), (f"{one}: {text}", "red")) for one, text in found))


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
    for run in record.runs:
        for line in run.learned:
            severity = Text(line.severity, _COLOURS.get(line.severity, ""))
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


def render_text(renderable: RenderableType, *, width: int = 110, color: bool = False) -> str:
    """What a terminal of this width would show, as text."""
    console = Console(
        width=width, file=io.StringIO(), force_terminal=color, no_color=not color, record=True, force_jupyter=False
    )
    console.print(renderable)
    return console.export_text(styles=color)


def ledgers_text(record: Record, folder: Path) -> Text | None:
    """Which key signed which ledger, as `securevfl audit --pin` takes it; None where the record names no keys.

    Args:
        record: of the run.
        folder: of the run.
    """
    if not record.ledgers:
        return None
    lines = ["The ledgers are signed. Keep these fingerprints somewhere else:"]
    for line in record.ledgers:
        others = f", cross-signed by {', '.join(line.cross_signed_by)}" if line.cross_signed_by else ""
        lines.append(f"  {line.party}={line.fingerprint} ({line.messages:,} messages{others})")
    lines.append(f"Check the ledgers with: securevfl audit {folder} --pin PARTY=FINGERPRINT …")
    return Text("\n".join(lines))
