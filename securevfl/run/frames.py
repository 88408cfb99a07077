"""Results as pandas DataFrames, for notebooks; imports pandas only on use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from securevfl.errors import InputError
from securevfl.report.record import Record

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["What", "epochs_frame", "frame_of", "runs_frame", "scores_frame"]

What = Literal["runs", "epochs", "scores"]


def runs_frame(record: Record) -> DataFrame:
    """One row for each run: its title, protection, metrics on the test rows, seconds, and bytes on all links."""
    rows = [
        {
            "title": run.title,
            "protection": run.protection,
            "baseline": run.baseline,
            **run.test,
            **{f"{name} deviation": value for name, value in run.deviation.items()},
            "seconds": run.seconds,
            "bytes": sum(link.bytes for link in run.links),
        }
        for run in record.runs
    ]
    return frame_of(rows, [run.key for run in record.runs], "run")


def epochs_frame(record: Record) -> DataFrame:
    """One row for each epoch of each run: its loss and its metrics on the validation rows."""
    rows = [
        {"run": run.key, "epoch": epoch.epoch, "loss": epoch.train_loss, **epoch.valid, "seconds": epoch.seconds}
        for run in record.runs
        for epoch in run.epochs
    ]
    return frame_of(rows)


def scores_frame(ids: Sequence[str], classes: Sequence[str], scores: Mapping[str, np.ndarray]) -> DataFrame:
    """One row for each scored row of the active party, with one column for each run and class (for each run alone if
    the target is a number).

    Args:
        ids: the active party's identifiers.
        classes: names of the classes; None if the target is a number.
        scores: run → (n, classes), or (n, 1) of a number.
    """
    columns: dict[tuple[str, str], np.ndarray] = {}
    for run, values in scores.items():
        names = classes if len(classes) == values.shape[1] else [str(k) for k in range(values.shape[1])]
        columns |= {(run, name): values[:, k] for k, name in enumerate(names)}
    frame = _import_pandas().DataFrame(
        {f"{run} {name}".strip() if len(scores) > 1 else name: values for (run, name), values in columns.items()},
        index=list(ids),
    )
    return frame.rename_axis("id")


def frame_of(rows: Sequence[Mapping[str, object]], index: Sequence[str] | None = None, name: str = "") -> DataFrame:
    """A DataFrame of dictionaries, with an index by names where they are given."""
    frame = _import_pandas().DataFrame(list(rows), index=None if index is None else list(index))
    return frame if index is None else frame.rename_axis(name)


def _import_pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError("to_pandas needs pandas, which is not installed: pip install pandas") from None
    return pandas
