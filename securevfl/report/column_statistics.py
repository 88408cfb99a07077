"""Statistics of columns before a model, in a record: as ``statistics.json`` has them."""

from __future__ import annotations

import msgspec

__all__ = ["BinStatistics", "ColumnStatistics", "StatisticsRecord"]


class BinStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One bin of a column."""

    bin: str
    """in words of its owner where the report has them, else by numbers of its finest bins"""
    rows: int
    events: int
    """of the second class"""
    woe: float
    """weight of evidence: above zero where the second class is more frequent than overall"""


class ColumnStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One column."""

    party: str
    column: str
    kind: str
    """"numbers" or "categories" """
    missing: int | None = None
    """rows without a value; None where its owner alone knows"""
    mean: float | None = None
    """of its values, in its own units; likewise"""
    deviation: float | None = None
    """with missing values at the mean; likewise"""
    means: list[float | None] | None = None
    """mean of each class, in `deviation`s from `mean`"""
    deviations: list[float | None] | None = None
    """standard deviation of each class, likewise"""
    with_label: float | None = None
    """correlation with the label"""
    iv: float | None = None
    """information value"""
    iv_noise: float | None = None
    """what noise alone adds to it"""
    vif: float | None = None
    """variance inflation factor; None where it was not computed, or where the others determine the column"""
    bins: list[BinStatistics] = []
    withheld: str = ""
    """why something of it was not released"""


class StatisticsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of columns of different parties over the common rows."""

    rows: int
    classes: list[str]
    class_rows: list[int]
    least: int
    """fewest rows of each class in what was released; 0 with noise"""
    epsilon: float | None = None
    delta: float | None = None
    correlation_error: float = 0.0
    """standard error of a correlation of two parties, from noise alone"""
    count_error: float = 0.0
    """standard error of a count, likewise"""
    columns: list[ColumnStatistics]
    names: list[str]
    """of the rows and columns of `correlations`, ``"party.column"``, or ``"(label)"`` """
    correlations: list[list[float | None]]
    """None where an owner did not send those among its own columns"""
    active: str = ""
    label: str = ""
    """name of the column with the classes"""

    def to_json(self) -> bytes:
        """As ``statistics.json``."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    def name_class(self, name: str, most: int = 12) -> str:
        """A class with its label, ``late = yes``, or by itself where both together are longer than `most`."""
        both = f"{self.label} = {name}" if self.label else f"class {name}"
        return both if len(both) <= most else name if len(name) <= most else name[: most - 1] + "…"

    def strongest_pairs(self, most: int = 10) -> list[tuple[str, str, float]]:
        """The largest correlations of columns of different parties, without the label."""
        found = []
        for i, first in enumerate(self.names):
            for j, second in enumerate(self.names[:i]):
                value = self.correlations[i][j]
                if value is None or "(label)" in (first, second) or first.split(".")[0] == second.split(".")[0]:
                    continue
                found.append((second, first, value))
        return sorted(found, key=lambda one: -abs(one[2]))[:most]

    def ranked_columns(self) -> list[ColumnStatistics]:
        """Columns by how well they predict the label, the best first."""
        return sorted(self.columns, key=lambda one: -(one.iv if one.iv is not None else abs(one.with_label or 0) / 10))
