"""Columns that a user names on the command line: `late` in the table that has it, or `bank.late` in a party's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securevfl.errors import InputError, UnknownNameError

__all__ = ["assign_columns"]


def assign_columns(
    given: Sequence[str], columns: Mapping[str, Sequence[str]], option: str, *, everywhere: bool
) -> dict[str, tuple[str, ...]]:
    """Party → the columns that the user named, in the order given.

    A name that some table has is that column, points in it or not (`default.payment.next.month`); otherwise what stands
    before its first point is the party.

    Args:
        given: ``"late"``, ``"bank.late"``.
        columns: party → its columns.
        option: of the command, for messages.
        everywhere: whether every party must have each column that is named without a party, and as many as the others.

    Raises:
        UnknownNameError: no such column.
        InputError: parties with different numbers of columns.
    """
    found: dict[str, list[str]] = {party: [] for party in columns}
    for name in given:
        party, point, column = name.partition(".")
        if any(name in own for own in columns.values()) or not point or party not in columns:
            owners = list(columns) if everywhere else [one for one, own in columns.items() if name in own]
            wrong = next((one for one in owners if name not in columns[one]), None)
            if wrong is not None:
                raise UnknownNameError(f"{option}, column of {wrong!r}:", name, list(columns[wrong]))
            if not owners:
                every = sorted({column for own in columns.values() for column in own})
                raise UnknownNameError(f"{option}, column", name, every)
            for one in owners:
                found[one].append(name)
        elif column in columns[party]:
            found[party].append(column)
        else:
            raise UnknownNameError(f"{option}, column of {party!r}:", column, list(columns[party]))
    counts = {party: len(names) for party, names in found.items()}
    if everywhere and len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} of {party!r}" for party, count in counts.items())
        raise InputError(
            f"{option} names {shown}: name as many columns of each party, in one order: "
            f"{' '.join(f'{option} {party}.COLUMN' for party in columns)}"
        )
    return {party: tuple(names) for party, names in found.items()}
