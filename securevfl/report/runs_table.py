"""Runs of several folders, a line each: for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from securevfl.report.derived import active_name, epsilon_of, human_seconds, metric_text, metrics_of
from securevfl.report.record import Record
from securevfl.report.tables import make_table, number_column, text_column

__all__ = ["runs_rows", "runs_table"]


def runs_rows(records: Mapping[str, Record]) -> list[dict[str, object]]:
    """Folder → record, as plain values: a dictionary for each run, with the metrics of its test rows."""
    return [
        {
            "folder": folder,
            "created": record.created,
            "run": run.title,
            "key": run.key,
            "baseline": run.baseline,
            "target": run.evaluation.target if run.evaluation is not None else "",
            "active": active_name(record),
            "common": record.alignment.common,
            "test_rows": record.alignment.test,
            "test": run.test,
            "deviation": run.deviation,
            "epsilon": epsilon_of(run),
            "seconds": run.seconds,
        }
        for folder, record in records.items()
        for run in record.runs
    ]


def runs_table(records: Mapping[str, Record]) -> Table:
    """Folder → record, as a table. Each metric that any run has is a column; the number of test rows is another,
    because figures on different rows are not comparable."""
    metrics = {entry[0]: entry for entry in metrics_of(*records.values())}
    titles = [*(title for _, title, _ in metrics.values()), "ε", "test\nrows", "time"]
    table = make_table(text_column("folder"), text_column("run"), *map(number_column, titles))
    for folder, record in records.items():
        for place, run in enumerate(record.runs):
            epsilon = epsilon_of(run)
            table.add_row(
                Text(folder if not place else ""),
                Text(run.title),
                *(
                    metric_text(run.test[name], digits) if name in run.test else "–"
                    for name, _, digits in metrics.values()
                ),
                "–" if epsilon is None else f"{epsilon:.2f}",
                f"{record.alignment.test:,}",
                human_seconds(run.seconds),
            )
        table.add_section()
    return table
