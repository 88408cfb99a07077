"""Pools that live as long as the process, so that workers keep their libraries and keys between runs."""

from __future__ import annotations

import atexit
import threading

from securevfl_crypto.pools.base import Pool
from securevfl_crypto.pools.opening import open_pool

__all__ = ["close_pools", "kept_pool"]

_kept: dict[str, Pool] = {}
_lock = threading.Lock()


def kept_pool(text: str) -> Pool:
    """The pool that a text describes. The first call opens it; it closes when the process ends.

    Raises:
        PoolError: see `open_pool`.
    """
    with _lock:
        if text not in _kept:
            _kept[text] = open_pool(text)
        return _kept[text]


def close_pools() -> None:
    """Close all kept pools. The next call of `kept_pool` opens a new one."""
    with _lock:
        for pool in _kept.values():
            pool.close()
        _kept.clear()


atexit.register(close_pools)
