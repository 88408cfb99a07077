"""Oblivious transfer between two parties: base transfers and their extension, as state machines over arrays. No I/O.

- `base`: pairs of keys of which the peer gets one, by Diffie–Hellman on the points of `edwards`.
- `extension`: from 128 of them to any number of transfers, with a check of the chooser; over the hash of `row_hash`.
- `unique`: state that exists once, so that its randomness serves once.

`securevfl_psi.oblivious` builds on `base` with another extension, by a code. This folder imports `bits` and `errors`.
"""

from __future__ import annotations

from securevfl_crypto.transfer.base import BaseChooser, BaseGiver
from securevfl_crypto.transfer.extension import COLUMNS, TransferChooser, TransferGiver
from securevfl_crypto.transfer.unique import Unique

__all__ = ["COLUMNS", "BaseChooser", "BaseGiver", "TransferChooser", "TransferGiver", "Unique"]
