"""Every public definition says what it is for; a method may inherit its words."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest


def _missing(module: object, name: str) -> Iterator[str]:
    for label, thing in vars(module).items():
        if label.startswith("_") or getattr(thing, "__module__", None) != name:
            continue
        if inspect.isfunction(thing) and not inspect.getdoc(thing):
            yield f"{name}.{label}"
        if inspect.isclass(thing):
            if not thing.__doc__:
                yield f"{name}.{label}"
            yield from (f"{name}.{label}.{method}" for method in _bare_methods(thing))


def _bare_methods(kind: type) -> Iterator[str]:
    for label, thing in vars(kind).items():
        function = thing.fget if isinstance(thing, property) else getattr(thing, "__func__", thing)
        if label.startswith("_") or not inspect.isfunction(function):
            continue
        if not any(inspect.getdoc(vars(base)[label]) for base in kind.__mro__ if label in vars(base)):
            yield label


@pytest.mark.parametrize("package", ["securevfl", "securevfl_net", "securevfl_psi"])
def test_public_definitions_have_docstrings(package: str) -> None:
    whole = importlib.import_module(package)
    names = [package, *(item.name for item in pkgutil.walk_packages(whole.__path__, f"{package}."))]
    modules = {name: importlib.import_module(name) for name in names if not name.endswith("__main__")}
    assert len(modules) > 20
    assert [text for name, module in modules.items() for text in _missing(module, name)] == []


def test_a_missing_one_is_found() -> None:
    class Bare:
        """It has words; its method has none."""

        def method(self) -> None: ...

    assert list(_bare_methods(Bare)) == ["method"]
