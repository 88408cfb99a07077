"""A party's own card from its party file: what the answers that its policy allows can give away of its table."""

from __future__ import annotations

from pathlib import Path

from securevfl.agreement import read_party_file
from securevfl.errors import InputError
from securevfl.report.record import OwnShareRecord
from securevfl.run.card_inputs import allowed_numbers
from securevfl.run.own_share import compute_own_share

__all__ = ["read_own_share"]


def read_own_share(
    party_file: str | Path, *, asker: str = "any one partner", numbers: int | None = None
) -> OwnShareRecord:
    """Compute a party's own card from its file. The table is read here; nothing is sent or written.

    Args:
        party_file: TOML; its policy bounds the numbers.
        asker: who is answered.
        numbers: a bound to try in the place of the policy's.

    Raises:
        InputError: a file with mistakes, a table that cannot be read, or a party without one.
    """
    own = read_party_file(party_file)
    if numbers is not None and numbers < 1:
        raise InputError(f"numbers is {numbers}; give 1 or more, or leave it out for the policy's own bound")
    table = own.read_table()
    if table is None:
        raise InputError(f"{own.path} names no table: only a party with one has something to give away")
    return compute_own_share(table, asker, allowed_numbers(own.policy) if numbers is None else numbers)
