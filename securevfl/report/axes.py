"""`result.plot`: curves of the test rows on matplotlib's axes, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from securevfl.errors import InputError, UnknownNameError
from securevfl.report.evaluation import Evaluation
from securevfl.report.record import Record, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["METRIC_NAMES", "Plots", "label_axes", "legend_text", "new_axes"]

METRIC_NAMES = {"auc": "AUC", "r2": "R²"}
"""Metrics whose name in prose differs from the name in records."""

_MUTED = "#8b95a1"


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
        curves = [
            (_of(one, name, found.roc, runs), points, _auc(found, name))
            for runs in [self._evaluated("roc", run)]
            for one, found in runs
            for name, points in found.roc.items()
        ]
        axes = new_axes(ax)
        axes.plot([0, 1], [0, 1], color=_MUTED, lw=1, ls=":")
        for label, points, auc in curves:
            _line(axes, points, label if auc is None else f"{label}, AUC {auc:.3f}")
        return label_axes(axes, "false positive rate", "true positive rate")

    def calibration(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """How often scores were right, over how sure they were.

        Raises:
            InputError: no run has classes.
            UnknownNameError: no run has this key.
        """
        runs = self._evaluated("reliability", run)
        axes = new_axes(ax)
        axes.plot([0, 1], [0, 1], color=_MUTED, lw=1, ls=":")
        for one, found in runs:
            _line(axes, [(part.confidence, part.observed) for part in found.reliability], one.title, marker="o", ms=4)
        return label_axes(axes, "mean score", "share that was right")

    def lift(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """How many times more of the class than among all rows, in the rows that score highest.

        Raises:
            InputError: no run has classes.
            UnknownNameError: no run has this key.
        """
        runs = self._evaluated("lift", run)
        axes = new_axes(ax)
        axes.axhline(1, color=_MUTED, lw=1, ls=":")
        for one, found in runs:
            for name, rows in found.lift.items():
                label = _of(one, name, found.lift, runs)
                _line(axes, [(row.share, row.lift) for row in rows], label, marker="o", ms=4)
        return label_axes(axes, "share of the rows, highest scores first", "lift")

    def loss(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """Mean training loss after each epoch, and the loss on the validation rows, dashed, where there are some.

        Raises:
            InputError: no run has losses: the labels' owner alone knows them.
            UnknownNameError: no run has this key.
        """
        drawn = [one for one in self._runs(run) if any(epoch.train_loss is not None for epoch in one.epochs)]
        if not drawn:
            raise InputError("no run has a loss to draw: training on secret shares shows none, and some have no epochs")
        axes = new_axes(ax)
        for one in drawn:
            train = [(epoch.epoch, epoch.train_loss) for epoch in one.epochs if epoch.train_loss is not None]
            (line,) = _line(axes, train, one.title)
            valid = [(epoch.epoch, epoch.valid["log_loss"]) for epoch in one.epochs if "log_loss" in epoch.valid]
            if valid:
                _line(axes, valid, f"{one.title}, validation", ls="--", color=line.get_color())
        axes.locator_params(axis="x", integer=True)
        return label_axes(axes, "epoch", "loss")

    def confusion(self, run: str | None = None, ax: Axes | None = None) -> Axes:
        """Test rows by their class and the class that they were given, of one run: the last one unless named.

        Raises:
            InputError: no run has classes.
            UnknownNameError: no run has this key.
        """
        _, found = self._evaluated("confusion", run)[-1]
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

    def _runs(self, key: str | None) -> list[RunRecord]:
        found = [one for one in self._record.runs if key in (None, one.key)]
        if not found:
            raise UnknownNameError("run", str(key), [one.key for one in self._record.runs])
        return found

    def _evaluated(self, field: str, key: str | None) -> list[tuple[RunRecord, Evaluation]]:
        """Runs with such figures: all, or of more than two classes the last one."""
        found = [(one, one.evaluation) for one in self._runs(key) if one.evaluation is not None]
        found = [(one, had) for one, had in found if getattr(had, field)]
        if not found:
            raise InputError(
                f"nothing to draw: no run has {field} figures of its test rows (a number has none, several labels only "
                "ROC and lift)"
            )
        return found if found[0][1].binary or field == "reliability" else found[-1:]


def _of(run: RunRecord, name: str, curves: Iterable[str], runs: Sequence[object]) -> str:
    """What a line is called: its class where a run has several, its run otherwise."""
    return name if len(list(curves)) > 1 and len(runs) == 1 else run.title


def _auc(found: Evaluation, name: str) -> float | None:
    return next((one.auc for one in found.per_class if one.name == name), None)


def new_axes(ax: Axes | None) -> Axes:
    """The axes to draw on: those given, or new ones of a notebook's size."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    axes: Axes = pyplot.subplots(figsize=(5.2, 3.8), layout="constrained")[1]
    return axes


def legend_text(name: str) -> str:
    """A name as a legend can show it: matplotlib reads a dollar sign as mathematics and hides a leading underscore."""
    return name.replace("$", r"\$").removeprefix("_") or "run"


def label_axes(axes: Axes, x: str, y: str, *, legend: bool = True) -> Axes:
    """Title both axes, and show the legend where there are several lines."""
    axes.set_xlabel(x, parse_math=False)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False, fontsize=9)
    return axes


def _line(axes: Axes, points: Sequence[tuple[float, float]], label: str, **style: Any) -> list[Any]:
    xs, ys = zip(*points, strict=True)
    return axes.plot(xs, ys, label=legend_text(label), **style)
