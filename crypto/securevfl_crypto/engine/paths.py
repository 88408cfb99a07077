"""Chooses among vector paths for each group of kernels: the fastest that this CPU runs, that is here and that works."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from securevfl_crypto.engine.cpu import VectorPath, paths_of_this_cpu
from securevfl_crypto.engine.library import MissingLibraryError
from securevfl_crypto.errors import EngineError, WrongLibraryError

__all__ = ["load_fastest"]

_T = TypeVar("_T")
_warned = False


def load_fastest(load: Callable[[VectorPath], _T], *, stacklevel: int) -> _T | None:
    """What `load` returns for the fastest path that works; None if there is none.

    A path that fails is left with a warning. Where libraries are missing, a process warns once.

    Args:
        load: loads the kernels of a path, and tests them.
        stacklevel: of the warning, seen from the caller: 1 for the caller itself.

    Raises:
        WrongLibraryError: a library is not the one that its manifest describes. That is no reason to compute without
            it: somebody must look.
    """
    for path in paths_of_this_cpu():
        try:
            return load(path)
        except WrongLibraryError:
            raise
        except MissingLibraryError as error:
            _warn_once(error, stacklevel + 2)
        except EngineError as error:
            warnings.warn(f"{error}; taking a slower path", RuntimeWarning, stacklevel=stacklevel + 1)
    return None


def _warn_once(error: MissingLibraryError, stacklevel: int) -> None:
    global _warned  # noqa: PLW0603 - one warning for four groups of kernels
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"{error}. Until then this process computes by a slower path: without any kernels, intersections, shares and "
        "Paillier take several times as long",
        RuntimeWarning,
        stacklevel=stacklevel,
    )
