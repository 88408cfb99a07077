"""Sets that are larger than memory: cut into shards by a keyed hash, each shard one session of `dh` or `ot`.

`bucket` is the hash; `plan` how many shards, and how far each is filled up; `reading` brings identifiers in as arrays.
The files of a run and the connections between its workers are in `securevfl_psi_cli.shards`.
"""

from __future__ import annotations

from securevfl_psi.sharded.bucket import KEY_BYTES, bucket_hashes, bucket_of
from securevfl_psi.sharded.plan import PER_SHARD, ShardPlan, overflow_exponent, padded_size, shard_bits
from securevfl_psi.sharded.reading import IdBatch, in_batches

__all__ = [
    "KEY_BYTES",
    "PER_SHARD",
    "IdBatch",
    "ShardPlan",
    "bucket_hashes",
    "bucket_of",
    "in_batches",
    "overflow_exponent",
    "padded_size",
    "shard_bits",
]
