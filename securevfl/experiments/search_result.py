"""What a search found: the winner, its test figures, every trial, and what noise cost over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securevfl.experiments.selection_cost import Cost
from securevfl.experiments.sweep_result import SweepResult, plus_minus
from securevfl.party import Job
from securevfl.report import Shown, failures_text, render_text, table_html, trials_axes, trials_table
from securevfl.run.frames import frame_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from optuna.study import Study
    from pandas import DataFrame

__all__ = ["SearchResult", "TrialRow"]


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial.

    Attributes:
        number: as Optuna counts.
        settings: as Optuna has them: setting → number or label.
        value: the metric on the validation rows; None where it did not end well.
        state: ``"complete"``, ``"pruned"`` or ``"fail"``.
        epochs: that its first run had.
        error: why it failed.
    """

    number: int
    settings: Mapping[str, Any]
    value: float | None
    state: str
    epochs: int | None
    error: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchResult:
    """What a search found.

    Attributes:
        settings: of the winner: setting → value.
        job: the winner, to be run.
        metric: by which trials were compared, larger is better.
        value: of the winner, on the validation rows that chose it: it looks better than it is.
        trials: all of them, in order.
        final: the winner's runs on the test rows, mean ± deviation over seeds; None where none were asked for.
        spent: ``"features"``, ``"labels"`` → ε and δ of one row over all trials and the winner's runs, at most; empty
            without noise.
        stopped: why the search ended before all trials ran; empty where it did not.
        study: Optuna's, for its own plots.
    """

    settings: Mapping[str, Any]
    job: Job = field(repr=False)
    metric: str
    value: float
    trials: tuple[TrialRow, ...] = field(repr=False)
    final: SweepResult | None = field(repr=False)
    spent: Mapping[str, Cost]
    stopped: str = ""
    study: Study = field(repr=False)

    def to_pandas(self) -> DataFrame:
        """One row a trial: its state, its value on the validation rows, its epochs, its settings."""
        return frame_of(
            [
                {"state": one.state, f"{self.metric} valid": one.value, "epochs run": one.epochs, **one.settings}
                for one in self.trials
            ],
            [str(one.number) for one in self.trials],
            "trial",
        )

    def table(self, width: int = 110) -> Shown:
        """Trials, best first, as text; a table where a notebook shows it."""
        table = trials_table(
            [(one.number, one.state, one.value, one.epochs, one.settings) for one in self.trials], self.metric
        )
        return Shown(render_text(table, width=width), table_html(table))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Each trial's value on the validation rows, and the best so far.

        Args:
            ax: axes to draw on; new ones unless given.
        """
        return trials_axes([(one.number, one.value) for one in self.trials], self.metric, ax)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        lines = [
            f"SearchResult({len(self.trials)} trials; {settings}: {self.metric} {self.value:.4f} on validation rows)"
        ]
        if self.final is not None:
            cells = self.final.record.cells
            many = f"{len(cells)} seed{'s' if len(cells) > 1 else ''}"
            lines += [f"  test {self.metric} {plus_minus(cells)} over {many}"] if cells else []
            lines += [f"  {line}" for line in failures_text(self.final.record)]
        lines += [
            f"  all of it spent at most ε = {one.epsilon:.4g} (δ = {one.delta:.2g}) of {what}"
            for what, one in self.spent.items()
        ]
        return "\n".join([*lines, *([f"  {self.stopped}"] if self.stopped else [])])

    def _repr_html_(self) -> str:
        final = "" if self.final is None else self.final._repr_html_()
        return f"<div>{self.table()._repr_html_()}{final}</div>"
