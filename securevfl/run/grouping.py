"""The test rows by the values of one column that the user named: how many, how often, how well ranked, how often wrong.

The label owner computes this from its own column, its labels and its scores, and sends nothing. Another party's column
is there in simulations alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import numpy as np

from securevfl.data import PartyTable
from securevfl.data.categories import Categories
from securevfl.errors import InputError, UnknownNameError
from securevfl.party.report_options import ReportOptions
from securevfl.report.evaluation import GroupFigures, Groups, RangedFigure
from securevfl.run.gains import row_influences
from securevfl.training.metrics import SURE, roc_curve, wilson_interval
from securevfl.training.multilabel import HALF

__all__ = ["FEWEST_ROWS", "Grouping", "check_grouping", "find_grouping", "measure_groups", "name_groups"]

FEWEST_ROWS = 50
"""Groups with fewer test rows are left out: their figures would be chance, and close to single persons."""
_MOST = 20
"""Groups that are shown, at most."""
_AS_THEY_ARE = 10
"""Numbers with no more distinct values are groups as they are; others are cut into four."""
_MISSING = "missing"
_WITHIN = 0.9
"""Share of the predictions whose errors `GroupFigures.within` bounds."""


@dataclass(frozen=True)
class Grouping:
    """The group of each test row.

    Attributes:
        party: whose column.
        column: its name.
        names: group of each row, (n,) texts.
        simulated: whether another party than the label owner has the column.
    """

    party: str
    column: str
    names: np.ndarray = field(repr=False)
    simulated: bool = False


def check_grouping(options: ReportOptions, tables: Mapping[str, PartyTable], owner: str) -> None:
    """Check that the column by which the report groups exists.

    Args:
        options: of the report.
        tables: party → its table; of a party between organisations, its own alone.
        owner: the label owner.

    Raises:
        InputError: another organisation has the column, or it is a block of numbers.
        UnknownNameError: no such party or column.
    """
    where = options.grouping(owner)
    if where is None:
        return
    party, column = where
    if party not in tables:
        if len(tables) == 1:
            raise InputError(
                f"report.group is {options.group!r}, a column of {party!r}: {owner!r} does not have its values, and "
                f"nothing is sent for a report. Name a column of {owner!r}; a simulation can group by any party's"
            )
        raise UnknownNameError("party of report.group", party, tables)
    table = tables[party]
    if column not in table.columns and column not in table.beside:
        raise UnknownNameError(f"column of {party!r} in report.group:", column, [*table.columns, *table.beside])
    if column in table.columns and np.ndim(table.columns[column]) > 1:
        raise InputError(f"report.group is {options.group!r}, a block of numbers or images; name a column of one value")


def find_grouping(
    options: ReportOptions, tables: Mapping[str, PartyTable], rows: Mapping[str, np.ndarray], owner: str
) -> Grouping | None:
    """The groups of the test rows; None where no column was named.

    Args:
        options: of the report.
        tables: party → its table.
        rows: party → the places of the test rows in its table, (n,).
        owner: the label owner.

    Raises:
        InputError, UnknownNameError: see `check_grouping`.
    """
    where = options.grouping(owner)
    if where is None:
        return None
    check_grouping(options, tables, owner)
    party, column = where
    table, at = tables[party], rows[party]
    values = table.columns[column] if column in table.columns else table.beside[column]
    coded = isinstance(values, Categories) or column in table.categorical
    names = name_groups(np.asarray(values)[at], as_they_are=coded)
    return Grouping(party, column, names, simulated=party != owner)


def name_groups(values: np.ndarray, *, as_they_are: bool = False) -> np.ndarray:
    """The group of each value, (n,) texts: texts and categories as they are, dates by year, numbers with more than ten
    values in four ranges of about equally many rows.

    Args:
        values: (n,).
        as_they_are: whether they are categories, whatever they look like.
    """
    if values.dtype.kind == "M":
        values, as_they_are = values.astype("datetime64[Y]").astype(str), True
    texts = np.array([_text_of(value) for value in values.tolist()], dtype=object)
    missing = texts == _MISSING
    if as_they_are or missing.all():
        return texts
    try:
        numbers = np.where(missing, np.nan, np.where(missing, "nan", texts).astype(np.float64))
    except (ValueError, TypeError):
        return texts
    if len(np.unique(numbers[~missing])) <= _AS_THEY_ARE:
        return texts
    edges = np.unique(np.quantile(numbers[~missing], [0.25, 0.5, 0.75]))
    bounds = [f"{edge:.4g}" for edge in edges]
    ranges = [f"up to {bounds[0]}", *(f"{a} to {b}" for a, b in pairwise(bounds))]
    ranges.append(f"above {bounds[-1]}")
    place = np.searchsorted(edges, np.nan_to_num(numbers))
    return np.where(missing, _MISSING, np.array(ranges, dtype=object)[place])


def _text_of(value: object) -> str:
    if value is None or value in ("", "NaT") or (isinstance(value, float) and math.isnan(value)):
        return _MISSING
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def measure_groups(
    grouping: Grouping,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    cutoff: float | None = None,
    classes: int = 2,
    weight: np.ndarray | None = None,
    only_classes: bool = False,
    titles: Sequence[str] = (),
) -> Groups:
    """The figures of each group.

    Args:
        grouping: of the test rows.
        scores: probabilities (n, classes), or predictions (n, 1).
        labels: classes, or numbers, (n,); zeros and ones (n, labels) where a row can have several.
        cutoff: of two classes, at which rows are flagged.
        classes: how many; 0 for a number.
        weight: of the rows in the AUC, (n,); equal unless given.
        only_classes: whether `scores` are no probabilities, but give each row one class.
        titles: of the classes or labels, where there are more than two or a row can have several; each of them then has
            figures of its own in each group.
    """
    names, counts = np.unique(grouping.names.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = [k for k in order if counts[k] >= FEWEST_ROWS][:_MOST]
    starts = [start for k in shown if (start := _range_start(str(names[k]))) is not None]
    if len(starts) == len(shown):  # ranges of numbers come in their order
        shown = [k for _, k in sorted(zip(starts, shown, strict=True))]
    found = []
    for k in shown:
        rows = np.flatnonzero(grouping.names == names[k])
        each = None if weight is None else weight[rows]
        if labels.ndim > 1:
            found.append(_measure_labels(str(names[k]), scores[rows], labels[rows], titles, each))
        elif classes:
            one = _measure_classes(str(names[k]), scores[rows], labels[rows], cutoff, each)
            if titles and scores.shape[1] > 2:
                given = np.eye(scores.shape[1], dtype=bool)[scores[rows].argmax(axis=1)]
                truth = np.eye(scores.shape[1], dtype=np.int64)[labels[rows]]
                one = msgspec.structs.replace(one, parts=_measure_each(titles, scores[rows], truth, given, each))
            found.append(_without_scores(one) if only_classes else one)
        else:
            found.append(_measure_numbers(str(names[k]), scores[rows, 0], labels[rows]))
    return Groups(
        party=grouping.party,
        column=grouping.column,
        cutoff=cutoff if classes == 2 else None,
        groups=found,
        small=len(names) - len(shown),
        small_rows=int(counts.sum() - counts[shown].sum()) if shown else int(counts.sum()),
        simulated=grouping.simulated,
    )


def _range_start(name: str) -> float | None:
    """Where a range of numbers begins, from its name; None for other names."""
    first = {"up": "-inf", "above": "inf", _MISSING: "inf"}.get(name.partition(" ")[0], name.partition(" ")[0])
    try:
        return float(first)
    except ValueError:
        return None


def _measure_classes(
    name: str, scores: np.ndarray, labels: np.ndarray, cutoff: float | None, weight: np.ndarray | None
) -> GroupFigures:
    two = scores.shape[1] == 2
    right = labels == 1 if two else scores.argmax(axis=1) == labels
    flagged = scores[:, 1] >= cutoff if two and cutoff is not None else None
    return GroupFigures(
        name=name,
        rows=len(labels),
        observed=_share(right),
        score=float((scores[:, 1] if two else scores.max(axis=1)).mean()),
        auc=_auc(scores, labels, weight),
        flagged=None if flagged is None else _share(flagged),
        false_positive_rate=None if flagged is None else _share(flagged[~right]),
        false_negative_rate=None if flagged is None else _share(~flagged[right]),
    )


def _measure_labels(
    name: str, scores: np.ndarray, labels: np.ndarray, titles: Sequence[str], weight: np.ndarray | None
) -> GroupFigures:
    """Figures of a group whose rows can have several labels: how many rows have all answers right, and each label's."""
    given = scores >= HALF
    return GroupFigures(
        name=name,
        rows=len(labels),
        observed=_share((given == labels.astype(bool)).all(axis=1)),
        parts=_measure_each(titles, scores, labels, given, weight),
    )


