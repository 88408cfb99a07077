"""Names that a package loads when they are first used (PEP 562), so that what only describes loads nothing that
computes: a proposal names an algorithm and a protection, and needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["load_on_use"]


def load_on_use(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Make a package's ``__getattr__``: it imports a name's module when the name is first used.

    The package states the same names under ``TYPE_CHECKING``, for type checkers, editors and the picture of the house.

    Args:
        package: its name, ``__name__``.
        names: module → names that it gives to the package, separated by spaces.
    """
    modules = {name: module for module, listed in names.items() for name in listed.split()}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
