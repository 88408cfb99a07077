"""What a party computes with where two compute: its own rows, which it keeps and deals to nobody."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.two.online import encode_rows

from securevfl.errors import RangeError
from securevfl.shares.dealt_rows import DealtRows

__all__ = ["HeldRows"]


class HeldRows(DealtRows):
    """A party's rows as they enter the model; they stay with it."""

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbered rows in fixed point, int64 (n, d).

        Raises:
            RangeError: a value that is not finite or too large.
        """
        flat = self.entering_rows(rows).detach().cpu().double().numpy()
        try:
            return encode_rows(flat)
        except MalformedError as error:
            raise RangeError(
                f"{self.role.site.name!r} has a value that training on shares cannot hold: {error}; nothing of these "
                "rows was computed with"
            ) from error