def _measure_each(
    titles: Sequence[str], scores: np.ndarray, labels: np.ndarray, given: np.ndarray, weight: np.ndarray | None
) -> list[GroupFigures]:
    """The figures of each class or label, it or not.

    Args:
        titles: of the classes or labels.
        scores: probabilities, (n, classes).
        labels: zeros and ones, (n, classes).
        given: whether a row was given it, bool (n, classes).
        weight: of the rows in the AUC, (n,).
    """
    found = []
    for k, title in enumerate(titles):
        two, right, flagged = np.stack([1 - scores[:, k], scores[:, k]], axis=1), labels[:, k] == 1, given[:, k]
        found.append(
            GroupFigures(
                name=title,
                rows=int(right.sum()),
                observed=_share(right),
                score=float(scores[:, k].mean()),
                auc=_auc(two, right.astype(np.int64), weight),
                flagged=_share(flagged),
                false_positive_rate=_share(flagged[~right]),
                false_negative_rate=_share(~flagged[right]),
            )
        )
    return found


def _without_scores(one: GroupFigures) -> GroupFigures:
    """A group's figures where no probabilities are known."""
    parts = [msgspec.structs.replace(part, score=None, auc=None) for part in one.parts]
    return msgspec.structs.replace(one, score=None, auc=None, parts=parts)


