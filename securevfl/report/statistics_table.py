"""Statistics of columns in the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from securevfl.report.column_statistics import StatisticsRecord
from securevfl.report.joined import format_signed
from securevfl.report.tables import make_table, number_column, text_column

__all__ = ["describe_statistics", "explain_figures", "pairs_table", "statistics_table", "statistics_text"]

_CLASSES = 4
"""Classes of which means are shown."""
_ANONYMOUS = (
    "Exact statistics are not anonymous: who chooses the columns, or knows all rows but one, can compute the values of "
    "one person from them. An ε (--epsilon 1) bounds that."
)


def statistics_text(found: StatisticsRecord) -> RenderableType:
    """The columns, how to read them, the strongest correlations between parties, and what limits all of these."""
    parts: list[RenderableType] = [statistics_table(found), Text(explain_figures(found))]
    if found.strongest_pairs():
        parts.append(pairs_table(found))
    return Group(*parts, Text(describe_statistics(found)))


def statistics_table(found: StatisticsRecord) -> Table:
    """One row a column, the best predictor of the label first."""
    shown = found.classes[:_CLASSES]
    titles = [f"mean,\n{found.name_class(name)}" for name in shown]
    table = make_table(
        text_column("column", min_width=16),
        *map(number_column, ["missing", *titles, "with\nlabel", "IV", "bins", "VIF"]),
        title=f"{len(found.columns)} columns over {found.rows:,} common rows",
    )
    for one in found.ranked_columns():
        means = [*(one.means or ())][: len(shown)]
        means += [None] * (len(shown) - len(means))
        table.add_row(
            Text(f"{one.party}.{one.column}"),
            "–" if one.missing is None else f"{one.missing:,}",
            *("–" if mean is None else format_signed(mean, 2) for mean in means),
            "–" if one.with_label is None else format_signed(one.with_label),
            "–" if one.iv is None else f"{one.iv:.3f}",
            str(len(one.bins)) if one.bins else "–",
            "–" if one.vif is None else f"{one.vif:.1f}",
        )
    return table


def explain_figures(found: StatisticsRecord) -> str:
    """Explain the figures that the table has."""
    said = []
    if found.class_rows:
        rows = (
            f"{found.name_class(name, 40)}: {many:,}"
            for name, many in zip(found.classes, found.class_rows, strict=True)
        )
        said.append(
            f"Rows with {'; '.join(rows)}. Means are in standard deviations from the mean of all rows; "
            '"with label" is the correlation with it'
        )
    if any(one.iv is not None for one in found.columns):
        said.append(
            f"IV, the information value of {found.name_class(found.classes[1], 40)}, sums up the bins: below 0.02 "
            "a column alone hardly predicts the label, from 0.3 strongly"
        )
    if any(one.vif is not None for one in found.columns):
        said.append("VIF above 10: the other columns together say nearly the same")
    return "".join(f"{one}. " for one in said).rstrip()


def pairs_table(found: StatisticsRecord) -> Table:
    """The largest correlations of columns of different parties."""
    columns = text_column("column"), text_column("of another party"), number_column("correlation")
    table = make_table(*columns, title="The strongest correlations between parties")
    for first, second, value in found.strongest_pairs():
        table.add_row(Text(first), Text(second), format_signed(value))
    return table


def describe_statistics(found: StatisticsRecord) -> str:
    """List what was withheld, the size of the noise, and what the figures still give away."""
    withheld = [f"{one.party}.{one.column} ({one.withheld})" for one in found.columns if one.withheld]
    said = []
    if found.epsilon is not None:
        said.append(
            f"ε = {found.epsilon:.3g} (δ = {found.delta:g}) of a person's columns at the passive parties: noise of "
            f"±{found.correlation_error:.3f} on a correlation of two parties and of ±{found.count_error:.0f} rows on a "
            "count."
        )
        if noise := [one.iv_noise for one in found.columns if one.iv_noise]:
            said.append(
                f"Noise alone adds {min(noise):.3f} to {max(noise):.3f} to an IV: compare with that, not with 0.02."
            )
    elif found.least:
        said.append(f"Bins have at least {found.least} rows of each class; where fewer, bins were merged or withheld.")
    if withheld:
        said.append(f"Not computed, or withheld: {', '.join(withheld)}.")
    if found.epsilon is None:
        said.append(_ANONYMOUS)
    return " ".join(said)
