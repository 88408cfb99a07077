"""`result.plot`: the report's figures on matplotlib's axes, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from securevfl.errors import InputError, UnknownNameError
from securevfl.report.chart import Chart, ChartCurve, draw_chart, new_axes
from securevfl.report.evaluation import Evaluation
from securevfl.report.quality import (
    METRIC_NAMES,
    calibration_chart,
    calibration_curve,
    lift_chart,
    lift_curves,
    roc_chart,
)
from securevfl.report.record import Record, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Plots", "trials_axes"]

_COLORS = ("#2b6cb0", "#c05621", "#0f8a6d", "#7b4fa3", "#b7791f", "#c53083")


class Plots:
    """Plots of a record's runs. Each takes the key of a run (all that have such figures unless given; of several
    classes, the last run) and the axes to draw on (new ones unless given), and returns the axes.

    Args:
        record: whose runs.
    """

    def __init__(self, record: Record) -> None:
        self._record = record

    def __repr__(self) -> str:
        return "plots: roc(), calibration(), loss(), confusion(), lift()"

    def roc(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """True positive rate over false positive rate.

        Raises:
            InputError: no run has one: a target that is a number, or test rows of one class.
            UnknownNameError: no run has this key.
        """
        runs, curves = self._select_evaluated("roc", run), []
        for one, found in runs:
            for name, points in found.roc.items():
                label = _curve_label(one, name, found.roc, runs)
                auc = next((part.auc for part in found.per_class if part.name == name), None)
                curves.append(ChartCurve(points=points, title=label if auc is None else f"{label}, AUC {auc:.3f}"))
        return draw_chart(roc_chart(curves), ax)

    def calibration(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """How often scores were right, over how sure they were.

        Raises:
            InputError: no run has classes.
            UnknownNameError: no run has this key.
        """
        return draw_chart(
            calibration_chart(
                [calibration_curve(found, one.title) for one, found in self._select_evaluated("reliability", run)]
            ),
            ax,
        )

    def lift(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """How many times more of the class than among all rows, in the rows that score highest.

        Raises:
            InputError: no run has classes.
            UnknownNameError: no run has this key.
        """
        runs = self._select_evaluated("lift", run)
        curves = [
            ChartCurve(points=points, title=_curve_label(one, name, found.lift, runs), marker="o")
            for one, found in runs
            for name, points in lift_curves(found).items()
        ]
        return draw_chart(lift_chart(curves), ax)

    def loss(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """Mean training loss after each epoch, and the loss on the validation rows, dashed, where there are some.

        Raises:
            InputError: no run has losses: the labels' owner alone knows them.
            UnknownNameError: no run has this key.
        """
        drawn = [one for one in self._select_runs(run) if any(epoch.train_loss is not None for epoch in one.epochs)]
        if not drawn:
            raise InputError("no run has a loss to draw: training on secret shares shows none, and some have no epochs")
        curves = []
        for i, one in enumerate(drawn):
            color = _COLORS[i % len(_COLORS)]
            train = [(float(epoch.epoch), epoch.train_loss) for epoch in one.epochs if epoch.train_loss is not None]
            curves.append(ChartCurve(points=train, title=one.title, color=color))
            valid = [(float(epoch.epoch), epoch.valid["log_loss"]) for epoch in one.epochs if "log_loss" in epoch.valid]
            if valid:
                curves.append(ChartCurve(points=valid, title=f"{one.title}, validation", dash="4 2", color=color))
        axes = draw_chart(Chart(curves=curves, x="epoch", y="loss", label="Loss by epoch"), ax)
        axes.locator_params(axis="x", integer=True)
        return axes

    def confusion(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """Test rows by their class and the class that they were given, of one run: the last one unless named.

        Raises:
            InputError: no run has classes.
            UnknownNameError: no run has this key.
        """
        _, found = self._select_evaluated("confusion", run)[-1]
        axes = new_axes(ax)
        axes.imshow(found.confusion, cmap="Blues")
        most = max(map(max, found.confusion))
        for i, row in enumerate(found.confusion):
            for j, count in enumerate(row):
                color = "white" if 2 * count > most else "black"
                axes.text(j, i, f"{count:,}", ha="center", va="center", color=color)
        places = range(len(found.classes))
        axes.set_xticks(places, found.classes, parse_math=False)
        axes.set_yticks(places, found.classes, parse_math=False)
        axes.set_xlabel("class given")
        axes.set_ylabel("class of the row")
        return axes

    def _select_runs(self, key: str | None) -> list[RunRecord]:
        found = [one for one in self._record.runs if key in (None, one.key)]
        if not found:
            raise UnknownNameError("run", str(key), [one.key for one in self._record.runs])
        return found

    def _select_evaluated(self, field: str, key: str | None) -> list[tuple[RunRecord, Evaluation]]:
        """Runs with such figures: all, or of more than two classes the last one."""
        found = [(one, one.evaluation) for one in self._select_runs(key) if one.evaluation is not None]
        found = [(one, had) for one, had in found if getattr(had, field)]
        if not found:
            raise InputError(
                f"nothing to draw: no run has {field} figures of its test rows (a number has none, several labels only "
                "ROC and lift)"
            )
        return found if found[0][1].binary or field == "reliability" else found[-1:]


def _curve_label(run: RunRecord, name: str, curves: Iterable[str], runs: Sequence[object]) -> str:
    """A curve's name: its class where one run has several, its run otherwise."""
    return name if len(list(curves)) > 1 and len(runs) == 1 else run.title


def trials_axes(trials: Sequence[tuple[int, float | None]], metric: str, ax: Axes | None = None) -> Axes:
    """Each trial's value, and the best so far.

    Args:
        trials: number and value of each.
        metric: the value's name.
        ax: axes to draw on; new ones unless given.

    Raises:
        InputError: no trial has a value.
    """
    found = [(number, value) for number, value in trials if value is not None]
    if not found:
        raise InputError("no trial ended well, so there is nothing to draw")
    best = list(accumulate((value for _, value in found), max))
    steps = [(float(found[0][0]), best[0])]
    for (number, _), before, value in zip(found[1:], best, best[1:], strict=False):
        steps += [(float(number), before), (float(number), value)]
    values = [(float(number), value) for number, value in found]
    curves = [
        ChartCurve(points=values, title="trial", marker="o", joined=False, color=_COLORS[0]),
        ChartCurve(points=steps, title="best so far", color=_COLORS[1]),
    ]
    title = f"{METRIC_NAMES.get(metric, metric)} on validation rows"
    return draw_chart(Chart(curves=curves, x="trial", y=title, label="Value of each trial"), ax)
