"""The page and the terminal table of attacks on a job, what was got beside what the job states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from securevfl.report.attack_record import AttackRecord, Line, lines
from securevfl.report.bar_chart import Bar, BarRow, bar_chart
from securevfl.report.plots import COMPUTE
from securevfl.report.tables import make_table, number_column, text_column
from securevfl.report.template import fill, write_files
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
    ("saved parts", "Saved files", "share that stands there as it is"),
)

_OF_NUMBERS = "correlation of the true number with what was recovered; 0 is guessing"


def attack_table(record: AttackRecord) -> Table:
    """One row an attack: what it got with the number of known records that served it best, what the same attacker gets
    without the view, and what the job states. The page has them all."""
    table = make_table(
        *map(text_column, ("attacker", "victim", "attack", "of")),
        *map(number_column, ("known", "in", "got", "without\nview")),
        text_column("the job\nstates", no_wrap=True),
        title=f"Attacks on {record.title}",
    )
    last = None
    for line in _best(lines(record)):
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
            Text(_number(line.value), "bold" if line.gain > 0.05 else ""),
            _number(line.baseline),
            stated,
        )
    return table


def _best(every: Sequence[Line]) -> list[Line]:
    """Of each attack by one party on another the line with the largest figure; none of files that hold nothing."""
    found: dict[tuple[str, str, str], Line] = {}
    for line in every:
        key = line.attacker, line.victim, line.attack
        if key not in found or line.value > found[key].value:
            found[key] = line
    return [line for line in found.values() if line.value or not line.attack.startswith("saved parts")]


def _number(value: float) -> str:
    text = f"{value:.3f}"
    return text.replace("-", "−") if float(text) else "0.000"


def _picture(found: Sequence[Line], metric: str) -> Markup:
    """Bars from the baseline to what was got, one an attack."""
    start = 0.5 if metric == "AUC" else 0.0
    rows = []
    for line in found:
        low, high = max(min(line.baseline, 1.0), start), max(min(line.value, 1.0), start)
        color = _GOT if line.gain > (0.05 if metric == "AUC" else 0.10) else COMPUTE
        bar = Bar(start=min(low, high), end=max(low, high), color=color, note=_number(line.value), tick=low)
        rows.append(BarRow(label=_label(line), bars=[bar]))
    return bar_chart(rows, start=start, end=1.0, label=f"What attacks got, {metric}", width=760, most=64)


def _label(line: Line) -> str:
    what = line.attack.partition(": ")[2] or line.attack
    known = f", {line.known} known" if line.known else ""
    column = f", {line.target}" if line.target.startswith("column") else ""
    return f"{line.attacker} → {line.victim}: {what}{column}{known}"


def render_attacks(record: AttackRecord) -> str:
    """The whole page. The same record gives the same text."""
    every = lines(record)
    groups: list[dict[str, object]] = []
    for start, title, scale in _GROUPS:
        found = [line for line in every if line.attack.startswith(start)]
        if found:
            groups.append(
                {
                    "title": title,
                    "scale": _OF_NUMBERS if found[0].metric == "correlation" else scale,
                    "lines": found,
                    "picture": _picture(found, found[0].metric),
                }
            )
    return fill("attacks.html.j2", f"Attacks on {record.title}", {"number": _number}, record=record, groups=groups)


def write_attacks(record: AttackRecord, folder: Path) -> Path:
    """Write `attacks.json` and `attacks.html` to `folder`, each whole or not at all; returns the page's path."""
    write_files(folder, {"attacks.json": record.to_json(), "attacks.html": render_attacks(record).encode()})
    return folder / "attacks.html"
