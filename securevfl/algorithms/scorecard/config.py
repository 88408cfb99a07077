"""The configuration of a scorecard and the declarations of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from securevfl.algorithms.scorecard.binned_roles import (
    BinnedActive,
    BinnedPassive,
    SharedCardActive,
    SharedCardPassive,
)
from securevfl.algorithms.scorecard.counting import COUNTS, KEY, LABELS, POSITIVES, SIZES
from securevfl.algorithms.scorecard.points import factor_and_offset
from securevfl.algorithms.scorecard.roles import (
    SHARE,
    CardActive,
    CardActiveProgram,
    CardPassive,
    CardPassiveProgram,
)
from securevfl.algorithms.scorecard.settings import ScorecardSettings
from securevfl.cut import Protection
from securevfl.data.column_terms import ColumnTerms
from securevfl.errors import InputError
from securevfl.export import ExportedModel, PartSource
from securevfl.party_context import PartyContext
from securevfl.training.binned import BINS, LAYOUT, MOST_MERGED
from securevfl.training.fits import Fits
from securevfl.training.objectives import LossOfNumber
from securevfl.training.plan import Plan
from securevfl.training.program import Program
from securevfl.training.setting import Setting
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Sight

__all__ = ["Scorecard"]

_COUNTED = (
    "how many of its training rows are in each bin, and how many of those are of the second class, for columns and "
    "bins in an order that it does not know"
)
_TOLD = (
    "how many training rows of each of its bins are of the second class: weights of evidence, which rank its rows by "
    "the label as far as its own columns tell, and exact equations, which give every row's label where it has about as "
    "many bins as rows train"
)

_PART = "shares/open part"
"""The step in which a model on shares is handed out."""

_POINTS: dict[PartyRole, str] = {
    PASSIVE: (
        "the points of its own bins, coefficient times weight of evidence: they tell about what counts by bin tell, so "
        "that they rank its rows by the label as far as its own columns tell, and each column is about as many "
        "equations in the labels as it has bins"
    ),
    ACTIVE: (
        "the points of its own bins and the bias: each final prediction then gives it the sum of the other parties' "
        "points of the row"
    ),
}
"""What each receiver of its points learns."""


class Scorecard(ScorecardSettings):
    """A logistic scorecard, as banks use it: a table of points for the bins of each party's columns.

    Each column is cut into bins, each bin is encoded by its weight of evidence, and a logistic regression over all
    parties' columns gives the points. Counts by bin are computed on encrypted labels, and the protection applies to the
    regression's cut; or on shares, where nobody sees counts, weights of evidence or coefficients. No protection sends
    labels or rows' bins in the clear. On shares of two parties each bin has a weight of its own; nothing is counted.

    Attributes:
        bins: the most bins of a column, by quantiles of the training rows.
        least: the fewest training rows of a bin; the active party sends no counts of smaller ones.
        monotone: whether neighbouring bins are merged until the share of the second class only rises or only falls; on
            shares nobody sees which, and merged bins keep their places, with the same points. Not on shares of two.
        base_points: the score at `base_odds`.
        base_odds: odds of the first class to the second that have `base_points`.
        pdo: points that double the odds.
        key_bits: bits of the Paillier key for the labels; not used on shares.
        hidden: not used.
        top: not used.
        bottom: not used.
    """

    name: ClassVar[str] = "scorecard"
    label: ClassVar[str] = "scorecard"
    most_classes: ClassVar[int | None] = 2
    fits: ClassVar[Fits] = Fits(counts=True, shares="scorecard", exports=True)

    def export_model(self, source: PartSource) -> ExportedModel:
        from securevfl.algorithms.scorecard.exporting import export_card

        return export_card(source)

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise that exact counts by bin would undo, the key is shorter than the
                protection's, or more bins would be merged than can be on shares.
        """
        super().check_protection(protection)
        if protection.on_shares:
            self._check_on_shares(protection)
            return
        if protection.key_bits > self.key_bits:
            raise InputError(
                f"scorecard.key_bits is {self.key_bits}, and {protection.title} asks for Paillier keys of at least "
                f"{protection.key_bits} bits: give both the same"
            )
        accepted = protection.policy().protections
        if accepted is not None and "paillier" not in accepted:
            raise InputError(
                f"scorecard counts under Paillier, and {protection.title} accepts {', '.join(sorted(accepted))}: offer "
                "'paillier' too, or name one protection"
            )
        dp = protection.dp
        if dp is not None and (dp.features is not None or dp.gradient_noise is not None):
            raise InputError(
                "scorecard has no noise on activations or gradients, for counts by bin are exact: use "
                "dp=sv.DP(labels=sv.RandomisedResponse(…)), which draws the labels before they are counted, or none"
            )

    def _check_on_shares(self, protection: Protection) -> None:
        if self.monotone and protection.between_two:
            raise InputError(
                "scorecard.monotone is true, and between two parties each bin has a weight of its own, which steps "
                "move freely: leave monotone out, let three parties compute, or name a protection of the cut"
            )
        if self.monotone and self.bins > MOST_MERGED:
            raise InputError(
                f"scorecard.bins is {self.bins}, and with monotone on shares it is at most {MOST_MERGED}, for all runs "
                "of bins are compared there: take fewer bins, or name a protection of the cut"
            )
        noisy = protection.dp is not None and protection.dp.model is not None
        if noisy and protection.between_two:
            raise InputError(
                "dp.model on shares adds noise to the steps of the regression, and the bins of a scorecard are "
                "quantiles of the exact training rows, which it would not cover: use logistic_regression, or leave dp "
                "out"
            )
        if noisy:
            raise InputError(
                "dp.model on shares adds noise to the steps of the regression, and the weights of evidence of a "
                "scorecard come from exact counts of labels, which it would not cover: use logistic_regression, or "
                "draw labels by dp=sv.DP(labels=sv.RandomisedResponse(…)) before they are counted"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        cut = super().exchanges(protection, passive)
        if not passive:
            return cut
        if protection.between_two:
            return cut
        if protection.on_shares:
            return (
                Exchange(BINS, Kind.CONTROL, PASSIVE, ACTIVE, "numbers of bins of its columns"),
                Exchange(LAYOUT, Kind.CONTROL, ACTIVE, PASSIVE, "numbers of bins of all columns"),
                Exchange(LAYOUT, Kind.CONTROL, ACTIVE, COORDINATOR, "numbers of bins of all columns", optional=True),
                *(_describe_points(one) if one.step == _PART else one for one in cut),
            )
        ciphers, bits = frozenset({"paillier"}), self.key_bits
        bins = Sight(of="features", severity="note", through="counts by bin")
        evidence = Sight(of="labels", severity="leak", through="counts by its bins")
        return (
            *cut,
            Exchange(KEY, Kind.PUBLIC_KEY, ACTIVE, PASSIVE, "public key for counts by bin"),
            Exchange(
                LABELS, Kind.CIPHERTEXT, ACTIVE, PASSIVE, "labels of the training rows", ciphers=ciphers, key_bits=bits
            ),
            Exchange(SIZES, Kind.CONTROL, PASSIVE, ACTIVE, "numbers of bins, and which of a column is the fullest"),
            Exchange(
                COUNTS,
                Kind.CIPHERTEXT,
                PASSIVE,
                ACTIVE,
                "counts by bin",
                reveals=_COUNTED,
                severity="note",
                sights=(bins,),
                ciphers=ciphers,
                key_bits=bits,
            ),
            Exchange(
                POSITIVES,
                Kind.STATISTIC,
                ACTIVE,
                PASSIVE,
                "rows of the second class by bin",
                reveals=_TOLD,
                severity="leak",
                sights=(evidence,),
            ),
            *(
                [
                    Exchange(
                        SHARE,
                        Kind.MASKED_SHARE,
                        ACTIVE,
                        PASSIVE,
                        "the other share of its coefficients, once, of the finished model",
                        reveals="the coefficients of its own columns in the finished model",
                        severity="note",
                        sights=(Sight(of="labels", severity="note", through="its coefficients"),),
                    )
                ]
                if protection.is_sealed
                else []
            ),
        )

    def notes(self, protection: Protection) -> list[str]:
        if protection.on_shares:
            return super().notes(protection)
        return [
            *super().notes(protection),
            "counts by bin are exact, of sealed labels; a passive party that does not follow the protocol could choose "
            "bins that differ in one row and learn that row's label",
        ]

    def column_terms(
        self, part: Mapping[str, Any], x: np.ndarray, party: str, number: LossOfNumber | None
    ) -> ColumnTerms:
        """See `Algorithm.column_terms`; terms are of log-odds of the second class, and points of the first."""
        from securevfl.algorithms.scorecard.terms import read_terms

        factor, _ = factor_and_offset(self.base_points, self.base_odds, self.pdo)
        return read_terms(part, x, party, points=-factor)

    def active(self, setting: Setting) -> BinnedActive:
        return (SharedCardActive if setting.protection.on_shares else CardActive)(self, setting)

    def passive(self, setting: Setting) -> BinnedPassive:
        return (SharedCardPassive if setting.protection.on_shares else CardPassive)(self, setting)

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        """See `Algorithm.program`."""
        setting = next(iter(settings.values()))
        if site.role == PASSIVE:
            return CardPassiveProgram(CardPassive(self, setting))
        return CardActiveProgram(CardActive(self, setting))


def _describe_points(exchange: Exchange) -> Exchange:
    """The message with a party's part of the model, which is its points."""
    told = _POINTS.get(exchange.receiver, "") if exchange.reveals else ""
    sights = tuple(replace(one, through="the points of its bins") for one in exchange.sights)
    return replace(exchange, words="shares of the receiver's own points", reveals=told, sights=sights)
