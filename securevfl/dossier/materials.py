"""The software bill of materials: CycloneDX 1.6 JSON of what this installation needs at run time, with its kernels.

It needs no network and no further package. The same installation gives the same bytes: the serial number is derived
from the content, and there is no timestamp.
"""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from securevfl_crypto.engine.library import FOLDER, read_manifest

__all__ = ["collect_dependencies", "make_sbom"]

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562: names that are URLs

_KERNELS_OF = "securevfl-crypto"
"""The package that contains the compiled kernels."""


def make_sbom(root: str = "securevfl", pins: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The document, as values that `json` writes.

    Args:
        root: the distribution to start from.
        pins: canonical name → version of packages that are not installed.
    """
    edges = collect_dependencies(root)
    top = canonicalize_name(root)
    described = {n: _describe_package(n, pins or {}, "application" if n == top else "library") for n in sorted(edges)}
    refs = {name: component["bom-ref"] for name, component in described.items()}
    if _KERNELS_OF in described and (kernels := _describe_kernels()):
        described[_KERNELS_OF]["components"] = kernels
    listed = [described[name] for name in described if name != top]
    links = [{"ref": refs[name], "dependsOn": sorted(refs[one] for one in edges[name])} for name in described]
    serial = uuid.uuid5(_NAMESPACE, json.dumps([listed, links], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": described[top],
            "properties": [{"name": "python", "value": platform.python_version()}],
        },
        "components": listed,
        "dependencies": links,
    }


def collect_dependencies(root: str) -> dict[str, set[str]]:
    """Canonical name → the names it requires, for the root and everything below it."""
    edges: dict[str, set[str]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(root), frozenset())]
    while waiting:
        name, extras = item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        found = _read_requirements(name, extras)
        edges.setdefault(name, set()).update(canonicalize_name(one.name) for one in found)
        waiting += [(canonicalize_name(one.name), frozenset(one.extras)) for one in found]
    return edges


def _read_requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What an installed distribution requires in this environment with these extras; nothing if it is not installed."""
    wanted = [{"extra": extra} for extra in (*sorted(extras), "")]
    found = _read_installed(name).requires
    return [one for one in found if one.marker is None or any(one.marker.evaluate(extra) for extra in wanted)]


@dataclass(frozen=True)
class _Installed:
    """Metadata of a distribution; empty texts where it is not installed.

    Attributes:
        version: of it.
        licence: an SPDX expression.
        requires: all its requirements, those of extras included.
    """

    version: str = ""
    licence: str = ""
    requires: tuple[Requirement, ...] = ()


@cache
def _read_installed(name: str) -> _Installed:
    """Read once in a process: parsing the metadata of all packages takes a fifth of a second."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return _Installed()
    metadata: Any = found.metadata
    requires = tuple(map(Requirement, found.requires or ()))
    return _Installed(metadata["Version"], metadata.get("License-Expression") or "", requires)


def _describe_package(name: str, pins: Mapping[str, str], kind: str) -> dict[str, Any]:
    """One component: name, version, package URL, licence where its metadata gives one."""
    installed = _read_installed(name)
    version = installed.version or pins.get(name, "")
    identifier = f"pkg:pypi/{name}" + (f"@{version}" if version else "")
    component = {"type": kind, "bom-ref": identifier, "name": name, "version": version, "purl": identifier}
    return component | ({"licenses": [{"expression": installed.licence}]} if installed.licence else {})


def _describe_kernels() -> list[dict[str, Any]]:
    """The compiled libraries of the engine, each with its SHA-256 as the manifest states it.

    Raises:
        WrongLibraryError: the manifest is damaged.
    """
    manifest = read_manifest(FOLDER)
    if manifest is None:
        return []
    return [
        {
            "type": "file",
            "bom-ref": f"kernel:{one.file}",
            "name": one.file,
            "hashes": [{"alg": "SHA-256", "content": one.sha256}],
            "properties": [
                {"name": "cpu class", "value": one.cpu_class},
                {"name": "llvmlite", "value": manifest.llvmlite},
                {"name": "ziglang", "value": manifest.ziglang},
            ],
        }
        for one in manifest.libraries
    ]
