"""Rows that differ in how an identifier is written alone: reported, so that nobody loses them unnoticed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from securevfl_psi.identifiers import IdRules

from securevfl_psi_cli.summary import format_count
from securevfl_psi_cli.table import Table

__all__ = ["case_hint", "more_matches"]

_MOST = 1 << 18
"""Rows beyond which looking would take longer than what is told is worth: they are not compared, and not looked at."""
_OPTIONS = {"casefold": "--casefold", "squeeze": "--squeeze", "numeric": "--numeric"}


def more_matches(a: Table, b: Table, rules: IdRules) -> list[str]:
    """What other rules would find beside the common rows of two tables that are both here, a line for each option."""
    found: list[str] = []
    if len(a.ids) + len(b.ids) > _MOST:
        return found
    common = len(_normalised_texts(a, rules) & _normalised_texts(b, rules))
    for name, option in _OPTIONS.items():
        if getattr(rules, name):
            continue
        wider = replace(rules, **{name: True})  # type: ignore[arg-type]
        more = len(_normalised_texts(a, wider) & _normalised_texts(b, wider)) - common
        if more > 0:
            found.append(f"{option} would find {format_count(more, 'more common row')}")
    return found


def case_hint(table: Table, rules: IdRules) -> str:
    """What a party can see in its table: identifiers in both cases, which do not match what the peer writes in
    another one; empty if there are none."""
    if rules.casefold:
        return ""
    capital = small = 0
    looked = min(len(table.ids), _MOST)
    for row in range(looked):
        text = "".join(table.row_fields(row))
        capital += text != text.lower()
        small += text != text.upper()
    if not capital or not small or capital == small:  # one case, or every identifier has both, as a name has
        return ""
    return (
        f"{capital:,} of {format_count(looked, 'identifier')} here have capital letters and {small:,} small ones; what "
        "the peer writes in another case does not match: --casefold at both ignores case"
    )


def _normalised_texts(table: Table, rules: IdRules) -> set[tuple[str, ...]]:
    return {tuple(map(rules.apply, fields)) for fields in _iter_fields(table)}


def _iter_fields(table: Table) -> Iterable[tuple[str, ...]]:
    return (table.row_fields(row) for row in range(len(table.ids)))
