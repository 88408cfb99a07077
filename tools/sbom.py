"""Write a software bill of materials: CycloneDX 1.6 JSON of what this installation needs at run time.

    python tools/sbom.py [--out sbom.cdx.json] [--root securevfl]

Versions come from the installed metadata, and from `constraints.txt` where a package is not installed. The script needs
no network. The same environment gives the same bytes: the serial number is derived from the content, and there is no
timestamp.
"""

from __future__ import annotations

import argparse
import json
import re
import uuid
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562: names that are URLs


def read_constraints(path: Path) -> dict[str, str]:
    """Canonical name → pinned version."""
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def read_requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What an installed distribution requires in this environment with these extras; nothing if it is not installed."""
    try:
        found = [Requirement(text) for text in distribution(name).requires or []]
    except PackageNotFoundError:
        return []
    wanted = [{"extra": extra} for extra in (*sorted(extras), "")]
    return [one for one in found if one.marker is None or any(one.marker.evaluate(extra) for extra in wanted)]


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
        found = read_requirements(name, extras)
        edges.setdefault(name, set()).update(canonicalize_name(one.name) for one in found)
        waiting += [(canonicalize_name(one.name), frozenset(one.extras)) for one in found]
    return edges


def describe_component(name: str, pins: Mapping[str, str], kind: str) -> dict[str, Any]:
    """One component: name, version, package URL, licence where its metadata gives one."""
    licence = ""
    try:
        metadata = distribution(name).metadata
        version = metadata["Version"]
        found: Any = metadata
        licence = found.get("License-Expression") or ""
    except PackageNotFoundError:
        version = pins.get(name, "")
    identifier = f"pkg:pypi/{name}" + (f"@{version}" if version else "")
    component = {"type": kind, "bom-ref": identifier, "name": name, "version": version, "purl": identifier}
    return component | ({"licenses": [{"expression": licence}]} if licence else {})


def make_sbom(root: str = "securevfl", constraints: Path = ROOT / "constraints.txt") -> dict[str, Any]:
    """The document, as values that `json` writes."""
    pins, edges = read_constraints(constraints), collect_dependencies(root)
    top = canonicalize_name(root)
    described = {n: describe_component(n, pins, "application" if n == top else "library") for n in sorted(edges)}
    refs = {name: component["bom-ref"] for name, component in described.items()}
    listed = [described[name] for name in described if name != top]
    links = [{"ref": refs[name], "dependsOn": sorted(refs[one] for one in edges[name])} for name in described]
    serial = uuid.uuid5(_NAMESPACE, json.dumps([listed, links], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": described[top]},
        "components": listed,
        "dependencies": links,
    }


def main() -> None:
    """Write the file and print how many components it lists."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("sbom.cdx.json"))
    parser.add_argument("--root", default="securevfl", help="the distribution to start from")
    chosen = parser.parse_args()
    found = make_sbom(chosen.root)
    chosen.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{chosen.out}: {len(found['components'])} components")


if __name__ == "__main__":
    main()
