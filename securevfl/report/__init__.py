"""Showing what a run measured: tables for the terminal, plots, and a self-contained page."""

from securevfl.report import loggers
from securevfl.report.attack_record import attacks_beside
from securevfl.report.axes import Plots, trials_axes
from securevfl.report.card import Card, card_table
from securevfl.report.card_making import make_card, make_run_card
from securevfl.report.derived import make_cards
from securevfl.report.evaluation import Evaluation
from securevfl.report.html import render_report, write_report
from securevfl.report.importance import importance_beside
from securevfl.report.overviews import overview_table
from securevfl.report.own_share import describe_own_share, own_shares_text, rate_own_share
from securevfl.report.progress_line import progress_line
from securevfl.report.record import Record, RunRecord
from securevfl.report.sweep import count_table, failures_text, sweep_table, trials_table, verdict_table
from securevfl.report.sweep_page import render_sweep, write_sweep
from securevfl.report.sweep_plots import sweep_axes
from securevfl.report.sweep_record import (
    CellFigures,
    Claim,
    Failed,
    PaperFigure,
    Summary,
    SweepRecord,
    summarise_cells,
)
from securevfl.report.sweep_verdicts import Verdict, list_verdicts
from securevfl.report.tables import Shown, table_html
from securevfl.report.terminal import (
    asks_text,
    cards_text,
    choice_text,
    comparison_table,
    decision_text,
    joined_text,
    learned_table,
    ledgers_text,
    receipt_table,
    receipts_text,
    render_text,
    run_line,
    self_training_text,
    warnings_text,
    worst_lines,
    worst_text,
)

__all__ = [
    "Card",
    "CellFigures",
    "Claim",
    "Evaluation",
    "Failed",
    "PaperFigure",
    "Plots",
    "Record",
    "RunRecord",
    "Shown",
    "Summary",
    "SweepRecord",
    "Verdict",
    "asks_text",
    "attacks_beside",
    "card_table",
    "cards_text",
    "choice_text",
    "comparison_table",
    "count_table",
    "decision_text",
    "describe_own_share",
    "failures_text",
    "importance_beside",
    "joined_text",
    "learned_table",
    "ledgers_text",
    "list_verdicts",
    "loggers",
    "make_card",
    "make_cards",
    "make_run_card",
    "overview_table",
    "own_shares_text",
    "progress_line",
    "rate_own_share",
    "receipt_table",
    "receipts_text",
    "render_report",
    "render_sweep",
    "render_text",
    "run_line",
    "self_training_text",
    "summarise_cells",
    "sweep_axes",
    "sweep_table",
    "table_html",
    "trials_axes",
    "trials_table",
    "verdict_table",
    "warnings_text",
    "worst_lines",
    "worst_text",
    "write_report",
    "write_sweep",
]
