"""The settings of a scorecard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from securevfl.algorithms.baselines import LogisticRegression
from securevfl.algorithms.splitnn import Rate
from securevfl.cut import KeyBits
from securevfl.training.bottoms import Architecture
from securevfl.training.fits import Fits

__all__ = ["CardArchitecture", "ScorecardSettings"]


@dataclass(frozen=True, kw_only=True)
class CardArchitecture(Architecture):
    """A logistic regression on weights of evidence.

    Attributes:
        bins: the most bins of a column.
    """

    bins: int


class ScorecardSettings(LogisticRegression):
    """The fields of `securevfl.Scorecard`, which describes them."""

    fits: ClassVar[Fits] = Fits(counts=True)
    lr: Rate = 0.02
    cut_lr: Rate = 1.0
    bins: Annotated[int, Meta(ge=2, le=256)] = 10
    least: Annotated[int, Meta(ge=2, le=1 << 20)] = 20
    monotone: bool = False
    base_points: Annotated[float, Meta(ge=-1e6, le=1e6)] = 600.0
    base_odds: Annotated[float, Meta(gt=0, le=1e6)] = 50.0
    pdo: Annotated[float, Meta(gt=0, le=1e6)] = 20.0
    key_bits: KeyBits = 3072

    def problems(self) -> list[str]:
        found = super(LogisticRegression, self).problems()  # which says of a bottom what is not so here
        if self.bottom:
            found += [f"{self.name}.bottom is {self.bottom!r}; a scorecard cuts the columns themselves: leave it ()"]
        return found

    def build_architecture(self, outputs: int) -> CardArchitecture:
        """See `Algorithm.build_architecture`."""
        return CardArchitecture(
            hidden=outputs, top=None, bottom=(), lr=self.lr, weight_decay=self.weight_decay, bins=self.bins
        )
