"""What one of two computing parties keeps to itself: its rows, which it deals to nobody, and its summand of every
weight."""

from __future__ import annotations

import numpy as np
import torch
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.two.online import encode_rows

from securevfl.errors import RangeError
from securevfl.shares.dealt_rows import DealtRows
from securevfl.shares.shared_model import SharedModel
from securevfl.shares.two.course import TwoCourse
from securevfl.shares.two.noise import check_held_norms, clip_held_rows
from securevfl.training.state import State, as_tensor

__all__ = ["HeldRows", "TwoModel"]

_BEST = "best figure"


class HeldRows(DealtRows):
    """A party's rows as they enter the model; they stay with it."""

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbered rows in fixed point, int64 (n, d).

        Raises:
            RangeError: a value that is not finite or too large, or a row longer than its noise allows.
        """
        name, flat = self.role.site.name, self.entering_rows(rows).detach().cpu().double()
        if self.bound is not None:
            flat = clip_held_rows(name, flat, self.bound)
        try:
            found = encode_rows(flat.numpy())
        except MalformedError as error:
            raise RangeError(
                f"{name!r} has a value that training on shares cannot hold: {error}; nothing of these "
                "rows was computed with"
            ) from error
        if self.bound is not None:
            check_held_norms(name, found, self.bound)
        return found


class TwoModel(SharedModel):
    """This party's summand of every weight. Targets stay with the active party, so that no checkpoint has them.

    Attributes:
        course: replaces loaded shares by fresh ones; set once the sizes are known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.course: TwoCourse | None = None

    async def refresh_shares(self) -> None:
        """Replace loaded shares by fresh ones before they are used: the same weights, other summands."""
        stale, self.stale = self.stale, False
        if stale and self.course is not None:
            await self.course.refresh_shares()

    def get_state(self) -> State:
        """See `Part.get_state`."""
        if self.network is None:
            return {}
        best = self.best.words
        figure = {} if best is None else {_BEST: torch.from_numpy(best.view(np.int64).copy())}
        return dict(self.network.pack_training()) | figure

    def load_state(self, state: State) -> None:
        """See `Part.load_state`.

        Raises:
            InputError: shares of another model.
        """
        if self.network is not None:
            rest = {name: kept for name, kept in state.items() if name != _BEST}
            self.network.unpack_training(rest)
            if _BEST in state:
                self.best.words = np.ascontiguousarray(as_tensor(state[_BEST]).numpy()).view(np.uint64).copy()
            self.stale = True
