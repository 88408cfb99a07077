"""Print a finished run: one screen, or every table."""

from __future__ import annotations

from pathlib import Path

from rich.console import RenderableType

import securevfl as sv
from securevfl.cli import terminal

__all__ = ["show_one_screen", "show_run", "show_statistics", "show_tables"]


def show_run(result: sv.Result, folder: Path, page: Path) -> None:
    """Print a job's results on one screen: the card, a line for each model, what joining was worth, what crossed."""
    from securevfl.report import (
        asks_text,
        cards_text,
        choice_text,
        comparison_table,
        decision_text,
        joined_text,
        ledgers_text,
        receipts_text,
        self_training_text,
        warnings_text,
    )

    record = result.record
    terminal.out.print(cards_text(record, brief=True))
    _print_lines(asks_text(record))
    terminal.out.print(comparison_table(record, compact=True))
    _print_lines(joined_text(record))
    _print_lines(decision_text(record))
    _print_lines(choice_text(record))
    _print_lines(receipts_text(record))
    _print_lines(self_training_text(record))
    _print_lines(warnings_text(record, most=3))
    terminal.out.print(f"Report: {page}", soft_wrap=True, highlight=False)
    _print_lines(ledgers_text(record, folder, brief=True))


def show_one_screen(result: sv.Result, page: Path) -> None:
    """Print the card, the comparison and where the report is."""
    from securevfl.report import cards_text, comparison_table, joined_text, warnings_text

    terminal.out.print(cards_text(result.record, brief=True))
    terminal.out.print(comparison_table(result.record, brief=True))
    _print_lines(joined_text(result.record))
    if (warnings := warnings_text(result.record, brief=True)) is not None:
        terminal.out.print(warnings)
    terminal.out.print(f"Report: {page}", soft_wrap=True, highlight=False)


def show_tables(result: sv.Result, folder: Path, page: Path) -> None:
    """Print every table of a comparison: the card in full, who learned what, the receipts."""
    from securevfl.report import (
        cards_text,
        comparison_table,
        decision_text,
        joined_text,
        learned_table,
        ledgers_text,
        receipt_table,
        warnings_text,
        worst_text,
    )

    record = result.record
    terminal.out.print(cards_text(record))
    _print_lines(worst_text(record))
    terminal.out.print(comparison_table(record))
    _print_lines(joined_text(record))
    _print_lines(decision_text(record))
    terminal.out.print(learned_table(record))
    for run in record.runs:
        if not run.baseline:
            terminal.out.print(receipt_table(run))
    _print_lines(warnings_text(record))
    terminal.out.print(f"Report: {page}", soft_wrap=True, highlight=False)
    _print_lines(ledgers_text(record, folder))


def show_statistics(result: sv.Result, folder: Path, page: Path) -> None:
    """Print who could read what, statistics of columns, and the paths of the report and of the figures."""
    from securevfl.report import cards_text
    from securevfl.report.statistics_table import statistics_text

    found = result.record.runs[-1].statistics
    terminal.out.print(cards_text(result.record, brief=True))
    if found is not None:
        terminal.out.print(statistics_text(found))
    terminal.out.print(
        f"Report: {page}\nFigures: {folder / 'statistics.json'}", soft_wrap=True, highlight=False, markup=False
    )


def _print_lines(lines: RenderableType | None) -> None:
    if lines is not None:
        terminal.out.print(lines, soft_wrap=True)
