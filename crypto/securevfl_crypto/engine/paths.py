"""Chooses among vector paths for each group of kernels: the fastest that this CPU runs, that is here and that works."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from securevfl_crypto.engine.cpu import PATHS, VECTOR_PATHS, VectorPath, forced_path, paths_of_this_cpu
from securevfl_crypto.engine.library import MissingLibraryError
from securevfl_crypto.errors import EngineError, WrongLibraryError

__all__ = ["load_chosen", "load_fastest", "load_named"]

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


def load_named(path: str, load: Callable[[VectorPath], _T], portable: Callable[[], _T]) -> _T:
    """The kernels of a path, or what computes without kernels where the path has none.

    Args:
        path: one of `cpu.PATHS`.
        load: loads the kernels of a vector path, and tests them.
        portable: makes what computes with numpy.

    Raises:
        EngineError: the path is unknown, cannot run here, or fails its self-test.
    """
    if path not in PATHS:
        raise EngineError(f"unknown path {path!r}; expected one of {', '.join(PATHS)}")
    vector = next((each for each in VECTOR_PATHS if each.name == path), None)
    return portable() if vector is None else load(vector)


def load_chosen(load: Callable[[VectorPath], _T], portable: Callable[[], _T], *, stacklevel: int) -> _T:
    """The kernels of the path that ``SECUREVFL_ENGINE`` names, or else of the fastest that works here.

    Args:
        load: see `load_named`.
        portable: likewise.
        stacklevel: of warnings, see `load_fastest`.

    Raises:
        EngineError: the named path is unknown, cannot run here, or fails its self-test.
    """
    name = forced_path()
    if name is not None:
        return load_named(name, load, portable)
    found = load_fastest(load, stacklevel=stacklevel + 1)
    return portable() if found is None else found


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
