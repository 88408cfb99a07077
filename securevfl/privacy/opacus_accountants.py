"""Opacus' accountants without the rest of Opacus.

``import opacus`` also imports optimisers for many GPUs: 3 CPU-seconds in each process, for arithmetic that needs numpy
and SciPy alone. `load_accountants` runs the same files of the installed Opacus as a package of another name, in which
the accountants' base class has their history and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

__all__ = ["Accountants", "load_accountants"]

_PACKAGE = "_securevfl_opacus"


class Accountants(NamedTuple):
    """What `securevfl.privacy.accountant` uses.

    Attributes:
        rdp: the module ``opacus.accountants.analysis.rdp``.
        prv: the class ``PRVAccountant``.
    """

    rdp: Any
    prv: Any


@cache
def load_accountants() -> Accountants:
    """Load them, once in a process; from Opacus itself if it was imported before or its files lie elsewhere."""
    package = "opacus"
    spec = None if package in sys.modules else find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        folder = Path(spec.submodule_search_locations[0])
        if all((folder / "accountants" / file).is_file() for file in ("rdp.py", "prv.py", "analysis/rdp.py")):
            package = _PACKAGE
            _make_package(package, folder)
            _make_package(f"{package}.accountants", folder / "accountants")
            base = ModuleType(f"{package}.accountants.accountant")
            vars(base)["IAccountant"] = _History
            sys.modules[base.__name__] = base
    prv = importlib.import_module(f"{package}.accountants.prv")
    analysis = importlib.import_module(f"{package}.accountants.analysis.rdp")
    return Accountants(analysis, prv.PRVAccountant)


class _History:
    """The part of Opacus' `IAccountant` that its accountants compute with."""

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []


def _make_package(name: str, folder: Path) -> None:
    """Put a package into `sys.modules` whose modules are those of a folder, without running its ``__init__``."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
