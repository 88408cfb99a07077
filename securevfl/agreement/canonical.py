"""The canonical bytes of agreements and approvals: a small part of TOML, so that people can read it.

Signatures cover bytes. To make content and bytes correspond one to one, `decode` accepts nothing that `encode` would
write differently: no other order, spacing, comment, escape or spelling of a number. Decimals are texts ("5.0"), because
languages differ on whether 5 equals 5.0. Texts are in Unicode's normalisation form C and contain no character that is
invisible or that reverses reading direction.

The size and the shape of the lines are checked before the bytes reach the TOML parser.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from securevfl.errors import InputError

__all__ = ["MOST_BYTES", "Tree", "decode_tree", "encode_tree", "from_plain", "parse_number", "text_problem", "to_plain"]

MOST_BYTES = 1 << 18
"""Bytes of an agreement. One of ten parties with a hundred named columns each has about 30,000."""

_MOST_LINES = 8192
_DEEPEST = 5
_WIDEST = 63

Tree: TypeAlias = Mapping[str, Any]
"""Texts, whole numbers, truth values, flat lists of these, trees, and lists of trees."""

_KEY = r"[A-Za-z0-9_-]{1,64}"
_ITEM = r'(?:"(?:[^"\\\x00-\x1f\x7f]|\\["\\])*"|-?[0-9]{1,19}|true|false)'
_TABLE = re.compile(rf"\[{_KEY}(?:\.{_KEY}){{0,{_DEEPEST - 1}}}\]|\[\[{_KEY}(?:\.{_KEY}){{0,{_DEEPEST - 1}}}\]\]")
_VALUE = re.compile(rf"{_KEY} = (?:{_ITEM}|\[(?:{_ITEM}(?:, {_ITEM})*)?\])")
_BARE = re.compile(_KEY)
_DECIMAL = re.compile(r"-?(?:[0-9]+\.[0-9]+|[0-9]+(?:\.[0-9]+)?e[+-][0-9]+|inf)")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def to_plain(value: object) -> Any:
    """Convert a description to a tree: decimals as texts, each the shortest that reads back as the same number; leaves
    out None.
    """
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(value: object) -> Any:
    """A tree as plain values: texts that `to_plain` writes for decimals as numbers. A text that only looks like one
    becomes one too, and then no field of texts takes it: such an option cannot be agreed on."""
    if isinstance(value, str):
        found = parse_number(value)
        return value if found is None else found
    if isinstance(value, Mapping):
        return {key: from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    return value


def parse_number(text: str) -> float | None:
    """The number in a text of `to_plain`; None for any other text."""
    if len(text) > 32 or _DECIMAL.fullmatch(text) is None:
        return None
    value = float(text)
    return value if repr(value) == text else None


def text_problem(text: str) -> str:
    """Why an agreement cannot contain a text; empty if it can."""
    if text.isascii() and text.isprintable():
        return ""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return "it contains half a character: write it in UTF-8"
    if unicodedata.normalize("NFC", text) != text:
        return "it is not in Unicode's normalisation form C: one name would have two spellings"
    unseen = next((letter for letter in text if unicodedata.category(letter) in _UNSEEN), "")
    if unseen:
        return f"it contains U+{ord(unseen):04X}, which is invisible or changes how text is read: leave it out"
    return ""


def encode_tree(tree: Tree, header: str) -> bytes:
    """A tree as bytes.

    Args:
        tree: keys in the order to write.
        header: the first line, a comment.

    Raises:
        InputError: texts that an agreement cannot contain, nested lists, or more than `MOST_BYTES`.
    """
    lines = [header]
    _write_tree(lines, tree, ())
    raw = ("\n".join(lines) + "\n").encode("utf-8")
    if len(raw) > MOST_BYTES:
        raise InputError(
            f"the agreement has {len(raw):,} bytes; {MOST_BYTES:,} are the most: show counts of columns in place of "
            'their names (show = "counts" in the party file)'
        )
    return raw


def _write_tree(lines: list[str], tree: Tree, path: tuple[str, ...]) -> None:
    if len(path) > _DEEPEST:
        raise InputError(f"{'.'.join(path)} is nested too deeply; at most {_DEEPEST} levels of sections are allowed")
    for key, value in tree.items():
        if _BARE.fullmatch(key) is None:
            raise InputError(
                f"{'.'.join((*path, key))!a:.100} is not a key of an agreement: use letters, digits, '-' and '_'"
            )
        if not _is_section(value):
            lines.append(f"{key} = {_encode_value(value, '.'.join((*path, key)))}")
    for key, value in tree.items():
        at = (*path, key)
        if isinstance(value, Mapping):
            lines += ["", f"[{'.'.join(at)}]"]
            _write_tree(lines, value, at)
        elif _is_section(value):
            for item in value:
                lines += ["", f"[[{'.'.join(at)}]]"]
                _write_tree(lines, item, at)


def _is_section(value: object) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return len(value) > 0 and all(isinstance(item, Mapping) for item in value)
    return isinstance(value, Mapping)


def _encode_value(value: object, where: str) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_encode_item(item, where) for item in value) + "]"
    return _encode_item(value, where)


def _encode_item(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value.bit_length() > _WIDEST:
            raise InputError(f"{where} is {value:.3g}; whole numbers of 64 bits are the largest")
        return str(value)
    if isinstance(value, str):
        rule = text_problem(value)
        if rule:
            raise InputError(f"{where} is {ascii(value)[:80]}; {rule}")
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    raise InputError(f"{where} is {value!r:.80}; an agreement contains texts, whole numbers, truth values, lists")


_PROPOSED = "`securevfl propose` wrote it, and propose again to change it"
_WRITERS = {"card": "`securevfl card` wrote it", "approval": "`securevfl approve` wrote it"}
"""Kind of file → what wrote it; all others are proposals."""


def decode_tree(raw: bytes, header: str, what: str) -> dict[str, Any]:
    """Parse bytes to a tree. The caller writes it again and compares: see `Proposal.decode`.

    Args:
        raw: as they came.
        header: the first line that they must have.
        what: they should be, for messages: ``"an agreement"``.

    Raises:
        InputError: too large, not UTF-8, lines of another shape, or not TOML.
    """
    if len(raw) > MOST_BYTES:
        raise InputError(f"{what} has {len(raw):,} bytes; at most {MOST_BYTES:,} are allowed")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{what} is in UTF-8; these bytes are not: take the file as it was sent") from None
    lines = text.split("\n")
    if lines[0] != header:
        raise InputError(f"{what} begins with the line {header!r}; this begins with {lines[0][:60]!a}")
    if len(lines) > _MOST_LINES:
        raise InputError(f"{what} has {len(lines):,} lines; at most {_MOST_LINES:,} are allowed")
    for i, line in enumerate(lines[1:], 2):
        if line and _TABLE.fullmatch(line) is None and _VALUE.fullmatch(line) is None:
            raise InputError(
                f"line {i} of {what} is {line[:60]!a}; it was written or changed by hand: take the file as "
                + next((text for name, text in _WRITERS.items() if name in what), _PROPOSED)
            )
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} is not valid TOML: {error!s:.200}") from None
