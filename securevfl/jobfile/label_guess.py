"""Guess which column is the label, from names and values. A wrong guess costs a run, so that a doubtful one is only
offered, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from securevfl.jobfile.column_words import split_words
from securevfl.jobfile.joining import count_distinct, counts_rows, distinct_values

__all__ = [
    "AMOUNT_FROM",
    "_NUMBER_TEXT",
    "ColumnTable",
    "LabelGuess",
    "has_label_name",
    "offered_labels",
    "rank_labels",
    "read_as_numbers",
    "sure_label",
]

AMOUNT_FROM = 20
"""A label of numbers with more distinct values than this makes the job a regression."""
_NUMBER_TEXT = re.compile(r"[-+]?[\d.,' €$£%]+|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T][\d:]+)?")
"""Numbers and dates in texts: preparation reads them."""
_MOSTLY = 0.9
_SURE = 3.0
"""Points from which a guess is taken."""
_AHEAD = 1.0
"""Points by which it must lead every other candidate."""
_OFFERED = 1.5
"""Points from which a column is offered to the user."""
_MOST_OFFERED = 3
_ALWAYS, _OFTEN, _AT_TIMES = 3.0, 2.0, 1.0
"""Points for a name: of nothing but labels; of an event to predict; of a label in one table and a feature in many."""
_PART_OF_NAME = -1.5
"""Where a name only ends in the word: `customer_churn`. One that begins with it means another thing: `target_group`."""
_ALONE = frozenset({"y", "class", "klasse", "left", "type", "group", "good"})
"""Words that say nothing at the end of a name: `price_class`."""
_POINTS = {"two": 0.5, "few": 0.25, "amount": 0.0}
"""Points for values: two, a few, or many different numbers. Others are no label."""
_LAST, _FIRST, _GAPS = 1.0, 0.5, -1.0
"""Points for the last column, the first one that is no identifier, and for rows without a value."""

_CLASSES = {
    _ALWAYS: "label/labels/target/targets/y/class/outcome/churn/churned/exited/attrition/survived/diagnosis/fraud/"
    "class label/target class/default payment next month/default next month/loan default/credit default/loan status/"
    "fraud reported/ziel/zielvariable/klasse/cible/defaulted/defaulter/y true/ground truth/serious dlqin 2 yrs",
    _OFTEN: "default/late/bad/good/good bad/response/responded/converted/conversion/claim/claimed/died/death/"
    "death event/mortality/readmitted/subscribed/term deposit/purchased/bought/stroke/disease/heart disease/diabetes/"
    "cancer/malignant/clicked/spam/species/variety/transported/rain tomorrow/credit risk/creditability/personal loan/"
    "recidivism/two year recid/hired/promoted/machine failure/ausfall/status group",
    _AT_TIMES: "income/revenue/status/quality/risk/type/category/group/grade/decision/segmentation/event/flag/num/"
    "accident/active/rating/severity/salary/fault/loan/alive/poutcome/returned/satisfied/origin/claims/subscription/"
    "deposit/purchase/buyer/result/approved/accepted/cancelled/canceled/left/click/satisfaction/arrest/winner/win/"
    "failure",
}
_AMOUNTS = {
    _ALWAYS: "label/target/targets/y/outcome/sale price/medv/med house val/median house value/claim amount/loss given "
    "default/lgd/ziel/zielvariable/disease progression",
    _OFTEN: "claim/selling price/house price/mpg/rings/concrete compressive strength/progression/cnt/final grade/"
    "trip duration",
    _AT_TIMES: "income/amount/value/score/area/cost/total/yield/rating/count/profit/duration/claims/price/charges/"
    "strength/quality/response/g 3/fare amount/sales/demand/loss/salary/revenue",
}
_PAIRS = {_OFTEN: "income/revenue/salary/num/quality"}
"""Further names of labels with two values: above or below an amount, yes or no."""


def _list_names(*several: Mapping[float, str]) -> dict[str, float]:
    return {name: points for names in several for points, some in names.items() for name in some.split("/")}


_POINTS_OF = {"two": _list_names(_CLASSES, _PAIRS), "few": _list_names(_CLASSES), "amount": _list_names(_AMOUNTS)}
"""Kind of values → a name in words → its points."""
_AROUND = re.compile(r"^(is|has|was|did|will|ever) | (flag|ind|indicator|yn|bin|binary|bool|encoded|code)$")
"""Words around a label's name that do not change what it means: `is_fraud`, `churn_flag`."""


