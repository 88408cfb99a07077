"""The use of each column of a table, and the checks of that use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from securevfl.data.aggregates import check_aggregate
from securevfl.data.categories import Column
from securevfl.data.column_builders import CategoryColumn, LabelColumn, NumberColumn
from securevfl.data.labels import Coded
from securevfl.data.limits import DEFAULT_LIMITS, TableLimits
from securevfl.data.prepare import Preparation
from securevfl.data.prepared_columns import AnyColumn
from securevfl.data.storage import DEFAULT_STORAGE, Storage
from securevfl.errors import InputError, UnknownNameError

__all__ = ["ColumnUse", "Target", "column_names", "convert_labels", "doubled_names"]

Target = Literal["classes", "number", "labels"]
"""The kind of target in a label column."""

_TIMES = {2: "twice"}
_PLACES = 5
_MOST_IDS = 16
"""Maximum columns of a compound identifier, the PSI's limit."""


@dataclass(frozen=True, kw_only=True)
class ColumnUse:
    """The use of each column of a table.

    Attributes:
        id: the identifier column; several, in order, for a compound identifier.
        label: the label column, or None; the first of several.
        features: the feature columns; if None, all columns except id and label.
        categorical: the feature columns that contain categories.
        classes: the label's values in class-index order; if None, the values found, sorted.
        preparation: how features are prepared, which allows any values; None allows only numbers and categories.
        as_text: features read as text because some of their values are not numbers.
        target: ``"classes"``, ``"number"`` (regression) or ``"labels"`` (several labels per row).
        weight: the column of row weights, or None.
        group: the column whose values stay together in a split, or None.
        time: the column by which rows are split, or None.
        person: the column that names the person of a row, or None for the identifier; it may be part of the identifier.
        drop: columns that are not used.
        labels: the 0/1 label columns if a row can have several labels; empty unless `target` is ``"labels"``.
        aggregate: column of the file → functions that make one value of several rows of an identifier; the other
            attributes name the columns that come of it.
        order_by: the column of the file by which ``first`` and ``last`` are told.
    """

    id: str | tuple[str, ...]
    label: str | None
    features: tuple[str, ...] | None
    categorical: frozenset[str]
    classes: tuple[object, ...] | None
    preparation: Preparation | None = None
    as_text: frozenset[str] = frozenset()
    target: Target = "classes"
    weight: str | None = None
    group: str | None = None
    time: str | None = None
    person: str | None = None
    drop: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    aggregate: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    order_by: str | None = None

    @classmethod
    def from_arguments(
        cls,
        *,
        id: str | Sequence[str],
        label: str | Sequence[str] | None,
        features: Sequence[str] | None,
        categorical: Iterable[str],
        classes: Sequence[object] | None,
        prepare: Preparation | Mapping[str, object] | str | None = None,
        target: Target = "classes",
        weight: str | None = None,
        group: str | None = None,
        time: str | None = None,
        person: str | None = None,
        drop: Sequence[str] = (),
        aggregate: Mapping[str, str | Sequence[str]] | None = None,
        order_by: str | None = None,
    ) -> ColumnUse:
        """Build it from the loaders' arguments.

        Raises:
            InputError: an unknown target, classes given for a number, a weight, group or time without a label, fewer
                than two labels for ``"labels"``, both features and columns to drop, or an invalid `prepare` or
                `aggregate`.
        """
        several: tuple[str, ...] = ()
        if label is not None and not isinstance(label, str):
            several, target = tuple(label), "labels" if target == "classes" else target
        if target not in ("classes", "number", "labels"):
            raise InputError(
                f"target is {target!r}; 'classes', 'number' and 'labels' are known (of ordered classes take 'classes', "
                "which forgets their order, or 'number' with ranks for labels)"
            )
        if (target == "labels") != bool(several) or (several and not 2 <= len(set(several)) == len(several)):
            raise InputError(
                f"target is {target!r} and label is {list(several) or label!r}: several labels of a row are two "
                "columns or more, each named once, label=['a', 'b'], and target='labels'; one column of zeros "
                "and ones has two classes"
            )
        if several and classes is not None:
            raise InputError("classes are given, but each of several labels is 0 or 1: leave classes out")
        if target == "number" and classes is not None:
            raise InputError("classes are given, but target='number' has no classes: leave one of the two out")
        roles = {"target='number'": target == "number" or None, "weight": weight, "group": group, "time": time}
        given = [role for role, value in roles.items() if value is not None]
        if given and label is None:
            raise InputError(f"{given[0]} belongs to the party with the label; name its column in label=…")
        if drop and features is not None:
            raise InputError(
                f"features lists what is used and drop names {', '.join(map(repr, drop))}: leave one of the two out"
            )
        if prepare is not None and not isinstance(prepare, Preparation):
            prepare = Preparation.from_values(prepare)
        named = frozenset() if prepare is None else prepare.category_columns
        return cls(
            id=id if isinstance(id, str) else tuple(id),
            label=several[0] if several else str(label) if label is not None else None,
            labels=several,
            features=None if features is None else tuple(features),
            categorical=frozenset([categorical] if isinstance(categorical, str) else categorical)
            | (named if features is None else named & set(features)),
            preparation=prepare,
            classes=None if classes is None else tuple(classes),
            target=target,
            weight=weight,
            group=group,
            time=time,
            person=person,
            drop=(drop,) if isinstance(drop, str) else tuple(drop),
            aggregate=check_aggregate(aggregate, order_by),
            order_by=order_by,
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """The identifier columns."""
        return (self.id,) if isinstance(self.id, str) else self.id

    @property
    def role_columns(self) -> dict[str, str]:
        """Role → column, for columns other than features, identifiers and classes: numbers, groups and times."""
        found = {"weight": self.weight, "group": self.group, "time": self.time}
        found |= {"label": self.label if self.target == "number" else None}
        found |= {f"label {place}": column for place, column in enumerate(self.labels)}
        return {role: column for role, column in found.items() if column is not None}

    @property
    def reserved_columns(self) -> tuple[str | None, ...]:
        """Columns that are not features unless listed explicitly."""
        return (*self.ids, self.label, *self.labels, self.weight, self.group, self.time, self.person)

    def select_features(self, names: Sequence[str]) -> list[str]:
        """Return the feature columns among `names`."""
        out = {*self.reserved_columns, *self.drop}
        return [c for c in names if c not in out] if self.features is None else list(self.features)

    def columns_to_read(self, names: Sequence[str], where: str) -> list[str]:
        """Return the columns to read, in table order.

        Raises:
            InputError: see `find_mistakes`.
        """
        for mistake in self.find_mistakes(names, where):
            raise mistake
        wanted = {*self.reserved_columns, *self.select_features(names)}
        return [name for name in names if name in wanted]

    def find_mistakes(self, names: Sequence[str], where: str) -> list[InputError]:
        """Return the errors of this use for a table with columns `names`, the most basic one first."""
        found = doubled_names(names, where)
        there, chosen = set(names), self.select_features(names)
        prepared = () if self.preparation is None else self.preparation.columns
        found += [
            UnknownNameError(f"column of {where}, named in prepare:", c, names) for c in prepared if c not in there
        ]
        for what, wanted in (
            ("id column", self.ids),
            ("label column", self.labels or ([self.label] if self.label else [])),
            ("weight column", [self.weight] if self.weight else []),
            ("group column", [self.group] if self.group else []),
            ("time column", [self.time] if self.time else []),
            ("person column", [self.person] if self.person else []),
            ("column to drop", self.drop),
            ("column", [*chosen, *sorted(self.categorical - set(chosen))]),
        ):
            found += [UnknownNameError(f"{what} of {where}:", c, names) for c in wanted if c not in there]
        found += self.wrong_ids(where)
        if set(self.ids) & set(chosen) or {self.label, *self.labels} & set(chosen):
            named = " or ".join(map(repr, (*self.ids, *(self.labels or [self.label]))))
            found.append(InputError(f"{where}: {named} is also listed as a feature; a column has one use"))
        if self.weight and self.weight in {*self.ids, self.label, *self.labels, *chosen}:
            found.append(InputError(f"{where}: the weight {self.weight!r} also has another use; a column has one use"))
        if self.person and self.person in {self.label, *self.labels, self.weight, *chosen}:
            found.append(InputError(f"{where}: the person {self.person!r} also has another use; a column has one use"))
        if dropped := [c for c in self.drop if c in self.reserved_columns]:
            found.append(InputError(f"{where}: {dropped[0]!r} is in drop and also has a use: leave one of the two out"))
        if not chosen and (self.features is None or not self.label):
            hint = "; a party with labels only passes features=[]" if self.label else ""
            found.append(InputError(f"{where} has no feature columns; name at least one in features=…{hint}"))
        return found

    def wrong_ids(self, where: str) -> list[InputError]:
        """Return the errors in the choice of identifier columns, whatever the table's columns."""
        found = []
        if not 1 <= len(self.ids) <= _MOST_IDS:
            found.append(
                InputError(f"{where}: id names {len(self.ids)} columns; 1 to {_MOST_IDS} can make an identifier")
            )
        if len(set(self.ids)) < len(self.ids):
            twice = max(self.ids, key=self.ids.count)
            found.append(InputError(f"{where}: id names column {twice!r} twice; name it once"))
        for label in self.labels or [self.label]:
            if label in self.ids:
                found.append(InputError(f"{where}: {label!r} is the label and in id; a column has one use"))
        return found

    @property
    def text_columns(self) -> frozenset[str]:
        """Columns to read as text from a CSV file, whatever they look like."""
        return self.categorical | self.as_text | set(self.ids) | {one for one in (self.group, self.person) if one}

    def with_text(self, column: str) -> ColumnUse:
        """Return a copy that reads one more column as text."""
        return replace(self, as_text=self.as_text | {column})

    @property
    def inferred_columns(self) -> frozenset[str | None]:
        """Columns whose type in a CSV file is inferred: classes and times."""
        return frozenset([self.label if self.target == "classes" else None, self.time])

    def column_builder(
        self, column: str, where: str, out: np.ndarray, limits: TableLimits, storage: Storage
    ) -> NumberColumn | CategoryColumn | AnyColumn:
        """Return the builder of a feature column for `PartyTable.columns`.

        Args:
            column: its name.
            where: the table, for messages.
            out: buffer for the values, 4 bytes per row.
            limits: bounds of a column of categories.
            storage: where a column that needs more than 4 bytes per row is allocated.
        """
        if self.preparation is not None:
            return AnyColumn(column, where, out, limits, storage, categories=column in self.categorical)
        if column in self.categorical:
            return CategoryColumn(column, where, out.view(np.int32), limits)
        return NumberColumn(column, where, out, storage)

    def convert_feature(self, values: Any, column: str, where: str) -> Column:
        """Convert a feature column of a few rows as `PartyTable.columns` stores it.

        Raises:
            InputError: nulls, or text instead of numbers.
        """
        out = np.empty(len(values), dtype=np.float32)
        gathered = self.column_builder(column, where, out, DEFAULT_LIMITS, DEFAULT_STORAGE)
        for part in values.chunks:
            gathered.add(part)
        return gathered.finish()


def doubled_names(names: Sequence[str], where: str) -> list[InputError]:
    """Return an error for each duplicate column name, and one if several columns have no name."""
    found = []
    for name, times in sorted(Counter(names).items()):
        if times > 1 and name.strip():
            found.append(InputError(f"{where} has column {name!r} {_TIMES.get(times, f'{times} times')}; rename one"))
        elif times > 1:
            places = [str(place) for place, one in enumerate(names, 1) if one == name]
            shown = ", ".join(places[:_PLACES]) + (", …" if times > _PLACES else "")
            found.append(
                InputError(f"{where} has {times} columns without a name (columns {shown}): name them, or delete them")
            )
    return found


def column_names(schema: Any, where: str) -> list[str]:
    """Return the column names of an Arrow schema.

    Raises:
        InputError: they are not UTF-8.
    """
    try:
        return list(schema.names)
    except UnicodeDecodeError:
        raise InputError(f"{where}: the names of the columns are not UTF-8; save the table in UTF-8") from None


def convert_labels(values: Any, column: str, where: str) -> Coded:
    """Convert the label column of a few rows, a `pyarrow.ChunkedArray`.

    Raises:
        InputError: lists, records or bytes, or text that is not UTF-8.
    """
    gathered = LabelColumn(column, where)
    for part in values.chunks:
        gathered.add(part)
    return gathered.finish()
