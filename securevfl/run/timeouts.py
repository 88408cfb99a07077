"""How long a party waits with a broken connection, and for peers that do not come."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Timeouts"]


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Timeouts of a party.

    Attributes:
        away: seconds that an attempt waits for a connection that broke, before it is parked.
        gather: seconds that a party waits for all its peers while nothing runs, before its process ends.
    """

    away: float = 120.0
    gather: float = math.inf
