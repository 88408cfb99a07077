"""Pictures of an additive model's shapes, with the band that the noise alone explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from securevfl.report.chart import Chart, ChartCurve, chart_svg
from securevfl.report.record import ShapeRecord

__all__ = ["draw_shapes"]

_DRAWN = 24
"""Shapes that a page draws for each party, the most important first; the table has all of them."""
_BAND = 2.0
"""Half of the band, in standard deviations of the noise."""


def draw_shapes(parties: Mapping[str, Sequence[ShapeRecord]]) -> dict[str, list[Markup]]:
    """Party → pictures of its shapes, the most important first."""
    return {name: [_draw_shape(name, one) for one in shapes[:_DRAWN]] for name, shapes in parties.items()}


def _draw_shape(party: str, shape: ShapeRecord) -> Markup:
    drawn = [one for one in shape.bins if one.share > 0 or one.bin != "missing"]
    outputs = len(drawn[0].values) if drawn else 0
    noisy = any(one.deviation for one in drawn)
    curves = [
        ChartCurve(
            points=[(float(place), one.values[k]) for place, one in enumerate(drawn, start=1)],
            marker="o",
            title=shape.column if outputs == 1 else f"class {k + 1}",
            deviations=[_BAND * one.deviation for one in drawn] if noisy else (),
        )
        for k in range(outputs)
    ]
    chart = Chart(
        curves=curves,
        x=f"bin of {shape.column}",
        y="adds to the score",
        label=f"shape of {shape.column} at {party}",
        x_marks=[(1.0, drawn[0].bin), (float(len(drawn)), drawn[-1].bin)] if len(drawn) > 1 else None,
        level=0.0,
        title=shape.column,
    )
    return chart_svg(chart)
