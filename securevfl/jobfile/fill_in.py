"""Drafts have `FILL IN` where nobody could guess; a file that still has one is refused with its lines, and what to
write there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from securevfl.errors import InputError

__all__ = ["FILL_IN", "refuse_unfilled"]

FILL_IN = "FILL IN"
"""What a draft has in the place of a value."""
_LINE = re.compile(rf'\s*(?P<key>[\w.-]+)\s*=\s*(\[[^#]*)?"{FILL_IN}"')
_SECTION = re.compile(r"\s*\[+(?P<section>[^\]#]+)\]+")
_NAME = re.compile(r'\s*(?P<key>name|party)\s*=\s*"(?P<name>[^"]*)"')
_CURES: Mapping[tuple[str, str], str] = {
    ("party", "id"): "write the column that names the person of a row, with the same values in every party's table; "
    "or draft again with --id COLUMN, or --id PARTY.COLUMN for each party",
    ("party", "label"): "write the column to predict, or move the line to the party that has it; or draft again with "
    "--label PARTY.COLUMN",
    ("protection", "name"): "write a protection that the algorithm can have; `securevfl check` says which, and "
    "docs/howto/which-protection.md helps to choose",
    ("data", "id"): "write the column that names the person of a row, as the other parties name theirs",
    ("data", "label"): "write the column to predict",
    ("peer", "dial"): 'write where the peer listens, "host:port", or listen = true where it dials you',
}
"""Section and key → what to write."""


def refuse_unfilled(file: Path, text: str) -> None:
    """Do nothing, unless a file has places to fill in.

    Args:
        file: for messages.
        text: its content, TOML.

    Raises:
        InputError: it has; with each line, and what to write.
    """
    found, section, names = [], "", dict[int, str]()
    part = 0
    for number, line in enumerate(text.splitlines(), 1):
        if (head := _SECTION.match(line)) is not None:
            section, part = head["section"].strip(), part + 1
        elif (name := _NAME.match(line)) is not None and name["name"] != FILL_IN:
            names[part] = name["name"]
        if (gap := _LINE.match(line)) is not None:
            whose = f" of {names[part]!r}" if section == "party" and part in names else ""
            cure = _CURES.get((section.split(".")[0], gap["key"]), "write a value")
            found.append(f'line {number}: {gap["key"]}{whose} is "{FILL_IN}": {cure}')
    if len(found) == 1:
        raise InputError(f"{file}, {found[0]}")
    if found:
        raise InputError(f"{file} has {len(found)} places to fill in:\n  " + "\n  ".join(found))
