"""The paths of the ring's inner loops for tests, taken without self-tests: what computes wrongly must fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from securevfl_crypto.engine.compiled_ring import ring_kernels
from securevfl_crypto.engine.cpu import paths_of_this_cpu
from securevfl_crypto.ring import paths
from securevfl_crypto.ring.base import RingLoops
from securevfl_crypto.ring.compiled import CompiledRingLoops
from securevfl_crypto.ring.portable import PortableRingLoops

__all__ = ["NAMES", "built", "taken"]

_VECTOR = {path.name: path for path in paths_of_this_cpu()}
NAMES = (*_VECTOR, "numpy")
"""Paths that this machine's CPU and libraries allow, right or wrong."""


def built(name: str) -> RingLoops:
    """The loops of a path."""
    return CompiledRingLoops(ring_kernels(_VECTOR[name])) if name in _VECTOR else PortableRingLoops()


@contextmanager
def taken(name: str) -> Iterator[None]:
    """While it lasts, everything computes on this path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_chosen", lambda: built(name))
        yield
