"""Torch's generators, seeded for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["seed_torch"]


@contextmanager
def seed_torch(seed: int) -> Iterator[None]:
    """Torch's global generators seeded inside, as they were before outside: the CPU's, and CUDA's once it is in use."""
    in_use = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=in_use):
        torch.manual_seed(seed)
        yield
