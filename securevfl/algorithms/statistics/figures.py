"""What the active party computes from the opened sums: correlations, variance inflation, means, weights of evidence.

With P rows of the second class and N of the first, and p and n of them in a bin: ``woe = ln((p + ½) / (n + ½)) −
ln((P + ½) / (N + ½))``, and the information value is ``Σ (p / P − n / N) woe``, as in a scorecard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from securevfl.algorithms.scorecard.binning import Evidence
from securevfl.algorithms.statistics.columns import ONE, ONE_LEVEL, SQUARE_ONE, OwnColumn, OwnColumns
from securevfl.errors import ProtocolError
from securevfl.privacy.statistics_budget import StatisticsBudget
from securevfl.training.crossing import CrossPlan, PartyLayout

if TYPE_CHECKING:
    from securevfl.algorithms.statistics.settings import StatisticsSettings

__all__ = ["ColumnNames", "OwnFigures", "compose_statistics", "inflation_factors"]

_LABEL = "(label)"
_SINGULAR = 1e-10
_LONGEST = 120
"""Characters of why a column is left out."""


class ColumnNames(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of a passive party's columns.

    Attributes:
        scored: of columns with scores, in order.
        binned: of columns in bins, in order.
        numbers: which of the binned ones hold numbers.
        missing: which of the binned ones have a last bin of missing values.
        left_out: column → why it has no scores.
    """

    scored: tuple[str, ...]
    binned: tuple[str, ...]
    numbers: tuple[bool, ...]
    missing: tuple[bool, ...]
    left_out: dict[str, str] = {}

    @classmethod
    def of(cls, columns: OwnColumns) -> ColumnNames:
        """Names of a party's columns."""
        binned = columns.binned
        return cls(
            scored=tuple(one.name for one in columns.scored),
            binned=tuple(one.name for one in binned),
            numbers=tuple(one.is_number for one in binned),
            missing=tuple(one.labels[-1] == "missing" for one in binned),
            left_out={one.name: one.left_out.split(",")[0] for one in columns.columns if one.left_out},
        )

    def encode(self) -> str:
        """As JSON."""
        return msgspec.json.encode(self).decode()

    def check(self, layout: PartyLayout, peer: str) -> None:
        """Check that a layout has as many columns.

        Raises:
            ProtocolError: it has another number.
        """
        counts = len(self.scored), len(self.binned), len(self.numbers), len(self.missing)
        if counts != (layout.scores, *[len(layout.bins)] * 3):
            raise ProtocolError(f"{peer!r} sent names of {counts} columns, which its layout does not have")
        if layout.missing and layout.missing != self.missing:
            raise ProtocolError(f"{peer!r} sent names of other columns with missing values than its layout has")
        for why in self.left_out.values():
            if len(why) > _LONGEST or not why.isprintable():
                raise ProtocolError(f"{peer!r} sent an impossible reason for leaving out a column: {why[:_LONGEST]!r}")


@dataclass
class OwnFigures:
    """The active party's own columns and their statistics.

    Attributes:
        party: its name.
        columns: its own.
        scores: its columns z, the label's last, (n, scores).
        labels: classes of the rows, (n,); None for a number.
        class_counts: rows of each class.
        has_label: whether the last column of `scores` is the label.
    """

    party: str
    columns: OwnColumns
    scores: np.ndarray = field(repr=False)
    labels: np.ndarray | None = field(repr=False)
    class_counts: np.ndarray = field(repr=False)
    has_label: bool


