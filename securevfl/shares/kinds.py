"""Which programs train what on shares: one entry for each kind of model that the computing parties can train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securevfl.errors import InputError

if TYPE_CHECKING:
    from securevfl.training.fits import SharesKind

__all__ = ["KindPrograms", "find_programs"]


@dataclass(frozen=True, slots=True)
class KindPrograms:
    """The programs of one kind of model, one for each role of a party.

    Attributes:
        active: of the party with the labels, made from its role and a `Sharing`.
        passive: of a party with features alone, likewise.
        coordinator: of a party without data, which computes or deals random numbers, made from a `Sharing`.
    """

    active: type[Any]
    passive: type[Any]
    coordinator: type[Any]


def find_programs(kind: SharesKind | None, *, two: bool = False) -> KindPrograms:
    """The programs that train a kind of model, imported when a job first asks for them.

    Args:
        kind: of model.
        two: whether two parties compute, instead of three.

    Raises:
        InputError: nothing trains this kind on shares.
    """
    if two:
        return _find_programs_of_two(kind)
    if kind == "network":
        from securevfl.shares.coordinator import SharesCoordinator
        from securevfl.shares.programs import SharesActive, SharesPassive

        return KindPrograms(SharesActive, SharesPassive, SharesCoordinator)
    if kind == "scorecard":
        from securevfl.shares.scorecard.programs import CardCoordinator, CardSharesActive, CardSharesPassive

        return KindPrograms(CardSharesActive, CardSharesPassive, CardCoordinator)
    if kind == "trees":
        from securevfl.shares.trees.programs import TreesActive, TreesCoordinator, TreesPassive

        return KindPrograms(TreesActive, TreesPassive, TreesCoordinator)
    if kind == "additive":
        from securevfl.shares.additive.programs import (
            AdditiveSharesActive,
            AdditiveSharesCoordinator,
            AdditiveSharesPassive,
        )

        return KindPrograms(AdditiveSharesActive, AdditiveSharesPassive, AdditiveSharesCoordinator)
    if kind == "statistics":
        from securevfl.shares.crossing.programs import CrossingCoordinator, CrossingData

        return KindPrograms(CrossingData, CrossingData, CrossingCoordinator)
    raise InputError(f"nothing trains {kind or 'this algorithm'} on shares")


def _find_programs_of_two(kind: SharesKind | None) -> KindPrograms:
    if kind == "network":
        from securevfl.shares.two.helper import TwoHelper
        from securevfl.shares.two.programs import TwoActive, TwoPassive

        return KindPrograms(TwoActive, TwoPassive, TwoHelper)
    if kind == "scorecard":
        from securevfl.shares.two.card_programs import TwoCardActive, TwoCardPassive
        from securevfl.shares.two.helper import TwoHelper

        return KindPrograms(TwoCardActive, TwoCardPassive, TwoHelper)
    if kind == "statistics":
        from securevfl.shares.crossing.of_two import CrossingHelper, CrossingOfTwo

        return KindPrograms(CrossingOfTwo, CrossingOfTwo, CrossingHelper)
    raise InputError(f"nothing trains {kind or 'this algorithm'} on shares of two parties")
