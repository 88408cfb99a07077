"""The code paths, the features of this CPU, and the settings from the environment.

``SECUREVFL_ENGINE`` forces one of `PATHS`; ``SECUREVFL_THREADS`` sets how many threads a batch may use.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from securevfl_crypto.engine.quota import usable_cores
from securevfl_crypto.errors import EngineError

__all__ = ["PATHS", "VECTOR_PATHS", "VectorPath", "forced_path", "host_features", "thread_count"]


@dataclass(frozen=True)
class VectorPath:
    """A way to compile the kernels.

    Attributes:
        name: the name that the environment variable takes.
        lanes: 64-bit lanes of a vector.
        needs: the CPU features that the path needs, in LLVM's names.
        radix: bits of a limb: 52, or 25 (for limbs of 26 and 25 bits by turns).
        llvm_features: features switched on or off for the compiler, so that a path has the same code on every machine.
    """

    name: str
    lanes: int
    needs: tuple[str, ...]
    radix: int
    llvm_features: str = ""


VECTOR_PATHS = (
    VectorPath("ifma", 8, ("avx512f", "avx512vl", "avx512ifma"), 52, ",-prefer-256-bit"),
    VectorPath("avx512", 8, ("avx512f", "avx512vl"), 25, ",-prefer-256-bit,-avx512ifma"),
    VectorPath("avx2", 4, ("avx2",), 25, ",-avx512f"),
)
PATHS = (*(path.name for path in VECTOR_PATHS), "libsodium", "cryptography")
"""The names of all paths, from the fastest to the slowest; all give the same bytes."""
_VARIABLE = "SECUREVFL_ENGINE"


def forced_path() -> str | None:
    """The path that ``SECUREVFL_ENGINE`` names, or None.

    Raises:
        EngineError: the name is unknown.
    """
    name = os.environ.get(_VARIABLE, "auto").strip().lower()
    if name in ("", "auto"):
        return None
    if name not in PATHS:
        raise EngineError(f"{_VARIABLE}={name!r}; one of auto, {', '.join(PATHS)} is possible")
    return name


def host_features() -> frozenset[str]:
    """The features of this CPU in LLVM's names; empty without llvmlite, or if LLVM cannot detect them."""
    try:
        from llvmlite import binding

        features = binding.get_host_cpu_features()
    except (ImportError, OSError, RuntimeError):  # not installed; its library does not load; a CPU without features
        return frozenset()
    return frozenset(name for name, there in features.items() if there)


def thread_count() -> int:
    """The number of threads for a batch: ``SECUREVFL_THREADS``, or the cores that this process may use, at most 16; see
    `usable_cores`.

    Raises:
        EngineError: ``SECUREVFL_THREADS`` is not a number from 1 to 256.
    """
    text = os.environ.get("SECUREVFL_THREADS", "")
    if not text:
        return min(16, usable_cores())
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 256:
        raise EngineError(f"SECUREVFL_THREADS={text!r}; a number from 1 to 256 is possible")
    return int(text)