def compose_statistics(
    *,
    plan: CrossPlan,
    opened: np.ndarray,
    own: OwnFigures,
    passive: Sequence[tuple[str, ColumnNames, np.ndarray | None]],
    settings: StatisticsSettings,
    budget: StatisticsBudget | None,
    between_two: bool,
) -> dict[str, Any]:
    """All statistics as plain values.

    Args:
        plan: of the products.
        opened: what was opened, int64 (released,).
        own: of the active party.
        passive: of each passive party its name, the names of its columns and the correlations among them.
        settings: of the job.
        budget: of the job; None for exact sums.
        between_two: whether two parties computed.
    """
    blocks = plan.release.read_blocks(opened)
    names = [f"{own.party}.{one.name}" for one in own.columns.scored] + [_LABEL] * own.has_label
    owners = [0] * len(names)
    for number, (party, told, _) in enumerate(passive, 1):
        names += [f"{party}.{name}" for name in told.scored]
        owners += [number] * len(told.scored)
    matrix = _compute_correlations(plan, blocks, own, [one[2] for one in passive], np.array(owners))
    if own.has_label and plan.classes == 2:
        _hide_withheld(matrix, plan, blocks, np.array(owners), names.index(_LABEL))
    errors = _compute_errors(plan)
    columns = [_own_column(own, one) for one in own.columns.columns]
    for number, (party, told, _) in enumerate(passive, 1):
        columns += _passive_columns(plan, blocks, number, party, told, own, settings, errors)
    of_label = names.index(_LABEL) if own.has_label else -1
    kept = [place for place in range(len(names)) if place != of_label]
    factors: dict[str, float | None] = {}
    if settings.vif and kept:
        part = matrix[np.ix_(kept, kept)]
        found = inflation_factors(part, repair=budget is not None)
        factors = {names[place]: value for place, value in zip(kept, found, strict=True)}
    for one in columns:
        name = f"{one['party']}.{one['column']}"
        one["vif"] = factors.get(name)
        value = matrix[of_label, names.index(name)] if of_label >= 0 and name in names else math.nan
        one["with_label"] = None if math.isnan(value) else float(value)
        told_apart = len(own.class_counts) == 2 and one["with_label"] is not None
        if budget is not None and told_apart and one["party"] != own.party:
            one["means"] = _means_from_label(one["with_label"], own.class_counts)
    shown = [[None if np.isnan(value) else round(float(value), 6) for value in row] for row in matrix]
    return {
        "rows": plan.rows,
        "class_rows": own.class_counts.tolist(),
        "least": settings.least if budget is None else 0,
        "epsilon": None if budget is None else budget.spent_epsilon(),
        "delta": None if budget is None else budget.delta,
        "correlation_error": errors[0],
        "count_error": errors[1],
        "columns": columns,
        "names": names,
        "correlations": shown,
        "active": own.party,
    }


def _compute_errors(plan: CrossPlan) -> tuple[float, float]:
    """Standard errors from noise alone, of correlations and of counts."""
    return plan.noise[0] / (plan.rows * float(ONE) ** 2), plan.noise[1]


def _compute_correlations(
    plan: CrossPlan,
    blocks: dict[tuple[object, ...], np.ndarray],
    own: OwnFigures,
    told: Sequence[np.ndarray | None],
    owners: np.ndarray,
) -> np.ndarray:
    """Correlations of all columns z, float64; NaN where their owner did not send them."""
    found = np.full((len(owners), len(owners)), np.nan)
    scale = plan.rows * float(ONE) ** 2
    for name, block in blocks.items():
        if name[0] != "scores":
            continue
        rows, columns = (np.flatnonzero(owners == int(str(one))) for one in name[1:])
        found[np.ix_(rows, columns)] = block / scale
        found[np.ix_(columns, rows)] = (block / scale).T
    mine = np.flatnonzero(owners == 0)
    if len(mine):
        scores = own.scores / np.sqrt(np.square(own.scores).mean(axis=0))
        found[np.ix_(mine, mine)] = scores.T @ scores / plan.rows
    for number, own_block in enumerate(told, 1):
        if own_block is not None:
            where = np.flatnonzero(owners == number)
            found[np.ix_(where, where)] = own_block
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip(found, -1.0, 1.0))


def _hide_withheld(
    matrix: np.ndarray,
    plan: CrossPlan,
    blocks: dict[tuple[object, ...], np.ndarray],
    owners: np.ndarray,
    label: int,
) -> None:
    """Not a number where a correlation of the label with a column of two values was withheld with its counts."""
    for party, layout in enumerate(plan.layouts[1:], 1):
        places = np.flatnonzero(owners == party)
        for column, at in enumerate(layout.twofold):
            if at >= 0 and not blocks["means", party, column].any():
                matrix[label, places[column]] = matrix[places[column], label] = math.nan


