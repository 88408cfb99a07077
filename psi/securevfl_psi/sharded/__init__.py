"""Sets that are larger than memory: cut into shards by a keyed hash, each shard one session of `dh` or `ot`.

`bucket` is the hash; `plan` how many shards, and how far each is filled up; `reading` brings identifiers in as arrays;
`partition` writes them into a file for each shard; `tasks` sorts a shard, and makes a session of it: from files to
files, so that a task may run anywhere and twice; `state` is the folder of a run, which a run that was cut off goes on
from; `files` is what these files look like. Nothing here moves bytes between parties: `securevfl_psi.command.sharding`
does.
"""

from __future__ import annotations

from securevfl_psi.sharded.bucket import KEY_BYTES, bucket_hashes, bucket_of
from securevfl_psi.sharded.partition import partition
from securevfl_psi.sharded.plan import PER_SHARD, ShardPlan, bits_for, overflow_exponent, padded
from securevfl_psi.sharded.reading import Batch, in_batches
from securevfl_psi.sharded.state import RunState, Settings
from securevfl_psi.sharded.tasks import ShardSession, sort_shard

__all__ = [
    "KEY_BYTES",
    "PER_SHARD",
    "Batch",
    "RunState",
    "Settings",
    "ShardPlan",
    "ShardSession",
    "bits_for",
    "bucket_hashes",
    "bucket_of",
    "in_batches",
    "overflow_exponent",
    "padded",
    "partition",
    "sort_shard",
]
