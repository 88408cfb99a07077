"""Which algorithm a run with ``algorithm = "auto"`` kept, and why: a sentence, a table, a tile."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from securevfl.report.derived import find_run, human_bytes, human_seconds
from securevfl.report.record import CandidateRecord, ChoiceRecord, Record
from securevfl.report.tables import make_table, number_column, text_column

__all__ = ["METRIC_TITLES", "choice_sentence", "choice_table", "explain_choice", "kept_name"]

METRIC_TITLES = {"auc": "AUC", "log_loss": "log-loss", "accuracy": "accuracy", "r2": "R²", "rmse": "RMSE"}


def kept_name(record: Record, choice: ChoiceRecord) -> str:
    """The title of the run that was kept, without its protection."""
    run = find_run(record, choice.chosen)
    if run is None:  # a party's own report: its only run is that of the kept one
        return next((one.title for one in choice.candidates if one.chosen and one.title), choice.chosen)
    return run.title.split(", ")[0]


def explain_choice(choice: ChoiceRecord) -> str:
    """Why one candidate was kept: its figure, the distance to the next, what noise and the test rows have to do."""
    trained = [one for one in choice.candidates if one.valid is not None]
    if not trained:
        return f"by the active party, of {', '.join(one.key for one in choice.candidates if not one.why)}"
    title = METRIC_TITLES.get(choice.metric, choice.metric)
    parts = [f"best {title} on {choice.rows:,} validation rows: {_format_figure(trained[0])}"]
    if len(trained) > 1:
        parts.append(f"next {trained[1].key} {_format_figure(trained[1])}")
        parts.append(_explain_margin(choice))
    else:
        parts.append("nothing else could be trained")
    if choice.shares > 1:
        parts.append(f"each of {choice.shares} candidates had 1/{choice.shares} of the job's ε and δ, which add up")
    return "; ".join(parts)


def _explain_margin(choice: ChoiceRecord) -> str:
    if choice.margin is None or choice.half is None:
        return "no interval, as scores of single validation rows are not here"
    chance = "within" if choice.margin <= choice.half else "beyond"
    return f"the difference of {choice.margin:.4f} is {chance} chance (95 % interval ± {choice.half:.4f})"


def _format_figure(one: CandidateRecord) -> str:
    return "–" if one.valid is None else f"{one.valid:.4f}"


def choice_sentence(record: Record) -> str:
    """What was chosen and why, in a line; empty where nothing was chosen."""
    choice = record.choice
    if choice is None:
        return ""
    return f"chosen: {kept_name(record, choice)} ({explain_choice(choice)})"


def choice_table(record: Record) -> Table | None:
    """One row a candidate: its figure on the validation rows, time, bytes, and whether it was kept; None where nothing
    was chosen."""
    choice = record.choice
    if choice is None:
        return None
    title = METRIC_TITLES.get(choice.metric, choice.metric or "figure")
    heads = (f"{title},\nvalidation", "epochs\n(best)", "time", "sent")
    table = make_table(text_column("tried"), *map(number_column, heads), text_column(""), title="Algorithms tried")
    for one in choice.candidates:
        trained = one.epochs > 0
        table.add_row(
            Text(one.key, "bold" if one.chosen else ""),
            _format_figure(one),
            f"{one.epochs} ({one.best_epoch})" if trained else "–",
            human_seconds(one.seconds) if trained else "–",
            human_bytes(one.bytes) if trained else "–",
            Text("chosen" if one.chosen else f"left out: {one.why.split(': ')[0].split('. ')[0]}" if one.why else ""),
        )
    return table
