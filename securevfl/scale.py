"""Past one core and past one machine: pools of workers for a party's own independent tasks.

A pool is one party's own affair: it holds what that party holds, and its peers need not know of it.
"""

from __future__ import annotations

from securevfl_crypto.pools import (
    POOLS,
    LocalPool,
    Pool,
    ProcessPool,
    RayPool,
    check_pool,
    close_pools,
    kept_pool,
    open_pool,
)

__all__ = [
    "POOLS",
    "LocalPool",
    "Pool",
    "ProcessPool",
    "RayPool",
    "check_pool",
    "close_pools",
    "kept_pool",
    "open_pool",
]
