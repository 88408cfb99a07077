"""Showing what a run measured: tables for the terminal, plots, and a self-contained page."""

from securevfl.report.html import render, write
from securevfl.report.record import Record, RunRecord
from securevfl.report.terminal import comparison_table, learned_table, receipt_table, render_text

__all__ = [
    "Record",
    "RunRecord",
    "comparison_table",
    "learned_table",
    "receipt_table",
    "render",
    "render_text",
    "write",
]
