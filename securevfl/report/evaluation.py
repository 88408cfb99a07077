"""How good one run's scores of the test rows are, beyond its metrics: per class, how sure they are, how they rank, how
they moved. Plain values, as in `metrics.json`; `jobs.evaluating` fills them in."""

from __future__ import annotations

import msgspec

__all__ = [
    "ClassFigures",
    "CutoffRow",
    "Decision",
    "ErrorQuantile",
    "Evaluation",
    "GroupFigures",
    "Groups",
    "LiftRow",
    "RangedFigure",
    "ReliabilityBin",
    "ResidualBin",
    "StabilityBin",
]


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
    average_precision: float | None = None
    """area under precision over recall, PR-AUC; likewise. A score by chance has the class's share of the rows"""


class ReliabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Rows whose confidence lies between two bounds, and how often it was right."""

    low: float
    high: float
    rows: int
    confidence: float
    """mean of the scores"""
    observed: float
    """share of the rows that were right"""
    least: float = 0.0
    """of the 95 % interval of `observed`, by Wilson's score"""
    most: float = 1.0


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
    score: float | None = None
    """the lowest score among them"""


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
    low_error: float | None = None
    """of the errors, prediction − target, a tenth is lower"""
    high_error: float | None = None
    """a tenth is higher"""


class ErrorQuantile(msgspec.Struct, frozen=True, kw_only=True):
    """How far off the predictions of a number are."""

    share: float
    """of the test rows"""
    error: float
    """no more than this far from the target, in its units"""


class CutoffRow(msgspec.Struct, frozen=True, kw_only=True):
    """The rows whose score is at or above a cut-off, of two classes."""

    cutoff: float
    flagged: int
    """rows at or above it"""
    hits: int
    """of the second class, among them"""
    false_positives: int
    """of the first class, among them"""
    false_negatives: int
    """of the second class, below it"""
    precision: float | None
    """None where no row is flagged"""
    recall: float | None
    """None where no row is of the second class"""
    share: float
    """flagged rows, of all"""
    cost: float | None = None
    """of wrong decisions, per 1,000 rows; None without costs"""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest cut-off, and what it costs on the test rows, per 1,000 rows."""

    false_positive: float
    """cost of one"""
    false_negative: float
    cutoff: float
    """rows with this score or more are flagged; above 1 none is"""
    chosen_on: str
    """"validation rows"; "test rows": then `cost` is of rows that cut-offs were not chosen on, in five parts; or "rows
    of an earlier run" """
    chosen_rows: int
    """0 where this is unknown"""
    cost: float
    low: float
    """of its 95 % interval"""
    high: float
    flag_none: float
    """what it costs to flag no row"""
    flag_all: float
    at_half: float
    """at a cut-off of 0.5"""


class RangedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of some rows with its 95 % interval."""

    value: float
    low: float
    high: float


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One group of the test rows."""

    name: str
    rows: int
    observed: RangedFigure | None = None
    """share of the second of two classes; of several classes, share that was given its class; of several labels, share
    with all answers right; of a number None"""
    score: float | None = None
    """mean score of the second class, or of the likeliest; of several labels and of a number None"""
    auc: RangedFigure | None = None
    """None where the group does not define it"""
    flagged: RangedFigure | None = None
    """of two classes: share at or above the cut-off"""
    false_positive_rate: RangedFigure | None = None
    """share that is flagged, of the rows of the first class"""
    false_negative_rate: RangedFigure | None = None
    """share that is not, of the rows of the second class"""
    bias: RangedFigure | None = None
    """of a number: mean of prediction − target"""
    rmse: float | None = None
    mae: float | None = None
    """of a number: mean of the errors without their sign"""
    within: float | None = None
    """of a number: nine tenths of the predictions are no more than this far from the target"""
    mean: float | None = None
    """of a number: mean of the target"""
    parts: list[GroupFigures] = []
    """of three classes or more, and of several labels: of each of them the figures of two classes, it or not; flagged
    are rows that were given it"""


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The test rows by the values of one column."""

    party: str
    """whose column"""
    column: str
    cutoff: float | None
    """at which rates are counted; None unless the target has two classes"""
    groups: list[GroupFigures]
    """largest first; numbers and ranges of them in their order"""
    small: int
    """groups that are left out: fewer than 50 rows, or beyond the twenty largest"""
    small_rows: int
    """rows of these"""
    simulated: bool = False
    """whether another party has the column, so that only a simulation can show it"""


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
    where the rows define them, auc (one class against the rest, averaged over classes), average_precision (likewise),
    gini = 2 auc - 1, and of two classes ks; regression: rmse, mae, r2, and the loss's own deviance, bias = mean of
    prediction - target; several labels: accuracy (answers that are right), hamming_loss, subset_accuracy (rows with
    all answers right), macro and micro precision, recall and f1 at a probability of one half, log_loss and brier (of
    an answer) and, where the rows define them, auc (macro) and micro_auc"""
    per_class: list[ClassFigures] = []
    confusion: list[list[int]] = []
    """test rows by class (outer list) and by the class that they were given (inner lists)"""
    reliability: list[ReliabilityBin] = []
    """ten bins of about equally many rows, without empty ones: of the last of two classes, or of the likeliest of
    several"""
    lift: dict[str, list[LiftRow]] = {}
    """class -> tenths of the test rows in the order of its score; of two classes, the last one alone"""
    roc: dict[str, list[tuple[float, float]]] = {}
    """class -> (false positive rate, true positive rate), at most 101 points; likewise"""
    stability: list[StabilityBin] = []
    """of the score of the last of two classes, of the likeliest of several, or of the predicted number"""
    psi: float | None = None
    """population stability index of `stability`; None with fewer than 50 validation rows"""
    residuals: list[ResidualBin] = []
    errors: list[ErrorQuantile] = []
    """of a number"""
    recall: dict[str, list[tuple[float, float]]] = {}
    """class -> (recall, precision), at most 101 points; of two classes, the last one alone"""
    ks_cutoff: float | None = None
    """of two classes: the score at or above which the rates of `roc` differ most, by `metrics["ks"]`"""
    cutoffs: list[CutoffRow] = []
    """of two classes, cut-offs from the highest"""
    decision: Decision | None = None
    """None without costs"""
    groups: Groups | None = None
    """None unless a column was named"""
    missing: list[str] = []
    """sentences: which of these figures do not exist, and why"""

    @property
    def binary(self) -> bool:
        """Whether the target has two classes."""
        return self.task == "classification" and len(self.classes) == 2

    def __repr__(self) -> str:
        kind = "labels" if self.task == "multilabel" else "classes"
        what = f"{len(self.classes)} {kind}" if self.classes else "a number"
        figures = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"Evaluation({what}, {self.rows:,} test rows: {figures})"
