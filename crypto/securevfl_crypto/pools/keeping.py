"""Pools that last as long as the process: their workers have loaded libraries and keys when the next run begins."""

from __future__ import annotations

import atexit
import threading

from securevfl_crypto.pools.base import Pool
from securevfl_crypto.pools.opening import open_pool

__all__ = ["close_pools", "kept_pool"]

_kept: dict[str, Pool] = {}
_lock = threading.Lock()


def kept_pool(text: str) -> Pool:
    """The pool of this process that a text describes: opened at the first call, and closed when the process ends.

    Raises:
        PoolError: see `open_pool`.
    """
    with _lock:
        if text not in _kept:
            _kept[text] = open_pool(text)
        return _kept[text]


def close_pools() -> None:
    """Close the pools that are kept; the next call of `kept_pool` opens new ones."""
    with _lock:
        for pool in _kept.values():
            pool.close()
        _kept.clear()


atexit.register(close_pools)