@dataclass(frozen=True, kw_only=True)
class ColumnTable:
    """A party's table, as guesses need it.

    Attributes:
        party: whose it is.
        table: the rows, a `pyarrow.Table`.
        ids: columns that are identifiers: they are no label.
    """

    party: str
    table: Any
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LabelGuess:
    """A column that may be the label.

    Attributes:
        party: whose it is.
        column: its name.
        points: how much speaks for it.
        why: what does, in words.
    """

    party: str
    column: str
    points: float
    why: str

    @property
    def option(self) -> str:
        """The option of `securevfl init` that chooses it."""
        shown = f"{self.party}.{self.column}"
        return f"--label {shown}" if re.fullmatch(r"[\w.-]+", shown) else f"--label '{shown}'"


def rank_labels(tables: Sequence[ColumnTable]) -> list[LabelGuess]:
    """Columns that may be the label, of all tables, the likeliest first. A name that several tables have is none: one
    party has the label.
    """
    names = [name.casefold() for one in tables for name in one.table.column_names]
    found = []
    for one in tables:
        columns = [name for name in one.table.column_names if name not in one.ids]
        columns = [name for name in columns if not (counts_rows(one.table, name) and one.table.num_rows > 1)]
        for place, column in enumerate(columns):
            if names.count(column.casefold()) == 1:
                found += _rate_column(one, column, first=place == 0, last=place == len(columns) - 1)
    return sorted(found, key=lambda one: -one.points)


def sure_label(ranked: Sequence[LabelGuess]) -> LabelGuess | None:
    """The first one if enough speaks for it, and clearly more than for any other; otherwise None."""
    if not ranked or ranked[0].points < _SURE:
        return None
    return ranked[0] if len(ranked) == 1 or ranked[0].points - ranked[1].points >= _AHEAD else None


def offered_labels(ranked: Sequence[LabelGuess]) -> list[LabelGuess]:
    """The ones to offer to a user who has to choose."""
    return [one for one in ranked if one.points >= _OFFERED][:_MOST_OFFERED]


def has_label_name(column: str) -> bool:
    """Whether a column is called as a label may be, so that it is no part of an identifier."""
    return max(_rate_name(column, shape)[0] for shape in ("few", "amount")) >= _OFTEN


def _rate_column(one: ColumnTable, column: str, *, first: bool, last: bool) -> list[LabelGuess]:
    """The guess that a column is the label; empty if its values cannot be one."""
    shape, described = _describe_values(one.table, column)
    if not shape:
        return []
    points, named = _rate_name(column, shape)
    if shape == "amount" and column.casefold() == "y" and "x" in map(str.casefold, one.table.column_names):
        points, named = 0.0, ""  # a point in a plane
    gaps = one.table[column].null_count
    points += _POINTS[shape] + (_LAST if last else _FIRST if first else 0) + (_GAPS if gaps else 0)
    why = [named, described, "the last column" if last else "the first column after the identifier" if first else ""]
    why += [f"but empty in {gaps:,} rows"] if gaps else []
    return [LabelGuess(party=one.party, column=column, points=points, why=", ".join(filter(None, why)))]


def _rate_name(column: str, shape: str) -> tuple[float, str]:
    """Points for a name, and the reason in words."""
    words = " ".join(split_words(column))
    known = _POINTS_OF[shape]
    bare = _AROUND.sub("", _AROUND.sub("", words))
    for name in (words, bare):
        if name in known:
            return known[name], "a usual name of labels" if known[name] > _AT_TIMES else "at times the name of a label"
    parts = [points for name, points in known.items() if name not in _ALONE and bare.endswith(f" {name}")]
    if not parts or max(parts) + _PART_OF_NAME < _AT_TIMES / 2:
        return 0.0, ""
    return max(parts) + _PART_OF_NAME, "a name with a word of labels"


def _describe_values(table: Any, column: str) -> tuple[str, str]:
    """The kind of a column's values, a key of `_POINTS`, and in words; empty if they cannot be a label."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = table[column]
    kind, distinct = values.type, _count_distinct(table, column)
    if distinct < 2 or pa.types.is_temporal(kind):
        return "", ""
    if distinct == 2:
        return "two", "two values"
    numeric = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if distinct <= AMOUNT_FROM:
        fractions = pa.types.is_floating(kind) and not pc.all(pc.equal(values, pc.trunc(values))).as_py()
        if fractions or distinct * 2 > table.num_rows:
            return "", ""
        return "few", f"{distinct} values"
    if numeric or read_as_numbers(distinct_values(table, column)):
        return "amount", f"{distinct:,} different numbers"
    return "", ""


def _count_distinct(table: Any, column: str) -> int:
    """Number of distinct values, blank texts counted as missing; many need no exact count."""
    found = count_distinct(table, column)
    return found if found > AMOUNT_FROM + 1 else len(distinct_values(table, column))


def read_as_numbers(texts: set[str]) -> bool:
    """Whether texts are numbers or dates, all but a few of them."""
    return sum(_NUMBER_TEXT.fullmatch(text) is not None for text in texts) >= _MOSTLY * len(texts)
