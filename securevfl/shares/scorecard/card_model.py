"""What is kept of a scorecard on shares: at each data party the ends of its own bins beside its shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from securevfl.errors import InputError
from securevfl.shares.shared_model import SharedModel
from securevfl.training.binned import BinnedRole
from securevfl.training.state import State, as_dict, as_list, as_tensor

__all__ = ["CardModel", "cuts_of_model"]

_REGRESSION, _CUTS = "regression", "cuts"


class CardModel(SharedModel):
    """A data party's part of a scorecard.

    Args:
        role: whose columns are cut.
    """

    def __init__(self, role: BinnedRole) -> None:
        super().__init__()
        self._role = role

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return {_REGRESSION: super().snapshot(), _CUTS: self._pack_cuts()}

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        super().restore(as_dict(state)[_REGRESSION])

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return {_REGRESSION: super().get_state(), _CUTS: self._pack_cuts()}

    def load_state(self, state: State) -> None:
        """See `Part.load_state`.

        Raises:
            InputError: bins that this party's rows do not give, or shares of other columns.
        """
        saved, cuts = _read_cuts(state[_CUTS]), self._role.cuts
        if len(saved) != len(cuts) or not all(map(np.array_equal, saved, cuts)):
            raise InputError(
                "the checkpoint has other bins than this party's training rows give: the table changed since; start "
                "the job again in another folder"
            )
        super().load_state(as_dict(state[_REGRESSION]))

    def _pack_cuts(self) -> list[torch.Tensor]:
        return [torch.from_numpy(cut) for cut in self._role.cuts]


def _read_cuts(kept: object) -> list[np.ndarray]:
    return [as_tensor(cut).numpy().copy() for cut in as_list(kept)]


def cuts_of_model(parts: object) -> Sequence[np.ndarray]:
    """The ends of this party's bins, in its part of a trained model."""
    return _read_cuts(as_dict(as_dict(parts)["shares"])[_CUTS])
