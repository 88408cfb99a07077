"""A model of two parties as a part of a role: each keeps its summand of every weight."""

from __future__ import annotations

from securevfl.shares.shared_model import SharedModel
from securevfl.shares.two.course import TwoCourse
from securevfl.training.state import State

__all__ = ["TwoModel"]


class TwoModel(SharedModel):
    """This party's summand of every weight. Targets stay with the active party, so that no checkpoint has them.

    Attributes:
        course: draws loaded shares anew; set once the sizes are known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.course: TwoCourse | None = None

    async def refresh_shares(self) -> None:
        """Draw loaded shares anew before they are used: the same weights, other summands."""
        stale, self.stale = self.stale, False
        if stale and self.course is not None:
            await self.course.refresh_shares()

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return {} if self.network is None else dict(self.network.pack_training())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`.

        Raises:
            InputError: shares of another model.
        """
        if self.network is not None:
            self.network.unpack_training(state)
            self.stale = True
