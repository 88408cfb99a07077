"""The inputs of a role: its setting, its view of the configuration, and the parts it may consist of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from securevfl.cut import Protection
from securevfl.party_context import PartyContext
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.training.plan import Plan
from securevfl.training.rows import NumberedRows
from securevfl.training.state import State

__all__ = ["Configuration", "Part", "Setting", "Tally"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The inputs of a role.

    Attributes:
        site: the party's context, with links to its peers.
        plan: how long and on what to train.
        protection: of what crosses the cut.
        table: the party's numbered rows.
        repeated: in a prediction, the noise that each row gets whenever it is predicted.
        trained_with: in a prediction, the names of all passive parties of the model, in order. The site may have fewer,
            if some have none of the rows, or left. Empty: those of the site.
        widest: in a prediction at the active party, the largest width that any of them fed the cut in training.
    """

    site: PartyContext
    plan: Plan
    protection: Protection
    table: NumberedRows
    repeated: RepeatedNoise | None = None
    trained_with: tuple[str, ...] = ()
    widest: int = 0


class Configuration(Protocol):
    """What a role reads of its algorithm; see `securevfl.training.algorithm.Algorithm`."""

    @property
    def trainable(self) -> bool:
        """Whether passive parties' bottoms have parameters."""
        ...

    @property
    def least_epochs(self) -> int:
        """Fewest epochs in which the algorithm gets to its last stage."""
        ...

    @property
    def chooses_by_loss(self) -> bool:
        """See `Algorithm`."""
        ...

    @property
    def draws_secretly(self) -> bool:
        """Whether a party's secret hides features."""
        ...

    @property
    def learns_alone(self) -> bool:
        """Whether passive parties also learn from their rows without a number."""
        ...

    @property
    def subsets(self) -> str:
        """Which sets of parties a trained model can score rows from."""
        ...


class Tally(Protocol):
    """The report of an algorithm that labels rows itself; see `securevfl.training.pseudo_labels.SelfTraining`."""

    @property
    def summary_sentence(self) -> str:
        """One sentence."""
        ...

    @property
    def warnings(self) -> list[str]:
        """Sentences that a user has to read before the figures."""
        ...

    @property
    def figures(self) -> dict[str, float]:
        """For tables of many runs."""
        ...


class Part(Protocol):
    """A part of a role that learns: a half of a split network, or networks without a cut."""

    async def setup(self) -> None:
        """Exchange what is needed before the first batch."""
        ...

    def snapshot(self) -> object:
        """What it has learned."""
        ...

    def restore(self, state: object) -> None:
        """Go back to a snapshot."""
        ...

    def get_state(self) -> State:
        """What it has learned, and its optimiser's state."""
        ...

    def load_state(self, state: State) -> None:
        """Resume from a state."""
        ...
