"""What is kept of a scorecard on shares: at each data party the ends of its own bins, at a computing party its shares
of the weights of evidence and of the coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from securevfl_crypto.replicated import Share

from securevfl.errors import InputError
from securevfl.shares.scorecard.card_network import CardNetwork
from securevfl.shares.shared_model import SharedModel
from securevfl.training.binned import BinnedRole
from securevfl.training.state import State, as_dict, as_list, as_tensor

__all__ = ["CardModel", "cuts_of_model", "read_cuts"]

_REGRESSION, _CUTS, _EVIDENCE = "regression", "cuts", "evidence"


class CardModel(SharedModel):
    """This party's part of a scorecard.

    Args:
        role: whose columns are cut; None at a coordinator.
    """

    network: CardNetwork | None

    def __init__(self, role: BinnedRole | None = None) -> None:
        super().__init__()
        self._role = role

    async def refresh_shares(self) -> None:
        """See `SharedModel.refresh_shares`; likewise the weights of evidence."""
        network = self.network
        if self.stale and self.own is None and network is not None and network.evidence is not None:
            await network.engine.confirm("loaded evidence", network.evidence)
            (network.evidence,) = await network.engine.refresh(network.evidence)
        await super().refresh_shares()

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        kept: State = {_REGRESSION: super().snapshot(), _CUTS: self._cuts()}
        if self.own is None:
            kept |= self._evidence()
        return kept

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        kept = as_dict(state)
        if _REGRESSION not in kept:  # the weights alone, out of a checkpoint
            super().restore(kept)
            return
        self._take_evidence(kept)
        super().restore(kept[_REGRESSION])

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return {**super().get_state(), **self._evidence(), _CUTS: self._cuts()}

    def load_state(self, state: State) -> None:
        """See `Part.load_state`.

        Raises:
            InputError: bins that this party's rows do not give, or shares of other columns.
        """
        if self._role is not None:
            saved, cuts = read_cuts(state[_CUTS]), self._role.cuts
            if len(saved) != len(cuts) or not all(map(np.array_equal, saved, cuts)):
                raise InputError(
                    "the checkpoint has other bins than this party's training rows give: the table changed since; "
                    "start the job again in another folder"
                )
        self._take_evidence(state)
        super().load_state(state)

    def _cuts(self) -> list[torch.Tensor]:
        return [] if self._role is None else [torch.from_numpy(cut) for cut in self._role.cuts]

    def _evidence(self) -> State:
        network = self.network
        if network is None or network.evidence is None:
            return {}
        parts = (network.evidence.mine, network.evidence.next)
        return {_EVIDENCE: [torch.from_numpy(part.view(np.int64).copy()) for part in parts]}

    def _take_evidence(self, state: State) -> None:
        network = self.network
        if network is None or _EVIDENCE not in state:
            return
        parts = [np.ascontiguousarray(as_tensor(part).numpy()).view(np.uint64) for part in as_list(state[_EVIDENCE])]
        cells = (sum(network.layout.cells),)
        if len(parts) != 2 or any(part.shape != cells for part in parts):
            raise InputError(f"the model has weights of evidence of other bins than the {cells[0]} of this job")
        network.evidence = Share(parts[0].copy(), parts[1].copy())


def read_cuts(kept: object) -> list[np.ndarray]:
    """The ends of the bins of each column, as a model keeps them."""
    return [as_tensor(cut).numpy().copy() for cut in as_list(kept)]


def cuts_of_model(parts: object) -> Sequence[np.ndarray]:
    """The ends of this party's bins, in its part of a trained model."""
    return read_cuts(as_dict(as_dict(parts)["shares"])[_CUTS])
