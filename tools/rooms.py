"""The size of rooms and files, and where public names are defined: what the house allows, and its exceptions of today.

    python tools/rooms.py            print what the house does not allow
    python tools/rooms.py --write    write it to tools/rooms.toml, the list of exceptions

`tests/test_house.py` fails for what is not on the list, and for what is on it without need: the list only shrinks.

- A folder has at most 45 files.
- A file of fewer than 60 lines that one other file imports belongs into that file. The folder's own ``__init__.py``
  does not count as an importer.
- Two rooms of one package do not define the same public name. A room is a folder or a file directly in the package.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from house import PACKAGES, ROOT, read_repository
from imports import Source

__all__ = ["EXCEPTIONS", "MOST_FILES", "SMALL", "exceptions", "large_folders", "shared_names", "small_files"]

EXCEPTIONS = ROOT / "tools/rooms.toml"
MOST_FILES = 45
SMALL = 60
"""Lines below which a file with one importer has to join it."""

_HEAD = (
    "# What the house does not allow and still has; `python tools/rooms.py --write` makes this list. It only shrinks.\n"
)


def large_folders(root: Path = ROOT) -> list[str]:
    """Folders of the packages, the tests and the tools with more than `MOST_FILES` files."""
    found = []
    for top in (*PACKAGES, "tests", "tools"):
        for folder in sorted({file.parent for file in (root / top).rglob("*.py")}):
            if len(list(folder.glob("*.py"))) > MOST_FILES:
                found.append(folder.relative_to(root).as_posix())
    return found


def small_files(source: Source, lines: Mapping[str, int]) -> list[str]:
    """Modules of fewer than `SMALL` lines that exactly one other module imports, with that module.

    Args:
        source: the packages.
        lines: module → lines of its file.
    """
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in source.imports.items():
        for target in targets:
            if name != target.rpartition(".")[0]:
                importers[target].add(name)
    return [
        f"{name} in {next(iter(importers[name]))}"
        for name in sorted(source.trees)
        if name not in source.packages and lines[name] < SMALL and len(importers[name]) == 1
    ]


def shared_names(source: Source) -> list[str]:
    """Public classes and functions that two rooms of one package define, with the rooms."""
    rooms: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module, tree in source.trees.items():
        package, _, rest = module.partition(".")
        for name in _public(tree):
            rooms[package, name].add(rest.partition(".")[0])
    return [
        f"{package}: {name} in {', '.join(sorted(at))}" for (package, name), at in sorted(rooms.items()) if len(at) > 1
    ]


def _public(tree: ast.Module) -> Iterator[str]:
    """Classes and functions that a module defines and lists in ``__all__``, or those without underscore."""
    listed: set[str] | None = None
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            listed = set(ast.literal_eval(node.value))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.name in listed if listed is not None else not node.name.startswith("_")
        ):
            yield node.name


def exceptions(root: Path = ROOT) -> dict[str, list[str]]:
    """All that the house does not allow, by rule, as in `EXCEPTIONS`."""
    source = read_repository(root)
    lines = {}
    for package in PACKAGES:
        for file in (root / package).rglob("*.py"):
            parts = file.relative_to((root / package).parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            lines[name] = len(file.read_text(encoding="utf-8").splitlines())
    return {
        "large_folders": large_folders(root),
        "small_files": small_files(source, lines),
        "shared_names": shared_names(source),
    }


def _listed(found: Mapping[str, list[str]]) -> str:
    blocks = (f"{rule} = [\n" + "".join(f'    "{one}",\n' for one in ones) + "]\n" for rule, ones in found.items())
    return "\n".join(blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write the list to {EXCEPTIONS.relative_to(ROOT)}")
    options = parser.parse_args()
    found = exceptions()
    print(_listed(found), end="")
    print("#", ", ".join(f"{len(ones)} {rule}" for rule, ones in found.items()))
    if options.write:
        EXCEPTIONS.write_text(_HEAD + "\n" + _listed(found), encoding="utf-8")
        assert tomllib.loads(EXCEPTIONS.read_text(encoding="utf-8")) == found  # noqa: S101


if __name__ == "__main__":
    main()
