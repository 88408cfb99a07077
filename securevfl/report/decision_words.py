"""Cut-offs, their costs and groups of rows in words: the same sentences in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from securevfl.report.derived import count_decimals, format_amount
from securevfl.report.evaluation import CutoffRow, Decision, Evaluation, GroupFigures, RangedFigure
from securevfl.report.record import Record, RunRecord
from securevfl.report.svg_shapes import shorten_text

__all__ = [
    "decision_lines",
    "describe_decision",
    "evaluation_lines",
    "format_cutoff",
    "format_estimate",
    "group_sentences",
]

_NAME = 28  # characters of a name in a line
_PARTS = 6
"""Classes or labels that a group has lines for."""


def format_cutoff(value: float) -> str:
    """A cut-off as text; three digits behind the point, or more where it is next to 0 or 1."""
    if value > 1:
        return "above 1"
    near = min(value, 1 - value)
    return f"{value:.3f}" if near >= 0.01 or near == 0 else f"{value:.6f}".rstrip("0")


def format_estimate(one: RangedFigure | None, digits: int = 3) -> str:
    """A figure with its interval; a dash where there is none."""
    if one is None:
        return "–"
    return f"{one.value:,.{digits}f} ({one.low:,.{digits}f} to {one.high:,.{digits}f})"


def describe_decision(found: Evaluation | None) -> str:
    """What the cheapest cut-off is and costs, in words; empty without costs."""
    one = None if found is None else found.decision
    if found is None or one is None:
        return ""
    name = shorten_text(found.classes[-1], _NAME)
    begin = (
        "Flag no row"
        if one.cutoff > 1
        else f"Flag rows with a score of {format_cutoff(one.cutoff)} or more (the score is the probability of {name})"
    )
    chosen = f"The cut-off was chosen on {_chosen_on(one)}"
    if one.chosen_on == "test rows":
        chosen += ", as too few scores of validation rows are known; each fifth of them pays for what the others chose"
    return (
        f"{begin}: that costs {_money(one.cost)} per 1,000 rows ({_money(one.low)} to {_money(one.high)}), at "
        f"{one.false_positive:g} for a row that is flagged in error and {one.false_negative:g} for one that is missed. "
        f"To flag no row costs {_money(one.flag_none)}, all rows {_money(one.flag_all)}; a cut-off of 0.5 costs "
        f"{_money(one.at_half)}. {chosen}; the cost is of the {found.rows:,} test rows, with its 95 % interval."
    )


def _chosen_on(one: Decision) -> str:
    return f"{one.chosen_rows:,} {one.chosen_on}" if one.chosen_rows else one.chosen_on


def _money(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def group_sentences(found: Evaluation | None, owner: str) -> str:
    """What the table of groups shows and leaves out, in words; empty without groups."""
    groups = None if found is None else found.groups
    if groups is None:
        return ""
    said = [f"The test rows by {groups.party}.{groups.column}, with 95 % intervals"]
    if groups.cutoff is not None:
        said[0] += f"; rows with a score of {format_cutoff(groups.cutoff)} or more are flagged"
    if groups.small:
        many = f"{groups.small} group" + "s" * (groups.small != 1)
        said.append(
            f"{many} with {groups.small_rows:,} rows together are not shown: fewer than 50 rows, or not among the "
            "twenty largest"
        )
    if groups.simulated:
        said.append(
            f"This is a simulation: between organisations {owner} does not have the values of {groups.party}, and its "
            "report can group by its own columns alone"
        )
    if len(groups.groups) > 1:
        said.append("Intervals that overlap do not show that groups differ")
    return ". ".join(said) + "."


def decision_lines(record: Record) -> list[str]:
    """Short lines for the terminal on each federated run: ranking, calibration, cut-off and groups."""
    runs = [run for run in record.runs if not run.baseline] or record.runs
    return [line for run in runs for line in _run_lines(run)]


def _run_lines(run: RunRecord) -> list[str]:
    if run.evaluation is None:
        return []
    first, *more = evaluation_lines(run.evaluation) or [""]
    return [f"{run.title}: {first}", *(f"  {line}" for line in more)] if first else []


def evaluation_lines(found: Evaluation) -> list[str]:
    """The figures of one run's rows in short lines."""
    lines = [_ranking_line(found)]
    at = _deciding_row(found)
    if found.decision is not None:
        one = found.decision
        lines.append(
            f"cheapest cut-off {format_cutoff(one.cutoff)} (chosen on {_chosen_on(one)}): "
            f"{_money(one.cost)} per 1,000 rows ({_money(one.low)} to {_money(one.high)}); no row flagged "
            f"{_money(one.flag_none)}, all {_money(one.flag_all)}"
        )
    if at is not None:
        lines.append(_cutoff_line(at))
    if found.groups is not None:
        lines.append(f"by {found.groups.party}.{found.groups.column}, with 95 % intervals:")
        for group in found.groups.groups:
            lines.append(f"  {_group_line(group)}")
            lines += [f"    {_part_line(part)}" for part in group.parts[:_PARTS]]
            if len(group.parts) > _PARTS:
                lines.append(f"    and {len(group.parts) - _PARTS} more, on the page")
        if found.groups.small:
            lines.append(f"  small groups are not shown: {found.groups.small}, {found.groups.small_rows:,} rows")
    return [line for line in [*lines, *found.missing] if line]


