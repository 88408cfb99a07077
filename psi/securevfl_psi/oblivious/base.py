"""The 512 base transfers of `ot`: those of `securevfl_crypto.transfer.base`, under this protocol's name and errors."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.bits import COLUMNS
from securevfl_crypto.errors import MalformedError as CryptoMalformed
from securevfl_crypto.transfer.base import BaseChooser, BaseGiver

from securevfl_psi.errors import MalformedError

__all__ = ["DOMAIN", "TRANSFERS", "Chooser", "Giver"]

TRANSFERS = COLUMNS
DOMAIN = b"securevfl-psi base transfer"


class Giver(BaseGiver):
    """The party that gets both keys of each pair. `tag` is the session's."""

    def __init__(self, tag: bytes) -> None:
        super().__init__(tag, TRANSFERS, domain=DOMAIN)

    def derive_keys(self, answer: bytes) -> tuple[list[bytes], list[bytes]]:
        """See `BaseGiver.derive_keys`; raises this package's MalformedError."""
        try:
            return super().derive_keys(answer)
        except CryptoMalformed as error:
            raise MalformedError(str(error)) from None


class Chooser(BaseChooser):
    """The party that gets one key of each pair. See `BaseChooser`; raises this package's MalformedError."""

    def __init__(self, tag: bytes, choices: np.ndarray, message: bytes) -> None:
        try:
            super().__init__(tag, choices, message, domain=DOMAIN)
        except CryptoMalformed as error:
            raise MalformedError(str(error)) from None
