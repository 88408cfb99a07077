"""Which column of a table is used for what; and what can be wrong with that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from securevfl.data.categories import Column
from securevfl.data.gathering import CategoryColumn, LabelColumn, NumberColumn
from securevfl.data.gathering_any import AnyColumn
from securevfl.data.labels import Coded
from securevfl.data.limits import DEFAULT_LIMITS, TableLimits
from securevfl.data.prepare import Preparation
from securevfl.data.storage import DEFAULT_STORAGE, Storage
from securevfl.errors import InputError, UnknownNameError

__all__ = ["ColumnUse", "Target", "column_names", "doubled_names", "labels"]

Target = Literal["classes", "number", "labels"]
"""What a label column holds."""

_TIMES = {2: "twice"}
_PLACES = 5
_MOST_IDS = 16
"""Columns that make an identifier, at most: as many as the PSI takes."""


@dataclass(frozen=True, kw_only=True)
class ColumnUse:
    """Which column of a table is used for what.

    Attributes:
        id: the identifier column; several, in order, where they make an identifier together.
        label: the label column, or None; the first one where there are several.
        features: the feature columns; all others but id and label if None.
        categorical: those of them that hold categories.
        classes: the label's values in the order of their indexes; those found, sorted, if None.
        preparation: how features are prepared, which may hold anything then; None for numbers and categories alone.
        as_text: features that are read as texts, because some of their values are no numbers.
        target: what the label column holds: ``"classes"``, a ``"number"`` to learn, or one of several ``"labels"``.
        weight: the column with weights of rows, or None.
        group: the column whose values stay together in a split, or None.
        time: the column by which rows are split, or None.
        labels: the label columns of which a row can have several, each of zeros and ones; none unless `target` says so.
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
    labels: tuple[str, ...] = ()

    @classmethod
    def of(
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
    ) -> ColumnUse:
        """From the loaders' arguments.

        Raises:
            InputError: a wrong target, classes of a number, a role without a label, several labels that are not two or
                more, or `prepare` is no preparation.
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
                "columns or more, each named once, label=['a', 'b'], and target='labels'; one column of zeros and ones "
                "holds two classes"
            )
        if several and classes is not None:
            raise InputError("classes are given, and each of several labels is 0 or 1: leave classes out")
        if target == "number" and classes is not None:
            raise InputError("classes are given, and target='number' has none: leave one of the two out")
        roles = {"target='number'": target == "number" or None, "weight": weight, "group": group, "time": time}
        given = [role for role, value in roles.items() if value is not None]
        if given and label is None:
            raise InputError(f"{given[0]} belongs to the party with the label; name its column in label=…")
        if prepare is not None and not isinstance(prepare, Preparation):
            prepare = Preparation.of(prepare)
        named = frozenset() if prepare is None else prepare.categories
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
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """The identifier columns, one or several."""
        return (self.id,) if isinstance(self.id, str) else self.id

    @property
    def roles(self) -> dict[str, str]:
        """Role → column: what is read as numbers, groups or times beside features, identifiers and classes."""
        found = {"weight": self.weight, "group": self.group, "time": self.time}
        found |= {"label": self.label if self.target == "number" else None}
        found |= {f"label {place}": column for place, column in enumerate(self.labels)}
        return {role: column for role, column in found.items() if column is not None}

    @property
    def apart(self) -> tuple[str | None, ...]:
        """Columns that are no features unless they are listed."""
        return (*self.ids, self.label, *self.labels, self.weight, self.group, self.time)

    def chosen(self, names: Sequence[str]) -> list[str]:
        """The feature columns of a table with these columns."""
        return [c for c in names if c not in self.apart] if self.features is None else list(self.features)

    def read(self, names: Sequence[str], where: str) -> list[str]:
        """The columns that are read, in the order of the table.

        Raises:
            InputError: they cannot be used as told.
        """
        for mistake in self.mistakes(names, where):
            raise mistake
        wanted = {*self.apart, *self.chosen(names)}
        return [name for name in names if name in wanted]

    def mistakes(self, names: Sequence[str], where: str) -> list[InputError]:
        """What is wrong with this use of a table with columns `names`, the most basic mistake first."""
        found = doubled_names(names, where)
        there, chosen = set(names), self.chosen(names)
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
            ("column", [*chosen, *sorted(self.categorical - set(chosen))]),
        ):
            found += [UnknownNameError(f"{what} of {where}:", c, names) for c in wanted if c not in there]
        found += self.wrong_ids(where)
        if set(self.ids) & set(chosen) or {self.label, *self.labels} & set(chosen):
            named = " or ".join(map(repr, (*self.ids, *(self.labels or [self.label]))))
            found.append(InputError(f"{where}: {named} is listed as a feature too; a column has one use"))
        if self.weight and self.weight in {*self.ids, self.label, *self.labels, *chosen}:
            found.append(InputError(f"{where}: the weight {self.weight!r} has another use, too; a column has one use"))
        if not chosen and (self.features is None or not self.label):
            hint = "; an owner of labels alone says features=[]" if self.label else ""
            found.append(InputError(f"{where} has no feature columns; name at least one in features=…{hint}"))
        return found

    def wrong_ids(self, where: str) -> list[InputError]:
        """What is wrong with the choice of identifier columns, whatever the table has."""
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
    def texts(self) -> frozenset[str]:
        """Columns that are texts in a CSV file, whatever they look like."""
        return self.categorical | self.as_text | set(self.ids) | ({self.group} if self.group else set())

    def with_text(self, column: str) -> ColumnUse:
        """The same with one more column that is read as texts."""
        return replace(self, as_text=self.as_text | {column})

    @property
    def as_found(self) -> frozenset[str | None]:
        """Columns whose type in a CSV file is what it looks like: classes, and times."""
        return frozenset([self.label if self.target == "classes" else None, self.time])

    def gathers(
        self, column: str, where: str, out: np.ndarray, limits: TableLimits, storage: Storage
    ) -> NumberColumn | CategoryColumn | AnyColumn:
        """What gathers a feature column, as `PartyTable.columns` has it.

        Args:
            column: which.
            where: the table, for messages.
            out: where it goes, 4 bytes for each row.
            limits: of a column of categories.
            storage: where a column that takes more goes.
        """
        if self.preparation is not None:
            return AnyColumn(column, where, out, limits, storage, categories=column in self.categorical)
        if column in self.categorical:
            return CategoryColumn(column, where, out.view(np.int32), limits)
        return NumberColumn(column, where, out, storage)

    def feature(self, values: Any, column: str, where: str) -> Column:
        """A feature column of a few rows, as `PartyTable.columns` has it.

        Raises:
            InputError: nulls, or text where numbers are expected.
        """
        out = np.empty(len(values), dtype=np.float32)
        gathered = self.gathers(column, where, out, DEFAULT_LIMITS, DEFAULT_STORAGE)
        for part in values.chunks:
            gathered.add(part)
        return gathered.whole()


def doubled_names(names: Sequence[str], where: str) -> list[InputError]:
    """A mistake for each name that several columns have, and for columns without a name where there are several."""
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
    """Names of the columns of an Arrow schema.

    Raises:
        InputError: they are not UTF-8.
    """
    try:
        return list(schema.names)
    except UnicodeDecodeError:
        raise InputError(f"{where}: the names of the columns are not UTF-8; save the table in UTF-8") from None


def labels(values: Any, column: str, where: str) -> Coded:
    """The label column of a few rows, a `pyarrow.ChunkedArray`.

    Raises:
        InputError: lists, records or bytes, or text that is not UTF-8.
    """
    gathered = LabelColumn(column, where)
    for part in values.chunks:
        gathered.add(part)
    return gathered.whole()
