"""Metrics of predictions: ties, weights, and labels that nobody was given."""

from mutations.base import Break

__all__ = ["BREAKS"]

_FILE = "securevfl/training/metrics.py"

BREAKS = (
    Break(
        name="rows of one score are thresholds of their own",
        file=_FILE,
        old="np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)",
        new="np.arange(len(order))",
        tests=("tests/training/test_metrics.py",),
    ),
    Break(
        name="a curve counts the other rows without their weights",
        file=_FILE,
        old="np.cumsum((1 - right) * weight[order])",
        new="np.cumsum(1 - right)",
        tests=("tests/training/test_metrics.py",),
    ),
    Break(
        name="a label that no row was given has a precision of one",
        file=_FILE,
        old="np.asarray(above / np.where(below == 0, 1, below))",
        new="np.asarray(np.where(below == 0, 1, above) / np.where(below == 0, 1, below))",
        tests=("tests/training/test_metrics.py",),
    ),
)