def inflation_factors(correlations: np.ndarray, *, repair: bool = False) -> list[float | None]:
    """Variance inflation factor of each column: the diagonal of the inverse of their correlations.

    A column that is a combination of others has None. With noise, eigenvalues are raised to at least 0.01, since noise
    can make the matrix no matrix of correlations.

    Args:
        correlations: symmetric, (columns, columns).
        repair: whether they are noisy.
    """
    if np.isnan(correlations).any():
        return [None] * len(correlations)
    values, vectors = np.linalg.eigh((correlations + correlations.T) / 2)
    floor = 0.01 if repair else 0.0
    if repair:
        values = np.maximum(values, floor)
        fixed = (vectors * values) @ vectors.T
        spread = np.sqrt(np.diag(fixed))
        values, vectors = np.linalg.eigh(fixed / np.outer(spread, spread))
    singular = values < max(_SINGULAR, 1e-12 * len(values))
    inverse = (np.square(vectors[:, ~singular]) / values[~singular]).sum(axis=1)
    inside = np.square(vectors[:, singular]).sum(axis=1) > 1e-6
    return [None if bad else float(max(one, 1.0)) for one, bad in zip(inverse, inside, strict=True)]


def _means_from_label(correlation: float, counts: np.ndarray) -> list[float]:
    """Mean score of each of two classes, from the correlation with the class."""
    share = counts[1] / counts.sum()
    return [-correlation * math.sqrt(share / (1 - share)), correlation * math.sqrt((1 - share) / share)]


def _own_column(own: OwnFigures, column: OwnColumn) -> dict[str, Any]:
    """Statistics of one of the active party's own columns, from its rows."""
    found = _make_empty_column(own.party, column.name, "numbers" if column.is_number else "categories")
    found["missing"] = column.missing
    found["mean"] = None if math.isnan(column.mean) else column.mean
    found["deviation"] = None if math.isnan(column.deviation) else column.deviation
    found["withheld"] = column.left_out
    if own.labels is None:
        return found
    classes = range(len(own.class_counts))
    if column.scores is not None and column.present is not None:
        parts = [column.scores[column.present & (own.labels == k)] for k in classes]
        found["means"] = [float(part.mean()) if len(part) else None for part in parts]
        found["deviations"] = [float(part.std()) if len(part) else None for part in parts]
    if len(own.class_counts) == 2 and len(column.labels) > 1:
        counts = np.stack([np.bincount(column.codes[own.labels == k], minlength=len(column.labels)) for k in classes])
        _add_evidence(found, counts.astype(np.int64), column.labels)
    return found


def _make_empty_column(party: str, column: str, kind: str) -> dict[str, Any]:
    return {
        "party": party,
        "column": column,
        "kind": kind,
        "missing": None,
        "means": None,
        "deviations": None,
        "iv": None,
        "iv_noise": None,
        "bins": [],
        "level": None,
        "withheld": "",
    }


def _add_evidence(found: dict[str, Any], counts: np.ndarray, labels: Sequence[str], noise: float = 0.0) -> None:
    """Add rows, weights of evidence and the information value of bins.

    Args:
        found: of the column.
        counts: rows of the two classes in each bin, int64 (2, bins).
        labels: of the bins.
        noise: σ of the noise on each count.
    """
    evidence = Evidence.from_counts(counts.sum(axis=0), counts[1])
    found["iv"] = evidence.iv
    found["bins"] = [
        {"bin": label, "rows": int(rows), "events": int(events), "woe": float(woe)}
        for label, rows, events, woe in zip(labels, evidence.rows, evidence.positives, evidence.woe, strict=True)
    ]
    if noise:
        totals = np.maximum(counts.sum(axis=1), 1)
        found["iv_noise"] = float((noise**2 / (np.maximum(counts, 1) * totals[:, None])).sum())


