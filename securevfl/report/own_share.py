"""A party's own card in words: how much of its table the answers that it allows can give away."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from securevfl.report.card import Standing
from securevfl.report.card_making import rate_numbers
from securevfl.report.record import OwnShareRecord

__all__ = ["describe_own_share", "own_shares_text", "rate_own_share"]

_HALF = 0.5
"""A larger share of a table's spread is as good as reading it."""

_KEEP = "From this party's own table: a statistic of it, for no other party's eyes."
_COLOURS = {"reads it": "bold red", "bounded": "yellow"}


def rate_own_share(own: OwnShareRecord) -> Standing:
    """*bounded* if the answers give away less than half of the spread, and are few beside the columns."""
    if own.share >= _HALF:
        return "reads it"
    return rate_numbers(None if own.numbers is None else max(own.numbers, own.used or 0), own.columns)


def describe_own_share(own: OwnShareRecord) -> str:
    """Say in a few sentences what a data-protection officer signs."""
    if own.numbers is None:
        return (
            f"Nothing bounds how many numbers about each row of {own.party} are given to {own.asker}: it can learn all "
            f"of your {own.columns} columns."
        )
    said = [] if own.used is None else [f"{own.used} so far"]
    said += [f"{own.granted} of them by grants"] if own.granted else []
    said += ["more than that under an earlier bound or grant"] if (own.used or 0) > own.numbers else []
    used = f" ({'; '.join(said)})" if said else ""
    count = "1 number" if own.numbers == 1 else f"{own.numbers} numbers"
    found = [f"About each row of {own.party}, {own.asker} is answered with at most {count}, ever{used}."]
    if own.known:
        found.append(
            f"An attacker who also has {own.known:,} of your rows in full learns at most about {own.share:.2f} of the "
            f"spread of your {own.columns} columns, on average over them, by the attacks that we know"
            + ("." if own.measured is None else f"; one number of an honest job gave {own.measured:.2f}.")
        )
    else:
        found.append("Your table has too few rows to say how much that is: count on all of it.")
    each = "one column" if own.numbers == 1 else "one column for each number"
    found.append(f"Of its choice it can learn up to all of {each}, or of several columns that have few values.")
    found.append("Partners who put together what they got add their numbers.")
    return " ".join(found)


def own_shares_text(found: Sequence[OwnShareRecord]) -> RenderableType:
    """The own card for the terminal; empty where there is none."""
    if not found:
        return Group()
    lines = [Text("What could your own table give away, at worst?", "bold")]
    for own in found:
        standing = rate_own_share(own)
        numbers = "no bound" if own.numbers is None else f"{own.numbers} of {own.columns} numbers"
        head = Text(f"{own.asker}: ").append(standing, _COLOURS[standing]).append(f", {numbers}")
        lines += [head, Text(f"  {describe_own_share(own)}")]
    return Group(*lines, Text(_KEEP, "dim"))
