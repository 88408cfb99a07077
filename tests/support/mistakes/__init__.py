"""The list of docs/howto/mistakes.md: what newcomers do wrong, by the step at which they do."""

from __future__ import annotations

from support.mistakes.columns import COLUMNS, LABELS
from support.mistakes.companies import BETWEEN
from support.mistakes.jobs import JOBS, RUNS
from support.mistakes.making import Mistake, make_company
from support.mistakes.tables import IDENTIFIERS, TABLES

__all__ = ["MISTAKES", "Mistake", "make_company"]

MISTAKES = {
    "Files": TABLES,
    "Identifiers": IDENTIFIERS,
    "The label": LABELS,
    "Other columns": COLUMNS,
    "The job file": JOBS,
    "Commands and folders": RUNS,
    "Between companies": BETWEEN,
}
"""Part of the page → its mistakes."""
