"""What the matrix finds and this version does not withstand, with the sentence of the documentation."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["find_remaining", "read_remains"]

_FILE = Path(__file__).with_name("remains.toml")


def read_remains() -> list[dict[str, str]]:
    """Entries of `remains.toml`: words of the names of cells, classes of what is broken, both joined by ``+``, and a
    sentence.
    """
    found: list[dict[str, str]] = tomllib.loads(_FILE.read_text(encoding="utf-8")).get("remains", [])
    return found


def find_remaining(found: Mapping[str, Any], remains: Sequence[dict[str, str]]) -> dict[str, str] | None:
    """The entry that covers all that is broken in a cell; None where there is none."""
    for one in remains:
        if all(word in found["name"] for word in one["cells"].split("+")) and all(
            broken.partition(":")[0] in one["broken"].split("+") for broken in found["broken"]
        ):
            return one
    return None
