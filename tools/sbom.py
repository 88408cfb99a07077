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
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from securevfl.dossier import materials

ROOT = Path(__file__).parents[1]


def read_constraints(path: Path) -> dict[str, str]:
    """Canonical name → pinned version."""
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def make_sbom(root: str = "securevfl", constraints: Path = ROOT / "constraints.txt") -> dict[str, Any]:
    """The document, as values that `json` writes."""
    return materials.make_sbom(root, read_constraints(constraints))


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
