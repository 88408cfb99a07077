"""Limits on what one end of a session accepts from its peer, and on what it stores."""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_net.errors import InputError

__all__ = ["DEFAULT_SESSION_LIMITS", "OVERHEAD", "SessionLimits"]

OVERHEAD = 512
"""Bytes of window that each part costs in addition to its size: about the memory of its bookkeeping, so that a flood of
tiny parts fills the window before the memory.
"""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of a session, in bytes unless noted. Both ends need the same `part`.

    Attributes:
        part: of one part of a message.
        window: that the peer may send before this end's program reads them; each part costs its bytes and `OVERHEAD`.
        max_window: to which the window grows where both programs wait for room and neither reads.
        message: of one message.
        note: of one note or endorsement.
        control: frames that are taken between two calls of `SessionEnd.tick`, other than parts and acknowledgements of
            parts: each takes some microseconds, so that a flood of them is a tenth of a second in each.
        patience: ticks without any progress, both ends blocked at the largest window, after which they are deadlocked.

    Raises:
        InputError: a bound that the session cannot work under.
    """

    part: int = 1 << 20
    window: int = 32 << 20
    max_window: int = 256 << 20
    message: int = 1 << 30
    note: int = 64 << 10
    control: int = 20_000
    patience: int = 60

    def __post_init__(self) -> None:
        for name, least, most in (
            ("part", 1, 1 << 24),
            ("window", self.part + OVERHEAD, 1 << 40),
            ("max_window", self.window, 1 << 40),
            ("message", self.part, 1 << 40),
            ("note", 1, 64 << 10),
            ("control", 100, 1 << 40),
            ("patience", 1, 1 << 20),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(f"the session's {name} is {value}; it is between {least} and {most}")


DEFAULT_SESSION_LIMITS = SessionLimits()
