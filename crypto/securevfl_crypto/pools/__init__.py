"""Pools of workers for independent tasks: in this process, in processes on this machine, or on a cluster.

`base` defines a pool and a task; `local`, `process` and `on_ray` implement pools; `opening` opens one from its text in
a job file, and `keeping` keeps it for the life of the process. `messages` encodes tasks and answers as bytes, and
`worker` is the program of a worker process. `cluster` checks whether a Ray cluster may be used.
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
