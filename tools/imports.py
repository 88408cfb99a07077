"""Who imports whom, read from the source without running it.

A *unit* is a child of a package: a folder or a file. Imports inside functions count: they are dependencies, whenever
they happen. Imports under ``TYPE_CHECKING`` count unless the caller leaves them out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

__all__ = ["Source", "circle", "reduced"]

_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)

Graph = Mapping[str, frozenset[str]]
"""Unit → the units that it imports."""


class Source:
    """The modules of some packages.

    Args:
        packages: the packages' folders.
        types: count imports under ``TYPE_CHECKING`` too.
    """

    def __init__(self, packages: Iterable[Path], *, types: bool = True) -> None:
        self.types = types
        self.trees: dict[str, ast.Module] = {}
        self.packages: set[str] = set()
        for package in packages:
            for file in sorted(package.rglob("*.py")):
                parts = (package.name, *file.relative_to(package).with_suffix("").parts)
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                if parts[-1] == "__init__":
                    self.packages.add(name)
                self.trees[name] = ast.parse(file.read_text(encoding="utf-8"))

    @cached_property
    def imports(self) -> dict[str, frozenset[str]]:
        """Module → the modules that it imports. A name that a package passes on counts for the module that has it."""
        return {name: frozenset(self._targets(name)) - {name} for name in self.trees}

    def _targets(self, name: str) -> Iterator[str]:
        for node in self._nodes(self.trees[name]):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.trees)
            elif isinstance(node, ast.ImportFrom) and node.module in self.trees and not node.level:
                yield from (self.home(node.module, alias.name) for alias in node.names)

    def _nodes(self, tree: ast.AST) -> Iterator[ast.AST]:
        """The statements of a tree; imports stand nowhere else."""
        rest = [tree]
        while rest:
            node = rest.pop()
            if not self.types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            yield node
            rest += [child for child in ast.iter_child_nodes(node) if isinstance(child, _STATEMENTS)]

    def home(self, module: str, name: str) -> str:
        """The module that ``from module import name`` ends at, through the packages that pass the name on."""
        if f"{module}.{name}" in self.trees:
            return f"{module}.{name}"
        passed = self._passed_on.get(module, {}).get(name)
        return self.home(*passed) if passed else module

    @cached_property
    def _passed_on(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Package → name that it takes from another module → that module, and the name there."""
        return {
            package: {
                alias.asname or alias.name: (node.module, alias.name)
                for node in self._nodes(self.trees[package])
                if isinstance(node, ast.ImportFrom) and node.module in self.trees and node.module != package
                for alias in node.names
            }
            for package in self.packages
        }

    def units(self, package: str) -> list[str]:
        """The children of a package, folders and files."""
        depth = package.count(".") + 2
        children = (name for name in self.trees if name.startswith(f"{package}."))
        return sorted({".".join(name.split(".")[:depth]) for name in children})

    def graph(self, units: Iterable[str]) -> dict[str, frozenset[str]]:
        """The imports among units; those of modules that belong to none of them are left out."""
        units = list(units)
        found: dict[str, set[str]] = {unit: set() for unit in units}
        for name, targets in self.imports.items():
            source = _unit_of(name, units)
            if source is not None:
                found[source] |= {unit for target in targets if (unit := _unit_of(target, units)) is not None}
        return {unit: frozenset(targets - {unit}) for unit, targets in found.items()}

    def summary(self, module: str) -> str:
        """The first sentence of a module's docstring."""
        text = " ".join((ast.get_docstring(self.trees[module]) or "").split("\n\n")[0].split())
        return text.split(". ")[0].rstrip(".")


def _unit_of(name: str, units: Iterable[str]) -> str | None:
    return next((unit for unit in units if name == unit or name.startswith(f"{unit}.")), None)


def circle(graph: Graph) -> list[str]:
    """The units of one circle in the order of their imports, the first again at the end; empty if there is none."""
    done: set[str] = set()

    def search(path: list[str]) -> list[str]:
        for target in sorted(graph[path[-1]]):
            if target in path:
                return [*path[path.index(target) :], target]
            if target not in done and (found := search([*path, target])):
                return found
        done.add(path[-1])
        return []

    for unit in sorted(graph):
        if unit not in done and (found := search([unit])):
            return found
    return []


def reduced(graph: Graph) -> dict[str, frozenset[str]]:
    """The graph, which has no circle, without the edges that follow from others: its transitive reduction."""
    below: dict[str, frozenset[str]] = {}

    def reach(unit: str) -> frozenset[str]:
        if unit not in below:
            below[unit] = graph[unit].union(*(reach(target) for target in graph[unit]))
        return below[unit]

    return {
        unit: frozenset(t for t in targets if not any(t in reach(other) for other in targets if other != t))
        for unit, targets in graph.items()
    }
