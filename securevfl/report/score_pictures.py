"""Pictures of how scores are spread: residuals of a number, and how far scores moved."""

from __future__ import annotations

from securevfl.report.chart import Chart, ChartCurve
from securevfl.report.evaluation import Evaluation, ResidualBin
from securevfl.report.picture import Picture

__all__ = ["draw_residuals", "draw_stability"]


def draw_residuals(found: Evaluation) -> list[Picture]:
    """Of a number: predicted against true, residuals and error, by tenths of the predictions."""
    if not found.residuals:
        return []
    tenths = [(i + 1.0, bin_) for i, bin_ in enumerate(found.residuals)]
    name = found.target or "the target"
    by_tenth, marks = "tenth of the predictions", [(i, f"{i:.0f}") for i, _ in tenths]
    means = [(b.predicted, b.observed) for _, b in tenths]
    residuals = [(i, b.predicted - b.observed) for i, b in tenths]
    errors = [(i, b.error) for i, b in tenths]
    ends = [[(i, end) for i, b in tenths if (end := pick(b)) is not None] for pick in (_low_error, _high_error)]
    bands = [ChartCurve(points=one, color="var(--muted)", dash="4 3", width=1.4) for one in ends if one]
    return [
        Picture(
            "Predicted against true",
            f"mean of {name} in each tenth of the test rows, from the lowest prediction to the highest",
            Chart(
                curves=[ChartCurve(points=means, marker="o", joined=False)],
                x="predicted",
                y="true",
                label="Predicted against true",
                diagonal=True,
            ),
        ),
        Picture(
            "Residuals",
            "mean of predicted minus true, by tenth of the predictions; above the line, predictions are too high"
            + ("; between the dashed lines lie four fifths of the rows" if bands else ""),
            Chart(
                curves=[*bands, ChartCurve(points=residuals, marker="o")],
                y="residual",
                label="Residuals",
                level=0.0,
                x=by_tenth,
                x_marks=marks,
            ),
        ),
        Picture(
            "Error by tenth",
            "root of the mean squared error, by tenth of the predictions",
            Chart(
                curves=[ChartCurve(points=errors, marker="o")],
                y="RMSE",
                label="Error by tenth",
                y_span=(0.0, 1.05 * max(b.error for _, b in tenths) or 1.0),
                x=by_tenth,
                x_marks=marks,
            ),
        ),
    ]


def draw_stability(found: Evaluation) -> Picture | None:
    """How far the scores moved from the validation rows to the test rows."""
    if not found.stability or found.psi is None:
        return None
    places = [i + 1.0 for i in range(len(found.stability))]
    expected = [(i, b.expected) for i, b in zip(places, found.stability, strict=True)]
    actual = [(i, b.actual) for i, b in zip(places, found.stability, strict=True)]
    return Picture(
        "Stability of the scores",
        f"share of the test rows in each tenth of the validation rows' scores (dashed). Population stability index "
        f"{found.psi:.3f}: below 0.1 little has moved, above 0.25 much has",
        Chart(
            curves=[
                ChartCurve(points=expected, color="var(--muted)", dash="6 3", title="validation rows"),
                ChartCurve(points=actual, marker="o", title="test rows"),
            ],
            x="tenth of the scores",
            y="share of rows",
            label="Stability",
            y_span=(0.0, 1.1 * max(y for _, y in expected + actual)),
            x_marks=[(i, f"{i:.0f}") for i in places],
        ),
    )


def _low_error(one: ResidualBin) -> float | None:
    return one.low_error


def _high_error(one: ResidualBin) -> float | None:
    return one.high_error
