"""How long a party waits with a broken connection, and for peers that do not come."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["STAY", "Timeouts"]

STAY = 600.0
"""Seconds that a party which is done stays for others unless told otherwise: time to start a machine again."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Timeouts of a party.

    Attributes:
        away: seconds that an attempt waits for a connection that broke, before it is parked.
        leaving: seconds after which this party signs that an absent peer is gone, if the agreement lets the job go on.
        gather: seconds that a party waits for all its peers while nothing runs, before its process ends.
        stay: seconds that a party with its result stays for peers that have not confirmed the end, since it last heard
            of the end from any of them.
    """

    away: float = 120.0
    leaving: float = math.inf
    gather: float = math.inf
    stay: float = STAY
