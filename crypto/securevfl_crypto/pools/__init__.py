"""Workers for independent tasks: in this process, in others of this machine, on a cluster.

`base` says what a pool and a task are; `local`, `process` and `on_ray` are pools; `opening` makes one from a line of
text, `keeping` keeps it for the process; `messages` is what crosses to a worker, and `worker` what runs there;
`cluster` says which Ray clusters may be used.
"""

from __future__ import annotations

from securevfl_crypto.pools.base import Argument, Pool, Task, load_task
from securevfl_crypto.pools.keeping import close_pools, kept_pool
from securevfl_crypto.pools.local import LocalPool
from securevfl_crypto.pools.on_ray import RayPool
from securevfl_crypto.pools.opening import POOLS, check_pool, open_pool
from securevfl_crypto.pools.process import ProcessPool

__all__ = [
    "POOLS",
    "Argument",
    "LocalPool",
    "Pool",
    "ProcessPool",
    "RayPool",
    "Task",
    "check_pool",
    "close_pools",
    "kept_pool",
    "load_task",
    "open_pool",
]
