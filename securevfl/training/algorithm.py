"""What a job trains: an algorithm's configuration, which makes each party's program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from securevfl.algorithms.leakage import Finding, at_the_cut
from securevfl.algorithms.table import Plan, Table
from securevfl.cut import Protection
from securevfl.errors import InputError, PolicyError
from securevfl.privacy import DP
from securevfl.site import Site

if TYPE_CHECKING:
    from securevfl.algorithms.base import ActiveRole, PassiveRole

__all__ = ["Algorithm"]


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """What a job trains: the configuration, which makes each party's program. Subclass it, and add one line to
    `ALGORITHMS`.

    Attributes:
        name: as in job files.
        uses_others: whether rows that are not aligned take part in training.
        uses_book: whether the labels that the active party knows of other parties' rows are used.
        most_passive: largest number of passive parties, or None for no bound.
        many_owners: whether several parties own labels.
        exchanges: whether training sends anything beside counts of rows; where it does not, nothing needs protection.
        reveals: what the algorithm hands to the peer in the clear by design; not empty: it cannot be sealed.
        protects: what of `DP` it can do beside noise on activations and gradients: ``"marvell"``, ``"z"``, ``"local"``,
            ``"stop"``; each class says it anew.
    """

    name: ClassVar[str]
    uses_others: ClassVar[bool] = False
    uses_book: ClassVar[bool] = False
    most_passive: ClassVar[int | None] = None
    many_owners: ClassVar[bool] = False
    exchanges: ClassVar[bool] = True
    reveals: ClassVar[str] = ""
    protects: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def title(self) -> str:
        """For tables and reports."""

    @property
    def least_epochs(self) -> int:
        """Fewest epochs in which the algorithm gets to its last stage."""
        return 1

    @property
    def trainable(self) -> bool:
        """Whether passive parties' bottoms have parameters."""
        return True

    @abstractmethod
    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        """The active party's program."""

    @abstractmethod
    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        """A passive party's program."""

    def check(self, protection: Protection) -> None:
        """Refuse a protection that this algorithm cannot have.

        Raises:
            PolicyError: it hands over by design what the protection would seal.
            InputError: a kind of differential privacy that it cannot have.
        """
        for kind in sorted(_wanted(protection.dp) - type(self).__dict__.get("protects", frozenset())):
            raise InputError(
                f"{self.title} has no dp with {_KINDS[kind]}; leave it out, or use an algorithm that has it"
            )
        if self.reveals and protection.policy().sealed:
            raise PolicyError(
                f"{self.title} {self.reveals}, so {protection.name!r} cannot seal it: use protection 'plain', with "
                "dp=sv.DP(activations=True) for noise on what is handed over, or an algorithm that stays at the cut "
                "layer (splitnn, entity_augmentation, risa)"
            )

    def findings(self, protection: Protection, passive: Sequence[str], active: str) -> list[Finding]:
        """Who learns what from the messages of this algorithm under `protection`."""
        found = at_the_cut(protection, active=active, passive=passive, trainable=self.trainable)
        if self.uses_book:
            found += [
                Finding(active, name, "which of the people that it has labels for it knows", "note") for name in passive
            ]
            found += [Finding(name, active, "for which of its rows labels are known", "note") for name in passive]
        return found

    def notes(self, protection: Protection) -> list[str]:
        """What a reader of the figures has to know."""
        return []


_KINDS = {
    "local": "local=True (DP-SGD; only 'local' trains a model that a party has by itself)",
    "marvell": "labels='marvell' (for gradients at the cut of two classes, whose labels are used nowhere else)",
    "stop": "on_budget='stop' (all parties have to find the same last epoch from what is public)",
    "z": "where='z' (noise inside the ciphertext, on the sum over the parties)",
}


def _wanted(dp: DP | None) -> set[str]:
    """What of `_KINDS` this asks for."""
    if dp is None:
        return set()
    asked = {
        "local": dp.local,
        "marvell": dp.labels == "marvell",
        "stop": dp.on_budget == "stop",
        "z": dp.activations and dp.where == "z",
    }
    return {kind for kind, wanted in asked.items() if wanted}
