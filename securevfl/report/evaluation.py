"""How good one run's scores of the test rows are, beyond its metrics: per class, how sure they are, how they rank, how
they moved. Plain values, as in `metrics.json`; `jobs.evaluating` fills them in."""

from __future__ import annotations

import msgspec

__all__ = ["ClassFigures", "Evaluation", "LiftRow", "ReliabilityBin", "ResidualBin", "StabilityBin"]


class ClassFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One class against the rest, on the test rows."""

    name: str
    rows: int
    """test rows of the class"""
    precision: float
    """of the rows that were given this class, how many are of it; 0 where none was given it"""
    recall: float
    """of the rows of this class, how many were given it; 0 where there are none"""
    f1: float
    auc: float | None
    """None where the test rows do not define it"""


class ReliabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Rows whose confidence lies between two bounds, and how often it was right."""

    low: float
    high: float
    rows: int
    confidence: float
    """mean of the scores"""
    observed: float
    """share of the rows that were right"""


class LiftRow(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that score highest, down to one tenth more than the row before."""

    share: float
    """of all test rows, 0.1 to 1"""
    rows: int
    hits: int
    """of the class, among them"""
    gain: float
    """share of all rows of the class that is among them"""
    lift: float
    """how many times more of the class than among all rows"""


class StabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Scores between two bounds: which share of the validation rows and of the test rows has them."""

    low: float
    high: float
    expected: float
    """of the validation rows"""
    actual: float
    """of the test rows"""


class ResidualBin(msgspec.Struct, frozen=True, kw_only=True):
    """A tenth of the test rows in the order of their predictions, of a numeric target."""

    low: float
    high: float
    rows: int
    predicted: float
    """mean of the predictions"""
    observed: float
    """mean of the target"""
    error: float
    """root of the mean squared error"""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The test rows of one run, seen by the active party.

    ``PSI`` here is the population stability index of scorecards, not private set intersection:
    ``Σ (actual − expected) · ln(actual / expected)`` over tenths of the validation rows' scores; below 0.1 little
    moved, above 0.25 much did (Siddiqi, Credit Risk Scorecards, 2006, chapter 10).
    """

    task: str
    """"classification", "regression" or "multilabel" """
    target: str
    """the label's column"""
    rows: int
    """test rows"""
    weighted: bool = False
    """whether rows count by their weights in `metrics`; counts of rows are counts"""
    classes: list[str] = []
    """of several labels of a row their names"""
    metrics: dict[str, float] = {}
    """classification: accuracy, balanced_accuracy, macro_precision, macro_recall, macro_f1, log_loss, brier, ece and,
    where the rows define them, auc (one class against the rest, averaged over classes), gini = 2 auc - 1, and of two
    classes ks; regression: rmse, mae, r2, and the loss's own deviance, bias = mean of prediction - target; several
    labels: accuracy (answers that are right), hamming_loss, subset_accuracy (rows with all answers right), macro
    and micro precision, recall and f1 at a probability of one half, log_loss and brier (of an answer) and, where the
    rows define them, auc (macro) and micro_auc"""
    per_class: list[ClassFigures] = []
    confusion: list[list[int]] = []
    """test rows by class (outer list) and by the class that they were given (inner lists)"""
    reliability: list[ReliabilityBin] = []
    """ten bins of equal width, without empty ones: of the last of two classes, or of the likeliest of several"""
    lift: dict[str, list[LiftRow]] = {}
    """class -> tenths of the test rows in the order of its score; of two classes, the last one alone"""
    roc: dict[str, list[tuple[float, float]]] = {}
    """class -> (false positive rate, true positive rate), at most 101 points; likewise"""
    stability: list[StabilityBin] = []
    """of the score of the last of two classes, of the likeliest of several, or of the predicted number"""
    psi: float | None = None
    """population stability index of `stability`; None with fewer than 50 validation rows"""
    residuals: list[ResidualBin] = []

    @property
    def binary(self) -> bool:
        """Whether the target has two classes."""
        return self.task == "classification" and len(self.classes) == 2

    def __repr__(self) -> str:
        kind = "labels" if self.task == "multilabel" else "classes"
        what = f"{len(self.classes)} {kind}" if self.classes else "a number"
        figures = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"Evaluation({what}, {self.rows:,} test rows: {figures})"
