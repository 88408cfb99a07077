"""How long a party goes on: with a broken connection, with peers that do not come, and with the job as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from securevfl.errors import Expired

__all__ = ["Budgets"]


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """A party's patience, and the bounds of the agreement.

    Attributes:
        away: seconds that an attempt waits for a connection that broke, before it is parked.
        gather: seconds that a party waits for all its peers while nothing runs, before its process ends.
        seconds: most seconds of all attempts together.
        attempts: most attempts.
        expires: when the agreement ends; None for never.
    """

    away: float = 120.0
    gather: float = math.inf
    seconds: float = math.inf
    attempts: int = 1 << 31
    expires: datetime | None = None

    def check(self, *, attempt: int, used: float) -> None:
        """Refuse to go on.

        Args:
            attempt: number of the attempt that runs or begins.
            used: seconds of all attempts so far.

        Raises:
            Expired: one of the agreement's bounds is reached.
        """
        if self.expires is not None and datetime.now(UTC) > self.expires:
            raise Expired(f"the agreement ended on {self.expires:%Y-%m-%d %H:%M} UTC: propose and approve a new one")
        if attempt > self.attempts:
            raise Expired(
                f"this would be attempt {attempt}; the agreement allows {self.attempts}: propose and approve a new one"
            )
        if used > self.seconds:
            raise Expired(
                f"the attempts took {used:.0f} s; the agreement allows {self.seconds:.0f}: "
                "propose and approve a new one"
            )
