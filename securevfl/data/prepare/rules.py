"""A party's rules for preparing its columns: for all columns, and for single ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from securevfl.config import Config

__all__ = ["SCALES", "ColumnPreparation", "ColumnRules", "Preparation", "Scale"]

Scale = Literal["auto", "standard", "quantile", "robust", "none"]
SCALES: tuple[Scale, ...] = ("auto", "none", "quantile", "robust", "standard")

Kind = Literal["auto", "number", "category", "date", "flag"]
Missing = Literal["auto", "impute", "refuse"]
Impute = Literal["auto", "median", "mean", "most_frequent"]
Categorical = Literal["auto", "onehot", "frequency", "hash"]
Decimal = Literal["auto", ".", ","]
Dates = Literal["auto", "dmy", "mdy"]
Levels = Annotated[int, Meta(ge=2, le=4096)]
Rare = Annotated[int, Meta(ge=1, le=1 << 24)]


class ColumnRules(Config):
    """Rules for preparing one column.

    Attributes:
        kind: its kind of content; ``"auto"`` to detect it.
        missing: ``"auto"`` to fill in and add an indicator column, ``"impute"`` only to fill in, ``"refuse"`` to raise
            an error.
        impute: replacement: ``"median"``, ``"mean"`` or ``"most_frequent"`` of the training rows; ``"auto"`` is the
            median, for booleans the most frequent value.
        scale: scaling of numbers; see `securevfl.data.prepare.scaling`.
        categorical: ``"onehot"``, ``"frequency"`` (of a level in the training rows), ``"hash"`` (buckets, with the
            party's secret key); ``"auto"`` is one-hot for few levels; for many, one-hot of the most frequent ones plus
            the frequency.
        levels: maximum columns of a one-hot encoding.
        rare: a level with fewer rows is grouped with other rare ones; None means one in 200 training rows, from 2 to
            10.
        buckets: number of buckets of ``"hash"``.
        decimal: the decimal mark of numbers in text.
        dates: the order of day, month and year, for dates that do not determine it.
    """

    kind: Kind = "auto"
    missing: Missing = "auto"
    impute: Impute = "auto"
    scale: Scale = "auto"
    categorical: Categorical = "auto"
    levels: Levels = 32
    rare: Rare | None = None
    buckets: Levels = 32
    decimal: Decimal = "auto"
    dates: Dates = "auto"

    def rare_below(self, rows: int) -> int:
        """Return the number of rows below which a level is rare, given the number of training rows."""
        return min(10, max(2, rows // 200)) if self.rare is None else self.rare


class ColumnPreparation(Config):
    """Exceptions of one column from the rules of `Preparation`; None means no exception.

    Attributes:
        kind, missing, impute, scale, categorical, levels, rare, buckets, decimal, dates: see `ColumnRules`.
    """

    kind: Kind | None = None
    missing: Missing | None = None
    impute: Impute | None = None
    scale: Scale | None = None
    categorical: Categorical | None = None
    levels: Levels | None = None
    rare: Rare | None = None
    buckets: Levels | None = None
    decimal: Decimal | None = None
    dates: Dates | None = None

    @classmethod
    def section_path(cls) -> str:
        return "column"


class Preparation(ColumnRules):
    """How a party prepares its columns: fitted on its own training rows, stored with its part of the model, applied in
    prediction. Each party chooses it alone; other parties only see how many numbers a row becomes.

    ```python
    sv.read_csv("shop.csv", name="shop", id="customer", prepare="auto")
    spent = sv.ColumnPreparation(scale="robust")
    sv.read_csv("shop.csv", name="shop", id="customer", prepare=sv.Preparation(columns={"spent": spent}))
    ```

    Attributes:
        kind, missing, impute, scale, categorical, levels, rare, buckets, decimal, dates: see `ColumnRules`.
        name: the name of the defaults in files and arguments, ``prepare = "auto"``.
        columns: column → its exceptions.
    """

    name: ClassVar[str] = "auto"
    columns: Mapping[str, ColumnPreparation] = msgspec.field(default_factory=dict)

    @classmethod
    def section_path(cls) -> str:
        return "prepare"

    def problems(self) -> list[str]:
        return super().problems() + (
            ["kind is for single columns: give it in columns, or leave it out"] if self.kind != "auto" else []
        )

    @property
    def category_columns(self) -> frozenset[str]:
        """Columns set to categories, whatever they look like."""
        return frozenset(column for column, own in self.columns.items() if own.kind == "category")

    def column_rules(self, column: str) -> ColumnRules:
        """Return the rules of a column."""
        own = self.columns.get(column, ColumnPreparation())
        names = ColumnRules.__struct_fields__
        given = {name: getattr(own, name) for name in names if getattr(own, name) is not None}
        return ColumnRules(**({name: getattr(self, name) for name in names} | given))
