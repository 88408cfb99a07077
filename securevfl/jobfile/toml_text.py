"""Read TOML files as plain values, for job files and sweep files; collect all mistakes of one file in one error."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from securevfl.config import Config, Mistaken, take_all
from securevfl.errors import InputError
from securevfl.jobfile.fill_in import refuse_unfilled

__all__ = ["quote_text", "raise_all", "read_sections", "read_toml", "settings_text"]

Sections = TypeVar("Sections", bound=Config)

_WIDEST = 63
_LINE = 60


def read_toml(file: Path, what: str, example: str) -> dict[str, Any]:
    """The content of a TOML file.

    Args:
        file: the file.
        what: it should be, for messages: ``"job"``.
        example: where one can be found.

    Raises:
        InputError: no such file, not TOML, or a draft with places to fill in.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")  # editors of Windows put a mark before it
        content = tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: name a {what} file, see {example}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not TOML: {error}{_quote_line(text, str(error))}") from None
    except IsADirectoryError:
        raise InputError(f"{file} is a folder: name a {what} file, see {example}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file} is not a {what} file: byte {error.start} of it is {error.object[error.start]:#04x}, "
            "which is not UTF-8: save it as UTF-8"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} is not a {what} file: {error}") from None
    if _too_wide(content):
        raise InputError(f"{file} is not TOML: it has a whole number of more than 64 bits")
    refuse_unfilled(file, text)
    return content


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings of a job as sections of a job file.

    Args:
        settings: path → number, truth value or text: ``{"algorithm.lr": 0.05, "epochs": 3}``.
    """
    sections: dict[str, list[str]] = {}
    for path, value in settings.items():
        *where, name = path.split(".")
        first = ".".join(where) or (path if path in ("algorithm", "protection") else "job")
        key = "name" if first == path else name
        shown = json.dumps(value) if isinstance(value, str | bool) else repr(value)
        sections.setdefault(first, []).append(f"{key} = {shown}")
    return "\n".join("\n".join([f"[{name}]", *lines]) for name, lines in sections.items())


def _quote_line(text: str, error: str) -> str:
    """The line that a message of `tomllib` is about, with what is usually wrong there."""
    found = re.search(r"at line (\d+)", error)
    lines = text.splitlines()
    if found is None or not 1 <= int(found[1]) <= len(lines):
        return ""
    line = lines[int(found[1]) - 1].strip()
    return f': {line[:_LINE]!r}; texts stand in quotes, as in name = "bank", numbers and lists do not'


def _too_wide(value: object) -> bool:
    if isinstance(value, dict):
        return any(_too_wide(item) for item in value.values())
    if isinstance(value, list):
        return any(_too_wide(item) for item in value)
    return isinstance(value, int) and value.bit_length() > _WIDEST


def read_sections(
    kind: type[Sections], content: Mapping[str, Any], listed: Sequence[str]
) -> tuple[Sections, frozenset[str], list[str]]:
    """The sections of a file.

    Args:
        kind: has a field for each section, with a default.
        content: of the file.
        listed: sections in double brackets, which may repeat.

    Returns:
        The sections, with the defaults for those that have mistakes; the names of these; every mistake.
    """
    single = [name for name in listed if isinstance(content.get(name), Mapping)]
    found = [f"{name} is given as [{name}]; write [[{name}]], with double brackets, once for each" for name in single]
    taken, mistakes = take_all(kind, {k: v for k, v in content.items() if k not in single}, "", plain=True)
    try:
        sections = kind(**taken)
    except Mistaken as error:
        sections = kind()
        mistakes += error.at_path("")
        taken = {}
    return sections, frozenset(content.keys() - taken.keys()), found + mistakes


def raise_all(file: Path, mistakes: Sequence[str]) -> None:
    """Do nothing, unless there are mistakes.

    Raises:
        InputError: there are; it has all of them.
    """
    if len(mistakes) == 1:
        raise InputError(f"{file}: {mistakes[0]}")
    if mistakes:
        raise InputError(f"{file} has {len(mistakes)} mistakes:\n  " + "\n  ".join(mistakes))


def quote_text(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