def _ranking_line(found: Evaluation) -> str:
    known, parts = found.metrics, []
    if found.errors:
        decimals = count_decimals(one.error for one in found.errors)
        parts = [
            f"{100 * one.share:.0f} % of the predictions are within {format_amount(one.error, decimals)}"
            for one in found.errors[:4:2]
        ]
    if found.task == "classification" and "average_precision" not in known and "accuracy" in known:
        parts.append(f"accuracy {known['accuracy']:.3f}, balanced {known['balanced_accuracy']:.3f}")
    if "average_precision" in known:
        base = f" (base rate {found.per_class[-1].rows / found.rows:.3f})" if found.binary else ", mean of classes"
        parts.append(f"PR-AUC {known['average_precision']:.3f}{base}")
    if "ks" in known and found.ks_cutoff is not None:
        parts.append(f"KS {known['ks']:.3f} at a score of {format_cutoff(found.ks_cutoff)}")
    if found.binary and found.lift:
        top = next(iter(found.lift.values()))[0]
        parts.append(f"the best tenth has {top.lift:.2g} times as many")
    if "ece" in known:
        parts.append(f"calibration error {known['ece']:.3f}")
    return "; ".join(parts)


def _deciding_row(found: Evaluation) -> CutoffRow | None:
    """The row of the cut-off that decides: the cheapest one, or one half."""
    wanted = 0.5 if found.decision is None else found.decision.cutoff
    return next((row for row in found.cutoffs if row.cutoff == wanted), None)


def _cutoff_line(row: CutoffRow) -> str:
    shares: Sequence[tuple[str, float | None]] = (("precision", row.precision), ("recall", row.recall))
    more = "".join(f", {name} {value:.3f}" for name, value in shares if value is not None)
    return f"at {format_cutoff(row.cutoff)}: {100 * row.share:.1f} % of the rows are flagged{more}"


def _group_line(one: GroupFigures) -> str:
    parts = [f"{shorten_text(one.name, _NAME)} ({one.rows:,} rows)"]
    named = (
        ("rate" if one.false_positive_rate or one.flagged else "right", one.observed),
        ("AUC", one.auc),
        ("FPR", one.false_positive_rate),
        ("FNR", one.false_negative_rate),
    )
    parts += [f"{name} {format_estimate(value, 2)}" for name, value in named if value is not None]
    if one.bias is not None:
        decimals = count_decimals([one.rmse or 0.0])
        bias, low, high = (format_amount(value, decimals) for value in (one.bias.value, one.bias.low, one.bias.high))
        parts.append(f"bias {bias} ({low} to {high}), RMSE {format_amount(one.rmse or 0.0, decimals)}")
        if one.within is not None:
            parts.append(f"90 % within {format_amount(one.within, decimals)}")
    return ", ".join(parts)


def _part_line(one: GroupFigures) -> str:
    """One class or label of a group, it or not."""
    named = (
        ("rate", one.observed),
        ("AUC", one.auc),
        ("FPR", one.false_positive_rate),
        ("FNR", one.false_negative_rate),
    )
    figures = [f"{name} {format_estimate(value, 2)}" for name, value in named if value is not None]
    return f"{shorten_text(one.name, _NAME)}: {', '.join(figures)}"
