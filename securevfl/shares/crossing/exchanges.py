"""Every message of statistics on shares, declared before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from securevfl.shares.exchanges import INPUT, STATISTICS, share_exchanges
from securevfl.shares.two.exchanges import two_exchanges
from securevfl.transport import Exchange, Sight

__all__ = ["crossing_exchanges"]

_TRAINING = ("shares/width", "shares/plan", "shares/epoch", "shares/open metrics", "shares/open useful")
_TRAINING_OF_TWO = (*_TRAINING, "shares/open range")


def crossing_exchanges(
    passive: int, *, two: bool, helper: bool, reveals: str, sights: Sequence[Sight]
) -> tuple[Exchange, ...]:
    """Return the messages of statistics on shares: those of training but for its sizes, metrics and checks, and with
    one opening, of what is released.

    Args:
        passive: number of passive parties.
        two: whether two parties compute.
        helper: whether a helper deals to them.
        reveals: what the opening tells the active party.
        sights: the same, taken apart.
    """
    if not passive:
        return ()
    every = two_exchanges(passive, helper=helper) if two else share_exchanges(passive)
    left_out = _TRAINING_OF_TWO if two else _TRAINING
    found = []
    for one in every:
        if one.step in left_out:
            continue
        if one.step == INPUT:
            found.append(replace(one, words="shares of its rows"))
        elif one.step == "shares/open predictions":
            told = {"reveals": reveals, "severity": "note", "sights": tuple(sights)} if one.reveals else {}
            found.append(replace(one, step=STATISTICS, words="shares of the statistics", optional=True, **told))
        else:
            found.append(one)
    return tuple(found)
