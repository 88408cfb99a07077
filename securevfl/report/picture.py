"""One figure of the page with its title and how to read it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from securevfl.report.chart import Chart, chart_svg

__all__ = ["Picture"]


@dataclass(frozen=True)
class Picture:
    """One figure of the page.

    Attributes:
        title: above it.
        says: below the title: how to read it.
        chart: the figure.
    """

    title: str
    says: str
    chart: Chart

    @property
    def svg(self) -> Markup:
        """The figure as the page shows it."""
        return chart_svg(self.chart)
