"""Seed torch's generators for a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["seed_torch"]


@contextmanager
def seed_torch(seed: int) -> Iterator[None]:
    """Seed torch's global generators (the CPU's, and CUDA's if in use) inside the block and restore them after it."""
    in_use = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=in_use):
        if torch.cuda.is_available():
            torch.manual_seed(seed)
        else:  # `torch.manual_seed` would format the stack for a CUDA device that never comes: 2 ms a call
            torch.default_generator.manual_seed(seed)
        yield
