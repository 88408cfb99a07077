"""What a party computes with where two compute: its own rows, which it keeps and deals to nobody."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.two.online import encode_rows

from securevfl.errors import RangeError
from securevfl.shares.dealt_rows import DealtRows
from securevfl.shares.two.noise import check_held_norms, clip_held_rows

__all__ = ["HeldRows"]


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
