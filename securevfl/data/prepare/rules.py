"""What a party asks for when its columns are prepared: for all of them, and for single ones."""

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
    """How one column is prepared.

    Attributes:
        kind: what it holds; ``"auto"`` to find out.
        missing: ``"auto"`` to fill in and to add a column that says where a value was missing, ``"impute"`` to fill in
            alone, ``"refuse"`` for an error.
        impute: what is filled in: ``"median"``, ``"mean"`` or ``"most_frequent"`` of the training rows; ``"auto"`` for
            the median, of truth values the most frequent one.
        scale: of numbers; see `securevfl.data.prepare.scaling`.
        categorical: ``"onehot"``, ``"frequency"`` (how often a level is among the training rows), ``"hash"`` (buckets,
            by a key of the party's own); ``"auto"`` for one-hot of few levels, and for many of the most frequent ones
            together with the frequency.
        levels: most columns of a one-hot encoding.
        rare: rows below which a level is grouped with other rare ones; None for one in 200 training rows, from 2 to 10.
        buckets: of ``"hash"``.
        decimal: the decimal mark of numbers in texts.
        dates: the order of day, month and year where it is not told by the dates themselves.
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
        """Rows below which a level is rare, among so many training rows."""
        return min(10, max(2, rows // 200)) if self.rare is None else self.rare


class ColumnPreparation(Config):
    """What one column has otherwise than `Preparation` says of all; None for what all have.

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
    def path(cls) -> str:
        return "column"


class Preparation(ColumnRules):
    """How a party prepares its columns: fitted on its own training rows, kept with its part of the model, applied to
    whatever it predicts. A party's own affair; no other party learns of it but through how many numbers a row becomes.

    ```python
    sv.read_csv("shop.csv", name="shop", id="customer", prepare="auto")
    spent = sv.ColumnPreparation(scale="robust")
    sv.read_csv("shop.csv", name="shop", id="customer", prepare=sv.Preparation(columns={"spent": spent}))
    ```

    Attributes:
        kind, missing, impute, scale, categorical, levels, rare, buckets, decimal, dates: see `ColumnRules`.
        name: how files and arguments ask for the defaults, ``prepare = "auto"``.
        columns: column → what it has otherwise.
    """

    name: ClassVar[str] = "auto"
    columns: Mapping[str, ColumnPreparation] = msgspec.field(default_factory=dict)

    @classmethod
    def path(cls) -> str:
        return "prepare"

    def problems(self) -> list[str]:
        return super().problems() + (
            ["kind is for single columns: give it in columns, or leave it out"] if self.kind != "auto" else []
        )

    @property
    def categories(self) -> frozenset[str]:
        """Columns that it says are categories, whatever they look like."""
        return frozenset(column for column, own in self.columns.items() if own.kind == "category")

    def rules(self, column: str) -> ColumnRules:
        """What holds for a column."""
        own = self.columns.get(column, ColumnPreparation())
        names = ColumnRules.__struct_fields__
        given = {name: getattr(own, name) for name in names if getattr(own, name) is not None}
        return ColumnRules(**({name: getattr(self, name) for name in names} | given))
