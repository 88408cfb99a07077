"""The batch engine's paths for tests, taken without self-tests: what computes wrongly must fail, not be skipped."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

from securevfl_crypto.engine import PATHS, Engine
from securevfl_crypto.engine.compiled import curve_kernels
from securevfl_crypto.engine.cpu import VECTOR_PATHS, paths_of_this_cpu
from securevfl_crypto.engine.scalar import ScalarEngine
from securevfl_crypto.engine.vector import VectorEngine

__all__ = ["built", "runnable"]


def runnable() -> list[str]:
    """Paths that this machine's CPU and libraries allow, right or wrong."""
    compiled = [path.name for path in paths_of_this_cpu()]
    libraries = ["libsodium"] if find_spec("nacl") is not None else []
    return [path for path in PATHS if path in {*compiled, *libraries, "cryptography"}]


@lru_cache(maxsize=len(PATHS))
def built(name: str) -> Engine:
    """The engine of a path."""
    vector = next((path for path in VECTOR_PATHS if path.name == name), None)
    return ScalarEngine(name) if vector is None else VectorEngine(curve_kernels(vector))
