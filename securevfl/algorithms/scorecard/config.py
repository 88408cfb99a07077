"""The configuration of a scorecard and the declarations of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from securevfl.algorithms.scorecard.counting import COUNTS, KEY, LABELS, POSITIVES, SIZES
from securevfl.algorithms.scorecard.roles import (
    SHARE,
    CardActive,
    CardActiveProgram,
    CardPassive,
    CardPassiveProgram,
)
from securevfl.algorithms.scorecard.settings import ScorecardSettings
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.party_context import PartyContext
from securevfl.training.fits import Fits
from securevfl.training.plan import Plan
from securevfl.training.program import Program
from securevfl.training.setting import Setting
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

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


class Scorecard(ScorecardSettings):
    """A logistic scorecard, as banks use it: a table of points for the bins of each party's columns.

    Each column is cut into bins, each bin is encoded by its weight of evidence, and a logistic regression over all
    parties' columns gives the points. Counts by bin are always computed on encrypted labels; the protection applies to
    the regression's cut. No protection sends labels or rows' bins in the clear.

    Attributes:
        bins: the most bins of a column, by quantiles of the training rows.
        least: the fewest training rows of a bin; the active party sends no counts of smaller ones.
        monotone: whether neighbouring bins are merged until the share of the second class only rises or only falls.
        base_points: the score at `base_odds`.
        base_odds: odds of the first class to the second that have `base_points`.
        pdo: points that double the odds.
        key_bits: bits of the Paillier key for the labels.
        hidden: not used.
        top: not used.
        bottom: not used.
    """

    name: ClassVar[str] = "scorecard"
    label: ClassVar[str] = "scorecard"
    most_classes: ClassVar[int | None] = 2
    fits: ClassVar[Fits] = Fits(counts=True)

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise that exact counts by bin would undo, or the key is shorter than the
                protection's.
        """
        super().check_protection(protection)
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

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        cut = super().exchanges(protection, passive)
        if not passive:
            return cut
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
        return [
            *super().notes(protection),
            "counts by bin are exact, of sealed labels; a passive party that does not follow the protocol could choose "
            "bins that differ in one row and learn that row's label",
        ]

    def active(self, setting: Setting) -> CardActive:
        return CardActive(self, setting)

    def passive(self, setting: Setting) -> CardPassive:
        return CardPassive(self, setting)

    def program(self, site: PartyContext, plan: Plan, settings: Mapping[str, Setting]) -> Program:
        """See `Algorithm.program`."""
        setting = next(iter(settings.values()))
        if site.role == PASSIVE:
            return CardPassiveProgram(self.passive(setting))
        return CardActiveProgram(self.active(setting))
