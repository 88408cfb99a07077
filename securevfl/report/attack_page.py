"""The page and the terminal table of attacks on a job: what they got, and what the job states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from securevfl.report.attack_record import AttackLine, AttackRecord, attack_lines
from securevfl.report.bar_chart import Bar, BarRow, bar_chart
from securevfl.report.plots import COMPUTE
from securevfl.report.tables import make_table, number_column, text_column
from securevfl.report.template import fill_template, write_files
from securevfl.report.terminal import _COLOURS

__all__ = ["attack_table", "render_attacks", "write_attacks"]

_GOT = "#b83227"
_GROUPS = (
    ("labels", "Labels", "AUC; 0.5 is guessing"),
    ("features", "Features of passive parties", "R² of standardised columns; 0 is guessing the mean"),
    ("attribute", "Private attributes", "AUC; 0.5 is guessing"),
    ("others' columns", "Columns of parties that sent nothing to the attacker", "R²; the column that gains most"),
    ("predictions", "Predictions", "R² of the predicted rows' features"),
    ("membership", "Membership", "AUC; 0.5 is guessing"),
    ("row order", "Row order", "|Spearman| of row numbers with the column that follows them most"),
    ("saved parts", "Saved files", "share that is stored as it is"),
)

_OF_NUMBERS = "correlation of the true number with what was recovered; 0 is guessing"


def attack_table(record: AttackRecord) -> Table:
    """One row an attack: the best result over all numbers of known records, the result of the same attacker
    without the job's messages, and what the job states. The page has every result."""
    table = make_table(
        *map(text_column, ("attacker", "victim", "attack", "of")),
        *map(number_column, ("known", "in", "got", "without\nview")),
        text_column("the job\nstates", no_wrap=True),
        title=f"Attacks on {record.title}",
    )
    last = None
    for line in _select_best_lines(attack_lines(record)):
        if last not in (None, (line.attacker, line.victim)):
            table.add_section()
        last = line.attacker, line.victim
        stated = Text(line.severity or "–", _COLOURS.get(line.severity, ""))
        table.add_row(
            Text(line.attacker),
            Text(line.victim),
            Text(line.attack),
            Text(line.target),
            f"{line.known:,}" if line.known else "–",
            line.metric,
            Text(_format_number(line.value), "bold" if line.gain > 0.05 else ""),
            _format_number(line.baseline),
            stated,
        )
    return table


def _select_best_lines(every: Sequence[AttackLine]) -> list[AttackLine]:
    """The largest figure of each attack by one party on another, without saved files that contain nothing."""
    found: dict[tuple[str, str, str], AttackLine] = {}
    for line in every:
        key = line.attacker, line.victim, line.attack
        if key not in found or line.value > found[key].value:
            found[key] = line
    return [line for line in found.values() if line.value or not line.attack.startswith("saved parts")]


def _format_number(value: float) -> str:
    text = f"{value:.3f}"
    return text.replace("-", "−") if float(text) else "0.000"


def _draw_bars(found: Sequence[AttackLine], metric: str) -> Markup:
    """Bars from the baseline to what was got, one an attack."""
    start = 0.5 if metric == "AUC" else 0.0
    rows = []
    for line in found:
        low, high = max(min(line.baseline, 1.0), start), max(min(line.value, 1.0), start)
        color = _GOT if line.gain > (0.05 if metric == "AUC" else 0.10) else COMPUTE
        bar = Bar(start=min(low, high), end=max(low, high), color=color, note=_format_number(line.value), tick=low)
        rows.append(BarRow(label=_label_line(line), bars=[bar]))
    return bar_chart(rows, start=start, end=1.0, label=f"What attacks got, {metric}", width=760, most=64, beside=True)


def _label_line(line: AttackLine) -> str:
    what = line.attack.partition(": ")[2] or line.attack
    known = f", {line.known} known" if line.known else ""
    column = f", {line.target}" if line.target.startswith("column") else ""
    return f"{line.attacker} → {line.victim}: {what}{column}{known}"


def render_attacks(record: AttackRecord) -> str:
    """The whole page. The same record gives the same text."""
    every = attack_lines(record)
    groups: list[dict[str, object]] = []
    for start, title, scale in _GROUPS:
        found = [line for line in every if line.attack.startswith(start)]
        if found:
            groups.append(
                {
                    "title": title,
                    "scale": _OF_NUMBERS if found[0].metric == "correlation" else scale,
                    "lines": found,
                    "picture": _draw_bars(found, found[0].metric),
                }
            )
    return fill_template(
        "attacks.html.j2", f"Attacks on {record.title}", {"number": _format_number}, record=record, groups=groups
    )


def write_attacks(record: AttackRecord, folder: Path) -> Path:
    """Write `attacks.json` and `attacks.html` to `folder`, each whole or not at all; returns the page's path."""
    write_files(folder, {"attacks.json": record.to_json(), "attacks.html": render_attacks(record).encode()})
    return folder / "attacks.html"