def _measure_numbers(name: str, predicted: np.ndarray, y: np.ndarray) -> GroupFigures:
    error = predicted - y
    mean, half = float(error.mean()), SURE * float(error.std(ddof=1)) / len(y) ** 0.5
    return GroupFigures(
        name=name,
        rows=len(y),
        bias=RangedFigure(value=mean, low=mean - half, high=mean + half),
        rmse=float(np.sqrt((error**2).mean())),
        mae=float(np.abs(error).mean()),
        within=float(np.quantile(np.abs(error), _WITHIN)),
        mean=float(y.mean()),
    )


def _share(which: np.ndarray) -> RangedFigure | None:
    if not len(which):
        return None
    low, high = wilson_interval(int(which.sum()), len(which))
    return RangedFigure(value=float(which.mean()), low=low, high=high)


def _auc(scores: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> RangedFigure | None:
    """With DeLong's interval; None where a class has fewer than two rows."""
    influences = row_influences("auc", scores, labels, weight)
    which = [1] if scores.shape[1] == 2 else range(scores.shape[1])
    curves = [roc_curve(labels == k, scores[:, k], weight) for k in which]
    if influences is None or any(curve is None for curve in curves):
        return None
    value = float(np.mean([curve.auc for curve in curves if curve is not None]))
    half = SURE * float(np.sqrt((influences**2).sum()))
    return RangedFigure(value=value, low=max(0.0, value - half), high=min(1.0, value + half))
