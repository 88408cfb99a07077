"""Paillier keys that tests share, since making one takes longer than a small run."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import Any

import securevfl_crypto as crypto
from securevfl_crypto.aggregation import PaillierAggregation
from securevfl_crypto.paillier import Paillier

__all__ = ["ready_keys"]


@lru_cache(maxsize=8)
def _key(bits: int, number: int) -> Any:
    return crypto.generate_keypair(bits)


def ready_keys(monkeypatch: Any) -> None:
    """Let Paillier take keys made earlier in this process, in turns."""
    turns = count()
    for kind in (Paillier, PaillierAggregation):
        monkeypatch.setattr(kind, "generate_key", lambda self: _key(self.bits, next(turns) % 3))