def _passive_columns(
    plan: CrossPlan,
    blocks: dict[tuple[object, ...], np.ndarray],
    number: int,
    party: str,
    told: ColumnNames,
    own: OwnFigures,
    settings: StatisticsSettings,
    errors: tuple[float, float],
) -> list[dict[str, Any]]:
    """Statistics of a passive party's columns."""
    layout = plan.layouts[number]
    names = list(dict.fromkeys((*told.scored, *told.binned, *told.left_out)))
    kinds = {name: why != ONE_LEVEL for name, why in told.left_out.items()}
    kinds |= dict.fromkeys(told.scored, True) | dict(zip(told.binned, told.numbers, strict=True))
    found = {name: _make_empty_column(party, name, "numbers" if kinds[name] else "categories") for name in names}
    for name, why in told.left_out.items():
        found[name]["withheld"] = why
    for column, name in enumerate(told.scored):
        block = blocks.get(("means", number, column))
        if block is not None:
            _add_means(found[name], block, settings.least, twofold=bool(layout.twofold) and layout.twofold[column] >= 0)
    if len(own.class_counts) != 2:
        return list(found.values())
    for column, name in enumerate(told.binned):
        for level, merged in enumerate(layout.bins[column]):
            block = blocks.get(("bins", number, column, level))
            if block is None or not block.any():
                continue
            counts, groups = block, [[bin_] for bin_ in range(max(merged) + 1)]
            if errors[1]:
                counts, groups = _merge_noisy(block, settings.least, errors[1], missing=told.missing[column])
            labels = [_bin_label(merged, group, missing=told.missing[column]) for group in groups]
            _add_evidence(found[name], counts, labels, errors[1])
            found[name]["level"] = level
            found[name]["groups"] = groups
            break
        else:
            found[name]["withheld"] = found[name]["withheld"] or (
                f"fewer than {settings.least} rows of a class in its coarsest bins"
            )
    return list(found.values())


def _add_means(found: dict[str, Any], block: np.ndarray, least: int, *, twofold: bool) -> None:
    """Add means and deviations by class.

    Args:
        found: of the column.
        block: sums of z, of its squares, and rows, (3, classes).
        least: rows of a class that are there if anything was released.
        twofold: whether the column has two values alone.
    """
    rows = block[2].astype(np.float64)
    if rows.min() < least:
        found["withheld"] = f"fewer than {least} rows of a class with, or without, {'one' if twofold else 'a'} value"
        return
    means = block[0] / (rows * ONE)
    spread = np.sqrt(np.maximum(block[1] / (rows * SQUARE_ONE) - np.square(means), 0.0))
    found["means"], found["deviations"] = means.tolist(), spread.tolist()


def _bin_label(merged: Sequence[int], group: Sequence[int], *, missing: bool) -> str:
    """A bin of a passive party in words, by the numbers of its finest bins; the owner alone knows where they end."""
    fine = [place for place, bin_ in enumerate(merged) if bin_ in group]
    last = len(merged) - 1
    words = [str(place + 1) for place in fine if not (missing and place == last)]
    text = words[0] if len(words) == 1 else f"{words[0]}–{words[-1]}" if words else ""
    if missing and last in fine:
        text = f"{text}, missing" if text else "missing"
    return text


def _merge_noisy(block: np.ndarray, least: int, noise: float, *, missing: bool) -> tuple[np.ndarray, list[list[int]]]:
    """Noisy counts without those that noise may have made: neighbours are merged until each count is at least `least`
    and twice the noise.

    Returns:
        Counts, int64 (2, bins), and the bins that each is made of.
    """
    counts = [np.maximum(block[:, bin_], 0) for bin_ in range(block.shape[1])]
    groups = [[bin_] for bin_ in range(block.shape[1])]
    wanted = max(least, 2 * noise)
    if missing and len(groups) > 1 and counts[-1].min() < wanted:  # too few missing values say nothing
        counts.pop()
        groups.pop()
    while len(groups) > 1:
        at = min(range(len(groups)), key=lambda i: counts[i].min())
        if counts[at].min() >= wanted:
            break
        around = [i for i in (at - 1, at + 1) if 0 <= i < len(groups)]
        other = min(around, key=lambda i: counts[i].min())
        low = min(at, other)
        counts[low : low + 2] = [counts[low] + counts[low + 1]]
        groups[low : low + 2] = [groups[low] + groups[low + 1]]
    return np.stack(counts, axis=1).astype(np.int64), groups
