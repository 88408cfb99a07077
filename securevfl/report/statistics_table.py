"""Statistics of columns in the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from securevfl.report.column_statistics import ColumnStatistics, StatisticsRecord
from securevfl.report.tables import make_table, number_column, text_column

__all__ = ["describe_statistics", "pairs_table", "statistics_table", "statistics_text"]


def statistics_text(found: StatisticsRecord) -> RenderableType:
    """The columns, the strongest correlations between parties, and what limits both."""
    return Group(statistics_table(found), pairs_table(found), Text(describe_statistics(found)))


def statistics_table(found: StatisticsRecord) -> Table:
    """One row a column, the one that tells most of the label first."""
    two = len(found.classes) == 2
    titles = [f"mean of\n{name[:12]}" for name in found.classes[:4]]
    table = make_table(
        text_column("column", min_width=16),
        *map(number_column, ["missing", *titles, "with\nlabel", "IV", "bins", "VIF"]),
        title=f"{len(found.columns)} columns over {found.rows:,} common rows",
    )
    for one in found.ranked_columns():
        means = list(one.means or [])[:4] + [None] * (len(titles) - len(one.means or []))
        table.add_row(
            Text(f"{one.party}.{one.column}"),
            "–" if one.missing is None else f"{one.missing:,}",
            *("–" if mean is None else f"{mean:+.2f}" for mean in means),
            "–" if one.with_label is None else f"{one.with_label:+.3f}",
            "–" if one.iv is None else f"{one.iv:.3f}",
            str(len(one.bins)) if one.bins else "–",
            "–" if one.vif is None else f"{one.vif:.1f}",
        )
    rows = ", ".join(f"{rows:,} {name}" for name, rows in zip(found.classes, found.class_rows, strict=True))
    second = f" Weights of evidence and IV are of {found.classes[1]!r}." if two else ""
    table.caption = Text(
        f"Means are in standard deviations from the mean of all rows ({rows}).{second}" if rows else ""
    )
    return table


def pairs_table(found: StatisticsRecord) -> Table:
    """The largest correlations of columns of different parties."""
    table = make_table(text_column("column"), text_column("of another party"), number_column("correlation"))
    for first, second, value in found.strongest_pairs():
        table.add_row(Text(first), Text(second), f"{value:+.3f}")
    return table


def describe_statistics(found: StatisticsRecord) -> str:
    """What was withheld, and how large the noise is."""
    withheld = [f"{one.party}.{one.column} ({one.withheld})" for one in found.columns if one.withheld]
    said = []
    if found.epsilon is not None:
        said.append(
            f"ε = {found.epsilon:.3g} (δ = {found.delta:g}) of a person's columns at the passive parties: noise of "
            f"±{found.correlation_error:.3f} on a correlation of two parties and of ±{found.count_error:.0f} rows on a "
            "count."
        )
    elif found.least:
        said.append(f"Bins have at least {found.least} rows of each class; where fewer, bins were merged or withheld.")
    if withheld:
        said.append(f"Not computed, or withheld: {', '.join(withheld)}.")
    return " ".join(said)


def bin_rows(one: ColumnStatistics) -> list[tuple[str, int, float, float]]:
    """Of each bin its words, its rows, its share of the second class and its weight of evidence."""
    return [(part.bin, part.rows, part.events / part.rows if part.rows else 0.0, part.woe) for part in one.bins]
